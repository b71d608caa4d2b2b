#include "tests/daemon/rig/fake_inner.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/sched/kv.h"

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

void fake_fail(struct gpu_engine *engine, const char *format, ...)
{
    va_list arguments;
    if (engine->fault[0] != '\0')
        return;
    va_start(arguments, format);
    vsnprintf(engine->fault, sizeof(engine->fault), format, arguments);
    va_end(arguments);
}

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
    return engine->wake_fd < 0 ? 0 : engine->knobs.weights_come ? 500 : 1000;
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
        fake_check_bounds(engine, plan);
        fake_check_deltas(engine, plan);
        fake_check_rows(engine, plan);
        fake_check_kept(engine, plan);
        fake_keep_step(engine, plan);
        engine->submitted++;
        engine->counts.submitted++;
        if (engine->knobs.at_once)
            fake_run_locked(engine);
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
    const struct fake_step *step = &engine->steps[number % FAKE_RING];
    *ret = (struct gpu_results){.step = number,
                                .sample_count = step->sample_count,
                                .score_count = step->score_count,
                                .embed_count = step->row_count,
                                .samples = step->samples,
                                .tops = step->tops,
                                .scores = step->scores,
                                .score_tops = step->score_tops,
                                .embeddings = step->rows,
                                .guesses_ns = step->guesses_ns,
                                .start_ns = step->start_ns,
                                .end_ns = step->end_ns,
                                .waited = engine->knobs.weights_come};
    for (uint32_t j = 0; j < GPU_DRAFTS_MAX; j++)
        ret->guesses[j] = step->guesses[j];
}

static enum gpu_progress fake_query(struct gpu_engine *engine, uint32_t rank, struct error *error)
{
    (void)rank;
    pthread_mutex_lock(&engine->lock);
    engine->counts.queries++;
    enum gpu_progress progress = fake_is_busy(engine) ? GPU_BUSY : GPU_IDLE;
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
        fake_fail(engine, "slab %u given back twice", slab);
    for (uint32_t i = 0; i < engine->shape.slab_blocks; i++)
        fake_check_block_copied(engine, group, slab * engine->shape.slab_blocks + i, false);
    *state = (struct slab_state){.gone_after = engine->submitted};
    if (engine->submitted == engine->completed)
        fake_poison(engine, group, slab);
    engine->counts.shrunk++;
    engine->counts.slabs--;
    pthread_mutex_unlock(&engine->lock);
    return 0;
}

static int fake_trim(struct gpu_engine *engine, struct error *error)
{
    (void)error;
    pthread_mutex_lock(&engine->lock);
    if (fake_is_busy(engine) || fake_is_copying(engine))
        fake_fail(engine, "trimmed with a step or a copy in flight");
    engine->counts.trims++;
    pthread_mutex_unlock(&engine->lock);
    return 0;
}

static int fake_stop(struct gpu_engine *engine, uint32_t rank, struct error *error)
{
    (void)rank;
    while (fake_run(engine))
        continue;
    engine->wake_fd = -1;
    return engine->knobs.keeps_memory ? error_set(error, ERR_DEVICE, "memory was not freed") : 0;
}

const struct gpu_api fake_api = {.abi = GPU_ABI,
                                 .name = "fake",
                                 .start = fake_start,
                                 .progress = fake_progress,
                                 .submit = fake_submit,
                                 .sample = fake_sample,
                                 .sampled = fake_sampled,
                                 .sampling_results = fake_sampling_results,
                                 .completed = fake_completed,
                                 .results = fake_results,
                                 .query = fake_query,
                                 .kv_grow = fake_grow,
                                 .kv_shrink = fake_shrink,
                                 .chunk_make = fake_chunk_make,
                                 .chunk_drop = fake_chunk_drop,
                                 .copy = fake_copy,
                                 .copied = fake_copied,
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
    engine->model = (struct gpu_model){.dtype = "f16",
                                       .vocab = FAKE_VOCAB,
                                       .hidden = FAKE_HIDDEN,
                                       .step_parameters = 10,
                                       .draft_parameters = shape->drafter ? 1 : 0,
                                       .draft_rereads = shape->rereads,
                                       .ranks = 1,
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
                                         .depth = shape->depth,
                                         .samplings_max = GPU_SAMPLINGS_MAX,
                                         .sampling_rows_max = GPU_SAMPLING_ROWS_MAX,
                                         .chunks_max = shape->chunks_max,
                                         .stages = shape->stages ? shape->stages : 1};
    if (shape->drafter) {
        engine->limits.drafts_max = GPU_DRAFTS_MAX;
        engine->limits.unread_max = shape->tokens_max;
        engine->limits.ids_max += engine->limits.unread_max;
    }
    if (shape->samplings_max > 0)
        engine->limits.samplings_max = shape->samplings_max;
    if (shape->sampling_rows_max > 0)
        engine->limits.sampling_rows_max = shape->sampling_rows_max;
    size_t blocks = (size_t)shape->slab_blocks * shape->slabs_max;
    uint32_t table = shape->context_max / shape->block_tokens + 1;
    for (uint32_t g = 0; g < shape->group_count; g++) {
        engine->model.groups[g] = (struct gpu_group){.window = g == 1 ? shape->window : 0,
                                                     .layers = 1,
                                                     .block_bytes = 1024,
                                                     .slab_blocks = shape->slab_blocks,
                                                     .slabs_max = shape->slabs_max,
                                                     .chunk_blocks = shape->chunk_blocks};
        engine->hosted[g] = calloc((size_t)shape->chunks_max * shape->chunk_blocks + 1,
                                   shape->block_tokens * sizeof(int32_t));
        engine->content[g] = calloc(blocks * shape->block_tokens, sizeof(int32_t));
        engine->slabs[g] = calloc(shape->slabs_max, sizeof(struct slab_state));
        engine->touched[g] = calloc(blocks, sizeof(uint64_t));
        engine->told[g] = calloc(shape->slots_max, sizeof(uint32_t *));
        for (uint32_t i = 0; i < shape->slots_max; i++)
            engine->told[g][i] = calloc(table, sizeof(uint32_t));
    }
    engine->chunks = calloc(shape->chunks_max + 1u, sizeof(*engine->chunks));
    engine->slots = calloc(shape->slots_max, sizeof(*engine->slots));
    engine->told_kept = calloc(shape->slots_max, sizeof(*engine->told_kept));
    engine->open_told = calloc(shape->slots_max, sizeof(*engine->open_told));
    for (uint32_t i = 0; i < shape->slots_max; i++)
        for (uint32_t g = 0; g < shape->group_count; g++)
            engine->slots[i].table[g] = calloc(table, sizeof(uint32_t));
    return engine;
}

void fake_destroy(struct gpu_engine *engine)
{
    for (uint32_t i = 0; i < FAKE_RING; i++)
        fake_step_free(&engine->steps[i]);
    for (uint32_t i = 0; i < engine->shape.slots_max; i++)
        for (uint32_t g = 0; g < engine->shape.group_count; g++)
            free(engine->slots[i].table[g]);
    for (uint32_t g = 0; g < engine->shape.group_count; g++) {
        for (uint32_t i = 0; i < engine->shape.slots_max; i++)
            free(engine->told[g][i]);
        free(engine->told[g]);
        free(engine->touched[g]);
        free(engine->content[g]);
        free(engine->hosted[g]);
        free(engine->slabs[g]);
    }
    free(engine->chunks);
    free(engine->slots);
    free(engine->open_told);
    free(engine->told_kept);
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
