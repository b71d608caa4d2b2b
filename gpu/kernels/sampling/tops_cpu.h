/* The likeliest tokens of a row, for the sampler's and the scores' CPU bodies. */
#pragma once

#include "gpu/gpu.h"

/* The n likeliest, by insertion: a token enters behind those that are as likely. Their
 * log-probabilities are the caller's. */
static inline uint32_t tops_find(const float *logits, uint32_t vocab, uint32_t wanted,
                                 struct gpu_top *tops)
{
    uint32_t count = 0;
    wanted = wanted < GPU_LOGPROBS_MAX ? wanted : GPU_LOGPROBS_MAX;
    for (uint32_t i = 0; wanted && i < vocab; i++) {
        float logit = logits[i];
        if (!(logit == logit) || (count == wanted && logit <= logits[tops[count - 1].token]))
            continue;
        uint32_t at = count < wanted ? count++ : count - 1;
        for (; at && logits[tops[at - 1].token] < logit; at--)
            tops[at] = tops[at - 1];
        tops[at].token = (int32_t)i;
    }
    return count;
}
