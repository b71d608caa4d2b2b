/* Building a step's plan. */
#include <assert.h>
#include <math.h>

#include "daemon/sched/builder.h"

#define UNKNOWN_TOKENS 512u /* prompt tokens beside decode rows while costs are not known yet */
/* Before the device is done with the step that runs, the one behind it has to be enqueued: for the
 * worker's way there, and for what the prediction may be off. */
#define PLAN_AHEAD_US 1000
#define PLAN_AHEAD_SHARE 0.0625
#define MASKS_AHEAD_US 200

static bool per_position(const struct seq *seq)
{
    return (seq->params.job == JOB_SCORE && seq->next_count == 0) ||
           (seq->params.job == JOB_EMBED && seq->params.pooling == POOLING_ALL);
}

/* What the row must give, told from where it ends. */
static uint16_t wants(const struct seq *seq, uint32_t position, uint32_t q_len)
{
    bool ends = position + q_len >= seq->prefill_len && position + q_len >= seq->known_len;
    unsigned want = seq->params.job == JOB_EMBED && seq->params.normalize ? GPU_NORMALIZE : 0;
    switch (seq->params.job) {
    case JOB_GENERATE:
        if (!ends)
            return 0;
        return GPU_SAMPLE | (seq->sampling.logprobs >= 0 ? GPU_LOGPROBS : 0) |
               (seq->mask != NULL ? GPU_KEEP : 0);
    case JOB_SCORE:
        if (seq->next_count > 0 ? !ends : position < seq->emit_from)
            return 0;
        return GPU_SCORE | (seq->sampling.logprobs > 1 ? GPU_LOGPROBS : 0); /* 1: it has that */
    case JOB_EMBED:
    case JOB_PROGRAM: /* never comes here */
        break;
    }
    if (seq->params.pooling == POOLING_ALL)
        return position >= seq->emit_from ? want | GPU_EMBED_ALL : 0;
    if (seq->params.pooling == POOLING_MEAN)
        return GPU_POOL_ADD | (ends ? want | GPU_POOL_OUT : 0);
    return ends ? want | GPU_EMBED_LAST : 0;
}

struct gpu_row *builder_row(struct builder *b, struct seq *seq, uint32_t q_len,
                            enum gpu_input input)
{
    struct gpu_plan *plan = &b->step->plan;
    struct gpu_row *row = &b->step->rows[plan->row_count];
    b->step->row_seq[plan->row_count++] = seq;
    *row = (struct gpu_row){.slot = seq->slot,
                            .position = seq->num_computed,
                            .q_len = q_len,
                            .input = (uint16_t)input,
                            .want = wants(seq, seq->num_computed, q_len),
                            .ids = plan->id_count};
    plan->token_count += q_len;
    b->rows_left--;
    b->tokens_left -= q_len;
    cost_add_row(&b->step->work, row->position, q_len);
    return row;
}

static void put_prompt_row(struct builder *b, struct seq *seq, uint32_t q_len)
{
    struct gpu_plan *plan = &b->step->plan;
    struct gpu_row *row = builder_row(b, seq, q_len, GPU_IDS);
    if (sched_draft_reads(b->sched, seq))
        row->want |= GPU_DRAFT;
    if (row->want & GPU_SCORE) {
        row->score_from = seq->next_count > 0 ? q_len - 1 : 0;
        row->score_count = seq->next_count > 0 ? seq->next_count : q_len;
        b->scores_left -= row->score_count;
    }
    if (row->want & GPU_EMBED_ALL)
        b->embeds_left -= q_len;
    else if (row->want & (GPU_EMBED_LAST | GPU_POOL_OUT))
        b->embeds_left--;
    uint32_t ids = q_len + (row->score_count > 0 && seq->next_count == 0);
    for (uint32_t i = 0; i < ids; i++)
        b->step->ids[plan->id_count++] = sched_token_at(seq, row->position + i);
    for (uint32_t i = 0; row->score_count > 0 && i < seq->next_count; i++)
        b->step->ids[plan->id_count++] = seq->next[i];
    if (row->position + q_len < seq->prefill_len)
        b->partial++;
    if (b->priority < seq->priority)
        b->priority = seq->priority;
}

/* ---- prompts ----------------------------------------------------------------------------------
 */

/* What a prompt is sure of when its turn must come. */
static uint32_t min_chunk(const struct sched *sched, const struct seq *seq)
{
    uint32_t chunk = sched_min(sched->chunk_min, seq->prefill_len - seq->num_computed);
    if (per_position(seq) && seq->params.job == JOB_SCORE)
        chunk = sched_min(chunk, sched->limits.scores_max / sched->prefill_max);
    else if (per_position(seq))
        chunk = sched_min(chunk, sched->limits.embeds_max / sched->prefill_max);
    return chunk;
}

