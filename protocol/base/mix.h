/* The last step of splitmix64: of numbers that are alike, ones that are not. No secret. */
#pragma once

#include <stdint.h>

static inline uint64_t mix64(uint64_t value)
{
    value = (value ^ value >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ value >> 27) * UINT64_C(0x94d049bb133111eb);
    return value ^ value >> 31;
}
