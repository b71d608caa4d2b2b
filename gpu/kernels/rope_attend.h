/* op_rope, then op_attend: same results in the cache and in `out`, to the bit. Of rows of single
 * tokens the CUDA device turns queries where it attends, and then leaves q as it was.
 *
 * CUDA: the launch before it on the stream lets the next one start only after its own wait, as
 * op_product does: the batch, the angles and the cache are read before this one's. */
#pragma once

#include "gpu/kernels/attend.h"
#include "gpu/kernels/rope.h"

OP_C cudaError_t op_rope_attend(const struct rope_args *rope, const struct attend_args *attend,
                                cudaStream_t stream);
