#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "gpu/base/cuda_error.h"
#include "gpu/base/device.h"
#include "gpu/base/nvtx.h"
#include "gpu/engine/engine.h"
#include "gpu/engine/tune.h"
#include "gpu/engine/warmup.h"
#include "gpu/weights/loader.h"

/* Set-up runs on this thread's own default stream, and is waited for once. */
static int zero(void *device, uint64_t bytes, struct error *error)
{
    CUDA_TRY(cudaMemsetAsync(device, 0, bytes, cudaStreamPerThread), error);
    return 0;
}

static int memory_zero(struct rank *rank, struct error *error)
{
    int status = zero(rank->state.memory, rank->state.memory_bytes, error);
    for (uint32_t i = 0; !status && i < rank->ring.count; i++) {
        struct ring_place *place = &rank->ring.places[i];
        memset(place->plan_pinned, 0, rank->ring.plan_bytes);
        memset(place->result_pinned, 0, rank->ring.result_bytes);
        status = zero(place->plan, rank->ring.plan_bytes, error);
        if (!status)
            status = zero(place->result, rank->ring.result_bytes, error);
    }
    const struct sampling_ring *samplings = &rank->samplings;
    if (samplings->bytes)
        memset(samplings->places[0].masks_pinned, 0, samplings->bytes);
    if (!status && samplings->bytes)
        status = zero(samplings->places[0].masks, samplings->bytes, error);
    return status;
}

/* What is this rank's of the model: ops, and the size of their KV. */
static int part_make(struct rank *rank, struct error *error)
{
    const struct engine_config *facts = &rank->engine->facts;
    struct program *program = &rank->program;
    memcpy(rank->groups, facts->model.groups, sizeof rank->groups);
    *program = (struct program){
        .list = &facts->source.list,
        .weights = &rank->weights,
        .arrival = &rank->arrival,
        .adapters = facts->adapters.places ? &rank->adapters : NULL,
        .comm = rank->engine->comms[rank->stage] ? &rank->comm : NULL,
        .dtype = facts->dtype,
        .kv = facts->kv,
        .invariant = facts->invariant,
        .eos_count = facts->model.eos_count,
        .eos = facts->model.eos,
        .block_tokens = facts->model.block_tokens,
        .slots_max = facts->limits.slots_max,
        .has_prev_stage = rank->link.before != NULL,
        .has_next_stage = rank->link.after != NULL,
    };
    int status = facts_stage(facts, rank->stage, &program->ops, &program->op_count, error);
    for (uint32_t i = 0; !status && facts->pp > 1 && i < facts->model.group_count; i++) {
        struct gpu_group *group = &rank->groups[i];
        group->block_bytes = program_block_bytes(program->list, program->ops, program->op_count, i,
                                                 program->block_tokens, program->kv);
        group->layers = 0;
        for (uint32_t j = 0; j < program->op_count; j++)
            group->layers +=
                program->ops[j].kind == OP_ATTENTION && program->ops[j].attention.group == i;
    }
    return status;
}

static struct adapter_layers layers_of(const struct rank *rank)
{
    const uint32_t *first = &rank->engine->facts.first[rank->stage];
    return (struct adapter_layers){first[0], first[1]};
}

static int weights_make(struct rank *rank, struct error *error)
{
    struct gpu_engine *engine = rank->engine;
    const struct program *program = &rank->program;
    struct weights_source source =
        facts_weights(&engine->facts, program->ops, program->op_count, rank->shard);
    source.seed = engine->seed;
    int status = weights_open(&rank->weights, &rank->mem, &source, error);
    if (status || !op_list_computes(program->list))
        return status;
    _Atomic uint32_t unseen = 0; /* the leader's progress stands for all */
    struct loader loader = {
        .lane = &rank->lane,
        .mem = &rank->mem,
        .source = &source,
        .weights = &rank->weights,
        .progress = rank->number ? &unseen : &engine->progress,
    };
    bool there = false;
    nvtx_begin("load");
    status = rank_weights_return(rank, rank->number, &rank->weights, &there, error);
    if (!status && !there)
        status = loader_run(&loader, error);
    if (!status)
        status = adapter_weights_open(&rank->adapters, &engine->facts.adapters, layers_of(rank),
                                      &source, &rank->lane, &rank->mem, error);
    nvtx_end();
    return status ? status : drafter_load(rank, error);
}

/* Once all has its place. */
static int program_make(struct rank *rank, struct error *error)
{
    struct program *program = &rank->program;
    program->control = rank->state.control;
    program->samples = rank->state.samples;
    program->tops = rank->state.tops;
    program->stream = rank->lane.compute;
    rank->graphs.program = program;
    rank->graphs.batch = &rank->state.batch;
    int status = program_open(program, error);
    return status ? status : drafter_open(rank, error);
}

