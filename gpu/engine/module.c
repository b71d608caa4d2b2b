/* The module's one symbol: the table of gpu/gpu.h. */
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/base/cuda_error.h"
#include "gpu/base/nvtx.h"
#include "gpu/engine/engine.h"

void engine_log(const struct gpu_engine *engine, enum gpu_log_level level, const char *format, ...)
{
    if (!engine->log)
        return;
    char line[ERROR_TEXT_MAX + 128];
    va_list values;
    va_start(values, format);
    vsnprintf(line, sizeof line, format, values);
    va_end(values);
    engine->log(level, line);
}

static void uuid_write(const cudaUUID_t *uuid, char text[48])
{
    size_t at = (size_t)snprintf(text, 48, "GPU-");
    for (int i = 0; i < 16; i++) {
        bool dash = i == 4 || i == 6 || i == 8 || i == 10;
        at += (size_t)snprintf(text + at, 48 - at, "%s%02x", dash ? "-" : "",
                               (unsigned char)uuid->bytes[i]);
    }
}

static int device_describe(int number, struct gpu_device *ret, struct error *error)
{
    struct cudaDeviceProp prop;
    CUDA_TRY(cudaGetDeviceProperties(&prop, number), error);
    CUDA_TRY(cudaSetDevice(number), error);
    size_t free_bytes = 0, total_bytes = 0;
    CUDA_TRY(cudaMemGetInfo(&free_bytes, &total_bytes), error);
    struct gpu_device device = {.memory_total = total_bytes, .memory_free = free_bytes};
    snprintf(device.name, sizeof device.name, "%.*s", (int)sizeof device.name - 1, prop.name);
    uuid_write(&prop.uuid, device.uuid);
    CUDA_TRY(cudaDeviceGetPCIBusId(device.pci, sizeof device.pci, number), error);
    *ret = device;
    return 0;
}

static int module_devices(struct gpu_device *devices, uint32_t max, uint32_t *ret_count,
                          struct error *error)
{
    int count = 0;
    CUDA_TRY(cudaGetDeviceCount(&count), error);
    for (int i = 0; i < count && (uint32_t)i < max; i++) {
        int status = device_describe(i, &devices[i], error);
        if (status)
            return status;
    }
    *ret_count = (uint32_t)count;
    return 0;
}

static int module_check(const struct gpu_options *options, struct gpu_model *ret_model,
                        struct error *error)
{
    struct engine_config facts;
    int status = device_prepare(options, error);
    if (!status)
        status = engine_config_make(options, &facts, error);
    if (status)
        return status;
    *ret_model = facts.model;
    engine_config_drop(&facts);
    return 0;
}

static struct rank *rank_of(const struct gpu_engine *engine, uint32_t number)
{
    assert(number < engine->rank_count);
    return engine_rank(engine, number);
}

/* The same, with its device current: the leader touches those of others too. */
static struct rank *rank_enter(const struct gpu_engine *engine, uint32_t number)
{
    struct rank *rank = rank_of(engine, number);
    if (engine->rank_count > 1)
        (void)cudaSetDevice(rank->device); /* it was current before; what follows tells */
    return rank;
}

/* Where sums go peer to peer a stage hands on the residual alone: all stages do that, or none. */
static void posts_agree(const struct gpu_engine *engine)
{
    const struct p2p_group *closed = NULL;
    for (uint32_t i = 0; i < engine->facts.pp; i++) {
        if (!engine->comms[i]->office.open)
            closed = &engine->comms[i]->office;
    }
    for (uint32_t i = 0; closed && i < engine->facts.pp; i++) {
        struct p2p_group *office = &engine->comms[i]->office;
        office->open = false;
        office->apart[0] = closed->apart[0];
        office->apart[1] = closed->apart[1];
    }
}

