#include "daemon/sched/sched.h"

#include <assert.h>
#include <stdlib.h>

#include "daemon/sched/sched_inner.h"

static_assert(KV_STEPS >= GPU_DEPTH_MAX + 2,
              "a step's blocks are retired while others are in flight and one is planned");

/* ---- memory -----------------------------------------------------------------------------------
 */

static bool step_init(struct sched_step *step, const struct gpu_limits *limits, uint32_t slots_max)
{
    step->row_seq = calloc(limits->rows_max, sizeof(*step->row_seq));
    step->opened = calloc(limits->opens_max, sizeof(*step->opened));
    step->closes = calloc(slots_max, sizeof(*step->closes));
    step->moves = calloc(limits->moves_max + 1u, sizeof(*step->moves));
    step->slabs = calloc(limits->slabs_max, sizeof(*step->slabs));
    step->opens = calloc(limits->opens_max, sizeof(*step->opens));
    step->appends = calloc(limits->appends_max, sizeof(*step->appends));
    step->rows = calloc(limits->rows_max, sizeof(*step->rows));
    step->ids = calloc(limits->ids_max, sizeof(*step->ids));
    step->bias = calloc(limits->bias_max + 1u, sizeof(*step->bias));
    return step->row_seq && step->opened && step->closes && step->moves && step->slabs &&
           step->opens && step->appends && step->rows && step->ids && step->bias;
}

static void step_destroy(struct sched_step *step)
{
    free(step->row_seq);
    free(step->opened);
    free(step->closes);
    free(step->moves);
    free(step->slabs);
    free(step->opens);
    free(step->appends);
    free(step->rows);
    free(step->ids);
    free(step->bias);
}

static bool slots_init(struct sched *sched)
{
    size_t per_table = sched_blocks_for(sched, sched->limits.context_max);
    size_t per_slot = per_table * sched->kv.group_count, slots = sched->slots_max;
    sched->slots_free = calloc(sched->slots_max, sizeof(*sched->slots_free));
    sched->closes_due = calloc(sched->slots_max, sizeof(*sched->closes_due));
    sched->slabs_due = calloc(sched->limits.slabs_max, sizeof(*sched->slabs_due));
    sched->tables = calloc(sched->slots_max, sizeof(*sched->tables));
    sched->table_memory = calloc(2 * slots * per_slot, sizeof(*sched->table_memory));
    sched->share_memory = calloc(slots, sizeof(*sched->share_memory));
    bool guesses = sched->options.drafts_max > 0 && !sched->options.draft_model;
    sched->lookups = guesses ? calloc(slots, sizeof(*sched->lookups)) : NULL;
    if ((guesses && !sched->lookups) || !sched->slots_free || !sched->closes_due ||
        !sched->slabs_due || !sched->tables || !sched->table_memory || !sched->share_memory)
        return false;
    for (uint32_t slot = 0; slot < sched->slots_max; slot++) {
        sched->slots_free[slot] = sched->slots_max - 1 - slot; /* low numbers first */
        list_append(&sched->shares_free, &sched->share_memory[slot].link);
        for (uint32_t g = 0; g < sched->kv.group_count; g++) {
            uint32_t *blocks = sched->table_memory + slot * per_slot + g * per_table;
            sched->tables[slot].group[g].blocks = blocks;
            sched->share_memory[slot].pins.group[g].blocks = blocks + slots * per_slot;
        }
    }
    sched->slots_free_count = sched->slots_max;
    return true;
}

/* The chunk that every prompt is sure of, and for how many prompts at a time: all of them together
 * take at most half of a step, so that decode rows keep the other half. */
static void chunk_init(struct sched *sched)
{
    const struct gpu_limits *limits = &sched->limits;
    uint32_t half = limits->tokens_max / 2 > 0 ? limits->tokens_max / 2 : 1;
    sched->chunk_min = sched_min(2 * sched->kv.block_tokens, (half + 3) / 4);
    sched->prefill_max = sched_min(half / sched->chunk_min, sched->slots_max);
    sched->prefill_max = sched_min(sched->prefill_max, limits->scores_max);
    sched->prefill_max = sched_min(sched->prefill_max, limits->embeds_max);
    if (sched->prefill_max == 0)
        sched->prefill_max = 1;
}

