/* The elements of a weight of u4 or u8, all of them there, into the order in which the device's
 * kernels read them (gpu/kernels/common/whole.h), in place; once. Nothing to do for other weights,
 * and on the CPU device. */
#pragma once

#include "gpu/kernels/common/kernel.h"

OP_C cudaError_t op_repack(const struct weight *weight, cudaStream_t stream);