/* The most tokens of the prompt that limits other than time allow now. */
static uint32_t chunk_bound(const struct builder *b, const struct seq *seq)
{
    uint32_t left = seq->prefill_len - seq->num_computed;
    uint32_t ids_left = b->sched->limits.ids_max - b->step->plan.id_count;
    uint32_t q_len = sched_min(left, b->tokens_left - sched_min(b->tokens_left, b->tokens_kept));
    q_len = sched_min(q_len, ids_left > 0 ? ids_left - 1 : 0); /* one more for the last target */
    uint32_t scores = b->scores_left - sched_min(b->scores_left, b->scores_kept);
    uint32_t embeds = b->embeds_left - sched_min(b->embeds_left, b->embeds_kept);
    if (per_position(seq)) {
        if (seq->num_computed < seq->emit_from)
            return sched_min(q_len, seq->emit_from - seq->num_computed);
        return sched_min(q_len, seq->params.job == JOB_SCORE ? scores : embeds);
    }
    /* The end has to wait for an embedding row, or for its scores. */
    if (seq->params.job == JOB_EMBED && embeds == 0 && q_len == left)
        q_len--;
    if (q_len == left && (seq->next_count > scores || seq->next_count > ids_left - q_len))
        q_len--;
    return q_len;
}

/* Products are computed in tiles of tokens, and one that is begun costs as much as a whole one:
 * what a step's last prompt gives up for whole ones is next to free in the step behind. */
static uint32_t whole_tiles(const struct builder *b, uint32_t q_len)
{
    uint32_t tokens = b->step->plan.token_count + q_len, over = tokens % SCHED_TILE_TOKENS;
    return tokens >= SCHED_TILES_FROM && over < q_len ? q_len - over : q_len;
}

/* A chunk of at least `least` tokens if limits allow, more as far as time does; 0 when no row was
 * made. */
static uint32_t add_chunk(struct builder *b, struct seq *seq, uint32_t least)
{
    struct sched *sched = b->sched;
    uint32_t bound = chunk_bound(b, seq), q_len = bound;
    if (bound == 0 || b->rows_left == 0)
        return 0;
    if (isfinite(b->target_us)) {
        q_len = cost_tokens(&sched->cost, &b->step->work, seq->num_computed, bound, b->target_us);
        if (q_len < bound)
            q_len = whole_tiles(b, q_len);
        q_len = sched_min(q_len, b->prompts_left);
        /* Crumbs cost a step's overhead each: rather nothing now and a whole chunk when due. */
        if (q_len < sched_min(sched->chunk_min, bound))
            q_len = 0;
    }
    /* Who is above others does not wait for theirs as well, but for those let in by a share. */
    if (seq->priority < b->priority && !seq->low)
        q_len = 0;
    if (q_len < least)
        q_len = sched_min(least, bound);
    if (q_len == 0)
        return 0;
    uint32_t reached = sched_reach(sched, b->step, seq, seq->num_computed + q_len, b->now_us);
    if (reached <= seq->num_computed)
        return 0;
    q_len = sched_min(q_len, reached - seq->num_computed);
    b->prompts_left -= sched_min(q_len, b->prompts_left);
    put_prompt_row(b, seq, q_len);
    return q_len;
}

/* Whether the first prompt has its least chunk also where decode rows alone leave no time for it.
 */
static bool is_cheap(const struct builder *b, const struct seq *seq)
{
    return isfinite(b->target_us) &&
           sched_chunk_is_sure(b->sched, &b->step->work, seq->num_computed,
                               min_chunk(b->sched, seq));
}

static bool is_due(const struct sched *sched, const struct seq *seq)
{
    return sched->step_last + 1 - seq->last_scheduled_step >= sched->options.chunk_every;
}

static void keep(struct builder *b, const struct seq *seq, bool hold)
{
    uint32_t chunk = min_chunk(b->sched, seq);
    uint32_t scores = seq->params.job != JOB_SCORE ? 0
                      : seq->next_count > 0        ? seq->next_count
                                                   : chunk;
    uint32_t embeds = seq->params.job != JOB_EMBED         ? 0
                      : seq->params.pooling == POOLING_ALL ? chunk
                                                           : 1;
    b->tokens_kept = hold ? b->tokens_kept + chunk : b->tokens_kept - chunk;
    b->scores_kept = hold ? b->scores_kept + scores : b->scores_kept - scores;
    b->embeds_kept = hold ? b->embeds_kept + embeds : b->embeds_kept - embeds;
}

