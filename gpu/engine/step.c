#include <assert.h>
#include <string.h>

#include "gpu/base/cuda_error.h"
#include "gpu/base/nvtx.h"
#include "gpu/engine/engine.h"
#include "gpu/kernels/attention/attention.h"

/* One step on its way. */
struct step {
    struct rank *rank;
    const struct gpu_plan *plan;
    struct ring_place *place;
    struct result_layout layout;
    struct launch launch;
    bool cuda_graph_fits; /* it may run as a graph */
    bool graph_there;     /* and that is captured */
    struct cuda_graph_key graph;
    bool keeps;           /* some slot keeps logits */
    bool scratch_held;
    uint64_t scratch_bytes;
    uint64_t tokens_of; /* the step whose tokens come from the last stage; 0: none do */
    struct pack_place wires;
    bool reads; /* the draft model reads its rows */
};

void step_bound(const struct gpu_plan *plan, struct batch *batch)
{
    struct result_layout counted, *layout = &counted;
    result_layout_set(layout, plan, 0, (struct result_more){0});
    batch->rows_max = plan->row_count;
    batch->tokens_max = plan->token_count;
    batch->samples_max = layout->sample_count;
    batch->scores_max = layout->score_count;
    batch->embeds_max = layout->embed_count;
    batch->moves_max = plan->move_count;
    attention_bounds_clear(batch);
    for (uint32_t i = 0; i < plan->row_count; i++)
        attention_bounds_add(batch, plan->rows[i].position, plan->rows[i].q_len);
}

static void reading_make(const struct step *step, struct draft_step *ret)
{
    const struct rank *rank = step->rank;
    *ret = (struct draft_step){.fits = false};
    if (drafter_reads_apart(rank))
        drafter_step(rank, step->plan, PACK_READING, false, ret);
    else
        ret->launch = drafter_reading(rank, &step->launch);
}

/* Eagerly run small steps, and the reading, have the model's scratch: they run before it or behind.
 */
static uint64_t drafts_bytes(const struct step *step)
{
    const struct rank *rank = step->rank;
    uint64_t most = 0;
    for (uint32_t j = 0; j < step->layout.draft_steps; j++) {
        struct draft_step draft;
        drafter_step(rank, step->plan, j, step->launch.counts, &draft);
        uint64_t bytes =
            draft.there ? 0 : program_scratch_bytes(&rank->drafter.program, &draft.launch.batch);
        most = bytes > most ? bytes : most;
    }
    if (!step->reads)
        return most;
    struct draft_step reading;
    reading_make(step, &reading);
    uint64_t bytes = program_scratch_bytes(&rank->drafter.program, &reading.launch.batch);
    return bytes > most ? bytes : most;
}

static bool plan_opens(const struct gpu_plan *plan, uint32_t flag)
{
    for (uint32_t i = 0; i < plan->open_count; i++) {
        if (plan->opens[i].flags & flag)
            return true;
    }
    return false;
}

/* All memory that the step needs; a graph has its own. When it cannot be had, nothing has happened.
 */
static int memory_take(struct step *step, struct error *error)
{
    struct rank *rank = step->rank;
    struct launch *launch = &step->launch;
    if (launch->counts) {
        int status = state_seen_take(&rank->state, &rank->mem, error);
        if (status)
            return status;
        launch->batch.seen = rank->state.batch.seen;
    }
    if (step->keeps) {
        int status = state_kept_take(&rank->state, &rank->mem, error);
        if (status)
            return status;
    }
    uint64_t drafts = drafts_bytes(step);
    step->scratch_bytes = program_scratch_bytes(&rank->program, &launch->batch);
    if (step->scratch_bytes < drafts)
        step->scratch_bytes = drafts;
    if (!step->scratch_bytes || step->graph_there)
        return 0;
    int status = mem_scratch(&rank->mem, step->scratch_bytes, &launch->scratch, error);
    step->scratch_held = !status;
    return status;
}

/* What was reserved for this very step is its memory. */
static bool memory_reserved(struct step *step)
{
    struct rank_reserved *reserved = &step->rank->reserved;
    if (reserved->step != step->plan->step)
        return false;
    step->launch.batch.seen = step->rank->state.batch.seen;
    step->launch.scratch = reserved->scratch;
    step->scratch_bytes = reserved->bytes;
    step->scratch_held = reserved->scratch != NULL;
    *reserved = (struct rank_reserved){0};
    return true;
}

