/* SwiGLU of one value, for the kernel of that name and for the products that do it behind
 * themselves. */
#pragma once

/* silu(gate) * up. The fast functions are off by some 2^-20 of the result at most; from a gate of
 * about -87 on, where it is below 2^-118, they give 0. */
__device__ __forceinline__ float gated(float gate, float up)
{
    return __fdividef(gate, 1.0f + __expf(-gate)) * up;
}