static void keep_for_due(struct builder *b)
{
    list_each(link, &b->sched->prefill)
    {
        const struct seq *seq = container_of(link, struct seq, run_link);
        if (is_due(b->sched, seq))
            keep(b, seq, true);
    }
}

static struct seq *first_prompt(const struct sched *sched)
{
    return list_empty(&sched->prefill) ? NULL
                                       : container_of(sched->prefill.next, struct seq, run_link);
}

/* From the first on that had started before this step. */
static void add_prompts(struct builder *b, const struct seq *from)
{
    if (from == NULL)
        return;
    for (const struct list *link = &from->run_link; link != &b->sched->prefill; link = link->next) {
        struct seq *seq = container_of(link, struct seq, run_link);
        bool due = is_due(b->sched, seq), first = seq == from;
        if (due)
            keep(b, seq, false);
        bool sure = due || (first && is_cheap(b, seq));
        if (add_chunk(b, seq, sure ? min_chunk(b->sched, seq) : 0) == 0)
            b->partial++;
    }
}

/* ---- new sequences ----------------------------------------------------------------------------
 */

static void put_open(struct builder *b, struct seq *seq)
{
    struct gpu_plan *plan = &b->step->plan;
    const struct sampling *sampling = &seq->sampling;
    bool penalties = sched_counts_tokens(seq);
    bool pool = seq->params.job == JOB_EMBED && seq->params.pooling == POOLING_MEAN;
    b->step->opened[plan->open_count] = seq;
    b->step->opens[plan->open_count++] = (struct gpu_open){
        .slot = seq->slot,
        .flags = (penalties ? GPU_SLOT_PENALTIES : 0) | (pool ? GPU_SLOT_POOL : 0) |
                 (seq->mask != NULL ? GPU_SLOT_MASKED : 0),
        .seed = sampling->seed,
        .sampler = sampling->sampler,
        .prompt_len = seq->prompt_len,
        .eos_from = sampling->ignore_eos ? UINT32_MAX : seq->prompt_len + sampling->min_tokens,
        .stop_ids_first = plan->id_count,
        .stop_ids_count = seq->stop_id_count,
        .bias_first = plan->bias_count,
        .bias_count = seq->bias_count,
        .logprobs = sampling->logprobs > 0 ? (uint32_t)sampling->logprobs : 0,
        .adapter = seq->adapter};
    for (uint32_t i = 0; i < seq->stop_id_count; i++)
        b->step->ids[plan->id_count++] = seq->stop_ids[i];
    for (uint32_t i = 0; i < seq->bias_count; i++)
        b->step->bias[plan->bias_count++] = seq->bias[i];
}

static void start(struct builder *b, struct seq *seq)
{
    struct sched *sched = b->sched;
    sched_unwait(sched, seq);
    seq->phase = PHASE_PREFILL;
    seq->slot = sched->slots_free[--sched->slots_free_count];
    seq->num_computed = 0;
    sched_draft_start(sched, seq);
    sched_count_slot(sched, seq, true);
    struct list *place = &sched->prefill;
    while (place->prev != &sched->prefill) {
        if (sched_is_read_before(container_of(place->prev, struct seq, run_link), seq))
            break;
        place = place->prev;
    }
    list_insert_before(place, &seq->run_link);
    put_open(b, seq);
    sched_share_begin(sched, b->step, seq);
    sched_cache_started(sched, seq);
}

/* The sequence goes back to where it waited. */
static void undo_start(struct sched *sched, struct sched_step *step)
{
    struct seq *seq = step->opened[--step->plan.open_count];
    list_remove(&seq->run_link);
    sched_share_undo(sched, seq);
    sched->slots_free[sched->slots_free_count++] = seq->slot;
    sched_count_slot(sched, seq, false);
    uint64_t since = seq->last_scheduled_step; /* it has waited all the time */
    sched_wait(sched, seq);
    seq->last_scheduled_step = since;
}

/* Takes back the appends from number `from` on. */
static void undo_appends(struct sched *sched, struct sched_step *step, uint32_t from)
{
    while (step->plan.append_count > from) {
        const struct gpu_append *append = &step->appends[--step->plan.append_count];
        struct kv_run *run = &sched->tables[append->slot].group[append->group];
        assert(append->index + 1 == run->end && run->end > run->first);
        run->end--;
        kv_put_back(&sched->kv, append->group, append->block);
    }
}