/* The ranks of a stage sum; the ranks of the same shard hand on, from stage to stage. */
static int ranks_join(struct gpu_engine *engine, const int *numbers, struct error *error)
{
    uint32_t tp = engine->facts.tp, pp = engine->facts.pp;
    int status = 0;
    for (uint32_t stage = 0; !status && tp > 1 && stage < pp; stage++)
        status = comm_group_make(tp, numbers + (size_t)stage * tp, &engine->comms[stage], error);
    if (status || pp == 1)
        return status;
    if (tp > 1)
        posts_agree(engine);
    for (uint32_t i = 0; i < engine->rank_count; i++) {
        struct rank *before = i >= tp ? engine_rank(engine, i - tp) : NULL;
        struct rank *rank = engine_rank(engine, i);
        pipeline_link_chain(&rank->link, before ? &before->link : NULL, rank->device);
    }
    for (uint32_t i = 0; i < engine->rank_count; i++)
        pipeline_link_ends(&engine_rank(engine, i)->link, &engine_rank(engine, i % tp)->link,
                           &engine_rank(engine, (pp - 1) * tp + i % tp)->link);
    return 0;
}

static void ranks_part(struct gpu_engine *engine)
{
    for (uint32_t i = 0; i < engine->rank_count; i++)
        pipeline_link_drop(&engine_rank(engine, i)->link);
    for (uint32_t i = 0; i < engine->facts.pp; i++)
        comm_group_free(engine->comms[i]);
    free(engine->more);
}

static int ranks_make(struct gpu_engine *engine, const int *devices, struct error *error)
{
    int numbers[GPU_DEVICES_MAX];
    uint32_t count = engine->facts.model.ranks;
    engine->more = count > 1 ? calloc(count - 1, sizeof *engine->more) : NULL;
    if (count > 1 && !engine->more)
        return error_set(error, ERR_NO_MEMORY, "no memory for %u ranks", count);
    engine->rank_count = count;
    for (uint32_t i = 0; i < count; i++) {
        struct rank *rank = rank_of(engine, i);
        rank->engine = engine;
        rank->number = i;
        rank->stage = i / engine->facts.tp;
        rank->shard = i % engine->facts.tp;
        rank->device = numbers[i] = devices ? devices[i] : (int)i;
    }
    int status =
        op_list_computes(&engine->facts.source.list) ? ranks_join(engine, numbers, error) : 0;
    if (status)
        ranks_part(engine);
    return status;
}

/* One set from a sequence's beginning to its end; --context-max says which. */
static void tell_rope(const struct gpu_engine *engine)
{
    const struct model *source = &engine->facts.source;
    if (source->config.rope_original)
        engine_log(engine, GPU_LOG_NOTICE,
                   "longrope: the %s factors, for a context of %u tokens (up to %u: the short ones)",
                   source->long_rope ? "long" : "short", engine->facts.model.context_max,
                   source->config.rope_original);
}

static int chunks_open(struct gpu_engine *engine, struct error *error)
{
    const struct engine_config *facts = &engine->facts;
    struct host_chunks sizes = {.count = facts->limits.chunks_max,
                                .ranks = engine->rank_count,
                                .limit = engine->host_limit};
    for (uint32_t g = 0; g < facts->model.group_count; g++) {
        sizes.blocks[g] = facts->model.groups[g].chunk_blocks;
        for (uint32_t i = 0; i < engine->rank_count; i++)
            sizes.block_bytes[g][i] = facts->block_bytes[i / facts->tp][g];
    }
    return host_chunks_open(&engine->chunks, &sizes, error);
}

static int module_open(const struct gpu_options *options, struct gpu_engine **ret_engine,
                       struct gpu_model *ret_model, struct gpu_limits *ret_limits,
                       struct error *error)
{
    struct gpu_engine *engine = calloc(1, sizeof *engine);
    if (!engine)
        return error_set(error, ERR_NO_MEMORY, "no memory for an engine");
    pthread_mutex_init(&engine->loading, NULL);
    int status = device_prepare(options, error);
    if (!status)
        status = engine_config_make(options, &engine->facts, error);
    if (!status && options->cache_dir) {
        engine->cache_dir = strdup(options->cache_dir);
        if (!engine->cache_dir)
            status = error_set(error, ERR_NO_MEMORY, "no memory for a path");
    }
    if (!status)
        status = ranks_make(engine, options->devices, error);
    if (status) {
        engine_config_drop(&engine->facts);
        free(engine->cache_dir);
        free(engine);
        return status;
    }
    engine->memory_limits = (struct mem_limits){
        .memory_max = options->memory_max,
        .memory_reserve = options->memory_reserve,
        .kv_max = options->kv_max,
    };
    engine->host_limit = options->host_limit;
    engine->kept = options->kept;
    status = chunks_open(engine, error);
    if (status) {
        ranks_part(engine);
        engine_config_drop(&engine->facts);
        free(engine->cache_dir);
        free(engine);
        return status;
    }
    engine->log = options->log;
    engine->seed = options->seed;
    engine->profile_steps = options->profile_steps;
    tell_rope(engine);
    *ret_engine = engine;
    *ret_model = engine->facts.model;
    *ret_limits = engine->facts.limits;
    return 0;
}

