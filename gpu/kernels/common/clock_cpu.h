/* The CPU device's clock, as kernels read it. A simulation puts its own in place, before any engine
 * starts; NULL puts the system's back. Nanoseconds that only go forward. */
#pragma once

#include <stdint.h>

void clock_set(uint64_t (*clock_ns)(void));
uint64_t clock_now_ns(void);