static bool open_fits(const struct builder *b, const struct seq *seq)
{
    const struct gpu_plan *plan = &b->step->plan;
    const struct gpu_limits *limits = &b->sched->limits;
    return plan->open_count < limits->opens_max && b->rows_left > 0 &&
           plan->id_count + seq->stop_id_count + 2 <= limits->ids_max &&
           plan->bias_count + seq->bias_count <= limits->bias_max;
}

/* Whoever waits first is sure to begin, as those who have begun are sure to go on, however long the
 * decode rows alone take. */
static bool start_is_due(const struct sched *sched, const struct seq *seq)
{
    uint64_t since =
        seq->last_scheduled_step > sched->start_step ? seq->last_scheduled_step : sched->start_step;
    return sched->step_last + 1 - since >= sched->options.chunk_every;
}

/* In order, until one cannot start: nobody overtakes. Only those whose turn is before that of the
 * prompt `behind`; NULL: all. */
static void add_starts(struct builder *b, const struct seq *behind)
{
    struct sched *sched = b->sched;
    uint64_t promised[GPU_GROUPS_MAX] = {0};
    list_each(link, &sched->prefill)
        sched_promise(sched, container_of(link, struct seq, run_link), promised);
    while (!list_empty(&sched->waiting) && sched->slots_free_count > 0 && b->tokens_left > 0) {
        struct seq *seq = sched_share_next(sched);
        if (seq == NULL || (behind != NULL && !sched_is_read_before(seq, behind)) ||
            sched_place_is_taken(sched, seq) ||
            (b->step->plan.row_count > 0 && sched_fetch_awaited(sched, seq)))
            return;
        uint32_t appends = b->step->plan.append_count, ids = b->step->plan.id_count,
                 bias = b->step->plan.bias_count, partial = b->partial;
        if (!open_fits(b, seq) || !sched_share_fits(sched, b->step, seq) ||
            partial == sched->prefill_max ||
            !sched_can_start(sched, seq, promised, !sched_fetch_may(sched, seq), b->now_us))
            return;
        bool due = b->step->plan.open_count == 0 && start_is_due(sched, seq);
        bool first = list_empty(&sched->prefill);
        start(b, seq);
        bool sure = due || (first && is_cheap(b, seq));
        if (add_chunk(b, seq, sure ? min_chunk(sched, seq) : 0) == 0) {
            undo_appends(sched, b->step, appends);
            undo_start(sched, b->step);
            b->step->plan.id_count = ids;
            b->step->plan.bias_count = bias;
            return;
        }
        sched_promise(sched, seq, promised);
    }
}

/* ---- the step ---------------------------------------------------------------------------------
 */

void sched_undo(struct sched *sched, struct sched_step *step)
{
    undo_appends(sched, step, step->patch_count);
    sched_undo_moves(sched, step);
    while (step->plan.open_count > 0)
        undo_start(sched, step);
    step->plan.row_count = 0;
}

/* Without a decode row nobody waits for this step's tokens but those whose prompts it reads. */
static bool is_unbounded(const struct sched *sched)
{
    return sched->options.itl_target_us == 0 || list_empty(&sched->decode);
}

/* The decode rows are in the step. */
static void bound_chunks(struct builder *b)
{
    const struct sched *sched = b->sched;
    if (is_unbounded(sched))
        return;
    if (!cost_known(&sched->cost)) {
        b->tokens_left = sched_min(b->tokens_left, UNKNOWN_TOKENS + b->tokens_kept);
    } else {
        struct sched_limit limit = sched_limit(sched, &b->step->work, b->tokens_left, b->now_us);
        b->target_us = limit.us;
        b->prompts_left = limit.tokens;
    }
}

/* Windows have moved on. */
static void drop_unseen(struct sched *sched)
{
    struct list *lists[] = {&sched->decode, &sched->prefill};
    for (int i = 0; i < 2; i++)
        list_each(link, lists[i])
        {
            struct seq *seq = container_of(link, struct seq, run_link);
            kv_table_drop(&sched->kv, sched_table(sched, seq), seq->num_computed, sched->step_last);
        }
}

