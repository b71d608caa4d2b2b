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
