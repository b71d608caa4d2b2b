#include "gpu/kernels/attention/rope.h"

#include <math.h>

#include "gpu/kernels/attention/attention.h"
#include "gpu/kernels/attention/kv_place_cpu.h"
#include "gpu/kernels/cpu/body.h"

static void angle_token(const void *params, uint32_t token)
{
    const struct angle_args *args = params;
    if (token >= ((const struct batch_counts *)dev(args->batch.counts))->tokens)
        return;
    float position = (float)((const uint32_t *)dev(args->batch.token_position))[token];
    const float *frequency = dev(args->inverse_frequency);
    float *out = body_at(args->angles, DTYPE_F32, token, 2 * (size_t)args->pairs);
    for (uint32_t i = 0; i < args->pairs; i++) {
        float angle = position * frequency[i], factor = frequency[i] == 0 ? 1 : args->attention;
        out[2 * i] = cosf(angle) * factor;
        out[2 * i + 1] = sinf(angle) * factor;
    }
}

cudaError_t op_angle(const struct angle_args *args, cudaStream_t stream)
{
    return body_launch(stream, "angle", angle_token, args, sizeof *args, args->batch.tokens_max);
}

static void head_norm(float *head, uint32_t head_dim, const void *weight, enum dtype dtype,
                      float eps, float offset)
{
    float lanes[SIMD_LANES] = {0}, wide[ATTENTION_HEAD_DIM_MAX];
    simd_best()->squares(lanes, head, head_dim);
    float scale = 1.0f / sqrtf(simd_add_lanes(lanes) / (float)head_dim + eps);
    number_widen(wide, dev(weight), dtype, head_dim);
    for (uint32_t i = 0; i < head_dim; i++)
        head[i] = head[i] * scale * (offset + wide[i]);
}

static void rope_turn(float *head, const float *angles, uint32_t pairs)
{
    for (uint32_t i = 0; i < pairs; i++) {
        float cosine = angles[2 * i], sine = angles[2 * i + 1];
        float a = head[i], b = head[i + pairs];
        head[i] = a * cosine - b * sine;
        head[i + pairs] = b * cosine + a * sine;
    }
}

/* The token's K, or V, of one KV head. */
struct kv_part {
    uint64_t offset;
    float said; /* the checkpoint's scale */
};

static void kv_put(const struct batch *batch, const struct kv_layer *kv, struct kv_part part,
                   const float *x, uint32_t head_dim, enum dtype dtype, uint32_t token,
                   uint32_t head)
{
    const struct batch_row *rows = dev(batch->rows);
    uint32_t slot = rows[((const uint32_t *)dev(batch->token_row))[token]].slot;
    uint32_t position = ((const uint32_t *)dev(batch->token_position))[token];
    struct kv_place to = kv_place_of(batch, kv, head_dim, slot, position, head, part.offset);
    kv_store(&to, kv, x, head_dim, dtype, part.said);
}

static void rope_token(const void *params, uint32_t token)
{
    const struct rope_args *args = params;
    if (token >= ((const struct batch_counts *)dev(args->batch.counts))->tokens)
        return;
    float head[ATTENTION_HEAD_DIM_MAX];
    uint32_t dim = args->head_dim, heads = args->heads, kv_heads = args->kv_heads;
    const float *angles = body_at(args->angles, DTYPE_F32, token, dim);
    struct kv_part k = {args->kv.k, args->k_scale}, v = {args->kv.v, args->v_scale};
    char *qkv = body_at(args->qkv, args->dtype, token, args->stride);
    for (uint32_t h = 0; h < heads + 2 * kv_heads; h++) {
        void *at = number_at(qkv, args->dtype, (size_t)h * dim);
        const void *norm = h < heads ? args->q_norm : args->k_norm;
        number_widen(head, at, args->dtype, dim);
        if (h >= heads + kv_heads) {
            kv_put(&args->batch, &args->kv, v, head, dim, args->dtype, token, h - heads - kv_heads);
            continue;
        }
        if (norm)
            head_norm(head, dim, norm, args->norm_dtype, args->eps, args->norm_offset);
        rope_turn(head, angles, dim / 2);
        if (h < heads)
            number_round(at, head, args->dtype, dim);
        else
            kv_put(&args->batch, &args->kv, k, head, dim, args->dtype, token, h - heads);
    }
}

