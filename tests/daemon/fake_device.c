#include "tests/daemon/fake_device.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/kv.h"

#define RING 4
#define POISON (-77)

struct fake_slot {
    bool open;
    struct gpu_open settings;
    int32_t stop_ids[GPU_STOP_IDS_MAX];
    int32_t last; /* sampled token */
    bool has_last;
    uint32_t *table[GPU_GROUPS_MAX]; /* logical block -> block, KV_NONE */
    float pool[FAKE_HIDDEN];
    uint32_t pool_count;
};

struct fake_step {
    struct gpu_plan plan;
    struct gpu_sample *samples;
    struct gpu_top *tops;
    struct gpu_score *scores;
    float *rows;
    uint32_t sample_count, score_count, row_count;
    uint64_t start_ns, end_ns;
};

struct slab_state {
    bool exists, announced;
    uint64_t gone_after; /* step that may still use it */
};

struct gpu_engine {
    struct fake_shape shape;
    struct gpu_model model;
    struct gpu_limits limits;
    struct fake_knobs knobs;
    struct fake_counts counts;
    pthread_mutex_t lock;
    uint64_t random;
    struct fake_slot *slots;
    bool *open_told;                  /* as plans have it, ahead of what ran */
    int32_t *content[GPU_GROUPS_MAX]; /* [block * block_tokens] token at each position, or POISON */
    struct slab_state *slabs[GPU_GROUPS_MAX];
    struct fake_step steps[RING];
    uint64_t submitted, completed, now_ns;
    int wake_fd;
    char fault[256];
};

uint64_t fake_random(uint64_t *state)
{
    *state += 0x9e3779b97f4a7c15u;
    uint64_t z = *state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

uint32_t fake_below(uint64_t *state, uint32_t bound)
{
    return (uint32_t)(fake_random(state) % bound);
}

static void fault(struct gpu_engine *engine, const char *format, ...)
{
    va_list arguments;
    if (engine->fault[0] != '\0')
        return;
    va_start(arguments, format);
    vsnprintf(engine->fault, sizeof(engine->fault), format, arguments);
    va_end(arguments);
}

/* ---- the rule ---------------------------------------------------------------------------------
 */

static uint64_t mix(uint64_t hash, int32_t token)
{
    return (hash ^ (uint32_t)token) * 0x100000001b3u + 0x9e37u;
}

/* The token after a context whose full hash and window hash are these, at position `position`. */
static int32_t rule(uint64_t full, uint64_t window, const struct gpu_open *settings,
                    uint32_t position, uint32_t eos_every)
{
    uint64_t hash = mix(full ^ (window << 1), (int32_t)settings->seed);
    hash ^= hash >> 29;
    int32_t token = 10 + (int32_t)(hash % (FAKE_VOCAB - 10));
    bool end = eos_every > 0 && (hash >> 20) % eos_every == 0;
    return end && position >= settings->eos_from ? FAKE_EOS : token;
}

static float score_of(uint64_t full, int32_t target)
{
    return -(float)(mix(full, target) % 1000u) / 100.0f;
}

static float embed_of(uint64_t full, uint32_t dimension)
{
    return (float)(mix(full, (int32_t)dimension) % 1000u);
}

/* ---- plans ------------------------------------------------------------------------------------
 */

static void *copy(const void *from, size_t count, size_t size)
{
    void *to = malloc(count * size + 1);
    if (count > 0)
        memcpy(to, from, count * size);
    return to;
}

static void step_free(struct fake_step *step)
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
    free(step->rows);
    memset(step, 0, sizeof(*step));
}

static void check_bounds(struct gpu_engine *engine, const struct gpu_plan *plan)
{
    const struct gpu_limits *limits = &engine->limits;
    if (plan->step != engine->submitted + 1)
        fault(engine, "step %lu after %lu", (unsigned long)plan->step,
              (unsigned long)engine->submitted);
    if (engine->submitted - engine->completed >= limits->depth)
        fault(engine, "too many steps in flight");
    if (plan->close_count > limits->slots_max || plan->move_count > limits->moves_max ||
        plan->slab_count > limits->slabs_max || plan->open_count > limits->opens_max ||
        plan->append_count > limits->appends_max || plan->row_count > limits->rows_max ||
        plan->id_count > limits->ids_max || plan->bias_count > limits->bias_max ||
        plan->token_count > limits->tokens_max || plan->row_count == 0)
        fault(engine, "step %lu is over the limits", (unsigned long)plan->step);
}

