#include "gpu/launch.h"

#include "gpu/cuda.h"
#include "gpu/kernels/move.h"
#include "gpu/kernels/null.h"
#include "gpu/kernels/publish.h"

uint64_t launch_scratch_bytes(const struct rank *rank, const struct batch *batch)
{
    if (!batch->tokens_max)
        return 0;
    return rank->engine->facts.null ? batch->tokens_max * sizeof(uint64_t)
                                    : forward_scratch_bytes(&rank->forward, batch);
}

struct expand_args launch_expand(const struct launch *launch)
{
    const struct rank *rank = launch->rank;
    struct expand_args args = {
        .wire = launch->wire, .batch = launch->batch, .control = rank->state.control};
    if (!rank->engine->facts.null)
        args.first = forward_first(&rank->forward, &launch->batch, launch->scratch);
    if (!expand_begins(&args))
        args.first = (struct expand_first){.pairs = 0};
    return args;
}

/* Whether the last kernel of the model is the step's last. */
static bool model_publishes(const struct launch *launch)
{
    const struct rank *rank = launch->rank;
    return !rank->engine->facts.null && !rank->forward.hands_on && launch->batch.samples_max;
}

static int null_run(const struct launch *launch, struct error *error)
{
    const struct rank *rank = launch->rank;
    struct null_args args = {
        .batch = launch->batch,
        .samples = rank->state.samples,
        .tops = rank->state.tops,
        .scores = launch->scores,
        .embeds = launch->embeds,
        .states = launch->scratch,
    };
    CUDA_TRY(op_null(&args, rank->lane.compute), error);
    CUDA_TRY(op_null_results(&args, rank->lane.compute), error);
    return 0;
}

static int model_run(const struct launch *launch, bool begun, struct error *error)
{
    const struct rank *rank = launch->rank;
    if (rank->engine->facts.null)
        return null_run(launch, error);
    struct forward_step step = {
        .batch = launch->batch,
        .samples = rank->state.samples,
        .tops = rank->state.tops,
        .scores = launch->scores,
        .embeds = launch->embeds,
        .counts = launch->counts,
        .pools = launch->pools,
        .scratch = launch->scratch,
        .begun = begun,
        .control = model_publishes(launch) ? rank->state.control : NULL,
        .slots_max = rank->engine->facts.limits.slots_max,
        .stream = rank->lane.compute,
    };
    return forward_run(&rank->forward, &step, error);
}

int launch_run(const struct launch *launch, struct error *error)
{
    const struct rank *rank = launch->rank;
    cudaStream_t compute = rank->lane.compute;
    struct expand_args expand = launch_expand(launch);
    CUDA_TRY(op_expand(&expand, compute), error);
    if (launch->batch.moves_max)
        CUDA_TRY(op_move(&(struct move_args){.batch = launch->batch}, compute), error);
    int status = model_run(launch, expand.first.table.data != NULL, error);
    if (status || model_publishes(launch))
        return status;
    struct publish_args publish = {
        .control = rank->state.control,
        .counts = rank->state.batch.counts,
        .samples = rank->state.samples,
        .tops = rank->state.tops,
        .samples_max = rank->forward.hands_on ? 0 : launch->batch.samples_max,
        .slots = rank->state.batch.slots,
        .slots_max = rank->engine->facts.limits.slots_max,
    };
    CUDA_TRY(op_publish(&publish, compute), error);
    return 0;
}
