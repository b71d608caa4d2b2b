#include "gpu/kernels/sampling/score.h"

#include <math.h>

#include "gpu/kernels/cpu/body.h"
#include "gpu/kernels/cpu/choose.h"

static void score_index(const void *params, uint32_t index)
{
    const struct score_args *args = params;
    if (index >= body_rows(&args->rows))
        return;
    const float *logits = body_at(args->logits, DTYPE_F32, index, args->stride);
    size_t at = (size_t)args->rows.first + index;
    uint32_t target = (uint32_t)((const int32_t *)dev(args->targets))[at];
    uint32_t best = choose_greatest(logits, args->vocab);
    float lanes[SIMD_LANES] = {0};
    simd_best()->exps(lanes, NULL, logits, logits[best], args->vocab);
    float log_sum = logf(simd_add_lanes(lanes));
    ((struct gpu_score *)dev(args->scores))[at] = (struct gpu_score){
        .logprob = logits[target] - logits[best] - log_sum,
        .top_token = (int32_t)best,
        .top_logprob = -log_sum,
    };
}

cudaError_t op_score(const struct score_args *args, cudaStream_t stream)
{
    return body_launch(stream, "score", score_index, args, sizeof *args, args->rows.max);
}
