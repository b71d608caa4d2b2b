/* A block per scored position; two reads of the row, the second from the cache, and one more for
 * each of the likeliest that are asked for. */
#include "gpu/kernels/common/argmax.cuh"
#include "gpu/kernels/sampling/score.h"
#include "gpu/kernels/sampling/tops.cuh"

#define SCORE_THREADS 512

/* Whole block. */
__device__ __noinline__ static void score_tops(const struct score_args &a, uint32_t number,
                                               const float *logits, float whole, best *bests)
{
    const struct batch_row &row = a.batch_rows[a.token_row[a.tokens[number]]];
    uint32_t wanted = min(a.slots[row.slot].logprobs, GPU_LOGPROBS_MAX);
    struct gpu_top *tops = a.tops + (size_t)number * GPU_LOGPROBS_MAX;
    if (!(row.want & GPU_LOGPROBS))
        return;
    uint32_t count = write_tops<SCORE_THREADS>(logits, a.vocab, wanted, whole, tops, bests);
    for (uint32_t i = count + threadIdx.x; i < wanted; i += SCORE_THREADS)
        tops[i] = {-1, 0};
}

__global__ void __launch_bounds__(SCORE_THREADS) score_kernel(struct score_args a)
{
    __shared__ best bests[WARP];
    __shared__ float sums[WARP];
    grid_trigger();
    grid_wait();
    uint32_t row = blockIdx.x;
    if (row >= range_rows(a.rows))
        return;
    const float *logits = a.logits + (size_t)row * a.stride;
    best top = best_none();
    for (uint32_t i = threadIdx.x; i < a.vocab; i += blockDim.x)
        top = best_of(top, {logits[i], i});
    top = block_best(top, bests);
    float sum = 0;
    for (uint32_t i = threadIdx.x; i < a.vocab; i += blockDim.x) {
        float value = logits[i];
        sum += isnan(value) ? 0.0f : expf(value - top.value);
    }
    sum = block_sum(sum, sums);
    float whole = top.value + logf(sum);
    if (threadIdx.x == 0) {
        struct gpu_score score = {logits[a.targets[a.rows.first + row]] - whole, (int32_t)top.id,
                                  top.value - whole, 0};
        a.scores[a.rows.first + row] = score;
    }
    if (a.tops)
        score_tops(a, a.rows.first + row, logits, whole, bests);
}

cudaError_t op_score(const struct score_args *args, cudaStream_t stream)
{
    return launch(score_kernel, dim3(args->rows.max), SCORE_THREADS, 0, stream, *args);
}