cudaError_t op_rope(const struct rope_args *args, cudaStream_t stream)
{
    if (args->head_dim > ATTENTION_HEAD_DIM_MAX || args->head_dim % 2)
        return cudaErrorInvalidValue;
    return body_launch(stream, "rope", rope_token, args, sizeof *args, args->batch.tokens_max);
}

/* ---- each part alone ---- */

static void head_norm_row(const void *params, uint32_t row)
{
    const struct head_norm_args *args = params;
    if (row >= body_rows(&args->rows))
        return;
    float head[ATTENTION_HEAD_DIM_MAX];
    void *x = body_at(args->x, args->dtype, row, args->stride);
    for (uint32_t h = 0; h < args->heads; h++) {
        void *at = number_at(x, args->dtype, (size_t)h * args->head_dim);
        number_widen(head, at, args->dtype, args->head_dim);
        head_norm(head, args->head_dim, args->weight, args->weight_dtype, args->eps, args->offset);
        number_round(at, head, args->dtype, args->head_dim);
    }
}

cudaError_t op_head_norm(const struct head_norm_args *args, cudaStream_t stream)
{
    if (args->head_dim > ATTENTION_HEAD_DIM_MAX)
        return cudaErrorInvalidValue;
    return body_launch(stream, "head_norm", head_norm_row, args, sizeof *args, args->rows.max);
}

static void rotate_row(const void *params, uint32_t row)
{
    const struct rotate_args *args = params;
    if (row >= body_rows(&args->rows))
        return;
    float head[ATTENTION_HEAD_DIM_MAX];
    uint32_t dim = args->head_dim;
    const float *angles = body_at(args->angles, DTYPE_F32, row, dim);
    for (uint32_t h = 0; h < args->heads + args->kv_heads; h++) {
        bool is_q = h < args->heads;
        void *x = body_at(is_q ? args->q : args->k, args->dtype, row,
                          is_q ? args->q_stride : args->k_stride);
        void *at = number_at(x, args->dtype, (size_t)(is_q ? h : h - args->heads) * dim);
        number_widen(head, at, args->dtype, dim);
        rope_turn(head, angles, dim / 2);
        number_round(at, head, args->dtype, dim);
    }
}

cudaError_t op_rotate(const struct rotate_args *args, cudaStream_t stream)
{
    if (args->head_dim > ATTENTION_HEAD_DIM_MAX || args->head_dim % 2)
        return cudaErrorInvalidValue;
    return body_launch(stream, "rotate", rotate_row, args, sizeof *args, args->rows.max);
}

static void kv_write_token(const void *params, uint32_t token)
{
    const struct kv_write_args *args = params;
    if (token >= ((const struct batch_counts *)dev(args->batch.counts))->tokens)
        return;
    float head[ATTENTION_HEAD_DIM_MAX];
    uint32_t dim = args->head_dim;
    const struct kv_part parts[] = {{args->kv.k, args->k_scale}, {args->kv.v, args->v_scale}};
    for (int part = 0; part < 2; part++) {
        const void *x = part ? body_at(args->v, args->dtype, token, args->v_stride)
                             : body_at(args->k, args->dtype, token, args->k_stride);
        for (uint32_t h = 0; h < args->kv_heads; h++) {
            number_widen(head, number_at(x, args->dtype, (size_t)h * dim), args->dtype, dim);
            kv_put(&args->batch, &args->kv, parts[part], head, dim, args->dtype, token, h);
        }
    }
}

cudaError_t op_kv_write(const struct kv_write_args *args, cudaStream_t stream)
{
    if (args->head_dim > ATTENTION_HEAD_DIM_MAX)
        return cudaErrorInvalidValue;
    return body_launch(stream, "kv_write", kv_write_token, args, sizeof *args,
                       args->batch.tokens_max);
}