static void check_block(struct gpu_engine *engine, uint32_t group, uint32_t block)
{
    uint32_t slab = block / engine->shape.slab_blocks;
    if (slab >= engine->shape.slabs_max || !engine->slabs[group][slab].exists ||
        !engine->slabs[group][slab].announced)
        fault(engine, "block %u of group %u is in no slab", block, group);
}

static void check_deltas(struct gpu_engine *engine, const struct gpu_plan *plan)
{
    for (uint32_t i = 0; i < plan->close_count; i++) {
        if (!engine->open_told[plan->closes[i]])
            fault(engine, "slot %u closed but not open", plan->closes[i]);
        engine->open_told[plan->closes[i]] = false;
    }
    for (uint32_t i = 0; i < plan->move_count; i++) {
        check_block(engine, plan->moves[i].group, plan->moves[i].from);
        check_block(engine, plan->moves[i].group, plan->moves[i].to);
    }
    for (uint32_t i = 0; i < plan->slab_count; i++) {
        struct slab_state *slab = &engine->slabs[plan->slabs[i].group][plan->slabs[i].slab];
        if (!slab->exists || slab->announced)
            fault(engine, "slab %u announced wrongly", plan->slabs[i].slab);
        slab->announced = true;
    }
    for (uint32_t i = 0; i < plan->open_count; i++) {
        if (engine->open_told[plan->opens[i].slot])
            fault(engine, "slot %u opened twice", plan->opens[i].slot);
        engine->open_told[plan->opens[i].slot] = true;
    }
    for (uint32_t i = 0; i < plan->append_count; i++) {
        check_block(engine, plan->appends[i].group, plan->appends[i].block);
        if (!engine->open_told[plan->appends[i].slot])
            fault(engine, "append to slot %u, which is closed", plan->appends[i].slot);
    }
}

static void check_rows(struct gpu_engine *engine, const struct gpu_plan *plan)
{
    bool *seen = calloc(engine->limits.slots_max, sizeof(*seen)), prompts = false;
    uint32_t tokens = 0, scores = 0, embeds = 0;
    for (uint32_t i = 0; i < plan->row_count; i++) {
        const struct gpu_row *row = &plan->rows[i];
        if (!engine->open_told[row->slot] || seen[row->slot])
            fault(engine, "row %u: slot %u is closed, or named twice", i, row->slot);
        seen[row->slot] = true;
        tokens += row->q_len;
        scores += row->score_count;
        embeds += row->want & GPU_EMBED_ALL                            ? row->q_len
                  : (row->want & (GPU_EMBED_LAST | GPU_POOL_OUT)) != 0 ? 1
                                                                       : 0;
        if (row->q_len == 0 || row->position + row->q_len > engine->limits.context_max)
            fault(engine, "row %u lies at %u + %u", i, row->position, row->q_len);
        if (row->input == GPU_LAST && (row->q_len != 1 || prompts))
            fault(engine, "row %u: a decode row is long, or behind a prompt", i);
        prompts |= row->input == GPU_IDS;
        uint32_t ids = row->q_len + (row->score_count == row->q_len);
        if (row->score_count > row->q_len ||
            (row->input == GPU_IDS && row->ids + ids > plan->id_count))
            fault(engine, "row %u: ids or targets out of the plan", i);
        engine->counts.decode_rows += row->input == GPU_LAST;
    }
    if (tokens != plan->token_count || scores > engine->limits.scores_max ||
        embeds > engine->limits.embeds_max)
        fault(engine, "tokens miscounted, or too many scores or embeddings");
    if (tokens > engine->counts.tokens_most)
        engine->counts.tokens_most = tokens;
    engine->counts.rows += plan->row_count;
    free(seen);
}

