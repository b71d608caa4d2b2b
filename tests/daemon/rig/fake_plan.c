#include "tests/daemon/rig/fake_inner.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/sched/kv.h"

static void *copy(const void *from, size_t count, size_t size)
{
    void *to = malloc(count * size + 1);
    if (count > 0)
        memcpy(to, from, count * size);
    return to;
}

void fake_step_free(struct fake_step *step)
{
    free((void *)step->plan.closes);
    free((void *)step->plan.moves);
    free((void *)step->plan.slabs);
    free((void *)step->plan.opens);
    free((void *)step->plan.appends);
    free((void *)step->plan.rows);
    free((void *)step->plan.ids);
    free((void *)step->plan.bias);
    free(step->samples);
    free(step->tops);
    free(step->scores);
    free(step->score_tops);
    free(step->rows);
    for (uint32_t j = 0; j < GPU_DRAFTS_MAX; j++)
        free(step->guesses[j]);
    memset(step, 0, sizeof(*step));
}

void fake_check_bounds(struct gpu_engine *engine, const struct gpu_plan *plan)
{
    const struct gpu_limits *limits = &engine->limits;
    if (plan->step != engine->submitted + 1)
        fake_fail(engine, "step %lu after %lu", (unsigned long)plan->step,
                  (unsigned long)engine->submitted);
    if (engine->submitted - engine->completed >= limits->depth)
        fake_fail(engine, "too many steps in flight");
    if (plan->close_count > limits->slots_max || plan->move_count > limits->moves_max ||
        plan->slab_count > limits->slabs_max || plan->open_count > limits->opens_max ||
        plan->append_count > limits->appends_max || plan->row_count > limits->rows_max ||
        plan->id_count > limits->ids_max || plan->bias_count > limits->bias_max ||
        plan->token_count > limits->tokens_max || plan->row_count == 0)
        fake_fail(engine, "step %lu is over the limits", (unsigned long)plan->step);
}

static void check_block(struct gpu_engine *engine, uint32_t group, uint32_t block)
{
    uint32_t slab = block / engine->shape.slab_blocks;
    if (slab >= engine->shape.slabs_max || !engine->slabs[group][slab].exists ||
        !engine->slabs[group][slab].announced)
        fake_fail(engine, "block %u of group %u is in no slab", block, group);
}

/* A block is moved to only when no step in flight may still touch it. Rows may write to one that a
 * step before theirs touches: steps run in order. */
static void check_free(struct gpu_engine *engine, uint32_t group, uint32_t block)
{
    if (engine->touched[group][block] > engine->completed)
        fake_fail(engine, "block %u of group %u is taken while step %lu may touch it", block, group,
                  (unsigned long)engine->touched[group][block]);
}

static bool begins_right(const struct gpu_plan *plan, const struct gpu_open *open)
{
    for (uint32_t i = 0; i < plan->row_count; i++)
        if (plan->rows[i].slot == open->slot)
            return plan->rows[i].position == open->first;
    return false;
}

/* A row of the same plan begins behind the block: what is in it is another's of the same prompt,
 * and is read. */
static bool is_read_only(const struct gpu_engine *engine, const struct gpu_plan *plan,
                         const struct gpu_append *append)
{
    for (uint32_t i = 0; i < plan->row_count; i++)
        if (plan->rows[i].slot == append->slot)
            return plan->rows[i].position >= (append->index + 1) * engine->shape.block_tokens;
    return false;
}

static void check_appends(struct gpu_engine *engine, const struct gpu_plan *plan)
{
    for (uint32_t i = 0; i < plan->append_count; i++) {
        const struct gpu_append *append = &plan->appends[i];
        check_block(engine, append->group, append->block);
        if (!engine->open_told[append->slot])
            fake_fail(engine, "append to slot %u, which is closed", append->slot);
        bool read = is_read_only(engine, plan, append);
        fake_check_block_copied(engine, append->group, append->block, read);
        engine->told[append->group][append->slot][append->index] = append->block;
    }
}

