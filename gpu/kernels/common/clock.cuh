/* The device's clock, in nanoseconds that only go forward. */
#pragma once

#include <stdint.h>

__device__ __forceinline__ uint64_t clock_now_ns()
{
    uint64_t now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    return now;
}
