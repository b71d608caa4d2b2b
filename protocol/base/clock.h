/* Time. Logic takes it as a parameter (`now_us`), only the outermost turn asks the OS. */
#pragma once

#include <stdint.h>
#include <time.h>

typedef uint64_t time_us; /* microseconds of CLOCK_MONOTONIC; 0 means never */

static inline time_us clock_now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (time_us)now.tv_sec * 1000000u + (time_us)now.tv_nsec / 1000u;
}
