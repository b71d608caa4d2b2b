/* A kernel that only takes time, on as little of the device as there is: for measuring what runs
 * beside what. Not of a step. */
#pragma once

#include "gpu/kernels/common/kernel.h"

/* One block, for so many nanoseconds of the device's clock. */
OP_C cudaError_t op_spin(uint64_t ns, cudaStream_t stream);
