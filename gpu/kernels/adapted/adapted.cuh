/* The bodies of op_adapted. */
#pragma once

#include "gpu/kernels/adapt/adapt.cuh"
#include "gpu/kernels/adapted/adapted.h"

/* Parts of k, whose sums stand apart in `sums`: [row][part][slice][rank room]. More of a long one,
 * where no more parts would want the room. */
__host__ __device__ static inline uint32_t inner_slices(const struct adapt_args &a)
{
    return a.k > 8192 && 2 * a.part_count <= ADAPT_PARTS ? 2 * ADAPT_SLICES : ADAPT_SLICES;
}

__host__ __device__ static inline size_t inner_sums(const struct adapt_args &a, uint32_t row,
                                                    uint32_t part, uint32_t slice)
{
    return ((size_t)row * ADAPT_PARTS * ADAPT_SLICES + part * inner_slices(a) + slice) *
           ADAPT_RANK_ROOM(a.rank_max);
}

/* The product may read x, and what the step made before, while A x is still made: the kernel of A x
 * says when that is there, as it has waited for it itself. It says so by the ADAPT's number, which
 * nothing of the step has had before: what makes the step's list makes the word 0, before it lets
 * any other start. */
__device__ __forceinline__ void x_tell(const struct adapt_args &a)
{
    if (blockIdx.x == 0 && threadIdx.x == 0)
        asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(adapt_x_word(a)), "r"(a.number)
                     : "memory");
}

/* A warp, of which a thread then copies x. Whom it waits for runs: the product may start when all
 * blocks of A x's kernel do. */
__device__ __forceinline__ void x_wait(const struct adapt_args &a)
{
    uint32_t number;
    do
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                     : "=r"(number)
                     : "l"(adapt_x_word(a))
                     : "memory");
    while (number != a.number);
    asm volatile("fence.proxy.async.global;" ::: "memory");
}

/* Of the namespace's dtype on sm_90, of x, weights, A and B. adapted_inner: A x, of each slice, to
 * `sums`; 0 between a rank and the next multiple of 16. */
#define ADAPTED_OF_HALF                                                                            \
    bool adapted_can(const struct matmul_args *product, const struct adapt_args *adapt);           \
    cudaError_t adapted_inner(const struct adapt_args *adapt, cudaStream_t stream);                \
    cudaError_t adapted_tiles(const struct matmul_args *product, const struct adapt_args *adapt,   \
                              cudaStream_t stream);
namespace bf16
{
ADAPTED_OF_HALF
}
namespace f16
{
ADAPTED_OF_HALF
}
