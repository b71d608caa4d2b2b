/* How positions become angles: what a rotation of q and k is told of a model. Plain data. */
#pragma once

#include <stdint.h>

#define MODEL_HEAD_DIM_MAX 256
#define MODEL_ROPE_PAIRS_MAX (MODEL_HEAD_DIM_MAX / 2)
#define MODEL_CONTEXT_MAX 16777216

enum model_rope_kind {
    MODEL_ROPE_DEFAULT,
    MODEL_ROPE_LINEAR,
    MODEL_ROPE_LLAMA3,
    MODEL_ROPE_YARN,
    MODEL_ROPE_LONG,
};

/* Rotation of pair i (elements i and i + head_dim / 2 of a head) at position p:
 * angle = p * inverse_frequency[i] in float32, cosine and sine times `attention`. A pair whose
 * frequency is 0 is not turned, nor multiplied by that. */
struct model_rope {
    enum model_rope_kind kind;
    uint32_t pairs;  /* head_dim / 2 */
    float attention; /* 1 but for yarn and longrope */
    float inverse_frequency[MODEL_ROPE_PAIRS_MAX];
};