/* To the ranks of the same stage, and to the stages before and after. */
static int links_open(struct rank *rank, struct error *error)
{
    const struct engine_config *facts = &rank->engine->facts;
    struct comm_group *comms = rank->engine->comms[rank->stage];
    struct p2p_model model = {.vocab = facts->model.vocab,
                              .wide = op_list_has(&facts->source.list, OP_WIDE_NORM)};
    int status = comms ? comm_open(&rank->comm, comms, rank->shard, model, &rank->mem, error) : 0;
    if (status || !rank->link.first)
        return status;
    struct pipeline_link_limits limits = {
        .state_bytes = (uint64_t)facts->limits.tokens_max * facts->model.hidden * sizeof(float),
        .slots = facts->limits.slots_max,
        .places = facts->limits.depth + 1,
        .profile = &rank->lane.profile,
    };
    return pipeline_link_open(&rank->link, &rank->mem, &limits, error);
}

static int memory_open(struct rank *rank, struct error *error)
{
    const struct engine_config *facts = &rank->engine->facts;
    int status = part_make(rank, error);
    if (!status)
        status = links_open(rank, error);
    if (!status)
        status = weights_make(rank, error);
    if (!status)
        status = ring_open(&rank->ring, &rank->mem, &facts->limits, facts->model.hidden, error);
    if (!status && !rank->program.has_next_stage)
        status = sampling_ring_open(rank, error);
    if (!status)
        status = state_open(&rank->state, &rank->mem, &facts->model, rank->groups, &facts->limits,
                            error);
    if (!status)
        status = program_make(rank, error);
    if (!status)
        kept_measure(rank);
    for (uint32_t i = 0; !status && i < facts->model.group_count; i++)
        status = slabs_open(&rank->slabs[i], &rank->mem, &rank->groups[i], error);
    if (status)
        return status;
    rank->slots = calloc(facts->limits.slots_max, sizeof *rank->slots);
    if (!rank->slots)
        return error_set(error, ERR_NO_MEMORY, "no memory for %u slots", facts->limits.slots_max);
    return memory_zero(rank, error);
}

void rank_die(struct rank *rank)
{
    struct gpu_engine *engine = rank->engine;
    rank->dead = true;
    if (atomic_exchange(&engine->failed, true))
        return;
    for (uint32_t i = 0; i < engine->facts.pp; i++) {
        if (engine->comms[i])
            comm_abort(engine->comms[i]);
    }
    for (uint32_t i = 0; i < engine->rank_count; i++)
        pipeline_link_abort(&engine_rank(engine, i)->link);
}

int rank_lost(struct rank *rank, struct error *error)
{
    rank_die(rank);
    if (error)
        error->code = ERR_DEVICE;
    return -ERR_DEVICE;
}

static void tell_how_sums_go(const struct rank *rank)
{
    const struct p2p_group *office = &rank->comm.group->office;
    if (office->ranks > INBOX_RANKS_MAX)
        engine_log(rank->engine, GPU_LOG_NOTICE,
                   "sums over more than %d devices all go through the communicator",
                   INBOX_RANKS_MAX);
    else if (!office->open)
        engine_log(rank->engine, GPU_LOG_WARNING,
                   "device %d does not reach the memory of device %d: all sums go through the "
                   "communicator",
                   office->apart[0], office->apart[1]);
}

/* What steps left in the pools, in stream order. */
static int pools_empty(struct rank *rank, struct error *error)
{
    int status = 0, next;
    for (uint32_t i = 0; i < GPU_GROUPS_MAX; i++) {
        next = slabs_close(&rank->slabs[i], status ? NULL : error);
        status = first_failure(status, next);
    }
    next = state_seen_give(&rank->state, &rank->mem, status ? NULL : error);
    status = first_failure(status, next);
    next = state_kept_give(&rank->state, &rank->mem, status ? NULL : error);
    status = first_failure(status, next);
    next = cuda_graph_drop(rank, &rank->graphs, status ? NULL : error);
    status = first_failure(status, next);
    next = drafter_close(rank, status ? NULL : error);
    return first_failure(status, next);
}

/* A device that does not take its memory back has failed: nobody may count on what it would hold
 * beside the next engine. */
static int rank_close(struct rank *rank, struct error *error)
{
    int status = pools_empty(rank, error), next = 0;
    free(rank->slots);
    rank->slots = NULL;
    program_close(&rank->program);
    weights_close(&rank->weights);
    adapter_weights_close(&rank->adapters);
    if (!rank->dead) /* the frees are in the compute stream; copies of weights may be under way */
        next = streams_finish(&rank->lane, status ? NULL : error);
    status = first_failure(status, next);
    arrival_close(&rank->arrival);
    comm_close(&rank->comm);
    pipeline_link_close(&rank->link);
    next = mem_close(&rank->mem, status ? NULL : error);
    status = first_failure(status, next);
    streams_close(&rank->lane);
    return status ? rank_lost(rank, error) : 0;
}

