/* A block per scored position; two reads of the row, the second from the cache. */
#include "gpu/kernels/common/argmax.cuh"
#include "gpu/kernels/sampling/score.h"

#define SCORE_THREADS 512

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
    if (threadIdx.x == 0) {
        float whole = top.value + logf(sum);
        struct gpu_score score = {logits[a.targets[a.rows.first + row]] - whole, (int32_t)top.id,
                                  top.value - whole, 0};
        a.scores[a.rows.first + row] = score;
    }
}

cudaError_t op_score(const struct score_args *args, cudaStream_t stream)
{
    return launch(score_kernel, dim3(args->rows.max), SCORE_THREADS, 0, stream, *args);
}