static int limits_check(const struct gpu_limits *limits, const struct gpu_model *model,
                        struct error *error)
{
    if (limits->samplings_max > GPU_SAMPLINGS_MAX ||
        limits->sampling_rows_max > GPU_SAMPLING_ROWS_MAX || limits->depth == 0 ||
        limits->depth >= KV_STEPS - 1 || limits->slots_max == 0 || limits->rows_max == 0 ||
        limits->tokens_max == 0 || limits->opens_max == 0 ||
        limits->slabs_max < model->group_count || limits->context_max == 0 || limits->stages == 0 ||
        limits->scores_max == 0 || limits->embeds_max == 0 || model->block_tokens == 0 ||
        model->group_count == 0)
        return error_set(error, ERR_BAD_CONFIG, "the device allows steps that hold nothing");
    /* A lone sequence must always be able to advance by a token, whatever it asks for. */
    if (limits->appends_max < model->group_count * 2 || limits->bias_max < GPU_BIAS_MAX ||
        limits->ids_max < limits->tokens_max + GPU_STOP_IDS_MAX + 1)
        return error_set(error, ERR_BAD_CONFIG, "the device's plans are too small for a sequence");
    return 0;
}

/* On a pipeline a sequence stands in every so-manyth step anyway. What stood of every row's guesses
 * may be named by the next step, beside all its tokens and a target (sched_decode.c). */
static uint32_t drafts_max_of(const struct sched *sched, uint32_t asked)
{
    const struct gpu_limits *limits = &sched->limits;
    uint32_t beside =
        (limits->ids_max - limits->tokens_max - limits->unread_max - 1) / sched->slots_max;
    uint32_t most = sched->options.draft_model ? limits->drafts_max : GPU_DRAFTS_MAX;
    return limits->stages > 1 ? 0 : sched_min(sched_min(asked, beside), most);
}

int sched_init(struct sched *sched, const struct gpu_model *model, const struct gpu_limits *limits,
               const struct sched_options *options, const struct sched_calls *calls,
               struct stats_worker *stats, struct error *error)
{
    int rc = limits_check(limits, model, error);
    if (rc < 0)
        return rc;
    *sched = (struct sched){.model = *model,
                            .limits = *limits,
                            .options = *options,
                            .calls = *calls,
                            .stats = stats,
                            .slots_max = sched_min(limits->slots_max, limits->rows_max),
                            .tokens_cap = limits->tokens_max,
                            .released = true};
    sched->options.drafts_max = drafts_max_of(sched, options->drafts_max);
    /* Until it is measured: by what each multiplies by. */
    sched->draft_share = (double)model->draft_parameters /
                         (double)(model->step_parameters ? model->step_parameters : 1);
    list_init(&sched->waiting);
    list_init(&sched->prefill);
    list_init(&sched->decode);
    list_init(&sched->last);
    list_init(&sched->preempted);
    list_init(&sched->readers);
    list_init(&sched->shares);
    list_init(&sched->shares_free);
    cost_init(&sched->cost,
              (struct cost_experts){.count = model->experts, .top = model->experts_per_token});
    for (uint32_t g = 0; g < GPU_GROUPS_MAX; g++)
        sched->group[g].victim = KV_NONE;
    bool good = kv_init(&sched->kv, model) == 0 && slots_init(sched) &&
                cache_init(&sched->cache, &sched->kv, options->prefix_cache) == 0 &&
                sched_tier_init(sched) == 0 && sched_wants_init(sched) == 0;
    sched->steps = calloc(limits->depth + 1u, sizeof(*sched->steps));
    good = good && sched->steps != NULL;
    for (uint32_t i = 0; good && i <= limits->depth; i++)
        good = step_init(&sched->steps[i], limits, sched->slots_max);
    if (!good) {
        sched_destroy(sched);
        return error_set(error, ERR_NO_MEMORY, "no memory for the scheduler");
    }
    chunk_init(sched);
    return 0;
}