static int memory_give(struct step *step, struct error *error)
{
    if (!step->scratch_held)
        return 0;
    int status =
        mem_scratch_free(&step->rank->mem, step->launch.scratch, step->scratch_bytes, error);
    step->scratch_held = status != 0;
    return status;
}

static struct result_more step_wants(const struct step *step)
{
    const struct rank *rank = step->rank;
    const struct gpu_plan *plan = step->plan;
    struct result_more wants = {.reads = step->reads && drafter_reads_apart(rank)};
    for (uint32_t i = 0; i < plan->row_count; i++) {
        const struct gpu_row *row = &plan->rows[i];
        if (!(row->want & GPU_LOGPROBS) || !rank->slots[row->slot].logprobs)
            continue;
        wants.sample_tops |= (row->want & GPU_SAMPLE) != 0;
        wants.score_tops |= (row->want & GPU_SCORE) != 0;
    }
    return wants;
}

static bool plan_pools(const struct gpu_plan *plan)
{
    for (uint32_t i = 0; i < plan->row_count; i++) {
        if (plan->rows[i].want & GPU_POOL_ADD)
            return true;
    }
    return false;
}

static uint32_t slot_adapter(const void *context, uint32_t slot)
{
    const struct rank *rank = context;
    return rank->slots[slot].adapter;
}

/* Before the plan takes effect: a slot that it opens may have one, too. */
static bool plan_adapts(const struct rank *rank, const struct gpu_plan *plan)
{
    bool adapts = false;
    if (!rank->program.adapters)
        return false;
    for (uint32_t i = 0; !adapts && i < plan->row_count; i++)
        adapts = rank->slots[plan->rows[i].slot].adapter != 0;
    for (uint32_t i = 0; !adapts && i < plan->open_count; i++)
        adapts = plan->opens[i].adapter != 0;
    return adapts;
}

/* Of a step of single tokens. One that opens a slot is not looked into: it has a prompt's rows. */
static enum adapt_spread plan_spread(const struct rank *rank, const struct gpu_plan *plan)
{
    uint64_t seen = 0;
    uint32_t rows = 0;
    if (!rank->program.adapters || plan->open_count || plan->token_count != plan->row_count)
        return ADAPT_SHARED;
    for (uint32_t i = 0; i < plan->row_count; i++) {
        uint32_t adapter = rank->slots[plan->rows[i].slot].adapter;
        rows += adapter != 0;
        seen |= adapter ? UINT64_C(1) << (adapter - 1) : 0;
    }
    return adapt_spread(rows, (uint32_t)__builtin_popcountll(seen));
}
static_assert(GPU_ADAPTERS_MAX <= 64, "a bit each");

static bool plan_is_read(const struct gpu_plan *plan)
{
    for (uint32_t i = 0; i < plan->row_count; i++) {
        if (plan_row_is_read(&plan->rows[i]))
            return true;
    }
    return false;
}

static void draft_plan(const void *context, const struct gpu_plan *plan, uint32_t j,
                       struct gpu_plan *ret)
{
    drafter_plan(context, plan, j, ret);
}

static void *slab_base(const void *context, uint32_t group, uint32_t slab)
{
    const struct rank *rank = context;
    return rank->slabs[group].base[slab];
}

/* The state of the layers between two stages, in the scratch that this step runs with. */
static struct stage_state state_between(const struct step *step)
{
    struct launch launch = step->launch;
    if (!step->plan->token_count)
        return (struct stage_state){.residual = NULL};
    if (step->graph_there)
        cuda_graph_place(step->rank, &step->rank->graphs, &step->graph, &launch);
    return program_state(&step->rank->program, &launch.batch, launch.scratch,
                         step->plan->token_count);
}

static const struct pack_head *wire_at(const struct step *step, uint32_t offset)
{
    return (const struct pack_head *)((const char *)step->place->plan + offset);
}

/* Before the model's step: a guess more of each row that wants one. */
static int drafts_run(const struct step *step, struct error *error)
{
    struct rank *rank = step->rank;
    int status = 0;
    for (uint32_t j = 0; !status && j < step->layout.draft_steps; j++) {
        struct draft_step draft;
        drafter_step(rank, step->plan, j, step->launch.counts, &draft);
        draft.launch.wire = wire_at(step, step->wires.drafts[j]);
        draft.launch.scratch = step->launch.scratch;
        status = drafter_run(rank, &draft, error);
    }
    return status;
}

