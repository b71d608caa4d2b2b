/* Decode attention on sm_90, of more than ATTENTION_FEW_ROWS rows; bound by memory.
 *
 * One block per SM, whose warps work each for itself on items (attention_plan.cuh), so that no warp
 * waits for another and memory is kept busy where sequences are short, too
 * (attention_decode_throughput.cuh).
 * What a block knows of the step, and keys and values that earlier steps wrote, are read while
 * op_rope ends.
 *
 * What bounds it: in long runs the memory; in short ones (of 256 tokens, an item per warp) the time
 * until the first keys come and behind the last ones, and where rows are unequally long what one
 * warp can do alone. Eight warps are few, so what they execute counts, the more the lower the
 * clocks are. For one sequence it is slow: its spans follow each other. Figures:
 * tests/bench/EXPERIMENTS.md. */
#include "gpu/kernels/attention/attention_decode_warps.cuh"

namespace HALF
{

cudaError_t attention_warps(const struct attention_args *args, const struct decode_scratch *scratch,
                            bool whole, cudaStream_t stream)
{
    return warps_launch_any<false>(args, scratch, whole, stream);
}

} // namespace HALF
