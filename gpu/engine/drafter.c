#include "gpu/engine/drafter.h"

#include <stdlib.h>
#include <string.h>

#include "gpu/base/cuda_error.h"
#include "gpu/base/nvtx.h"
#include "gpu/engine/draft_head.h"
#include "gpu/engine/engine.h"
#include "gpu/weights/loader.h"

int drafter_load(struct rank *rank, struct error *error)
{
    const struct engine_config *facts = &rank->engine->facts;
    struct drafter *drafter = &rank->drafter;
    struct program *program = &drafter->program;
    if (!facts->draft.there)
        return 0;
    *program = rank->program;
    program->list = &facts->draft.source.list;
    program->weights = &drafter->weights;
    program->arrival = NULL;
    program->adapters = NULL;
    program->drafts = true;
    memcpy(program->kv_first, facts->draft.kv_first, sizeof program->kv_first);
    program->ops = NULL;
    if (draft_is_head(&facts->draft))
        program->draft_memory = rank->program.draft_memory = &drafter->draft_memory;
    int status = facts_draft(facts, &program->ops, &program->op_count, error);
    if (status)
        return status;
    struct weights_source source = facts_draft_weights(facts, program->ops, program->op_count);
    source.seed = rank->engine->seed;
    status = weights_open(&drafter->weights, &rank->mem, &source, error);
    _Atomic uint32_t unseen = 0; /* what is told of loading is the model's */
    struct loader loader = {.lane = &rank->lane,
                            .mem = &rank->mem,
                            .source = &source,
                            .weights = &drafter->weights,
                            .progress = &unseen};
    bool there = false;
    nvtx_begin("load draft");
    if (!status)
        status = rank_weights_return(rank, keep_draft_part(rank->engine), &drafter->weights, &there,
                                     error);
    if (!status && !there)
        status = loader_run(&loader, error);
    nvtx_end();
    return status;
}

static void batch_make(struct rank *rank)
{
    const struct op_list *list = rank->drafter.program.list;
    struct batch *batch = &rank->drafter.batch;
    *batch = rank->state.batch;
    for (uint32_t i = 0; i < list->group_count; i++)
        batch->groups[i].window = list->groups[i].window;
}

int drafter_open(struct rank *rank, struct error *error)
{
    struct drafter *drafter = &rank->drafter;
    const struct gpu_limits *limits = &rank->engine->facts.limits;
    void *guesses = NULL;
    if (!drafter_exists(drafter))
        return 0;
    batch_make(rank);
    drafter->graphs.program = &drafter->program;
    drafter->graphs.batch = &drafter->batch;
    drafter->program.control = rank->state.control;
    drafter->program.samples = rank->state.samples;
    drafter->program.tops = rank->state.tops;
    drafter->program.stream = rank->lane.compute;
    drafter->rows = calloc(limits->rows_max, sizeof *drafter->rows);
    if (!drafter->rows)
        return error_set(error, ERR_NO_MEMORY, "no memory for %u rows", limits->rows_max);
    drafter->guesses_bytes = sizeof(int32_t) * GPU_DRAFTS_MAX * limits->slots_max;
    int status = mem_fixed(&rank->mem, drafter->guesses_bytes, &guesses, error);
    drafter->guesses = guesses;
    if (!status && drafter_reads_apart(rank))
        status = draft_head_open(rank, error);
    if (!status)
        status = program_open(&drafter->program, error);
    if (!status)
        CUDA_TRY(cudaMemsetAsync(guesses, 0, drafter->guesses_bytes, cudaStreamPerThread), error);
    return status;
}

int drafter_close(struct rank *rank, struct error *error)
{
    struct drafter *drafter = &rank->drafter;
    if (!drafter_exists(drafter))
        return 0;
    program_close(&drafter->program);
    weights_close(&drafter->weights);
    int status = cuda_graph_drop(rank, &drafter->graphs, error);
    free(drafter->rows);
    drafter->rows = NULL;
    drafter->program.list = NULL;
    return status;
}

