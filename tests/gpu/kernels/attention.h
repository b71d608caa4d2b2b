/* Attention as the engine runs it (angle, rope, attend) over inputs that are a function of slot and
 * position, and the same in plain doubles. */
#pragma once

#include "tests/gpu/kernels/scene.h"

#define ATTENTION_PAIRS_MAX 128
#define ATTENTION_HEADS_MAX 64

/* What attention_want may do wrong with scales and sinks, to show that it would be seen. */
enum attention_mistake {
    ATTENTION_RIGHT,
    ATTENTION_HEAD_BESIDE,  /* the scale of the KV head beside */
    ATTENTION_TOKEN_BESIDE, /* of the position before */
    ATTENTION_K_FOR_V,
    ATTENTION_BLOCK_BEFORE, /* of a block that is not the one that the elements are in */
    ATTENTION_NO_SINK,
    ATTENTION_SINK_BESIDE, /* of the head beside */
    ATTENTION_MISTAKES
};

struct attention {
    uint32_t heads, kv_heads, head_dim, group, layer;
    enum dtype dtype;
    bool normed; /* q and k */
    float norm_offset;
    float factor;
    bool in_parts; /* norm, rotation, write and attention as ops of their own */
    float softcap; /* 0: none */
    bool sinks;
    bool invariant; /* in kernels of one order */
    /* As the scene has them. In E4M3 the heads of K and V are of unlike size, each token's. */
    enum format kv_format;
    float k_scale, v_scale;
    enum attention_mistake mistake; /* of attention_want */
    int exponents[3];               /* q, k and v are multiplied by these powers of two */
    uint32_t infinite; /* position whose element infinite_element is infinite; 0: none has one */
    uint32_t infinite_element; /* of the fused row */
    bool little;               /* scratch for an eighth of the splits' results */
    bool pairs;                /* rows of results stand at even places, not at multiples of eight */
    uint32_t same_slot;        /* slot same_slot - 1 has the inputs of slot 77; 0: none has */
    /* Made by attention_begin. */
    float frequency[ATTENTION_PAIRS_MAX];
    float q_weight[2 * ATTENTION_PAIRS_MAX], k_weight[2 * ATTENTION_PAIRS_MAX];
    float sink[ATTENTION_HEADS_MAX];
    void *device_frequency, *device_q_weight, *device_k_weight, *device_sinks;
    void *qkv, *out, *angles; /* [SCENE_TOKENS_MAX] */
    uint32_t stride, out_stride;
};

void attention_begin(struct attention *attention);

/* Writes the K and V of the scene's step (after scene_step) alone. */
void attention_write(const struct attention *attention, const struct scene *scene);

/* Runs the scene's step (after scene_step) and gives [tokens][heads * head_dim]. */
void attention_run(const struct attention *attention, const struct scene *scene, float *ret_out);

/* One head of one token in doubles: [head_dim]. */
void attention_want(const struct attention *attention, uint32_t window, uint32_t slot,
                    uint32_t position, uint32_t head, double *ret_out);