static int module_start(struct gpu_engine *engine, uint32_t rank, int wake_fd, struct error *error)
{
    int status = rank_start(rank_of(engine, rank), wake_fd, error);
    if (!status && rank == 0 && !arrival_on(&engine->rank.arrival))
        atomic_store_explicit(&engine->progress, 1000, memory_order_relaxed);
    return status;
}

static uint32_t module_progress(const struct gpu_engine *engine)
{
    return atomic_load_explicit(&engine->progress, memory_order_relaxed);
}

static int module_submit(struct gpu_engine *engine, uint32_t rank, const struct gpu_plan *plan,
                         struct error *error)
{
    nvtx_begin("step");
    int status = step_submit(rank_enter(engine, rank), plan, error);
    nvtx_end();
    return status;
}

static int module_reserve(struct gpu_engine *engine, uint32_t rank, const struct gpu_plan *plan,
                          struct error *error)
{
    return step_reserve(rank_enter(engine, rank), plan, error);
}

static void module_release(struct gpu_engine *engine, uint32_t rank)
{
    step_release(rank_enter(engine, rank));
}

static int module_sample(struct gpu_engine *engine, uint32_t rank,
                         const struct gpu_sampling *sampling, struct error *error)
{
    return sampling_submit(rank_enter(engine, rank), sampling, error);
}

static uint64_t module_sampled(const struct gpu_engine *engine, uint32_t number)
{
    const struct rank *rank = rank_of(engine, number);
    return rank->program.has_next_stage ? UINT64_MAX : streams_sampled(&rank->lane);
}

static void module_sampling_results(struct gpu_engine *engine, uint64_t number,
                                    struct gpu_results *ret_results)
{
    sampling_results(engine_sampler(engine), number, ret_results);
}

static uint64_t module_completed(const struct gpu_engine *engine, uint32_t rank)
{
    return streams_completed(&rank_of(engine, rank)->lane);
}

static void guesses_read(const struct result_layout *layout, const char *base,
                         struct gpu_results *ret)
{
    const struct result_head *first = NULL, *last = NULL;
    for (uint32_t j = 0; j < layout->draft_steps; j++) {
        last = (const struct result_head *)(base + layout->drafts[j]);
        first = j == 0 ? last : first;
        ret->guesses[j] = (const struct gpu_sample *)(last + 1);
    }
    ret->guesses_ns = first ? last->end_ns - first->start_ns : 0;
    if (layout->reads) {
        last = (const struct result_head *)(base + layout->drafts[layout->draft_steps]);
        ret->end_ns = last->end_ns;
    }
}

static void module_results(struct gpu_engine *engine, uint64_t step, struct gpu_results *ret)
{
    struct rank *rank = engine_sampler(engine);
    const struct ring_place *place = ring_at(&rank->ring, step);
    assert(place->step == step && streams_completed(&rank->lane) >= step);
    const struct result_layout *layout = &place->layout;
    const char *base = place->result_pinned;
    const struct result_head *head = place->result_pinned;
    *ret = (struct gpu_results){
        .step = step,
        .sample_count = layout->sample_count,
        .score_count = layout->score_count,
        .embed_count = layout->embed_count,
        .samples = (const struct gpu_sample *)(base + layout->samples),
        .tops = layout->tops ? (const struct gpu_top *)(base + layout->tops) : NULL,
        .scores = (const struct gpu_score *)(base + layout->scores),
        .score_tops =
            layout->score_tops ? (const struct gpu_top *)(base + layout->score_tops) : NULL,
        .embeddings = (const float *)(base + layout->embeds),
        .start_ns = head->start_ns,
        .end_ns = head->end_ns,
        .in_ns = profile_in_ns(&rank->lane.profile, step),
        .out_ns = profile_out_ns(&rank->lane.profile, step),
        .waited = place->waited,
    };
    guesses_read(layout, base, ret);
}