static void touch_rows(struct gpu_engine *engine, const struct gpu_plan *plan)
{
    uint32_t tokens = engine->shape.block_tokens, width = engine->shape.window;
    for (uint32_t i = 0; i < plan->row_count; i++) {
        const struct gpu_row *row = &plan->rows[i];
        for (uint32_t g = 0; g < engine->shape.group_count; g++) {
            uint32_t from = g == 1 && row->position + 1 > width ? row->position + 1 - width : 0;
            for (uint32_t b = from / tokens; b * tokens < row->position + row->q_len; b++)
                if (engine->told[g][row->slot][b] != KV_NONE)
                    engine->touched[g][engine->told[g][row->slot][b]] = plan->step;
        }
    }
}

void fake_check_deltas(struct gpu_engine *engine, const struct gpu_plan *plan)
{
    for (uint32_t i = 0; i < plan->close_count; i++) {
        if (!engine->open_told[plan->closes[i]])
            fake_fail(engine, "slot %u closed but not open", plan->closes[i]);
        engine->open_told[plan->closes[i]] = false;
    }
    for (uint32_t i = 0; i < plan->move_count; i++) {
        check_block(engine, plan->moves[i].group, plan->moves[i].from);
        check_block(engine, plan->moves[i].group, plan->moves[i].to);
        check_free(engine, plan->moves[i].group, plan->moves[i].to);
        fake_check_block_copied(engine, plan->moves[i].group, plan->moves[i].from, false);
        fake_check_block_copied(engine, plan->moves[i].group, plan->moves[i].to, false);
        engine->touched[plan->moves[i].group][plan->moves[i].from] = plan->step;
        engine->touched[plan->moves[i].group][plan->moves[i].to] = plan->step;
    }
    for (uint32_t i = 0; i < plan->slab_count; i++) {
        struct slab_state *slab = &engine->slabs[plan->slabs[i].group][plan->slabs[i].slab];
        if (!slab->exists || slab->announced)
            fake_fail(engine, "slab %u announced wrongly", plan->slabs[i].slab);
        slab->announced = true;
    }
    for (uint32_t i = 0; i < plan->open_count; i++) {
        if (engine->open_told[plan->opens[i].slot])
            fake_fail(engine, "slot %u opened twice", plan->opens[i].slot);
        engine->open_told[plan->opens[i].slot] = true;
        if (!begins_right(plan, &plan->opens[i]))
            fake_fail(engine, "slot %u does not begin where its opening says",
                      plan->opens[i].slot);
        uint32_t blocks = engine->shape.context_max / engine->shape.block_tokens + 1;
        for (uint32_t g = 0; g < engine->shape.group_count; g++)
            for (uint32_t b = 0; b < blocks; b++)
                engine->told[g][plan->opens[i].slot][b] = KV_NONE;
    }
    check_appends(engine, plan);
    touch_rows(engine, plan);
}

/* Of a row whose guesses the draft model makes the plan has the first id. */
static bool is_made_there(const struct gpu_row *row)
{
    return row->want & GPU_DRAFT && row->drafts > 0;
}

static void check_drafts(struct gpu_engine *engine, const struct gpu_row *row)
{
    bool samples = row->input == GPU_IDS && (row->want & (GPU_SAMPLE | GPU_KEEP)) == GPU_SAMPLE;
    if (row->drafts > GPU_DRAFTS_MAX || row->drafts >= row->q_len || (row->drafts > 0 && !samples))
        fake_fail(engine, "slot %u has %u guesses in a row of %u", row->slot, row->drafts,
                  row->q_len);
    if (row->unread > row->ids || row->unread > row->position ||
        (is_made_there(row) ? row->q_len != 1 + row->drafts : row->unread > 0))
        fake_fail(engine, "slot %u has %u tokens unread before %u", row->slot, row->unread,
                  row->position);
    if (row->uncounted > row->ids || row->uncounted > row->position ||
        (row->uncounted > 0 && row->input != GPU_IDS))
        fake_fail(engine, "slot %u is told of %u tokens before %u", row->slot, row->uncounted,
                  row->position);
}

