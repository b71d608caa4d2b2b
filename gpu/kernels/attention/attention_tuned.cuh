/* The bodies of attention for one 16-bit dtype (half.cuh), each with what it can be used for.
 * They take the rows of `which`, or those that they are named for, and leave the others alone. */
#pragma once

#include "gpu/kernels/attention/attention.cuh"
#include "gpu/kernels/common/half.cuh"

struct prefill_spans;

namespace HALF
{

bool attention_decode_latency_can(const struct attention_args *args);
cudaError_t attention_decode_latency(const struct attention_args *args, cudaStream_t stream);
/* All rows in one way, see attention_decode_throughput.cu; of what attention_decode_latency can. */
cudaError_t attention_invariant(const struct attention_args *args, cudaStream_t stream);
bool attention_decode_eight_can(const struct attention_args *args);
cudaError_t attention_decode_eight(const struct attention_args *args, cudaStream_t stream);
bool attention_prefill_can(const struct attention_args *args);
cudaError_t attention_prefill(const struct attention_args *args, uint32_t which,
                              cudaStream_t stream);
bool attention_prefill_wgmma_can(const struct attention_args *args);
cudaError_t attention_prefill_wgmma(const struct attention_args *args, cudaStream_t stream);
/* What that one left to be put together. */
cudaError_t attention_prefill_combine(const struct attention_args *args,
                                      const struct prefill_spans *spans, cudaStream_t stream);

} // namespace HALF