void sched_destroy(struct sched *sched)
{
    sched_tier_destroy(sched);
    for (uint32_t i = 0; i < SCHED_WAITS; i++)
        prefix_wants_destroy(&sched->wants[i]);
    cache_destroy(&sched->cache);
    kv_destroy(&sched->kv);
    for (uint32_t i = 0; sched->steps != NULL && i <= sched->limits.depth; i++)
        step_destroy(&sched->steps[i]);
    free(sched->steps);
    free(sched->slots_free);
    free(sched->closes_due);
    free(sched->slabs_due);
    free(sched->tables);
    free(sched->table_memory);
    free(sched->share_memory);
    free(sched->lookups);
    *sched = (struct sched){.slots_max = 0};
}

/* ---- sequences --------------------------------------------------------------------------------
 */

bool sched_goes_before(const struct seq *a, const struct seq *b)
{
    if (a->owed != b->owed)
        return a->owed;
    return sched_is_read_before(a, b);
}

bool sched_is_read_before(const struct seq *a, const struct seq *b)
{
    if (a->priority != b->priority)
        return a->priority > b->priority;
    return a->turn != b->turn ? a->turn < b->turn : a->order < b->order;
}

void sched_wait(struct sched *sched, struct seq *seq)
{
    seq->phase = PHASE_WAITING;
    seq->last_scheduled_step = sched->step_last;
    struct list *place = &sched->waiting;
    while (place->prev != &sched->waiting &&
           sched_goes_before(seq, container_of(place->prev, struct seq, run_link)))
        place = place->prev;
    list_insert_before(place, &seq->run_link);
    seq->cache.hit_version = 0;
    seq->cache.fetched = false;
    seq->cache.fetch_end = 0;
    sched_cache_expect(sched, seq);
    sched_want(sched, seq);
    sched->waiting_count++;
    sched->gave_way_waiting += seq->gave_way;
    sched->waiting_tokens += seq->prefill_len - sched_share_part(seq);
    if (seq->siblings == NULL)
        return;
    seq->siblings->waiting++;
    seq->siblings->expected = seq->cache.expected;
}

void sched_unwait(struct sched *sched, struct seq *seq)
{
    list_remove(&seq->run_link);
    sched_unwant(sched, seq);
    sched->waiting_count--;
    sched->gave_way_waiting -= seq->gave_way;
    sched->waiting_tokens -= seq->prefill_len - sched_share_part(seq);
    if (seq->siblings != NULL)
        seq->siblings->waiting--;
}

/* They are told by one step. */
static void end_too_many(struct sched *sched, struct seq *seq, time_us now_us)
{
    struct error error;
    error_limit(&error, ERR_TOO_LARGE, sched->limits.scores_max, seq->next_count,
                "%u tokens to score, a step has %u (step-tokens)", seq->next_count,
                sched->limits.scores_max);
    sched_end_error(sched, seq, &error, now_us);
}

void sched_add(struct sched *sched, struct seq *seq, time_us now_us)
{
    uint32_t yield;
    assert(seq->prompt_len > 0 &&
           (seq->params.job != JOB_GENERATE || seq->sampling.max_tokens > 0));
    assert(sched_final_len(seq) <= sched->limits.context_max);
    sched->now_us = now_us;
    seq->order = sched->order_next++;
    seq->prefill_len = sched_final_len(seq);
    sched_begin_with(seq);
    if (sched_below(sched, seq, &yield) > 0 &&
        (!sched_expects_above(sched) || sched_level(seq) >= sched->above_level)) {
        sched->above_us = now_us;
        sched->above_level = sched_level(seq);
    }
    sched_share_join(sched, seq);
    sched_cache_join(seq);
    sched_wait(sched, seq);
    if (seq->mask != NULL) {
        seq->mask->forces = seq->sampling.logprobs < 0; /* else they have to be computed */
        seq->mask->told = seq->out_tokens;
        seq->mask->told_count = atomic_load_explicit(&seq->out_count, memory_order_relaxed);
        sched->calls.mask(sched->calls.context, seq, -1);
    }
    if (seq->prefill_len == 0) /* the score of a single token: nothing to compute */
        sched_end(sched, seq, FINISH_STOP, now_us);
    if (seq->next_count > sched->limits.scores_max)
        end_too_many(sched, seq, now_us);
}

