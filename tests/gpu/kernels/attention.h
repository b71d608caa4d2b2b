/* Attention as the engine runs it (angle, rope, attend) over inputs that are a function of slot and
 * position, and the same in plain doubles. */
#pragma once

#include "tests/gpu/kernels/scene.h"

#define ATTENTION_PAIRS_MAX 128

struct attention {
    uint32_t heads, kv_heads, head_dim, group, layer;
    enum dtype dtype;
    bool normed; /* q and k */
    float norm_offset;
    float factor;
    bool in_parts; /* norm, rotation, write and attention as ops of their own */
    float softcap; /* 0: none */
    uint32_t same_slot; /* slot same_slot - 1 has the inputs of slot 77; 0: none has */
    /* Made by attention_begin. */
    float frequency[ATTENTION_PAIRS_MAX];
    float q_weight[2 * ATTENTION_PAIRS_MAX], k_weight[2 * ATTENTION_PAIRS_MAX];
    void *device_frequency, *device_q_weight, *device_k_weight;
    void *qkv, *out, *angles; /* [SCENE_TOKENS_MAX] */
    uint32_t stride, out_stride;
};

void attention_begin(struct attention *attention);

/* Runs the scene's step (after scene_step) and gives [tokens][heads * head_dim]. */
void attention_run(const struct attention *attention, const struct scene *scene, float *ret_out);

/* One head of one token in doubles: [head_dim]. */
void attention_want(const struct attention *attention, uint32_t window, uint32_t slot,
                    uint32_t position, uint32_t head, double *ret_out);