/* Behind it. */
static int reading_run(const struct step *step, struct error *error)
{
    const struct rank *rank = step->rank;
    if (!step->reads)
        return 0;
    struct draft_step reading;
    reading_make(step, &reading);
    reading.launch.scratch = step->launch.scratch;
    if (drafter_reads_apart(rank))
        reading.launch.wire = wire_at(step, step->wires.drafts[step->layout.draft_steps]);
    return program_run(&rank->drafter.program, &reading.launch, error);
}

static int kernels_run(struct step *step, struct error *error)
{
    struct rank *rank = step->rank;
    const struct program *program = &rank->program;
    cudaStream_t compute = rank->lane.compute;
    struct stage_state between = {.residual = NULL};
    int status = 0;
    if (program->has_prev_stage || program->has_next_stage)
        between = state_between(step);
    if (step->tokens_of)
        status = pipeline_link_await_tokens(&rank->link, step->tokens_of, compute, error);
    if (!status && program->has_prev_stage)
        status = pipeline_link_recv(&rank->link, step->plan->step, &between, compute, error);
    if (!status)
        status = drafts_run(step, error);
    if (!status)
        status = step->graph_there
                     ? cuda_graph_launch(rank, &rank->graphs, &step->graph, &step->launch, error)
                     : program_run(program, &step->launch, error);
    if (!status)
        status = reading_run(step, error);
    if (!status && program->has_next_stage)
        status = pipeline_link_send(&rank->link, step->plan->step, &between, compute, error);
    return status ? status : memory_give(step, error);
}

/* Who only hands on has no results but the times of the step. */
static int results_enqueue(const struct step *step, struct error *error)
{
    struct rank *rank = step->rank;
    struct ring_place *place = step->place;
    struct streams *lane = &rank->lane;
    uint64_t number = step->plan->step;
    size_t bytes = rank->program.has_next_stage ? sizeof(struct result_head) : place->layout.bytes;
    int status = streams_results_there(lane, number, error);
    if (!status && &rank->link == rank->link.last)
        status = pipeline_link_return(&rank->link, number, lane->copy_out, error);
    if (!status)
        status =
            streams_results_out(lane, number, place->result_pinned, place->result, bytes, error);
    return status;
}

static int step_enqueue(struct step *step, size_t plan_bytes, struct error *error)
{
    struct rank *rank = step->rank;
    struct ring_place *place = step->place;
    struct streams *lane = &rank->lane;
    uint64_t number = step->plan->step;
    if (!mem_is_pinned(&rank->mem, place->plan_pinned, plan_bytes) ||
        !mem_is_pinned(&rank->mem, place->result_pinned, place->layout.bytes))
        rank_count(&rank->counters.pageable_copies, true);
    int status = streams_plan_in(lane, number, place->plan, place->plan_pinned, plan_bytes, error);
    if (!status)
        status = kernels_run(step, error);
    if (!status)
        status = results_enqueue(step, error);
    if (!status)
        status = streams_notify(lane, number, error);
    return status;
}

/* A decode row reads what was sampled in the last step that had its slot. Every step's tokens stand
 * for those before it, too; of one that has ended for sure there is no need to have older ones. */
static uint64_t tokens_of(const struct rank *rank, const struct gpu_plan *plan)
{
    uint64_t depth = rank->engine->facts.limits.depth, of = 0;
    bool any = false;
    for (uint32_t i = 0; i < plan->row_count; i++) {
        uint64_t step = rank->slots[plan->rows[i].slot].row_step;
        if (plan->rows[i].input != GPU_LAST)
            continue;
        any = true;
        of = step > of ? step : of;
    }
    if (any && of + depth < plan->step)
        of = plan->step - depth;
    return of;
}

/* After memory was taken: the plan takes effect on what the host keeps, and is written out. */
static size_t step_write(struct step *step)
{
    struct rank *rank = step->rank;
    struct ring_place *place = step->place;
    const struct pipeline_link *link = &rank->link;
    if (link->first == link && link->first)
        step->tokens_of = tokens_of(rank, step->plan);
    plan_note(rank, step->plan);
    result_layout_set(&step->layout, step->plan, rank->engine->facts.model.hidden,
                      step_wants(step));
    place->layout = step->layout;
    place->step = step->plan->step;
    place->waited = arrival_on(&rank->arrival);
    char *result = place->result;
    step->launch.scores = (struct gpu_score *)(result + place->layout.scores);
    step->launch.score_tops =
        place->layout.score_tops ? (struct gpu_top *)(result + place->layout.score_tops) : NULL;
    step->launch.embeds = (float *)(result + place->layout.embeds);
    struct pack_source source = {
        .plan = step->plan,
        .layout = &place->layout,
        .result = place->result,
        .tokens_in = step->tokens_of ? pipeline_link_tokens(link, step->tokens_of) : NULL,
        .tokens_out =
            link->last && link->last == link ? pipeline_link_tokens(link, step->plan->step) : NULL,
        .kept = rank->state.kept,
        .kept_slot = rank->state.kept_slot,
        .guesses = rank->drafter.guesses,
        .guess_stride = rank->engine->facts.limits.slots_max,
        .draft_plan = draft_plan,
        .slab_base = slab_base,
        .slot_adapter = rank->program.adapters ? slot_adapter : NULL,
        .context = rank,
    };
    size_t bytes = pack_write(place->plan_pinned, &source, &step->wires);
    assert(bytes <= rank->ring.plan_bytes);
    step->launch.wire = wire_at(step, step->wires.model);
    return bytes;
}

