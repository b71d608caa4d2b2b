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

/* What follows on compute comes behind all copies. */
static int compute_follows(const struct rank *rank, struct error *error)
{
    cudaEvent_t event = NULL;
    CUDA_TRY(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), error);
    cudaError_t failed = cudaEventRecord(event, rank->lane.bulk_in);
    if (failed == cudaSuccess)
        failed = cudaStreamWaitEvent(rank->lane.compute, event, 0);
    (void)cudaEventDestroy(event);
    return failed == cudaSuccess ? 0 : cuda_fail(failed, "cudaStreamWaitEvent", error);
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
    int sent = kept_weights_send(kept, part, weights->memory, rank->lane.bulk_in, &why);
    if (sent == 0) {
        *ret_there = true;
        return compute_follows(rank, error);
    }
    /* Waits, at the start alone: what is loaded instead comes by other streams, too, and would be
     * written over by what was enqueued before one was refused. */
    CUDA_TRY(cudaStreamSynchronize(rank->lane.bulk_in), error);
    if (sent != -ERR_NO_MEMORY)
        *error = why;
    return sent == -ERR_NO_MEMORY ? 0 : sent;
}
