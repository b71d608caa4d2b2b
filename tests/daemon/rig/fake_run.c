#include "tests/daemon/rig/fake_inner.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/sched/kv.h"

static int32_t *at(struct gpu_engine *engine, const struct fake_slot *slot, uint32_t group,
                   uint32_t position)
{
    uint32_t tokens = engine->shape.block_tokens, block = slot->table[group][position / tokens];
    if (block == KV_NONE) {
        fake_fail(engine, "no block for position %u in group %u", position, group);
        block = 0;
    }
    return &engine->content[group][(size_t)block * tokens + position % tokens];
}

/* What a query at `position` sees. */
static void look(struct gpu_engine *engine, const struct fake_slot *slot, uint32_t position,
                 uint64_t *ret_full, uint64_t *ret_window)
{
    uint64_t full = 1, window = 2;
    for (uint32_t i = 0; i <= position; i++)
        full = fake_mix(full, *at(engine, slot, 0, i));
    if (engine->shape.group_count > 1) {
        uint32_t width = engine->shape.window;
        for (uint32_t i = position + 1 > width ? position + 1 - width : 0; i <= position; i++)
            window = fake_mix(window, *at(engine, slot, 1, i));
    }
    *ret_full = full;
    *ret_window = window;
}

/* A log-probability, or a part of an embedding, at this position. */
static float number(const struct gpu_engine *engine, uint32_t position, float value)
{
    uint32_t from = engine->knobs.overflow_from;
    return from && position >= from ? NAN : value;
}

static bool is_end(const struct fake_slot *slot, int32_t token)
{
    for (uint32_t i = 0; i < slot->settings.stop_ids_count; i++)
        if (slot->stop_ids[i] == token)
            return true;
    return token == FAKE_EOS;
}

static void sample(struct gpu_engine *engine, struct fake_step *step, struct fake_slot *slot,
                   uint32_t position)
{
    uint64_t full, window;
    look(engine, slot, position, &full, &window);
    int32_t token = fake_rule(full, window, &slot->settings, position + 1, &engine->knobs);
    slot->last = token;
    slot->has_last = true;
    struct gpu_top *tops = &step->tops[step->sample_count * GPU_LOGPROBS_MAX];
    for (uint32_t i = 0; i < slot->settings.logprobs; i++)
        tops[i] = (struct gpu_top){.token = token + (int32_t)i, .logprob = -(float)i};
    step->samples[step->sample_count++] =
        (struct gpu_sample){.token = token,
                            .finished = is_end(slot, token),
                            .logprob = number(engine, position, (float)-token),
                            .top_count = slot->settings.logprobs};
}

/* No token yet: what a sampling is to look at. */
static void keep(struct gpu_engine *engine, struct fake_step *step, struct fake_slot *slot,
                 uint32_t position)
{
    look(engine, slot, position, &slot->full, &slot->window);
    slot->has_last = false;
    step->samples[step->sample_count++] = (struct gpu_sample){.token = -1};
}

static void embed(struct gpu_engine *engine, struct fake_step *step, struct fake_slot *slot,
                  const struct gpu_row *row, uint32_t position)
{
    uint64_t full, window;
    bool ends = position + 1 == row->position + row->q_len;
    if (!(row->want & (GPU_POOL_ADD | GPU_EMBED_ALL)) && !(row->want & GPU_EMBED_LAST && ends))
        return;
    look(engine, slot, position, &full, &window);
    slot->pool_count += (row->want & GPU_POOL_ADD) != 0;
    for (uint32_t d = 0; d < FAKE_HIDDEN; d++)
        slot->pool[d] += row->want & GPU_POOL_ADD ? fake_embed(full, d) : 0;
    bool out = (row->want & GPU_EMBED_ALL) || (ends && row->want & (GPU_EMBED_LAST | GPU_POOL_OUT));
    if (!out)
        return;
    float *to = &step->rows[step->row_count++ * FAKE_HIDDEN];
    for (uint32_t d = 0; d < FAKE_HIDDEN; d++)
        to[d] = number(engine, position,
                       row->want & GPU_POOL_OUT ? slot->pool[d] / (float)slot->pool_count
                                                : fake_embed(full, d));
}

/* Every token is counted once, when it is known to stand. */
static void count(struct gpu_engine *engine, struct fake_slot *slot, const struct gpu_row *row,
                  const int32_t *ids)
{
    if (!(slot->settings.flags & GPU_SLOT_PENALTIES))
        return;
    if (row->position - row->uncounted != slot->counted)
        fake_fail(engine, "slot %u has seen %u tokens, and is told of those from %u on", row->slot,
                  slot->counted, row->position - row->uncounted);
    for (uint32_t i = 1; i <= row->uncounted; i++)
        if (*at(engine, slot, 0, row->position - i) != *(ids - i))
            fake_fail(engine, "slot %u is told of a token that is not there", row->slot);
    slot->counted = row->position + row->q_len - row->drafts;
}

