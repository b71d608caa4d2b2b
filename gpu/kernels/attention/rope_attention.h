/* op_rope, then op_attention: same results in the cache and in `out`, to the bit; but on the CUDA
 * device sums of `out` may be added up in another order where a KV head has more than eight
 * queries, and where keys and values are in e4m3. Of rows of single tokens the CUDA device turns
 * queries where it attends, and then leaves q as it was.
 *
 * CUDA: the launch before it on the stream lets the next one start only after its own wait, as
 * op_matmul does: the batch, the angles and the cache are read before this one's. */
#pragma once

#include "gpu/kernels/attention/attention.h"
#include "gpu/kernels/attention/rope.h"

OP_C cudaError_t op_rope_attention(const struct rope_args *rope,
                                   const struct attention_args *attend, cudaStream_t stream);
