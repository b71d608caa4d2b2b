/* The activation of one value, for the kernel of that name and for the products that do it behind
 * themselves. */
#pragma once

#include "gpu/kernels/activation/activation.h"

/* What f(x) = x / (1 + exp(y)) has for y, see activation.h. */
template <enum activation KIND> __device__ __forceinline__ float activation_exponent(float x)
{
    if (KIND == ACTIVATE_SILU)
        return -x;
    return x * __fmaf_rn(-0.0713548163f * x, x, -1.59576912f);
}

/* The fast functions are off by some 2^-20 of the result at most; from an exponent of about 87 on,
 * where it is below 2^-118, they give 0. */
template <enum activation KIND> __device__ __forceinline__ float activated(float x)
{
    return __fdividef(x, 1.0f + __expf(activation_exponent<KIND>(x)));
}
