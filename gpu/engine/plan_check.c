#include <assert.h>

#include "gpu/engine/engine.h"

/* Everything here is our scheduler's work, so what is wrong is asserted. Ids and positions come
 * from requests, but the daemon has checked them: a kernel must never see others. */

static void counts_check(const struct gpu_limits *limits, const struct gpu_plan *plan)
{
    assert(plan->close_count <= limits->slots_max);
    assert(plan->open_count <= limits->opens_max);
    assert(plan->append_count <= limits->appends_max);
    assert(plan->move_count <= limits->moves_max);
    assert(plan->slab_count <= limits->slabs_max);
    assert(plan->row_count <= limits->rows_max);
    assert(plan->token_count <= limits->tokens_max);
    assert(plan->id_count <= limits->ids_max);
    assert(plan->bias_count <= limits->bias_max);
}

static void block_check(const struct rank *rank, uint32_t group, uint32_t block)
{
    assert(group < rank->engine->facts.model.group_count);
    const struct slabs *slabs = &rank->slabs[group];
    assert(block / slabs->slab_blocks < slabs->slabs_max);
    assert(slabs->base[block / slabs->slab_blocks]);
}

static void blocks_check(const struct rank *rank, const struct gpu_plan *plan)
{
    const struct engine_config *facts = &rank->engine->facts;
    for (uint32_t i = 0; i < plan->move_count; i++) {
        block_check(rank, plan->moves[i].group, plan->moves[i].from);
        block_check(rank, plan->moves[i].group, plan->moves[i].to);
    }
    for (uint32_t i = 0; i < plan->slab_count; i++) {
        assert(plan->slabs[i].group < facts->model.group_count);
        assert(plan->slabs[i].slab < rank->slabs[plan->slabs[i].group].slabs_max);
        assert(rank->slabs[plan->slabs[i].group].base[plan->slabs[i].slab]);
    }
    for (uint32_t i = 0; i < plan->append_count; i++) {
        const struct gpu_append *append = &plan->appends[i];
        block_check(rank, append->group, append->block);
        assert(append->slot < facts->limits.slots_max && rank->slots[append->slot].open);
        assert((uint64_t)append->index * facts->model.block_tokens < facts->limits.context_max);
    }
}

static void ids_check(const struct rank *rank, const struct gpu_plan *plan,
                      const struct gpu_row *row)
{
    bool guessed = row->want & GPU_DRAFT && row->drafts > 0;
    uint32_t count = guessed ? 1 : row->q_len;
    uint32_t before = row->unread > row->uncounted ? row->unread : row->uncounted;
    assert(before <= row->ids && before <= row->position);
    if (row->want & GPU_SCORE) {
        assert(row->score_from < row->q_len);
        assert(row->score_count <= rank->engine->facts.limits.scores_max);
        uint32_t targets = row->score_from + 1 + row->score_count;
        count = targets > count ? targets : count;
    }
    assert(row->ids <= plan->id_count && count <= plan->id_count - row->ids);
    for (uint32_t i = 0; i < before + count; i++)
        assert((uint32_t)plan->ids[row->ids - before + i] < rank->engine->facts.model.vocab);
}

/* Of a row with guesses the device keeps no last token. */
static void drafts_check(const struct rank *rank, const struct gpu_row *row)
{
    if (row->drafts > 0)
        assert(row->drafts <= GPU_DRAFTS_MAX && row->drafts < row->q_len && row->input == GPU_IDS &&
               (row->want & (GPU_SAMPLE | GPU_KEEP)) == GPU_SAMPLE);
    if (row->want & GPU_DRAFT)
        assert(rank->engine->facts.draft.there && row->input == GPU_IDS);
    if (row->want & GPU_DRAFT && row->drafts > 0)
        assert(row->q_len == 1 + row->drafts);
    else
        assert(row->unread == 0);
    const struct rank_slot *slot = &rank->slots[row->slot];
    assert(row->input == GPU_IDS ? row->uncounted == 0 || (slot->penalties && slot->drafted)
                                 : row->uncounted == 0 && !slot->drafted);
}