static void build(struct sched *sched, struct sched_step *step, time_us now_us)
{
    struct builder b = {.sched = sched,
                        .step = step,
                        .now_us = now_us,
                        .target_us = INFINITY,
                        .priority = INT32_MIN,
                        .prompts_left = UINT32_MAX,
                        .tokens_left = sched->tokens_cap,
                        .rows_left = sched->limits.rows_max,
                        .unread_left = sched->limits.unread_max,
                        .scores_left = sched->limits.scores_max,
                        .embeds_left = sched->limits.embeds_max};
    step->plan = (struct gpu_plan){.step = sched->step_last + 1,
                                   .closes = step->closes,
                                   .moves = step->moves,
                                   .slabs = step->slabs,
                                   .opens = step->opens,
                                   .appends = step->appends,
                                   .rows = step->rows,
                                   .ids = step->ids,
                                   .bias = step->bias};
    step->work = (struct cost_work){.rows = 0};
    step->cut = false;
    step->decode_rows = 0;
    drop_unseen(sched); /* first: a block that is moved must not be dropped by the same step */
    sched_plan_moves(sched, step);
    keep_for_due(&b);
    builder_decodes(&b, false);
    bound_chunks(&b);
    const struct seq *first = first_prompt(sched);
    if (first != NULL)
        add_starts(&b, first);
    add_prompts(&b, first);
    add_starts(&b, NULL);
    if (step->plan.row_count == 0)
        builder_decodes(&b, true); /* a stage that waits does no worse than one without a step */
    for (uint32_t i = 0; i < sched->closes_due_count; i++)
        step->closes[step->plan.close_count++] = sched->closes_due[i];
    for (uint32_t i = 0; i < sched->slabs_due_count; i++)
        step->slabs[step->plan.slab_count++] = sched->slabs_due[i];
}

bool sched_unstall(struct sched *sched, time_us now_us)
{
    if (sched_share_reclaim(sched) || sched_preempt_youngest(sched))
        return true;
    if (sched->cache.node_count > 0 && sched->stalled_since_us == 0)
        sched_yield_cache(sched);
    sched->retry_us = now_us + SCHED_RETRY_US;
    if (sched->stalled_since_us == 0)
        sched->stalled_since_us = now_us;
    if (now_us - sched->stalled_since_us < sched->options.stall_us)
        return false;
    const struct list *list = !list_empty(&sched->decode)    ? &sched->decode
                              : !list_empty(&sched->prefill) ? &sched->prefill
                                                             : &sched->waiting;
    struct error error = {.code = 0};
    error_set(&error, ERR_DEVICE_MEMORY, "the device has had no memory for this sequence");
    sched_end_error(sched, container_of(list->next, struct seq, run_link), &error, now_us);
    sched->stalled_since_us = 0;
    return true;
}

/* It would only decode, and what it has is known: it is planned shortly before it begins, so that a
 * prompt that comes until then is in it, and does not wait for a step more. One with prompts is
 * planned at once, unless others above them may come. Where a mask is still missing there is less
 * to lose by being late. */
time_us sched_hold(const struct sched *sched)
{
    bool masks = sched_masks_late(sched);
    if (sched->limits.stages > 1 || sched_in_flight(sched) != 1 || !cost_known(&sched->cost))
        return 0;
    bool reads = !list_empty(&sched->prefill) || !list_empty(&sched->waiting);
    if (!masks && (sched->options.ttft_target_us == 0 || list_empty(&sched->decode) ||
                   (reads && !sched_expects_above(sched))))
        return 0;
    double lasts_us = sched_estimate_us(sched);
    double early_us = (masks ? MASKS_AHEAD_US : PLAN_AHEAD_US) + lasts_us * PLAN_AHEAD_SHARE;
    return lasts_us > early_us ? sched->running_since_us + (time_us)(lasts_us - early_us) : 0;
}

const struct gpu_plan *sched_plan(struct sched *sched, time_us now_us)
{
    struct sched_step *step = sched_step_of(sched, sched->step_last + 1);
    assert(sched_in_flight(sched) < sched->limits.depth);
    sched->now_us = now_us;
    sched->hold_us = 0;
    sched_drafts_begin(sched);
    if (sched_in_flight(sched) > 0 && sched_drafts_awaited(sched))
        return NULL; /* its end brings the next turn */
    sched->hold_us = sched_hold(sched);
    if (now_us < sched->hold_us)
        return NULL;
    sched->hold_us = 0;
    while ((sched->slot_count > 0 || sched->waiting_count > 0) && now_us >= sched->retry_us) {
        sched_make_room(sched, now_us);
        sched_make_way(sched, now_us);
        sched_make_places(sched, now_us);
        build(sched, step, now_us);
        if (step->plan.row_count > 0) {
            step->estimate_us = cost_predict_us(&sched->cost, &step->work);
            return &step->plan;
        }
        sched_undo(sched, step);
        if (sched_in_flight(sched) > 0 || sched_copies_in_flight(sched) > 0 ||
            sched_masks_wanted(sched) || !sched_unstall(sched, now_us))
            break;
    }
    return NULL;
}
