#include "gpu/kernels/common/clock_cpu.h"

#include <stddef.h>
#include <time.h>

static uint64_t (*clock_other)(void);

void clock_set(uint64_t (*clock_ns)(void))
{
    clock_other = clock_ns;
}

uint64_t clock_now_ns(void)
{
    if (clock_other)
        return clock_other();
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