static void step_make(struct step *step, struct rank *rank, const struct gpu_plan *plan)
{
    plan_check(rank, plan);
    *step = (struct step){.rank = rank, .plan = plan, .place = ring_at(&rank->ring, plan->step)};
    result_layout_set(&step->layout, plan, rank->engine->facts.model.hidden,
                      (struct result_more){0});
    step->launch.batch = rank->state.batch;
    step_bound(plan, &step->launch.batch);
    if (step->layout.draft_steps) /* the first of them moves */
        step->launch.batch.moves_max = 0;
    step->reads = plan_is_read(plan);
    step->launch.counts =
        !rank->program.has_next_stage &&
        (rank->penalty_slots > 0 || plan_opens(plan, GPU_SLOT_PENALTIES));
    step->keeps = !rank->program.has_next_stage && plan_opens(plan, GPU_SLOT_MASKED);
    step->launch.pools = plan_pools(plan);
    step->launch.adapted = plan_adapts(rank, plan);
    step->launch.spread = plan_spread(rank, plan);
    step->cuda_graph_fits = cuda_graph_fits(rank, &rank->graphs, plan, &step->launch, &step->graph);
    step->graph_there = step->cuda_graph_fits && cuda_graph_exists(&rank->graphs, &step->graph);
    if (step->cuda_graph_fits && rank->engine->rank_count > 1)
        cuda_graph_bound(rank, &rank->graphs, &step->graph, &step->launch.batch);
}

int step_reserve(struct rank *rank, const struct gpu_plan *plan, struct error *error)
{
    struct step step;
    if (rank->dead)
        return error_set(error, ERR_DEVICE, "the device failed before");
    step_make(&step, rank, plan);
    assert(!rank->reserved.step);
    int status = memory_take(&step, error);
    if (status) {
        if (status != -ERR_DEVICE_MEMORY)
            rank_die(rank);
        return status;
    }
    rank->reserved = (struct rank_reserved){
        .step = plan->step, .scratch = step.launch.scratch, .bytes = step.scratch_bytes};
    return 0;
}

void step_release(struct rank *rank)
{
    struct rank_reserved *reserved = &rank->reserved;
    if (reserved->scratch && !rank->dead &&
        mem_scratch_free(&rank->mem, reserved->scratch, reserved->bytes, NULL))
        rank_die(rank);
    *reserved = (struct rank_reserved){0};
}

int step_submit(struct rank *rank, const struct gpu_plan *plan, struct error *error)
{
    struct step step;
    if (rank->dead)
        return error_set(error, ERR_DEVICE, "the device failed before");
    profile_begin(&rank->lane.profile, plan);
    step_make(&step, rank, plan);
    int status = memory_reserved(&step) ? 0 : memory_take(&step, error);
    if (status) {
        if (status != -ERR_DEVICE_MEMORY)
            rank_die(rank);
        return status;
    }
    size_t bytes = step_write(&step);
    bool ahead = streams_completed(&rank->lane) != rank->submitted;
    status = step_enqueue(&step, bytes, error);
    if (status) {
        /* Half a step is in the streams: nothing after it can be right. */
        status = rank_lost(rank, error);
        (void)memory_give(&step, NULL);
        return status;
    }
    profile_end(&rank->lane.profile, plan->step);
    rank->submitted = plan->step;
    rank_count(&rank->counters.steps, true);
    rank_count(&rank->counters.steps_ahead, ahead);
    if (step.cuda_graph_fits && !step.graph_there) {
        nvtx_begin("capture");
        cuda_graph_capture(rank, &rank->graphs, &step.graph, &step.launch);
        nvtx_end();
    }
    return mem_housekeep(&rank->mem, error) ? rank_lost(rank, error) : 0;
}