void fake_check_rows(struct gpu_engine *engine, const struct gpu_plan *plan)
{
    bool *seen = calloc(engine->limits.slots_max, sizeof(*seen)), prompts = false;
    uint32_t tokens = 0, samples = 0, scores = 0, embeds = 0;
    for (uint32_t i = 0; i < plan->row_count; i++) {
        const struct gpu_row *row = &plan->rows[i];
        if (!engine->open_told[row->slot] || seen[row->slot])
            fake_fail(engine, "row %u: slot %u is closed, or named twice", i, row->slot);
        seen[row->slot] = true;
        check_drafts(engine, row);
        tokens += row->q_len;
        samples += row->want & GPU_SAMPLE ? 1 + row->drafts : 0;
        scores += row->score_count;
        embeds += row->want & GPU_EMBED_ALL                            ? row->q_len
                  : (row->want & (GPU_EMBED_LAST | GPU_POOL_OUT)) != 0 ? 1
                                                                       : 0;
        if (row->q_len == 0 || row->position + row->q_len > engine->limits.context_max)
            fake_fail(engine, "row %u lies at %u + %u", i, row->position, row->q_len);
        if (row->input == GPU_LAST && (row->q_len != 1 || prompts))
            fake_fail(engine, "row %u: a decode row is long, or behind a prompt", i);
        prompts |= row->input == GPU_IDS;
        uint32_t ids = row->score_from + 1 + row->score_count;
        ids = ids > row->q_len || is_made_there(row) ? ids : row->q_len;
        if (row->score_from >= row->q_len ||
            (row->input == GPU_IDS && row->ids + ids > plan->id_count))
            fake_fail(engine, "row %u: ids or targets out of the plan", i);
        engine->counts.decode_rows += row->input == GPU_LAST;
    }
    if (samples > engine->limits.rows_max)
        fake_fail(engine, "%u samples in a step", samples);
    if (tokens != plan->token_count || scores > engine->limits.scores_max ||
        embeds > engine->limits.embeds_max)
        fake_fail(engine, "tokens miscounted, or too many scores or embeddings");
    if (tokens > engine->counts.tokens_most)
        engine->counts.tokens_most = tokens;
    engine->counts.rows += plan->row_count;
    free(seen);
}

void fake_keep_step(struct gpu_engine *engine, const struct gpu_plan *plan)
{
    struct fake_step *step = &engine->steps[plan->step % FAKE_RING];
    fake_step_free(step);
    step->plan = *plan;
    step->plan.closes = copy(plan->closes, plan->close_count, sizeof(*plan->closes));
    step->plan.moves = copy(plan->moves, plan->move_count, sizeof(*plan->moves));
    step->plan.slabs = copy(plan->slabs, plan->slab_count, sizeof(*plan->slabs));
    step->plan.opens = copy(plan->opens, plan->open_count, sizeof(*plan->opens));
    step->plan.appends = copy(plan->appends, plan->append_count, sizeof(*plan->appends));
    step->plan.rows = copy(plan->rows, plan->row_count, sizeof(*plan->rows));
    step->plan.ids = copy(plan->ids, plan->id_count, sizeof(*plan->ids));
    step->plan.bias = copy(plan->bias, plan->bias_count, sizeof(*plan->bias));
    step->samples = calloc(engine->limits.rows_max, sizeof(*step->samples));
    step->tops = calloc((size_t)engine->limits.rows_max * GPU_LOGPROBS_MAX, sizeof(*step->tops));
    step->scores = calloc(engine->limits.scores_max, sizeof(*step->scores));
    step->score_tops =
        calloc((size_t)engine->limits.scores_max * GPU_LOGPROBS_MAX, sizeof(*step->score_tops));
    for (uint32_t j = 0; j < GPU_DRAFTS_MAX; j++) {
        step->guesses[j] = calloc(engine->limits.slots_max, sizeof(*step->guesses[j]));
        step->guess_count[j] = 0;
    }
    step->guesses_ns = 0;
    step->rows = calloc(engine->limits.embeds_max * FAKE_HIDDEN, sizeof(*step->rows));
}
