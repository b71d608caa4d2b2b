/* What the emulated device does: copies, fills, kernels, host functions. Compiled with whatever
 * sanitizer the build has, unlike the bookkeeping: these accesses are the program's own. */
#pragma once

#include "gpu/emu/stream.h"

void work_run(struct CUstream_st *stream, const struct work *work);

void work_fill(void *dst, int value, size_t bytes);