int rank_start(struct rank *rank, int wake_fd, struct error *error)
{
    assert(!rank->started);
    int status = device_take(rank->device, error);
    if (!status)
        status = streams_open(&rank->lane, wake_fd, rank->engine->profile_steps, error);
    if (status)
        return status;
    status =
        mem_open(&rank->mem, rank->device, rank->lane.compute, &rank->engine->memory_limits, error);
    if (status) {
        streams_close(&rank->lane);
        return status;
    }
    status = memory_open(rank, error);
    if (!status) {
        /* Set-up went over this thread's own stream, which no event orders before the lane's: the
         * one wait for it, before the first step. It also shows what failed in the copies till
         * here. */
        cudaError_t failed = cudaStreamSynchronize(cudaStreamPerThread);
        if (failed != cudaSuccess)
            status = cuda_fail(failed, "cudaStreamSynchronize", error);
        else
            status = streams_synchronize(&rank->lane, error);
    }
    if (!status)
        status = tuner_run(rank, error);
    if (!status)
        status = warmup_run(rank, error);
    if (!status)
        status = warm_least(rank, error);
    if (status == -ERR_DEVICE_MEMORY && rank->mem.own_limit)
        status = -(error->code = ERR_BAD_CONFIG); /* no restart helps */
    if (status) {
        /* Of a refusal that is no longer all there is to say. */
        struct error why;
        if (rank_close(rank, &why) && status != -ERR_DEVICE) {
            status = -why.code;
            if (error)
                *error = why;
        }
        return status;
    }
    /* A model that computes nothing has nothing to win by graphs. */
    rank->graphs.off = !op_list_computes(rank->program.list);
    mem_settle(&rank->mem);
    rank->started = true;
    if (rank->comm.group && !rank->number)
        tell_how_sums_go(rank);
    return 0;
}

/* Any thread. Steps that were submitted before may have a row of what was in the place. */
static int steps_await(const struct rank *rank, struct error *error)
{
    const struct timespec pause = {.tv_nsec = 200000};
    uint64_t last = atomic_load(&rank->counters.steps);
    while (streams_completed(&rank->lane) < last) {
        if (atomic_load(&rank->engine->failed))
            return error_set(error, ERR_DEVICE, "the device failed before");
        (void)nanosleep(&pause, NULL);
    }
    return 0;
}

int rank_adapter_load(struct rank *rank, const struct adapter *adapter, uint32_t number,
                      struct error *error)
{
    const struct engine_config *facts = &rank->engine->facts;
    const struct weights_source like = facts_weights(facts, NULL, 0, rank->shard);
    CUDA_TRY(cudaSetDevice(rank->device), error);
    int status = steps_await(rank, error);
    return status ? status
                  : adapter_weights_load(&rank->adapters, &facts->adapters, layers_of(rank),
                                         adapter, number, &like, error);
}

/* A step that nobody wants, too. Of an engine with a dead rank the others may be waiting for it. */
static int steps_end(struct rank *rank, struct error *error)
{
    if (rank->dead || atomic_load(&rank->engine->failed))
        return error_set(error, ERR_DEVICE, "the device failed before");
    int status = pipeline_link_drain(&rank->link, error);
    return status ? status : streams_finish(&rank->lane, error);
}

int rank_stop(struct rank *rank, struct error *error)
{
    if (!rank->started)
        return 0;
    step_release(rank);
    int status = steps_end(rank, error);
    if (status)
        status = rank_lost(rank, error);
    int closed = rank_close(rank, status ? NULL : error);
    rank->started = false;
    return first_failure(status, closed);
}

enum gpu_progress rank_query(struct rank *rank, struct error *error)
{
    /* notify comes last in every step, and its wait shows the errors of all the others. */
    cudaError_t status = cudaStreamQuery(rank->lane.notify);
    if (status == cudaSuccess)
        return GPU_IDLE;
    if (status == cudaErrorNotReady)
        return GPU_BUSY;
    rank_die(rank);
    struct error why;
    int code = cuda_fail(status, "cudaStreamQuery", &why);
    (void)error_set(error, -code, "device %d: %s", rank->device, why.text);
    return GPU_FAILED;
}

int rank_trim(struct rank *rank, struct error *error)
{
    assert(streams_completed(&rank->lane) == rank->submitted);
    assert(streams_sampled(&rank->lane) == rank->samplings.submitted);
    for (enum gpu_way way = 0; way < GPU_WAYS; way++)
        assert(streams_copied(&rank->lane, way) == rank->lane.copying[way]);
    /* Slots that are open here are so for want of a plan that closes them. */
    int status = state_seen_give(&rank->state, &rank->mem, error);
    if (!status)
        status = state_kept_give(&rank->state, &rank->mem, error);
    if (!status)
        status = cuda_graph_drop(rank, &rank->graphs, error);
    if (!status)
        status = cuda_graph_drop(rank, &rank->drafter.graphs, error);
    /* What was freed in stream order goes back to the device only after the host has seen the
     * stream pass the frees. No step is in flight, so there is nothing but them to wait for. */
    if (!status)
        status = streams_synchronize(&rank->lane, error);
    if (!status)
        status = mem_trim(&rank->mem, error);
    if (status)
        rank_die(rank);
    return status;
}
