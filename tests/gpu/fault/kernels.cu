#include "tests/gpu/fault/fault.h"

#include <stdint.h>

#define SPIN_NS 60000000000ull /* for ever, as far as a test can tell; the GPU is somebody's */

__global__ void trap_kernel()
{
    asm volatile("trap;");
}

__device__ static uint64_t now_ns()
{
    uint64_t now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    return now;
}

__global__ void spin_kernel()
{
    uint64_t begin = now_ns();
    while (now_ns() - begin < SPIN_NS)
        __nanosleep(1000);
}

cudaError_t fault_trap(cudaStream_t stream)
{
    trap_kernel<<<1, 1, 0, stream>>>();
    return cudaGetLastError();
}

cudaError_t fault_spin(cudaStream_t stream)
{
    spin_kernel<<<1, 1, 0, stream>>>();
    return cudaGetLastError();
}

/* ---- for compute-sanitizer ---- */

__global__ void planted_overrun_kernel(char *at, size_t bytes)
{
    *reinterpret_cast<volatile unsigned *>(at + bytes) = 1;
}

__global__ void gemm_race_kernel(volatile unsigned *at)
{
    __shared__ volatile unsigned word[2];
    if (threadIdx.x == 0)
        word[1] = 5;
    if (threadIdx.x == 63) /* of the other warp */
        *at = word[1];
}

__global__ void planted_unwritten_kernel(volatile unsigned *at)
{
    at[1] = at[0] + 1;
}

/* All of a warp, for half of it: who is not named must not come. */
__global__ void planted_barrier_kernel(volatile unsigned *at)
{
    unsigned half = __ballot_sync(0xffffffffu, threadIdx.x % 32 < 16);
    *at = threadIdx.x;
    __syncwarp(half);
    *at = threadIdx.x + 1;
}

cudaError_t fault_overrun(void *at, size_t bytes, cudaStream_t stream)
{
    planted_overrun_kernel<<<1, 1, 0, stream>>>(static_cast<char *>(at), bytes);
    return cudaGetLastError();
}

cudaError_t fault_race(void *at, cudaStream_t stream)
{
    gemm_race_kernel<<<1, 64, 0, stream>>>(static_cast<unsigned *>(at));
    return cudaGetLastError();
}

cudaError_t fault_unwritten(void *at, cudaStream_t stream)
{
    planted_unwritten_kernel<<<1, 1, 0, stream>>>(static_cast<unsigned *>(at));
    return cudaGetLastError();
}

cudaError_t fault_barrier(void *at, cudaStream_t stream)
{
    planted_barrier_kernel<<<1, 64, 0, stream>>>(static_cast<unsigned *>(at));
    return cudaGetLastError();
}