static void module_profile(struct gpu_engine *engine, uint32_t number, uint64_t step,
                           struct gpu_profile *ret)
{
    struct rank *rank = rank_enter(engine, number);
    const struct ring_place *place = ring_at(&rank->ring, step);
    assert(place->step == step && streams_completed(&rank->lane) >= step);
    const struct result_head *head = place->result_pinned;
    const struct gpu_span compute = {head->start_ns, head->end_ns};
    profile_read(&rank->lane.profile, step, compute, streams_told_ns(&rank->lane, step), ret);
}

static enum gpu_progress module_query(struct gpu_engine *engine, uint32_t rank, struct error *error)
{
    return rank_query(rank_enter(engine, rank), error);
}

static int slab_give(struct gpu_engine *engine, uint32_t number, uint32_t group, uint32_t slab,
                     struct error *error)
{
    struct rank *rank = rank_enter(engine, number);
    int status = slabs_shrink(&rank->slabs[group], slab, error);
    if (status)
        rank_die(rank);
    return status;
}

/* Refused: it has none, also where what follows the slab was refused memory. */
static int slab_take(struct gpu_engine *engine, uint32_t number, uint32_t group, uint32_t *ret_slab,
                     struct error *error)
{
    struct rank *rank = rank_enter(engine, number);
    int status = slabs_grow(&rank->slabs[group], ret_slab, error);
    bool taken = !status;
    if (taken && engine->facts.limits.chunks_max)
        status = streams_slab_there(&rank->lane, error);
    if (taken && status == -ERR_DEVICE_MEMORY &&
        slab_give(engine, number, group, *ret_slab, error))
        status = -ERR_DEVICE;
    if (status && status != -ERR_DEVICE_MEMORY)
        rank_die(rank);
    return status;
}

/* All ranks' tables look the same, so the lowest free number is the same on all. */
static int module_kv_grow(struct gpu_engine *engine, uint32_t group, uint32_t *ret_slab,
                          struct error *error)
{
    assert(group < engine->facts.model.group_count);
    uint32_t slab = 0, count = 0;
    int status = 0;
    for (; !status && count < engine->rank_count; count++) {
        uint32_t first = slab;
        status = slab_take(engine, count, group, &slab, error);
        assert(status || !count || slab == first);
    }
    for (uint32_t i = 0; status == -ERR_DEVICE_MEMORY && i + 1 < count; i++) {
        if (slab_give(engine, i, group, slab, error))
            status = -ERR_DEVICE;
    }
    if (!status)
        *ret_slab = slab;
    return status;
}

static int module_kv_shrink(struct gpu_engine *engine, uint32_t group, uint32_t slab,
                            struct error *error)
{
    assert(group < engine->facts.model.group_count);
    int status = 0;
    for (uint32_t i = 0; !status && i < engine->rank_count; i++)
        status = slab_give(engine, i, group, slab, error);
    return status;
}

static int module_adapter_load(struct gpu_engine *engine, uint32_t number,
                               const struct gpu_adapter *named, struct error *error)
{
    const struct engine_config *facts = &engine->facts;
    struct adapter adapter;
    if (facts->adapters.places == facts->adapters.count || !number ||
        number > facts->adapters.places)
        return error_set(error, ERR_BAD_CONFIG, "adapter %.64s: there is no place %u for it",
                         named->name, number);
    int status = adapter_open(named, &facts->adapters, &facts->source.list, &adapter, error);
    if (status)
        return status;
    pthread_mutex_lock(&engine->loading);
    if (engine->stopping)
        status = error_set(error, ERR_DRAINING, "the daemon ends");
    for (uint32_t i = 0; !status && i < engine->rank_count; i++)
        status = rank_adapter_load(rank_of(engine, i), &adapter, number, error);
    pthread_mutex_unlock(&engine->loading);
    adapter_drop(&adapter);
    return status;
}

static int module_kept_make(uint64_t limit, struct gpu_kept **ret_kept, struct error *error)
{
    return kept_weights_make(limit, device_traits.host_chunk_bytes, ret_kept, error);
}

static int module_chunk_make(struct gpu_engine *engine, uint32_t group, uint32_t chunk,
                             struct error *error)
{
    assert(group < engine->facts.model.group_count);
    /* Registered for all devices, by whichever of them; of a thread that has none current. */
    CUDA_TRY(cudaSetDevice(engine->rank.device), error);
    return host_chunks_make(&engine->chunks, group, chunk, error);
}