static void rows_check(const struct rank *rank, const struct gpu_plan *plan)
{
    const struct gpu_limits *limits = &rank->engine->facts.limits;
    uint64_t tokens = 0, samples = 0, scores = 0, embeds = 0, unread = 0;
    for (uint32_t i = 0; i < plan->row_count; i++) {
        const struct gpu_row *row = &plan->rows[i];
        assert(row->slot < limits->slots_max && rank->slots[row->slot].open);
        assert(row->q_len >= 1 && row->q_len <= limits->context_max);
        assert(row->position <= limits->context_max - row->q_len);
        uint32_t embed = row->want & (GPU_POOL_OUT | GPU_EMBED_LAST | GPU_EMBED_ALL);
        assert(!(embed & (embed - 1))); /* one kind of embedding at a time */
        if (row->input == GPU_LAST)
            assert(row->q_len == 1 && !(row->want & GPU_SCORE));
        else
            ids_check(rank, plan, row);
        drafts_check(rank, row);
        tokens += row->q_len;
        unread += row->unread;
        samples += row->want & GPU_SAMPLE ? 1 + (uint64_t)row->drafts : 0;
        scores += row->want & GPU_SCORE ? row->score_count : 0;
        embeds += embed ? (embed == GPU_EMBED_ALL ? row->q_len : 1) : 0;
    }
    assert(tokens == plan->token_count && samples <= limits->rows_max);
    assert(unread <= limits->unread_max);
    assert(scores <= limits->scores_max && embeds <= limits->embeds_max);
}

static void seen_check(const struct rank *rank, const struct gpu_plan *plan,
                       const struct gpu_open *open)
{
    assert(open->seen_first <= plan->id_count && open->first <= plan->id_count - open->seen_first);
    for (uint32_t i = 0; i < open->first; i++)
        assert((uint32_t)plan->ids[open->seen_first + i] < rank->engine->facts.model.vocab);
}

static void opens_note(struct rank *rank, const struct gpu_plan *plan)
{
    const struct gpu_limits *limits = &rank->engine->facts.limits;
    for (uint32_t i = 0; i < plan->open_count; i++) {
        const struct gpu_open *open = &plan->opens[i];
        assert(open->slot < limits->slots_max && !rank->slots[open->slot].open);
        assert(open->logprobs <= GPU_LOGPROBS_MAX);
        assert(open->adapter <= rank->engine->facts.adapters.places);
        assert(open->stop_ids_count <= GPU_STOP_IDS_MAX && open->bias_count <= GPU_BIAS_MAX);
        assert(open->stop_ids_first <= plan->id_count &&
               open->stop_ids_count <= plan->id_count - open->stop_ids_first);
        assert(open->bias_first <= plan->bias_count &&
               open->bias_count <= plan->bias_count - open->bias_first);
        bool penalties = open->flags & GPU_SLOT_PENALTIES;
        assert(open->first < limits->context_max && !(open->flags & GPU_SLOT_POOL && open->first));
        assert(open->first % rank->engine->facts.model.block_tokens == 0);
        if (penalties)
            seen_check(rank, plan, open);
        bool masked = open->flags & GPU_SLOT_MASKED;
        rank->slots[open->slot] = (struct rank_slot){.open = true,
                                                     .penalties = penalties,
                                                     .masked = masked,
                                                     .adapter = open->adapter,
                                                     .logprobs = open->logprobs};
        rank->penalty_slots += penalties;
    }
}

void plan_check(const struct rank *rank, const struct gpu_plan *plan)
{
    assert(plan->step == rank->submitted + 1);
    assert(plan->step - streams_completed(&rank->lane) <= rank->engine->facts.limits.depth);
    counts_check(&rank->engine->facts.limits, plan);
}

void plan_note(struct rank *rank, const struct gpu_plan *plan)
{
    for (uint32_t i = 0; i < plan->close_count; i++) {
        assert(plan->closes[i] < rank->engine->facts.limits.slots_max);
        struct rank_slot *slot = &rank->slots[plan->closes[i]];
        assert(slot->open);
        rank->penalty_slots -= slot->penalties;
        *slot = (struct rank_slot){0};
    }
    opens_note(rank, plan);
    blocks_check(rank, plan);
    rows_check(rank, plan);
    for (uint32_t i = 0; i < plan->row_count; i++) {
        struct rank_slot *slot = &rank->slots[plan->rows[i].slot];
        assert(slot->row_step != plan->step); /* one row per slot */
        assert(!(plan->rows[i].want & GPU_SAMPLE) ||
               slot->masked == ((plan->rows[i].want & GPU_KEEP) != 0));
        slot->row_step = plan->step;
        slot->drafted = plan->rows[i].drafts > 0;
        slot->kept = plan->rows[i].want & GPU_KEEP;
        slot->sampled = plan->rows[i].position + plan->rows[i].q_len;
    }
}
