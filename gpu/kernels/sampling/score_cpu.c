#include "gpu/kernels/sampling/score.h"

#include <math.h>

#include "gpu/kernels/cpu/body.h"
#include "gpu/kernels/cpu/choose.h"
#include "gpu/kernels/sampling/tops_cpu.h"

static void score_tops(const struct score_args *args, size_t number, const float *logits,
                       float greatest, float log_sum)
{
    uint32_t token = ((const uint32_t *)dev(args->tokens))[number];
    uint32_t from = ((const uint32_t *)dev(args->token_row))[token];
    const struct batch_row *row = (const struct batch_row *)dev(args->batch_rows) + from;
    const struct batch_slot *slot = (const struct batch_slot *)dev(args->slots) + row->slot;
    struct gpu_top *tops = (struct gpu_top *)dev(args->tops) + number * GPU_LOGPROBS_MAX;
    if (!(row->want & GPU_LOGPROBS))
        return;
    uint32_t count = tops_find(logits, args->vocab, slot->logprobs, tops);
    for (uint32_t i = 0; i < count; i++)
        tops[i].logprob = logits[tops[i].token] - greatest - log_sum;
    for (uint32_t i = count; i < slot->logprobs && i < GPU_LOGPROBS_MAX; i++)
        tops[i] = (struct gpu_top){.token = -1};
}

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
    if (args->tops)
        score_tops(args, at, logits, logits[best], log_sum);
}

cudaError_t op_score(const struct score_args *args, cudaStream_t stream)
{
    return body_launch(stream, "score", score_index, args, sizeof *args, args->rows.max);
}