static void score(struct gpu_engine *engine, struct fake_step *step, const struct fake_slot *slot,
                  const struct gpu_row *row, uint32_t target)
{
    uint64_t full, window;
    uint32_t token = row->score_from + target, last = row->q_len - 1;
    int32_t id = step->plan.ids[row->ids + token + 1];
    uint32_t position = row->position + (token < last ? token : last);
    look(engine, slot, position, &full, &window);
    for (uint32_t t = 0; row->want & GPU_LOGPROBS && t < slot->settings.logprobs; t++)
        step->score_tops[step->score_count * GPU_LOGPROBS_MAX + t] =
            (struct gpu_top){.token = id + (int32_t)t, .logprob = -(float)t};
    step->scores[step->score_count++] = (struct gpu_score){
        .logprob = number(engine, position, fake_score(full, id)), .top_token = id};
}

static void put(struct gpu_engine *engine, const struct fake_slot *slot, uint32_t position,
                int32_t id)
{
    for (uint32_t g = 0; g < engine->shape.group_count; g++)
        *at(engine, slot, g, position) = id;
}

/* What the draft model has read is what it was told to read, and of its guesses those that stand,
 * but a head reads these from the model. */
static void read_row(struct gpu_engine *engine, struct fake_slot *slot, const struct gpu_row *row)
{
    if (slot->guessed > 0) {
        uint32_t stood = row->position - slot->guessed_at - 1;
        uint32_t own = stood < slot->guessed ? stood : slot->guessed - 1;
        slot->read = slot->guessed_at + 1 + (engine->shape.rereads ? 0 : own);
    }
    slot->guessed = row->want & GPU_DRAFT ? row->drafts : 0;
    slot->guessed_at = row->position;
    if (!(row->want & GPU_DRAFT))
        return;
    if (row->position - row->unread != slot->read)
        fake_fail(engine, "slot %u: the draft model has read %u tokens, and reads on from %u",
                  row->slot, slot->read, row->position - row->unread);
    if (row->drafts == 0)
        slot->read = row->position + row->q_len;
}

/* Guesses of the draft model: what will be sampled, but for one here and there. */
static void guess(struct gpu_engine *engine, struct fake_step *step, struct fake_slot *slot,
                  const struct gpu_row *row, int32_t *ids)
{
    uint64_t full, window;
    for (uint32_t i = 1; i <= row->unread; i++)
        if (*at(engine, slot, 0, row->position - i) != *(step->plan.ids + row->ids - i))
            fake_fail(engine, "slot %u: the draft model is told of a token that is not there",
                      row->slot);
    for (uint32_t j = 0; j < row->drafts; j++) {
        uint32_t position = row->position + j, every = engine->knobs.guess_wrong_every;
        put(engine, slot, position, ids[j]);
        look(engine, slot, position, &full, &window);
        int32_t token = fake_rule(full, window, &slot->settings, position + 1, &engine->knobs);
        bool wrong = every > 0 && fake_mix(full, 7) % every == 0;
        ids[1 + j] = wrong ? (token + 1) % FAKE_VOCAB : token;
        step->guesses[j][step->guess_count[j]++] = (struct gpu_sample){.token = ids[1 + j]};
    }
    if (step->guesses_ns < row->drafts * engine->knobs.step_ns)
        step->guesses_ns = row->drafts * engine->knobs.step_ns;
}

static void run_row(struct gpu_engine *engine, struct fake_step *step, const struct gpu_row *row)
{
    struct fake_slot *slot = &engine->slots[row->slot];
    const int32_t *ids = step->plan.ids + row->ids;
    if (row->input == GPU_LAST && !slot->has_last)
        fake_fail(engine, "slot %u has no last token", row->slot);
    count(engine, slot, row, ids);
    read_row(engine, slot, row);
    int32_t made[1 + GPU_DRAFTS_MAX];
    if (row->want & GPU_DRAFT && row->drafts > 0) {
        made[0] = ids[0]; /* all that the plan has of them */
        guess(engine, step, slot, row, made);
        ids = made;
    }
    for (uint32_t i = 0; i < row->q_len; i++)
        put(engine, slot, row->position + i, row->input == GPU_LAST ? slot->last : ids[i]);
    for (uint32_t i = 0; i < row->score_count; i++)
        score(engine, step, slot, row, i);
    for (uint32_t i = 0; i < row->q_len; i++)
        embed(engine, step, slot, row, row->position + i);
    if (row->want & GPU_KEEP)
        keep(engine, step, slot, row->position + row->q_len - 1);
    else if (row->want & GPU_SAMPLE)
        for (uint32_t i = row->q_len - 1 - row->drafts; i < row->q_len; i++)
            sample(engine, step, slot, row->position + i);
    slot->has_last &= row->drafts == 0;
}

