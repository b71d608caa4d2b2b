/* The bodies of attention for one 16-bit dtype (narrow.cuh), each with what it can be used for.
 * They take the rows of `which`, or those that they are named for, and leave the others alone. */
#pragma once

#include "gpu/kernels/attend.cuh"
#include "gpu/kernels/narrow.cuh"

namespace NARROW
{

bool attend_decode_can(const struct attend_args *args);
cudaError_t attend_decode(const struct attend_args *args, cudaStream_t stream);
bool attend_prefill_can(const struct attend_args *args);
cudaError_t attend_prefill(const struct attend_args *args, uint32_t which, cudaStream_t stream);
bool attend_wgmma_can(const struct attend_args *args);
cudaError_t attend_wgmma(const struct attend_args *args, cudaStream_t stream);

} // namespace NARROW
