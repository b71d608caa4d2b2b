/* CUDA alone: the end of a device's context in this process, and of all that was made in it. */
#pragma once

#include "gpu/kernels/common/kernel.h"

/* Of the current device; no other call on it until this returns. What launchers remember of it is
 * not true of the next context, which the next call makes. */
OP_C cudaError_t device_reset(int device);
