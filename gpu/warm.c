#include "gpu/warm.h"

#include "gpu/cuda.h"
#include "gpu/kernels/attend.h"
#include "gpu/engine.h"

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Bounds of a step. */
struct shape {
    uint32_t tokens, rows;
};

/* Rows of single tokens, and the rest a prompt's chunk. Beyond ATTEND_SPLIT attention has something
 * to combine. */
static struct batch batch_of(const struct rank *rank, struct shape shape)
{
    const struct gpu_limits *limits = &rank->engine->facts.limits;
    struct batch batch = rank->state.batch;
    batch.tokens_max = shape.tokens;
    batch.rows_max = batch.samples_max = shape.rows;
    batch.scores_max = batch.embeds_max = batch.moves_max = 0;
    batch.q_len_max = shape.tokens - shape.rows + 1;
    batch.decode_len_max = shape.tokens == shape.rows;
    batch.context_max = least(ATTEND_SPLIT + 1, limits->context_max);
    return batch;
}

/* Kernels read rows up to the step's bounds before they know that there are none: zeros, and not
 * what happens to be there. */
static int scratch_clear(struct rank *rank, void *scratch, uint64_t bytes, struct error *error)
{
    CUDA_TRY(cudaMemsetAsync(scratch, 0, bytes, rank->lane.compute), error);
    return 0;
}

static int step_empty(struct rank *rank, const struct wire_head *wire, struct batch batch,
                      struct error *error)
{
    struct launch launch = {.batch = batch, .wire = wire};
    uint64_t bytes = program_scratch_bytes(&rank->program, &batch);
    int status = mem_scratch(&rank->mem, bytes, &launch.scratch, error);
    if (status)
        return status;
    status = scratch_clear(rank, launch.scratch, bytes, error);
    if (!status)
        status = program_run(&rank->program, &launch, error);
    int freed = mem_scratch_free(&rank->mem, launch.scratch, bytes, status ? NULL : error);
    if (freed) /* the pool goes next, and wants it back */
        (void)mem_scratch_free(&rank->mem, launch.scratch, bytes, NULL);
    return status ? status : freed;
}

/* A plan of nothing, in the place of the first step, whose results go where that step's will. */
static int plan_write(struct rank *rank, struct error *error)
{
    const struct ring_place *place = ring_at(&rank->ring, 1);
    *(struct wire_head *)place->plan_pinned =
        (struct wire_head){.bytes = sizeof(struct wire_head), .result = place->result};
    CUDA_TRY(cudaMemcpyAsync(place->plan, place->plan_pinned, sizeof(struct wire_head),
                             cudaMemcpyHostToDevice, rank->lane.compute),
             error);
    return 0;
}

int warm_run(struct rank *rank, struct error *error)
{
    static const struct shape shapes[] = {{1, 1},   {32, 32}, {48, 1},  {64, 1},
                                          {96, 1},  {128, 1}, {192, 1}, {256, 1},
                                          {384, 1}, {512, 1}, {768, 1}, {1024, 1}};
    const struct gpu_limits *limits = &rank->engine->facts.limits;
    if (!op_list_computes(rank->program.list) || rank->engine->rank_count > 1)
        return 0;
    int status = plan_write(rank, error);
    for (uint32_t i = 0; !status && i < sizeof shapes / sizeof *shapes; i++) {
        if (shapes[i].tokens <= limits->tokens_max && shapes[i].rows <= limits->rows_max)
            status =
                step_empty(rank, ring_at(&rank->ring, 1)->plan, batch_of(rank, shapes[i]), error);
    }
    if (status && status != -ERR_DEVICE_MEMORY)
        return status;
    status = lane_synchronize(&rank->lane, error);
    return status ? status : mem_trim(&rank->mem, error);
}
