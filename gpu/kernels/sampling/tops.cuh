/* The likeliest tokens of a row, for the sampler and for scores. */
#pragma once

#include "gpu/gpu.h"
#include "gpu/kernels/common/argmax.cuh"

/* The n likeliest of a row, one read each: behind the one before in value, or in id. Whole block of
 * THREADS; returns how many there are. bests: one per warp. */
template <uint32_t THREADS>
__device__ __noinline__ uint32_t write_tops(const float *logits, uint32_t vocab,
                                                   uint32_t wanted, float whole,
                                                   struct gpu_top *tops,
                                                   best *bests)
{
    best before = {INFINITY, 0};
    bool first = true;
    for (uint32_t n = 0; n < wanted; n++) {
        best next = best_none();
        for (uint32_t i = threadIdx.x; i < vocab; i += THREADS) {
            float value = logits[i];
            if (first || value < before.value || (value == before.value && i > before.id))
                if (!isnan(value))
                    next = best_of(next, {value, i});
        }
        next = block_best(next, bests);
        if (next.id == UINT32_MAX)
            return n;
        if (threadIdx.x == 0) {
            tops[n].token = (int32_t)next.id;
            tops[n].logprob = next.value - whole;
        }
        before = next;
        first = false;
    }
    return wanted;
}
