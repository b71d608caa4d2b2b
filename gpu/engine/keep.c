/* Weights to host memory while an engine serves, and back when one starts: a part for each rank,
 * and one behind them for a draft model, which there is with one rank alone. */
#include <assert.h>

#include "gpu/base/cuda_error.h"
#include "gpu/engine/engine.h"

/* ---- there -------------------------------------------------------------------------------------
 */

/* Beside steps, behind them in priority: the stream is this call's own. What is copied nobody
 * writes. */
static int chunk_copy(struct rank *rank, uint32_t part, uint32_t chunk,
                      const struct weights *weights, cudaStream_t stream, struct error *error)
{
    struct gpu_engine *engine = rank->engine;
    pthread_mutex_lock(&engine->loading);
    int status = engine->stopping ? error_set(error, ERR_DRAINING, "the engine ends") : 0;
    if (!status)
        status = kept_weights_copy(engine->kept, part, chunk, weights->memory, stream, error);
    /* Waits: this thread is the keeper's own, and no step waits for it; an engine that stops waits
     * for a chunk at most. Where the copy was refused none is under way. */
    cudaError_t failed = status ? cudaSuccess : cudaStreamSynchronize(stream);
    if (failed != cudaSuccess)
        status = cuda_fail(failed, "cudaStreamSynchronize", error);
    pthread_mutex_unlock(&engine->loading);
    return status;
}

static int part_keep(struct rank *rank, uint32_t part, const struct weights *weights,
                     struct error *error)
{
    struct gpu_kept *kept = rank->engine->kept;
    cudaStream_t stream = NULL;
    CUDA_TRY(cudaSetDevice(rank->device), error);
    int status = kept_weights_begin(kept, part, weights->bytes, error);
    if (status)
        return status;
    CUDA_TRY(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0), error);
    for (uint32_t i = 0; !status && i < kept->parts[part].count; i++) {
        status = kept_weights_take(kept, part, i, error);
        if (!status)
            status = chunk_copy(rank, part, i, weights, stream, error);
    }
    (void)cudaStreamDestroy(stream);
    return status;
}

static int ranks_keep(struct gpu_engine *engine, struct error *error)
{
    struct rank *first = engine_rank(engine, 0);
    const bool drafts = drafter_exists(&first->drafter);
    uint64_t bytes = drafts ? first->drafter.weights.bytes : 0;
    for (uint32_t i = 0; i < engine->rank_count; i++)
        bytes += engine_rank(engine, i)->weights.bytes;
    int status = kept_weights_reserve(engine->kept, bytes, error);
    for (uint32_t i = 0; !status && i < engine->rank_count; i++)
        status = part_keep(engine_rank(engine, i), i, &engine_rank(engine, i)->weights, error);
    if (!status && drafts)
        status = part_keep(first, keep_draft_part(engine), &first->drafter.weights, error);
    return status;
}

int engine_keep(struct gpu_engine *engine, struct error *error)
{
    struct gpu_kept *kept = engine->kept;
    if (!kept || !op_list_computes(&engine->facts.source.list))
        return 0;
    if (atomic_load(&kept->refused)) {
        kept_weights_drop(kept);
        return error_set(error, ERR_NO_MEMORY, "its pages were not registered again");
    }
    if (kept->whole)
        return 0;
    kept->device = engine->rank.device;
    int status = ranks_keep(engine, error);
    if (status)
        kept_weights_drop(kept);
    else
        kept->whole = true;
    return status;
}

/* ---- and back ----------------------------------------------------------------------------------
 */

/* Steps may begin before all is there. Not on several ranks, of which each would wait for the
 * others, nor with a draft model, whose small steps go first. */
static bool come_beside_steps(const struct gpu_engine *engine)
{
    return engine->rank_count == 1 && !engine->facts.draft.there;
}

static void all_came(void *progress)
{
    atomic_store_explicit((_Atomic uint32_t *)progress, 1000, memory_order_release);
}

/* What follows on compute, and with it the start, comes behind all copies. */
static int compute_follows(const struct rank *rank, struct error *error)
{
    struct arrival all = {.count = 0};
    int status = arrival_mark(&all, 1, rank->lane.bulk_in, error);
    if (!status)
        status = arrival_await(&all, 1, rank->lane.compute, error);
    arrival_close(&all);
    return status;
}

static int part_send(struct rank *rank, uint32_t part, const struct weights *weights,
                     struct error *error)
{
    struct gpu_kept *kept = rank->engine->kept;
    const bool beside = come_beside_steps(rank->engine);
    const uint32_t count = kept->parts[part].count, each = 1 + (count - 1) / ARRIVAL_EVENTS;
    int status = 0;
    for (uint32_t i = 0; !status && i < count; i++) {
        const bool last = i + 1 == count;
        const uint64_t end = last ? weights->bytes : (i + 1) * kept->chunk_bytes;
        status = kept_weights_send(kept, part, i, weights->memory, rank->lane.bulk_in, error);
        if (!status && beside && (last || (i + 1) % each == 0))
            status = arrival_mark(&rank->arrival, end, rank->lane.bulk_in, error);
    }
    if (status)
        return status;
    if (!beside)
        return compute_follows(rank, error);
    CUDA_TRY(cudaLaunchHostFunc(rank->lane.bulk_in, all_came, &rank->engine->progress), error);
    return 0;
}

uint32_t keep_draft_part(const struct gpu_engine *engine)
{
    _Static_assert(GPU_DEVICES_MAX > 1, "there is a part behind the only rank's");
    assert(engine->rank_count == 1);
    return 1;
}

int rank_weights_return(struct rank *rank, uint32_t part, const struct weights *weights,
                        bool *ret_there, struct error *error)
{
    struct gpu_kept *kept = rank->engine->kept;
    struct error why;
    *ret_there = false;
    if (!kept_weights_has(kept, part, weights->bytes))
        return 0;
    int sent = part_send(rank, part, weights, &why);
    *ret_there = sent == 0;
    if (sent == 0)
        return 0;
    /* Waits, at the start alone: what is loaded instead comes by other streams, too, and would be
     * written over by what was enqueued before one was refused. */
    arrival_close(&rank->arrival);
    CUDA_TRY(cudaStreamSynchronize(rank->lane.bulk_in), error);
    if (sent != -ERR_NO_MEMORY)
        *error = why;
    return sent == -ERR_NO_MEMORY ? 0 : sent;
}
