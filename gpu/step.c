#include <assert.h>
#include <string.h>

#include "gpu/cuda.h"
#include "gpu/engine.h"
#include "gpu/kernels/move.h"
#include "gpu/kernels/null.h"
#include "gpu/kernels/publish.h"

/* One step on its way. */
struct step {
    struct rank *rank;
    const struct gpu_plan *plan;
    struct ring_place *place;
    struct result_layout layout;
    struct batch batch; /* bounded by what this step has */
    void *scratch;
    uint64_t scratch_bytes;
};

static void batch_bound(struct step *step)
{
    const struct gpu_plan *plan = step->plan;
    const struct result_layout *layout = &step->layout;
    struct batch *batch = &step->batch;
    *batch = step->rank->state.batch;
    batch->rows_max = plan->row_count;
    batch->tokens_max = plan->token_count;
    batch->samples_max = layout->sample_count;
    batch->scores_max = layout->score_count;
    batch->embeds_max = layout->embed_count;
    batch->moves_max = plan->move_count;
    batch->q_len_max = batch->context_max = 0;
    for (uint32_t i = 0; i < plan->row_count; i++) {
        const struct gpu_row *row = &plan->rows[i];
        if (row->q_len > batch->q_len_max)
            batch->q_len_max = row->q_len;
        if (row->position + row->q_len > batch->context_max)
            batch->context_max = row->position + row->q_len;
    }
}

static bool plan_opens_penalties(const struct gpu_plan *plan)
{
    for (uint32_t i = 0; i < plan->open_count; i++) {
        if (plan->opens[i].flags & GPU_SLOT_PENALTIES)
            return true;
    }
    return false;
}

/* All memory that the step needs. When that cannot be had, nothing of the step has happened. */
static int memory_take(struct step *step, struct error *error)
{
    struct rank *rank = step->rank;
    if (plan_opens_penalties(step->plan)) {
        int status = state_seen_take(&rank->state, &rank->mem, error);
        if (status)
            return status;
        step->batch.seen = rank->state.batch.seen;
    }
    step->scratch_bytes = rank->engine->facts.null ? step->batch.tokens_max * sizeof(uint64_t)
                          : step->batch.tokens_max
                              ? forward_scratch_bytes(&rank->forward, &step->batch)
                              : 0;
    if (!step->scratch_bytes)
        return 0;
    return mem_scratch(&rank->mem, step->scratch_bytes, &step->scratch, error);
}

static int memory_give(struct step *step, struct error *error)
{
    if (!step->scratch)
        return 0;
    int status = mem_scratch_free(&step->rank->mem, step->scratch, step->scratch_bytes, error);
    if (!status)
        step->scratch = NULL;
    return status;
}

static bool plan_wants_tops(const struct rank *rank, const struct gpu_plan *plan)
{
    for (uint32_t i = 0; i < plan->row_count; i++) {
        const struct gpu_row *row = &plan->rows[i];
        if ((row->want & (GPU_SAMPLE | GPU_LOGPROBS)) == (GPU_SAMPLE | GPU_LOGPROBS) &&
            rank->slots[row->slot].logprobs)
            return true;
    }
    return false;
}

static void *slab_base(const void *context, uint32_t group, uint32_t slab)
{
    const struct rank *rank = context;
    return rank->slabs[group].base[slab];
}

static int null_run(struct step *step, struct error *error)
{
    const struct state *state = &step->rank->state;
    char *result = step->place->result;
    struct null_args args = {
        .batch = step->batch,
        .samples = state->samples,
        .tops = state->tops,
        .scores = (struct gpu_score *)(result + step->place->layout.scores),
        .embeds = (float *)(result + step->place->layout.embeds),
        .states = step->scratch,
    };
    cudaStream_t compute = step->rank->lane.compute;
    CUDA_TRY(op_null(&args, compute), error);
    CUDA_TRY(op_null_results(&args, compute), error);
    return 0;
}