static void keep_step(struct gpu_engine *engine, const struct gpu_plan *plan)
{
    struct fake_step *step = &engine->steps[plan->step % RING];
    step_free(step);
    step->plan = *plan;
    step->plan.closes = copy(plan->closes, plan->close_count, sizeof(*plan->closes));
    step->plan.moves = copy(plan->moves, plan->move_count, sizeof(*plan->moves));
    step->plan.slabs = copy(plan->slabs, plan->slab_count, sizeof(*plan->slabs));
    step->plan.opens = copy(plan->opens, plan->open_count, sizeof(*plan->opens));
    step->plan.appends = copy(plan->appends, plan->append_count, sizeof(*plan->appends));
    step->plan.rows = copy(plan->rows, plan->row_count, sizeof(*plan->rows));
    step->plan.ids = copy(plan->ids, plan->id_count, sizeof(*plan->ids));
    step->plan.bias = copy(plan->bias, plan->bias_count, sizeof(*plan->bias));
    step->samples = calloc(plan->row_count + 1u, sizeof(*step->samples));
    step->tops = calloc((plan->row_count + 1u) * GPU_LOGPROBS_MAX, sizeof(*step->tops));
    step->scores = calloc(engine->limits.scores_max, sizeof(*step->scores));
    step->rows = calloc(engine->limits.embeds_max * FAKE_HIDDEN, sizeof(*step->rows));
}

/* ---- running a step ---------------------------------------------------------------------------
 */