void sched_count_slot(struct sched *sched, const struct seq *seq, bool has)
{
    uint32_t level = sched_level(seq);
    sched->slot_count += has ? 1 : -1;
    sched->level_slots[level] += has ? 1 : -1;
    if (sched_yields(seq))
        sched->level_yields[level] += has ? 1 : -1;
    if (!has && seq->phase == PHASE_DECODE) {
        sched->decode_count--;
        sched->decode_computed -= seq->num_computed;
    }
}

void sched_compute(struct sched *sched, struct seq *seq, uint32_t tokens)
{
    seq->num_computed += tokens;
    if (seq->phase == PHASE_DECODE)
        sched->decode_computed += tokens;
}

void sched_release_slot(struct sched *sched, struct seq *seq)
{
    sched_share_released(seq);
    sched_cache_released(sched, seq);
    kv_table_clear(&sched->kv, sched_table(sched, seq), sched->step_last);
    sched->slots_free[sched->slots_free_count++] = seq->slot;
    sched->closes_due[sched->closes_due_count++] = seq->slot;
    sched_count_slot(sched, seq, false);
}

/* Steps in flight name it no more: its memory may go. */
static void forget(struct sched *sched, struct seq *seq)
{
    for (uint64_t number = sched->step_done + 1; number <= sched->step_last; number++) {
        struct sched_step *step = sched_step_of(sched, number);
        for (uint32_t row = 0; row < step->plan.row_count; row++)
            if (step->row_seq[row] == seq)
                step->row_seq[row] = NULL;
    }
    for (uint64_t number = sched->sampling_done + 1; number <= sched->sampling_last; number++) {
        struct sched_sampling *sampling = sched_sampling_of(sched, number);
        for (uint32_t row = 0; row < sampling->plan.count; row++)
            if (sampling->seqs[row] == seq)
                sampling->seqs[row] = NULL;
    }
    seq->kept = seq->being_sampled = false;
    seq->in_flight = 0;
}

void sched_end(struct sched *sched, struct seq *seq, enum finish finish, time_us now_us)
{
    sched->now_us = now_us;
    if (seq->phase == PHASE_WAITING) {
        sched_unwait(sched, seq);
    } else {
        list_remove(&seq->run_link);
        if (seq->phase == PHASE_PREFILL || seq->phase == PHASE_DECODE)
            sched_release_slot(sched, seq);
    }
    sched_share_leave(sched, seq);
    sched_cache_leave(sched, seq);
    if (seq->in_flight > 0)
        forget(sched, seq);
    sched->gave_way_count -= seq->gave_way;
    seq->finish = finish;
    seq->stamps.ended_us = now_us;
    if (finish == FINISH_STOP || finish == FINISH_LENGTH)
        hist_add(&sched->stats->end_to_end, now_us - seq->arrived_us);
    sched->calls.ended(sched->calls.context, seq);
}

void sched_end_error(struct sched *sched, struct seq *seq, const struct error *error,
                     time_us now_us)
{
    *seq->failure = *error;
    sched_end(sched, seq, FINISH_ERROR, now_us);
}

void sched_cancel(struct sched *sched, struct seq *seq, enum finish reason, time_us now_us)
{
    sched_end(sched, seq, reason, now_us);
}

void sched_hand_back(struct sched *sched, time_us now_us)
{
    struct list *lists[] = {&sched->waiting, &sched->prefill, &sched->decode};
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
        for (struct list *link = lists[i]->prev, *before; link != lists[i]; link = before) {
            struct seq *seq = container_of(link, struct seq, run_link);
            before = link->prev;
            seq->handed_back = seq->in_flight == 0;
            if (seq->handed_back)
                sched_end(sched, seq, FINISH_CANCELLED, now_us);
        }
}

void sched_end_all(struct sched *sched, enum finish finish, const struct error *error,
                   time_us now_us)
{
    struct list *lists[] = {&sched->last, &sched->preempted, &sched->decode, &sched->prefill,
                            &sched->waiting};
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
        while (!list_empty(lists[i])) {
            struct seq *seq = container_of(lists[i]->next, struct seq, run_link);
            if (error != NULL)
                sched_end_error(sched, seq, error, now_us);
            else
                sched_end(sched, seq, finish, now_us);
        }
    sched_tier_forget(sched);
    sched_cache_give_up(sched);
}