static void module_chunk_drop(struct gpu_engine *engine, uint32_t chunk)
{
    (void)cudaSetDevice(engine->rank.device); /* what follows tells */
    host_chunks_drop(&engine->chunks, chunk);
}

static int module_copy(struct gpu_engine *engine, uint32_t rank, const struct gpu_copies *copies,
                       struct error *error)
{
    return copies_submit(rank_enter(engine, rank), copies, error);
}

static uint64_t module_copied(const struct gpu_engine *engine, uint32_t rank, enum gpu_way way)
{
    return streams_copied(&rank_of(engine, rank)->lane, way);
}

static int module_trim(struct gpu_engine *engine, struct error *error)
{
    int status = 0;
    for (uint32_t i = 0; !status && i < engine->rank_count; i++)
        status = rank_trim(rank_enter(engine, i), error);
    return status;
}

static void module_memory(const struct gpu_engine *engine, uint32_t rank,
                          struct gpu_memory *ret_memory)
{
    mem_read(&rank_of(engine, rank)->mem, ret_memory);
    ret_memory->host_blocks = rank == 0 ? host_chunks_bytes(&engine->chunks) : 0;
}

static uint64_t counter(const _Atomic uint64_t *at)
{
    return atomic_load_explicit(at, memory_order_relaxed);
}

static void module_counters(const struct gpu_engine *engine, uint32_t number,
                            struct gpu_counters *ret_counters)
{
    const struct rank *rank = rank_of(engine, number);
    *ret_counters = (struct gpu_counters){
        .steps = counter(&rank->counters.steps),
        .graph_steps = counter(&rank->counters.graph_steps),
        .captures = counter(&rank->counters.captures),
        .allocations = counter(&rank->mem.numbers.late),
        .synchronizes = counter(&rank->lane.synchronizes),
        .pageable_copies = counter(&rank->counters.pageable_copies),
        .samplings = counter(&rank->counters.samplings),
        .blocks_out = counter(&rank->counters.copied[GPU_TO_HOST]),
        .blocks_in = counter(&rank->counters.copied[GPU_FROM_HOST]),
        .steps_ahead = counter(&rank->counters.steps_ahead),
    };
}

static int module_stop(struct gpu_engine *engine, uint32_t rank, struct error *error)
{
    pthread_mutex_lock(&engine->loading);
    engine->stopping = true;
    pthread_mutex_unlock(&engine->loading);
    return rank_stop(rank_enter(engine, rank), error);
}

static void module_close(struct gpu_engine *engine)
{
    for (uint32_t i = 0; i < engine->rank_count; i++)
        assert(!rank_of(engine, i)->started);
    engine_config_drop(&engine->facts);
    free(engine->cache_dir);
    /* Of a device that failed, a host function may still be running. The process ends soon. */
    if (atomic_load(&engine->failed))
        return;
    host_chunks_close(&engine->chunks);
    ranks_part(engine);
    free(engine);
}

__attribute__((visibility("default"))) const struct gpu_api gpu_module = {
    .abi = GPU_ABI,
    .name = device_name,
    .devices = module_devices,
    .check = module_check,
    .open = module_open,
    .start = module_start,
    .progress = module_progress,
    .submit = module_submit,
    .reserve = module_reserve,
    .release = module_release,
    .sample = module_sample,
    .sampled = module_sampled,
    .sampling_results = module_sampling_results,
    .completed = module_completed,
    .results = module_results,
    .profile = module_profile,
    .query = module_query,
    .kv_grow = module_kv_grow,
    .kv_shrink = module_kv_shrink,
    .adapter_load = module_adapter_load,
    .kept_make = module_kept_make,
    .kept_free = kept_weights_free,
    .kept_unpin = kept_weights_unpin,
    .kept_memory = kept_weights_memory,
    .keep = engine_keep,
    .device_give = device_give,
    .chunk_make = module_chunk_make,
    .chunk_drop = module_chunk_drop,
    .copy = module_copy,
    .copied = module_copied,
    .trim = module_trim,
    .memory = module_memory,
    .counters = module_counters,
    .stop = module_stop,
    .close = module_close,
};