static bool plan_pools(const struct gpu_plan *plan)
{
    for (uint32_t i = 0; i < plan->row_count; i++) {
        if (plan->rows[i].want & GPU_POOL_ADD)
            return true;
    }
    return false;
}

static int model_run(struct step *step, struct error *error)
{
    const struct rank *rank = step->rank;
    if (rank->engine->facts.null)
        return null_run(step, error);
    char *result = step->place->result;
    struct forward_step forward = {
        .batch = step->batch,
        .samples = rank->state.samples,
        .tops = rank->state.tops,
        .scores = (struct gpu_score *)(result + step->place->layout.scores),
        .embeds = (float *)(result + step->place->layout.embeds),
        .counts = rank->penalty_slots > 0,
        .pools = plan_pools(step->plan),
        .scratch = step->scratch,
        .stream = rank->lane.compute,
    };
    return forward_run(&rank->forward, &forward, error);
}

static int kernels_run(struct step *step, struct error *error)
{
    struct rank *rank = step->rank;
    cudaStream_t compute = rank->lane.compute;
    struct expand_args expand = {
        .wire = step->place->plan, .batch = step->batch, .control = rank->state.control};
    CUDA_TRY(op_expand(&expand, compute), error);
    if (step->plan->move_count)
        CUDA_TRY(op_move(&(struct move_args){.batch = step->batch}, compute), error);
    int status = model_run(step, error);
    if (status)
        return status;
    struct publish_args publish = {
        .control = rank->state.control,
        .counts = rank->state.batch.counts,
        .samples = rank->state.samples,
        .tops = rank->state.tops,
        .samples_max = step->batch.samples_max,
    };
    CUDA_TRY(op_publish(&publish, compute), error);
    return 0;
}

static int step_enqueue(struct step *step, size_t plan_bytes, struct error *error)
{
    struct rank *rank = step->rank;
    struct ring_place *place = step->place;
    struct lane *lane = &rank->lane;
    int status = lane_plan_in(lane, place->plan, place->plan_pinned, plan_bytes, error);
    if (!status)
        status = kernels_run(step, error);
    if (!status)
        status = memory_give(step, error);
    if (!status)
        status =
            lane_results_out(lane, place->result_pinned, place->result, place->layout.bytes, error);
    if (!status)
        status = lane_notify(lane, step->plan->step, error);
    return status;
}

static void add(_Atomic uint64_t *counter, bool one)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + one,
                          memory_order_relaxed);
}

int step_submit(struct rank *rank, const struct gpu_plan *plan, struct error *error)
{
    if (rank->dead)
        return error_set(error, ERR_DEVICE, "the device failed before");
    plan_check(rank, plan);
    struct step step = {.rank = rank, .plan = plan, .place = ring_at(&rank->ring, plan->step)};
    uint32_t hidden = rank->engine->facts.model.hidden;
    result_layout_set(&step.layout, plan, hidden, false);
    batch_bound(&step);
    int status = memory_take(&step, error);
    if (status) {
        rank->dead = status != -ERR_DEVICE_MEMORY;
        return status;
    }
    plan_note(rank, plan);
    result_layout_set(&step.layout, plan, hidden, plan_wants_tops(rank, plan));
    step.place->layout = step.layout;
    step.place->step = plan->step;
    struct wire_source source = {
        .plan = plan,
        .layout = &step.place->layout,
        .result = step.place->result,
        .slab_base = slab_base,
        .context = rank,
    };
    size_t bytes = wire_write(step.place->plan_pinned, &source);
    assert(bytes <= rank->ring.plan_bytes);
    bool ahead = lane_completed(&rank->lane) != rank->submitted;
    status = step_enqueue(&step, bytes, error);
    if (status) {
        /* Half a step is in the streams: nothing after it can be right. */
        rank->dead = true;
        (void)memory_give(&step, NULL);
        if (error)
            error->code = ERR_DEVICE;
        return -ERR_DEVICE;
    }
    rank->submitted = plan->step;
    add(&rank->counters.steps, true);
    add(&rank->counters.steps_ahead, ahead);
    return 0;
}
