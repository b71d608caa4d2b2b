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
 * tests/bench/EXPERIMENTS.md.
 *
 * Where bits may not depend on how a sequence was cut into rows, prompts go this way too, sixteen
 * queries to an item: a query meets the same spans and splits in the same order in a row of one
 * token and in a long one, and those that it does not see leave its sums as they are (weights of 0,
 * factors of 1). */
#include "gpu/kernels/attention/attention_decode_warps.cuh"
#include "gpu/kernels/attention/attention_tuned.cuh"

namespace HALF
{

cudaError_t attention_warps(const struct attention_args *args, const struct decode_scratch *scratch,
                            bool whole, cudaStream_t stream)
{
    return warps_launch_any<false>(args, scratch, whole, stream);
}

/* Records are for steps of short rows alone: those of a prompt would be many, and it has items
 * enough without them. Without room for any, rows of several splits are attended whole. */
cudaError_t attention_invariant(const struct attention_args *args, cudaStream_t stream)
{
    const struct batch &batch = args->batch;
    struct decode_scratch scratch = attention_decode_scratch(args);
    const bool splits = batch.context_max > ATTENTION_SPLIT;
    const bool shorts = batch.q_len_max <= ATTENTION_DECODE_MAX && scratch.row_record;
    const size_t record = sizeof(float2) + sizeof(float) * args->head_dim;
    bool whole = splits && record_bytes(&batch, args->heads, args->head_dim) >
                               scratch.capacity * record;
    if (splits && !shorts) {
        scratch = {};
        whole = true;
    }
    cudaError_t result = attention_warps(args, &scratch, whole, stream);
    if (result != cudaSuccess || !splits || !shorts)
        return result;
    return attention_combine(args, &scratch, stream);
}

} // namespace HALF
