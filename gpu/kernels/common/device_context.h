/* CUDA alone: what a device's context in this process reserves, and the end of it and of all that
 * was made in it. */
#pragma once

#include "gpu/kernels/common/kernel.h"

/* Of the current device, before the first engine of a context has steps: changing what it reserves
 * waits for what runs there. Later calls do nothing until device_reset(). Any thread. */
OP_C cudaError_t device_reserve(int device);
/* Of the current device; no other call on it until this returns. What launchers remember of it is
 * not true of the next context, which the next call makes. */
OP_C cudaError_t device_reset(int device);