/* The first reads what is unread and the token that is known, the others what was drawn last. */
static struct gpu_row row_of(const struct gpu_row *row, uint32_t j)
{
    struct gpu_row made = {.slot = row->slot,
                           .position = row->position + j,
                           .q_len = 1,
                           .input = GPU_LAST,
                           .want = GPU_SAMPLE};
    if (j > 0)
        return made;
    made.position -= row->unread;
    made.q_len += row->unread;
    made.input = GPU_IDS;
    made.ids = row->ids - row->unread;
    return made;
}

/* What a head reads: not what it guesses, which the next row's unread tokens are. */
static void reading_plan(const struct rank *rank, const struct gpu_plan *plan, struct gpu_plan *ret)
{
    struct gpu_row *rows = rank->drafter.rows;
    for (uint32_t i = 0; i < plan->row_count; i++) {
        const struct gpu_row *row = &plan->rows[i];
        if (!plan_row_is_read(row) || row->position + row->q_len < 2)
            continue;
        struct gpu_row made = {
            .slot = row->slot, .position = row->position, .q_len = row->q_len, .ids = row->ids};
        rows[ret->row_count] = draft_head_row(&made);
        ret->token_count += rows[ret->row_count++].q_len;
    }
}

bool drafter_reads_apart(const struct rank *rank)
{
    return draft_is_head(&rank->engine->facts.draft);
}

/* The first of a step also brings what the step changes of tables, and copies blocks: the small
 * steps read and write through them. */
void drafter_plan(const struct rank *rank, const struct gpu_plan *plan, uint32_t j,
                  struct gpu_plan *ret)
{
    struct gpu_row *rows = rank->drafter.rows;
    const bool head = drafter_reads_apart(rank);
    *ret = (struct gpu_plan){.step = plan->step, .rows = rows};
    if (j == PACK_READING) {
        reading_plan(rank, plan, ret);
        return;
    }
    if (j == 0) {
        ret->slab_count = plan->slab_count;
        ret->append_count = plan->append_count;
        ret->move_count = plan->move_count;
    }
    for (uint32_t i = 0; i < plan->row_count; i++) {
        const struct gpu_row *row = &plan->rows[i];
        if (!(row->want & GPU_DRAFT) || row->drafts <= j)
            continue;
        struct gpu_row made = row_of(row, j);
        rows[ret->row_count] = head ? draft_head_row(&made) : made;
        ret->token_count += rows[ret->row_count++].q_len;
    }
}

void drafter_step(const struct rank *rank, const struct gpu_plan *plan, uint32_t j, bool counts,
                  struct draft_step *ret)
{
    const struct drafter *drafter = &rank->drafter;
    *ret = (struct draft_step){.launch = {.counts = counts}};
    drafter_plan(rank, plan, j, &ret->plan);
    ret->launch.batch = drafter->batch;
    ret->launch.batch.seen = rank->state.batch.seen;
    step_bound(&ret->plan, &ret->launch.batch);
    if (drafter_reads_apart(rank))
        ret->launch.takes = j == PACK_READING ? TAKES_STEP : j > 0 ? TAKES_OWN : TAKES_KEPT;
    if (j == PACK_READING)
        return;
    ret->fits = cuda_graph_fits(rank, &drafter->graphs, &ret->plan, &ret->launch, &ret->graph);
    ret->there = ret->fits && cuda_graph_exists(&drafter->graphs, &ret->graph);
}

int drafter_run(struct rank *rank, const struct draft_step *step, struct error *error)
{
    struct drafter *drafter = &rank->drafter;
    drafter->batch.seen = step->launch.batch.seen; /* a graph is captured with it */
    if (step->there)
        return cuda_graph_launch(rank, &drafter->graphs, &step->graph, &step->launch, error);
    int status = program_run(&drafter->program, &step->launch, error);
    if (!status && step->fits)
        cuda_graph_capture(rank, &drafter->graphs, &step->graph, &step->launch);
    return status;
}

struct launch drafter_reading(const struct rank *rank, const struct launch *step)
{
    struct launch launch = {.batch = step->batch, .follows = true};
    launch.batch.samples_max = launch.batch.scores_max = launch.batch.embeds_max = 0;
    launch.batch.moves_max = 0;
    for (uint32_t i = 0; i < rank->drafter.program.list->group_count; i++)
        launch.batch.groups[i].window = rank->drafter.batch.groups[i].window;
    return launch;
}
