/* cap * tanh(x / cap), of what is infinite NaN: what overflowed must not pass for a number. */
#pragma once

#include "gpu/kernels/common/device.cuh"

__device__ __forceinline__ float softcap_of(float x, float cap)
{
    return cap * tanhf(x / cap) + (x - x);
}

/* Scores as the powers of two that weights are of: times `unit`, or, with a cap, through tanh by
 * two instructions of the special unit (an error of 1e-7 of the cap) and times 1. */
struct score_scale {
    float unit, inner, outer;
};

template <bool CAP>
__device__ __forceinline__ score_scale score_scale_of(float scale, float softcap)
{
    const float log2e = 1.4426950408889634f;
    score_scale out = {scale * log2e, 0, 0};
    if (CAP)
        out = {1, 2 * log2e * scale / softcap, softcap * log2e};
    return out;
}

__device__ __forceinline__ float reciprocal_fast(float value)
{
    float out;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(value));
    return out;
}

__device__ __forceinline__ float score_capped(float score, const score_scale &scale)
{
    float power = exp2_fast(score * scale.inner);
    return fmaf(-2 * scale.outer, reciprocal_fast(1 + power), scale.outer) + (score - score);
}
