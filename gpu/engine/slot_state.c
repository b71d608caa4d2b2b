#include "gpu/engine/slot_state.h"

#include <string.h>

#include "gpu/kernels/attention/attention.h"
#include "gpu/memory/arena.h"

static void groups_cut(struct arena *cutter, struct batch *batch, const struct gpu_model *model,
                       const struct gpu_group *groups, const struct gpu_limits *limits)
{
    uint32_t blocks_max = (limits->context_max + model->block_tokens - 1) / model->block_tokens;
    for (uint32_t i = 0; i < model->group_count; i++) {
        const struct gpu_group *group = &groups[i];
        batch->groups[i] = (struct batch_group){
            .tables = cut(cutter, sizeof(uint32_t) * limits->slots_max * blocks_max),
            .slabs = cut(cutter, sizeof(void *) * group->slabs_max),
            .block_bytes = group->block_bytes,
            .blocks_max = blocks_max,
            .slab_blocks = group->slab_blocks,
            .window = group->window,
        };
    }
}

static void batch_cut(struct arena *cutter, struct batch *batch, const struct gpu_model *model,
                      const struct gpu_group *groups, const struct gpu_limits *limits)
{
    uint64_t rows = limits->rows_max, tokens = limits->tokens_max, slots = limits->slots_max;
    *batch = (struct batch){
        .counts = cut(cutter, sizeof *batch->counts),
        .rows = cut(cutter, sizeof *batch->rows * rows),
        .token_id = cut(cutter, sizeof *batch->token_id * tokens),
        .token_row = cut(cutter, sizeof *batch->token_row * tokens),
        .token_position = cut(cutter, sizeof *batch->token_position * tokens),
        .sample_row = cut(cutter, sizeof *batch->sample_row * rows),
        .sample_token = cut(cutter, sizeof *batch->sample_token * rows),
        .score_token = cut(cutter, sizeof *batch->score_token * limits->scores_max),
        .score_target = cut(cutter, sizeof *batch->score_target * limits->scores_max),
        .embeds = cut(cutter, sizeof *batch->embeds * limits->embeds_max),
        .moves = cut(cutter, sizeof *batch->moves * limits->moves_max),
        .slots = cut(cutter, sizeof *batch->slots * slots),
        .bias = cut(cutter, sizeof *batch->bias * slots * GPU_BIAS_MAX),
        .pool = cut(cutter, sizeof *batch->pool * slots * model->hidden),
        .next_item = cut(cutter, sizeof *batch->next_item),
        .block_tokens = model->block_tokens,
        .rows_max = limits->rows_max,
        .tokens_max = limits->tokens_max,
        .samples_max = limits->rows_max,
        .scores_max = limits->scores_max,
        .embeds_max = limits->embeds_max,
        .moves_max = limits->moves_max,
        .q_len_max = limits->tokens_max,
        .decode_len_max = ATTENTION_DECODE_MAX,
        .prefill_rows_max = limits->rows_max,
        .prefill_tokens_max = limits->tokens_max,
        .prefill_context_max = limits->context_max,
        .prefill_keys_max = rows * limits->context_max,
        .prefill_pairs_max = tokens * limits->context_max,
        .context_max = limits->context_max,
    };
    groups_cut(cutter, batch, model, groups, limits);
}

static uint64_t state_cut(struct state *state, char *base, const struct gpu_model *model,
                          const struct gpu_group *groups, const struct gpu_limits *limits)
{
    struct arena cutter = {.base = base};
    batch_cut(&cutter, &state->batch, model, groups, limits);
    state->control = cut(&cutter, sizeof *state->control);
    state->samples = cut(&cutter, sizeof *state->samples * limits->rows_max);
    state->tops = cut(&cutter, sizeof *state->tops * limits->rows_max * GPU_LOGPROBS_MAX);
    return cutter.at;
}

int state_open(struct state *state, struct mem *mem, const struct gpu_model *model,
               const struct gpu_group *groups, const struct gpu_limits *limits, struct error *error)
{
    memset(state, 0, sizeof *state);
    uint64_t bytes = state_cut(state, NULL, model, groups, limits);
    int status = mem_fixed(mem, bytes, &state->memory, error);
    if (status)
        return status;
    state->memory_bytes = bytes;
    state->seen_bytes = sizeof *state->batch.seen * (uint64_t)limits->slots_max * model->vocab;
    (void)state_cut(state, state->memory, model, groups, limits);
    return 0;
}

int state_seen_take(struct state *state, struct mem *mem, struct error *error)
{
    if (state->batch.seen)
        return 0;
    void *seen = NULL;
    int status = mem_scratch(mem, state->seen_bytes, &seen, error);
    if (!status)
        state->batch.seen = seen;
    return status;
}

int state_seen_give(struct state *state, struct mem *mem, struct error *error)
{
    if (!state->batch.seen)
        return 0;
    int status = mem_scratch_free(mem, state->batch.seen, state->seen_bytes, error);
    if (!status)
        state->batch.seen = NULL;
    return status;
}

int state_kept_take(struct state *state, struct mem *mem, struct error *error)
{
    if (state->kept)
        return 0;
    void *kept = NULL;
    int status = mem_scratch(mem, state->kept_bytes, &kept, error);
    if (!status)
        state->kept = kept;
    return status;
}

int state_kept_give(struct state *state, struct mem *mem, struct error *error)
{
    if (!state->kept)
        return 0;
    int status = mem_scratch_free(mem, state->kept, state->kept_bytes, error);
    if (!status)
        state->kept = NULL;
    return status;
}