static int32_t *at(struct gpu_engine *engine, const struct fake_slot *slot, uint32_t group,
                   uint32_t position)
{
    uint32_t tokens = engine->shape.block_tokens, block = slot->table[group][position / tokens];
    if (block == KV_NONE) {
        fault(engine, "no block for position %u in group %u", position, group);
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
        full = mix(full, *at(engine, slot, 0, i));
    if (engine->shape.group_count > 1) {
        uint32_t width = engine->shape.window;
        for (uint32_t i = position + 1 > width ? position + 1 - width : 0; i <= position; i++)
            window = mix(window, *at(engine, slot, 1, i));
    }
    *ret_full = full;
    *ret_window = window;
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
    int32_t token = rule(full, window, &slot->settings, position + 1, engine->knobs.eos_every);
    slot->last = token;
    slot->has_last = true;
    struct gpu_top *tops = &step->tops[step->sample_count * GPU_LOGPROBS_MAX];
    for (uint32_t i = 0; i < slot->settings.logprobs; i++)
        tops[i] = (struct gpu_top){.token = token + (int32_t)i, .logprob = -(float)i};
    step->samples[step->sample_count++] = (struct gpu_sample){.token = token,
                                                              .finished = is_end(slot, token),
                                                              .logprob = (float)-token,
                                                              .top_count = slot->settings.logprobs};
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
        slot->pool[d] += row->want & GPU_POOL_ADD ? embed_of(full, d) : 0;
    bool out = (row->want & GPU_EMBED_ALL) || (ends && row->want & (GPU_EMBED_LAST | GPU_POOL_OUT));
    if (!out)
        return;
    float *to = &step->rows[step->row_count++ * FAKE_HIDDEN];
    for (uint32_t d = 0; d < FAKE_HIDDEN; d++)
        to[d] =
            row->want & GPU_POOL_OUT ? slot->pool[d] / (float)slot->pool_count : embed_of(full, d);
}

static void run_row(struct gpu_engine *engine, struct fake_step *step, const struct gpu_row *row)
{
    struct fake_slot *slot = &engine->slots[row->slot];
    const int32_t *ids = step->plan.ids + row->ids;
    if (row->input == GPU_LAST && !slot->has_last)
        fault(engine, "slot %u has no last token", row->slot);
    for (uint32_t i = 0; i < row->q_len; i++)
        for (uint32_t g = 0; g < engine->shape.group_count; g++)
            *at(engine, slot, g, row->position + i) = row->input == GPU_LAST ? slot->last : ids[i];
    for (uint32_t i = 0; i < row->q_len; i++) {
        uint64_t full, window;
        if (i < row->score_count) {
            look(engine, slot, row->position + i, &full, &window);
            step->scores[step->score_count++] =
                (struct gpu_score){.logprob = score_of(full, ids[1 + i]), .top_token = ids[1 + i]};
        }
        embed(engine, step, slot, row, row->position + i);
    }
    if (row->want & GPU_SAMPLE)
        sample(engine, step, slot, row->position + row->q_len - 1);
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
        slot->pool_count = 0;
        memset(slot->pool, 0, sizeof(slot->pool));
        memcpy(slot->stop_ids, plan->ids + settings->stop_ids_first,
               settings->stop_ids_count * sizeof(int32_t));
        for (uint32_t g = 0; g < engine->shape.group_count; g++)
            for (uint32_t b = 0; b < blocks; b++)
                slot->table[g][b] = KV_NONE;
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
}

static void poison(struct gpu_engine *engine, uint32_t group, uint32_t slab)
{
    size_t count = (size_t)engine->shape.slab_blocks * engine->shape.block_tokens;
    for (size_t i = 0; i < count; i++)
        engine->content[group][slab * count + i] = POISON;
}

static void run_locked(struct gpu_engine *engine)
{
    struct fake_step *step = &engine->steps[(engine->completed + 1) % RING];
    run_deltas(engine, &step->plan);
    for (uint32_t i = 0; i < step->plan.row_count; i++)
        run_row(engine, step, &step->plan.rows[i]);
    step->start_ns = engine->now_ns;
    engine->now_ns += engine->knobs.step_ns * (10 + step->plan.token_count);
    step->end_ns = engine->now_ns;
    engine->completed++;
    engine->counts.completed++;
    for (uint32_t g = 0; g < engine->shape.group_count; g++)
        for (uint32_t slab = 0; slab < engine->shape.slabs_max; slab++)
            if (engine->slabs[g][slab].gone_after == engine->completed)
                poison(engine, g, slab);
    if (engine->wake_fd >= 0) {
        ssize_t written = write(engine->wake_fd, &(uint64_t){1}, sizeof(uint64_t));
        (void)written;
    }
}

bool fake_run(struct gpu_engine *engine)
{
    pthread_mutex_lock(&engine->lock);
    bool any = engine->completed < engine->submitted && !engine->knobs.dead;
    if (any)
        run_locked(engine);
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

/* ---- the functions of gpu.h that the worker calls ----------------------------------------------
 */

static int fake_start(struct gpu_engine *engine, uint32_t rank, int wake_fd, struct error *error)
{
    (void)rank;
    if (engine->knobs.dead)
        return error_set(error, ERR_BAD_MODEL, "cannot be loaded");
    engine->wake_fd = wake_fd;
    return 0;
}

static uint32_t fake_progress(const struct gpu_engine *engine)
{
    return engine->wake_fd >= 0 ? 1000 : 0;
}

static int fake_submit(struct gpu_engine *engine, uint32_t rank, const struct gpu_plan *plan,
                       struct error *error)
{
    (void)rank;
    pthread_mutex_lock(&engine->lock);
    int rc = 0;
    if (engine->knobs.dead || (engine->knobs.fail_step && plan->step >= engine->knobs.fail_step))
        rc = error_set(error, ERR_DEVICE, "the device was lost");
    else if (fake_below(&engine->random, 100) < engine->knobs.scratch_refused)
        rc = error_set(error, ERR_DEVICE_MEMORY, "no scratch memory");
    if (rc == 0) {
        check_bounds(engine, plan);
        check_deltas(engine, plan);
        check_rows(engine, plan);
        keep_step(engine, plan);
        engine->submitted++;
        engine->counts.submitted++;
        if (engine->knobs.at_once)
            run_locked(engine);
    }
    pthread_mutex_unlock(&engine->lock);
    return rc;
}

static uint64_t fake_completed(const struct gpu_engine *engine, uint32_t rank)
{
    (void)rank;
    struct gpu_engine *writable = (struct gpu_engine *)engine;
    pthread_mutex_lock(&writable->lock);
    uint64_t completed = engine->completed;
    pthread_mutex_unlock(&writable->lock);
    return completed;
}

static void fake_results(struct gpu_engine *engine, uint64_t number, struct gpu_results *ret)
{
    const struct fake_step *step = &engine->steps[number % RING];
    *ret = (struct gpu_results){.step = number,
                                .sample_count = step->sample_count,
                                .score_count = step->score_count,
                                .embed_count = step->row_count,
                                .samples = step->samples,
                                .tops = step->tops,
                                .scores = step->scores,
                                .embeddings = step->rows,
                                .start_ns = step->start_ns,
                                .end_ns = step->end_ns};
}

static enum gpu_progress fake_query(struct gpu_engine *engine, uint32_t rank, struct error *error)
{
    (void)rank;
    pthread_mutex_lock(&engine->lock);
    engine->counts.queries++;
    enum gpu_progress progress = engine->completed < engine->submitted ? GPU_BUSY : GPU_IDLE;
    if (engine->knobs.dead) {
        error_set(error, ERR_DEVICE, "the device was lost");
        progress = GPU_FAILED;
    }
    pthread_mutex_unlock(&engine->lock);
    return progress;
}

static int grow_locked(struct gpu_engine *engine, uint32_t group, uint32_t *ret_slab,
                       struct error *error)
{
    uint32_t slab = 0, max = engine->shape.slabs_max;
    if (engine->knobs.slabs_max > 0 && engine->knobs.slabs_max < max)
        max = engine->knobs.slabs_max;
    while (slab < max && engine->slabs[group][slab].exists)
        slab++;
    if (slab == max || fake_below(&engine->random, 100) < engine->knobs.grow_refused)
        return error_set(error, ERR_DEVICE_MEMORY, "no memory for a slab");
    if (engine->slabs[group][slab].gone_after > engine->completed)
        engine->slabs[group][slab].gone_after = 0; /* reused in stream order: poisoned below */
    engine->slabs[group][slab] = (struct slab_state){.exists = true};
    engine->counts.grown++;
    engine->counts.slabs++;
    *ret_slab = slab;
    return 0;
}

static int fake_grow(struct gpu_engine *engine, uint32_t group, uint32_t *ret_slab,
                     struct error *error)
{
    pthread_mutex_lock(&engine->lock);
    int rc = grow_locked(engine, group, ret_slab, error);
    pthread_mutex_unlock(&engine->lock);
    return rc;
}

static int fake_shrink(struct gpu_engine *engine, uint32_t group, uint32_t slab,
                       struct error *error)
{
    (void)error;
    pthread_mutex_lock(&engine->lock);
    struct slab_state *state = &engine->slabs[group][slab];
    if (!state->exists)
        fault(engine, "slab %u given back twice", slab);
    *state = (struct slab_state){.gone_after = engine->submitted};
    if (engine->submitted == engine->completed)
        poison(engine, group, slab);
    engine->counts.shrunk++;
    engine->counts.slabs--;
    pthread_mutex_unlock(&engine->lock);
    return 0;
}

static int fake_trim(struct gpu_engine *engine, struct error *error)
{
    (void)error;
    pthread_mutex_lock(&engine->lock);
    if (engine->submitted != engine->completed)
        fault(engine, "trimmed with a step in flight");
    engine->counts.trims++;
    pthread_mutex_unlock(&engine->lock);
    return 0;
}

static void fake_stop(struct gpu_engine *engine, uint32_t rank)
{
    (void)rank;
    while (fake_run(engine))
        continue;
    engine->wake_fd = -1;
}

const struct gpu_api fake_api = {.abi = GPU_ABI,
                                 .name = "fake",
                                 .start = fake_start,
                                 .progress = fake_progress,
                                 .submit = fake_submit,
                                 .completed = fake_completed,
                                 .results = fake_results,
                                 .query = fake_query,
                                 .kv_grow = fake_grow,
                                 .kv_shrink = fake_shrink,
                                 .trim = fake_trim,
                                 .stop = fake_stop,
                                 .close = fake_destroy};

/* ---- the engine -------------------------------------------------------------------------------
 */

struct gpu_engine *fake_create(const struct fake_shape *shape, uint64_t seed)
{
    struct gpu_engine *engine = calloc(1, sizeof(*engine));
    engine->shape = *shape;
    engine->random = seed;
    engine->wake_fd = -1;
    engine->knobs.step_ns = 1000;
    pthread_mutex_init(&engine->lock, NULL);
    engine->model = (struct gpu_model){.vocab = FAKE_VOCAB,
                                       .hidden = FAKE_HIDDEN,
                                       .block_tokens = shape->block_tokens,
                                       .context_max = shape->context_max,
                                       .group_count = shape->group_count};
    engine->limits = (struct gpu_limits){.slots_max = shape->slots_max,
                                         .rows_max = shape->slots_max,
                                         .tokens_max = shape->tokens_max,
                                         .opens_max = shape->slots_max,
                                         .appends_max = 4 * shape->slots_max + 64,
                                         .moves_max = shape->moves_max,
                                         .slabs_max = 8,
                                         .ids_max = shape->tokens_max + 2 * shape->slots_max + 65,
                                         .bias_max = GPU_BIAS_MAX,
                                         .scores_max = shape->scores_max,
                                         .embeds_max = shape->embeds_max,
                                         .context_max = shape->context_max,
                                         .depth = shape->depth};
    size_t blocks = (size_t)shape->slab_blocks * shape->slabs_max;
    uint32_t table = shape->context_max / shape->block_tokens + 1;
    for (uint32_t g = 0; g < shape->group_count; g++) {
        engine->model.groups[g] = (struct gpu_group){.window = g == 1 ? shape->window : 0,
                                                     .layers = 1,
                                                     .block_bytes = 1024,
                                                     .slab_blocks = shape->slab_blocks,
                                                     .slabs_max = shape->slabs_max};
        engine->content[g] = calloc(blocks * shape->block_tokens, sizeof(int32_t));
        engine->slabs[g] = calloc(shape->slabs_max, sizeof(struct slab_state));
    }
    engine->slots = calloc(shape->slots_max, sizeof(*engine->slots));
    engine->open_told = calloc(shape->slots_max, sizeof(*engine->open_told));
    for (uint32_t i = 0; i < shape->slots_max; i++)
        for (uint32_t g = 0; g < shape->group_count; g++)
            engine->slots[i].table[g] = calloc(table, sizeof(uint32_t));
    return engine;
}

void fake_destroy(struct gpu_engine *engine)
{
    for (uint32_t i = 0; i < RING; i++)
        step_free(&engine->steps[i]);
    for (uint32_t i = 0; i < engine->shape.slots_max; i++)
        for (uint32_t g = 0; g < engine->shape.group_count; g++)
            free(engine->slots[i].table[g]);
    for (uint32_t g = 0; g < engine->shape.group_count; g++) {
        free(engine->content[g]);
        free(engine->slabs[g]);
    }
    free(engine->slots);
    free(engine->open_told);
    pthread_mutex_destroy(&engine->lock);
    free(engine);
}

const struct gpu_model *fake_model(const struct gpu_engine *engine)
{
    return &engine->model;
}

const struct gpu_limits *fake_limits(const struct gpu_engine *engine)
{
    return &engine->limits;
}

struct fake_knobs *fake_knobs(struct gpu_engine *engine)
{
    return &engine->knobs;
}

struct fake_counts fake_counts(struct gpu_engine *engine)
{
    pthread_mutex_lock(&engine->lock);
    struct fake_counts counts = engine->counts;
    for (uint32_t i = 0; i < engine->shape.slots_max; i++)
        counts.open_slots += engine->slots[i].open;
    pthread_mutex_unlock(&engine->lock);
    return counts;
}

const char *fake_fault(struct gpu_engine *engine)
{
    return engine->fault;
}

/* ---- sequences --------------------------------------------------------------------------------
 */

struct seq *fake_seq(const struct fake_options *options, time_us now_us)
{
    struct seq *seq = calloc(1, sizeof(*seq));
    uint64_t random = options->seed;
    int32_t *prompt = calloc(options->prompt_len, sizeof(*prompt));
    for (uint32_t i = 0; i < options->prompt_len; i++)
        prompt[i] = 10 + (int32_t)fake_below(&random, FAKE_VOCAB - 10);
    uint32_t out =
        options->prompt_len > options->max_tokens ? options->prompt_len : options->max_tokens;
    uint32_t tops = options->logprobs > 0 ? (uint32_t)options->logprobs : 1;
    seq->id = options->seed;
    seq->job = options->job;
    seq->pooling = options->pooling;
    seq->priority = options->priority;
    seq->arrived_us = now_us;
    seq->sampling = (struct sampling){.top_p = 1,
                                      .repetition_penalty = 1,
                                      .seed = options->seed,
                                      .max_tokens = options->max_tokens,
                                      .min_tokens = options->min_tokens,
                                      .ignore_eos = options->ignore_eos,
                                      .logprobs = options->logprobs,
                                      .n = 1};
    seq->prompt = prompt;
    seq->prompt_len = options->prompt_len;
    seq->out_tokens = calloc(out, sizeof(*seq->out_tokens));
    seq->out_logprobs = calloc(out, sizeof(*seq->out_logprobs));
    seq->out_tops = calloc((size_t)out * tops, sizeof(*seq->out_tops));
    seq->out_scores = calloc(out, sizeof(*seq->out_scores));
    seq->out_rows = calloc((size_t)out * FAKE_HIDDEN, sizeof(*seq->out_rows));
    seq->failure = calloc(1, sizeof(*seq->failure));
    return seq;
}

void fake_seq_free(struct seq *seq)
{
    free((void *)seq->prompt);
    free(seq->out_tokens);
    free(seq->out_logprobs);
    free(seq->out_tops);
    free(seq->out_scores);
    free(seq->out_rows);
    free(seq->failure);
    free(seq);
}

static int32_t known(const struct seq *seq, uint32_t position)
{
    return position < seq->prompt_len ? seq->prompt[position]
                                      : seq->out_tokens[position - seq->prompt_len];
}

static uint64_t hash_of(const struct seq *seq, uint64_t start, uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++)
        start = mix(start, known(seq, i));
    return start;
}

static const char *check_tokens(const struct gpu_engine *engine, const struct seq *seq,
                                uint32_t count, bool complete)
{
    struct gpu_open settings = {.seed = seq->sampling.seed,
                                .eos_from = seq->sampling.ignore_eos
                                                ? UINT32_MAX
                                                : seq->prompt_len + seq->sampling.min_tokens};
    uint32_t width = engine->shape.window;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t length = seq->prompt_len + i;
        uint64_t window = 2, full = hash_of(seq, 1, 0, length);
        if (engine->shape.group_count > 1)
            window = hash_of(seq, 2, length > width ? length - width : 0, length);
        int32_t token = rule(full, window, &settings, length, engine->knobs.eos_every);
        if (seq->out_tokens[i] != token)
            return "a wrong token";
        if (token == FAKE_EOS && i + 1 < count)
            return "tokens after the end token";
        if (seq->sampling.logprobs >= 0 && seq->out_logprobs[i] != (float)-token)
            return "a wrong logprob";
        for (int32_t t = 0; t < seq->sampling.logprobs; t++)
            if (seq->out_tops[(size_t)i * (size_t)seq->sampling.logprobs + (size_t)t].token !=
                token + t)
                return "wrong likeliest tokens";
    }
    if (!complete)
        return "";
    if (seq->finish == FINISH_LENGTH)
        return count == seq->sampling.max_tokens ? "" : "length without max_tokens";
    return count > 0 && seq->out_tokens[count - 1] == FAKE_EOS ? "" : "stop without an end token";
}

