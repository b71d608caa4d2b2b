/* Rotary embedding of q and k, and the write of K and V into the cache.
 *
 * op_angle runs once per step, op_rope once per layer. Per token and head: RMSNorm of q and k where
 * the model has it (Qwen3); then for pair i of head_dim / 2, elements (i, i + head_dim / 2):
 *     (a, b) -> (a * cos - b * sin, b * cos + a * sin)
 * with cos and sin of position * inverse_frequency[i], times the attention factor; where that is 0,
 * the pair is neither turned nor multiplied. q is rounded
 * once, where it is stored, in place; K and V go to the blocks of the row's slot and are not
 * written back. */
#pragma once

#include "gpu/kernels/common/batch.h"

struct angle_args {
    struct batch batch;
    const float *inverse_frequency; /* [pairs], fixed memory */
    float attention;
    uint32_t pairs;
    float *angles; /* [tokens_max][pairs][2]: cos, sin */
};

struct rope_args {
    struct batch batch;
    struct kv_layer kv;
    void *qkv; /* [tokens_max][stride]: q [heads][head_dim], k and v [kv_heads][head_dim] each */
    uint32_t stride;
    enum dtype dtype;
    uint32_t heads, kv_heads, head_dim; /* of this rank */
    float k_scale; /* of K in e4m3, as the checkpoint says; 0: it does not. v_scale likewise */
    const float *angles;
    const void *q_norm, *k_norm; /* [head_dim]; NULL: none */
    enum dtype norm_dtype;
    float eps, norm_offset; /* of the norms' weights: 0, or 1 */
    float v_scale;
};

OP_C cudaError_t op_angle(const struct angle_args *args, cudaStream_t stream);
OP_C cudaError_t op_rope(const struct rope_args *args, cudaStream_t stream);

/* The three parts of op_rope, for layers that are built otherwise. Each rounds what it stores, so
 * in 16 bits the results are not op_rope's to the bit; in float32 they are. */

/* RMSNorm of each head, in place. */
struct head_norm_args {
    struct row_range rows;
    void *x; /* [max][stride]: heads * head_dim of each row */
    uint32_t stride, heads, head_dim;
    enum dtype dtype;
    const void *weight; /* [head_dim] */
    enum dtype weight_dtype;
    float eps, offset; /* of the weight: 0, or 1 */
};

/* Rotation of q and k, in place. */
struct rotate_args {
    struct row_range rows;
    void *q, *k; /* [max][q_stride], [max][k_stride] */
    uint32_t q_stride, k_stride, heads, kv_heads, head_dim;
    enum dtype dtype;
    const float *angles; /* as op_angle gives them */
};

/* K and V to the blocks of their rows' slots. */
struct kv_write_args {
    struct batch batch;
    struct kv_layer kv;
    const void *k, *v; /* [tokens_max][k_stride], [tokens_max][v_stride] */
    uint32_t k_stride, v_stride, kv_heads, head_dim;
    enum dtype dtype;
    float k_scale, v_scale; /* as in rope_args */
};

OP_C cudaError_t op_head_norm(const struct head_norm_args *args, cudaStream_t stream);
OP_C cudaError_t op_rotate(const struct rotate_args *args, cudaStream_t stream);
OP_C cudaError_t op_kv_write(const struct kv_write_args *args, cudaStream_t stream);