static void run_opens(struct gpu_engine *engine, const struct gpu_plan *plan)
{
    uint32_t blocks = engine->shape.context_max / engine->shape.block_tokens + 1;
    for (uint32_t i = 0; i < plan->open_count; i++) {
        const struct gpu_open *settings = &plan->opens[i];
        struct fake_slot *slot = &engine->slots[settings->slot];
        slot->open = true;
        slot->settings = *settings;
        slot->has_last = false;
        slot->counted = settings->first;
        slot->read = settings->first;
        slot->guessed = 0;
        slot->pool_count = 0;
        memset(slot->pool, 0, sizeof(slot->pool));
        memcpy(slot->stop_ids, plan->ids + settings->stop_ids_first,
               settings->stop_ids_count * sizeof(int32_t));
        for (uint32_t g = 0; g < engine->shape.group_count; g++)
            for (uint32_t b = 0; b < blocks; b++)
                slot->table[g][b] = KV_NONE;
    }
}

/* The tokens that are told to be before a sequence's first row are those that others have read. */
static void check_seen(struct gpu_engine *engine, const struct gpu_plan *plan,
                       const struct gpu_open *open)
{
    for (uint32_t i = 0; i < open->first && open->flags & GPU_SLOT_PENALTIES; i++)
        if (open->seen_first + i >= plan->id_count ||
            plan->ids[open->seen_first + i] != *at(engine, &engine->slots[open->slot], 0, i)) {
            fake_fail(engine, "slot %u is told a wrong token for position %u", open->slot, i);
            return;
        }
}

static void run_deltas(struct gpu_engine *engine, const struct gpu_plan *plan)
{
    uint32_t tokens = engine->shape.block_tokens;
    for (uint32_t i = 0; i < plan->close_count; i++)
        engine->slots[plan->closes[i]].open = false;
    for (uint32_t i = 0; i < plan->move_count; i++) {
        const struct gpu_move *move = &plan->moves[i];
        memcpy(&engine->content[move->group][(size_t)move->to * tokens],
               &engine->content[move->group][(size_t)move->from * tokens],
               tokens * sizeof(int32_t));
    }
    run_opens(engine, plan);
    for (uint32_t i = 0; i < plan->append_count; i++) {
        const struct gpu_append *append = &plan->appends[i];
        engine->slots[append->slot].table[append->group][append->index] = append->block;
    }
    for (uint32_t i = 0; i < plan->open_count; i++)
        check_seen(engine, plan, &plan->opens[i]);
}

void fake_poison(struct gpu_engine *engine, uint32_t group, uint32_t slab)
{
    size_t count = (size_t)engine->shape.slab_blocks * engine->shape.block_tokens;
    for (size_t i = 0; i < count; i++)
        engine->content[group][slab * count + i] = FAKE_POISON;
}

static void wake(const struct gpu_engine *engine)
{
    if (engine->wake_fd >= 0) {
        ssize_t written = write(engine->wake_fd, &(uint64_t){1}, sizeof(uint64_t));
        (void)written;
    }
}

void fake_run_locked(struct gpu_engine *engine)
{
    if (fake_sampling_is_next(engine)) {
        fake_run_sampling(engine);
        wake(engine);
        return;
    }
    struct fake_step *step = &engine->steps[(engine->completed + 1) % FAKE_RING];
    run_deltas(engine, &step->plan);
    for (uint32_t i = 0; i < step->plan.row_count; i++)
        run_row(engine, step, &step->plan.rows[i]);
    engine->now_ns += step->guesses_ns;
    step->start_ns = engine->now_ns;
    engine->now_ns += engine->knobs.step_ns * (10 + step->plan.token_count);
    step->end_ns = engine->now_ns;
    engine->completed++;
    engine->counts.completed++;
    for (uint32_t g = 0; g < engine->shape.group_count; g++)
        for (uint32_t slab = 0; slab < engine->shape.slabs_max; slab++)
            if (engine->slabs[g][slab].gone_after == engine->completed)
                fake_poison(engine, g, slab);
    wake(engine);
}

bool fake_is_busy(const struct gpu_engine *engine)
{
    return engine->completed < engine->submitted || engine->sampling_done < engine->sampling_last;
}

bool fake_run(struct gpu_engine *engine)
{
    pthread_mutex_lock(&engine->lock);
    bool any = fake_is_busy(engine) && !engine->knobs.dead;
    if (any)
        fake_run_locked(engine);
    pthread_mutex_unlock(&engine->lock);
    return any;
}

uint32_t fake_pending(struct gpu_engine *engine)
{
    pthread_mutex_lock(&engine->lock);
    uint32_t pending = (uint32_t)(engine->submitted - engine->completed);
    pthread_mutex_unlock(&engine->lock);
    return pending;
}