static const char *check_embed(const struct seq *seq, uint32_t count)
{
    float sum[FAKE_HIDDEN] = {0};
    for (uint32_t p = 0; p < seq->prompt_len; p++) {
        uint64_t full = hash_of(seq, 1, 0, p + 1);
        for (uint32_t d = 0; d < FAKE_HIDDEN; d++) {
            sum[d] += embed_of(full, d);
            if (seq->pooling == POOLING_ALL && p < count &&
                seq->out_rows[p * FAKE_HIDDEN + d] != embed_of(full, d))
                return "a wrong embedding row";
            if (seq->pooling == POOLING_LAST && count == 1 && p + 1 == seq->prompt_len &&
                seq->out_rows[d] != embed_of(full, d))
                return "a wrong embedding";
        }
    }
    for (uint32_t d = 0; d < FAKE_HIDDEN; d++)
        if (seq->pooling == POOLING_MEAN && count == 1 &&
            seq->out_rows[d] != sum[d] / (float)seq->prompt_len)
            return "a wrong mean";
    return "";
}

const char *fake_check(const struct gpu_engine *engine, const struct seq *seq)
{
    uint32_t count = atomic_load(&seq->out_count);
    bool complete =
        seq->stamps.ended_us > 0 && (seq->finish == FINISH_STOP || seq->finish == FINISH_LENGTH);
    if (seq->job == JOB_GENERATE)
        return check_tokens(engine, seq, count, complete);
    uint32_t all = seq->job == JOB_SCORE         ? seq->prompt_len - 1
                   : seq->pooling == POOLING_ALL ? seq->prompt_len
                                                 : 1;
    if (complete && (count != all || seq->finish != FINISH_STOP))
        return "ended before everything was answered";
    if (seq->job == JOB_EMBED)
        return check_embed(seq, count);
    for (uint32_t i = 0; i < count; i++)
        if (seq->out_scores[i].logprob != score_of(hash_of(seq, 1, 0, i + 1), seq->prompt[i + 1]))
            return "a wrong score";
    return "";
}
