/* Heap calls of a test program's own code, counted for each thread. The linker sends them here:
 * sluice_count_heap() in tests/CMakeLists.txt. */
#pragma once

#include <stdint.h>

extern _Thread_local uint64_t heap_calls;