/* ---- what it tells ----------------------------------------------------------------------------
 */

double sched_estimate_us(const struct sched *sched)
{
    double sum = 0;
    for (uint64_t step = sched->step_done + 1; step <= sched->step_last; step++)
        sum += sched->steps[step % (sched->limits.depth + 1)].estimate_us;
    return sum;
}

uint64_t sched_backlog(const struct sched *sched)
{
    uint64_t left = sched->waiting_tokens + sched_share_backlog(sched);
    list_each(link, &sched->prefill)
    {
        const struct seq *seq = container_of(link, struct seq, run_link);
        left += seq->prefill_len - seq->num_computed;
    }
    return left;
}

static uint64_t kv_tokens(const struct sched *sched, time_us now_us)
{
    uint64_t tokens = UINT64_MAX;
    for (uint32_t g = 0; g < sched->kv.group_count; g++) {
        const struct kv_group *group = &sched->kv.group[g];
        uint64_t blocks = group->free + group->retired + group->alone;
        if (now_us >= sched->group[g].grow_after_us)
            blocks += (uint64_t)(group->slabs_max - group->slabs) * group->slab_blocks;
        /* A window's share is bounded: it says something only once it is short. */
        if (group->window != 0 && blocks * sched->kv.block_tokens >= 2ull * group->window)
            continue;
        if (blocks * sched->kv.block_tokens < tokens)
            tokens = blocks * sched->kv.block_tokens;
    }
    return tokens;
}

struct replica_room sched_room(const struct sched *sched, time_us now_us)
{
    uint64_t backlog = sched_backlog(sched);
    /* What is promised: prompts that are here, and a block for each sequence that goes on. */
    uint64_t promised = backlog + (uint64_t)sched->slot_count * sched->kv.block_tokens;
    uint64_t tokens = kv_tokens(sched, now_us), ahead = sched_prompts_ahead(sched);
    struct replica_room room = {.ready = true};
    room.kv_tokens = tokens > promised ? tokens - promised : 0;
    room.prefill_tokens = ahead > backlog ? ahead - backlog : 0;
    if (sched->slots_free_count > sched->waiting_count)
        room.sequences = sched->slots_free_count - sched->waiting_count;
    room.gave_way = sched->gave_way_count;
    room.waiting = sched->waiting_count - sched->gave_way_waiting;
    struct cost_work work = {.rows = sched->waiting_count, .tokens = backlog};
    room.wait_us = (uint64_t)(sched_estimate_us(sched) + (backlog > 0 && cost_known(&sched->cost)
                                                              ? cost_predict_us(&sched->cost, &work)
                                                              : 0));
    room.token_ns = cost_token_ns(&sched->cost, sched->limits.tokens_max);
    room.copy_ns = (uint64_t)(sched->copy_us * 1000 / sched->kv.block_tokens);
    room.empty = sched->slot_count == 0 && sched->waiting_count == 0;
    room.starves = sched->stalled_since_us != 0 && !room.empty;
    return room;
}

/* Slabs go back, those that hold what is cached later than others. */
static time_us idle_due_us(const struct sched *sched)
{
    time_us cache_us = sched_cache_due_us(sched), due = SCHED_NEVER;
    if (!sched->shrunk || sched->cache.named_count == 0)
        due = sched->idle_since_us + sched->options.kv_idle_release_us;
    return cache_us < due ? cache_us : due;
}

time_us sched_due_us(const struct sched *sched)
{
    time_us due = SCHED_NEVER;
    bool work = sched->slot_count > 0 || sched->waiting_count > 0;
    if (!work && sched_in_flight(sched) == 0 && !sched->released && sched->idle_since_us != 0 &&
        !sched_tier_is_writing(sched)) /* its end brings the next turn */
        due = idle_due_us(sched);
    /* Work, but no step whose end would bring the next turn: memory is waited for. */
    if (work && sched_in_flight(sched) == 0 && sched->retry_us != 0)
        due = sched->retry_us;
    if (sched->hold_us != 0 && sched->hold_us < due)
        due = sched->hold_us;
    return due;
}
