#include "gpu/engine/warmup.h"

#include "gpu/base/cuda_error.h"
#include "gpu/engine/engine.h"
#include "gpu/kernels/attention/attention.h"
#include "protocol/base/minimum.h"

/* Bounds of a step. */
struct shape {
    uint32_t tokens, rows;
    uint32_t behind; /* positions before the chunk */
};

/* Rows of single tokens, and the rest a prompt's chunk. Beyond ATTENTION_SPLIT attention has
 * something to combine, and so it has where a chunk's keys are shared out among blocks. */
static struct batch batch_of(const struct rank *rank, struct shape shape)
{
    const struct gpu_limits *limits = &rank->engine->facts.limits;
    struct batch batch = rank->state.batch;
    batch.tokens_max = shape.tokens;
    batch.rows_max = batch.samples_max = shape.rows;
    batch.scores_max = batch.embeds_max = batch.moves_max = 0;
    attention_bounds_clear(&batch);
    attention_bounds_add(&batch, shape.behind, shape.tokens - shape.rows + 1);
    batch.decode_len_max = shape.tokens == shape.rows;
    if (batch.context_max <= ATTENTION_SPLIT)
        batch.context_max = min_u32(ATTENTION_SPLIT + 1, limits->context_max);
    return batch;
}

/* Kernels read rows up to the step's bounds before they know that there are none: zeros, and not
 * what happens to be there. */
static int scratch_clear(struct rank *rank, void *scratch, uint64_t bytes, struct error *error)
{
    CUDA_TRY(cudaMemsetAsync(scratch, 0, bytes, rank->lane.compute), error);
    return 0;
}

static int step_empty(struct rank *rank, const struct program *program, struct batch batch,
                      struct error *error)
{
    struct launch launch = {.batch = batch, .wire = ring_at(&rank->ring, 1)->plan};
    uint64_t bytes = program_scratch_bytes(program, &batch);
    int status = mem_scratch(&rank->mem, bytes, &launch.scratch, error);
    if (status)
        return status;
    status = scratch_clear(rank, launch.scratch, bytes, error);
    if (!status)
        status = program_run(program, &launch, error);
    int freed = mem_scratch_free(&rank->mem, launch.scratch, bytes, status ? NULL : error);
    if (freed) /* the pool goes next, and wants it back */
        (void)mem_scratch_free(&rank->mem, launch.scratch, bytes, NULL);
    return status ? status : freed;
}

/* A plan of nothing, in the place of the first step, whose results go where that step's will. */
static int plan_write(struct rank *rank, struct error *error)
{
    const struct ring_place *place = ring_at(&rank->ring, 1);
    *(struct pack_head *)place->plan_pinned =
        (struct pack_head){.bytes = sizeof(struct pack_head), .result = place->result};
    CUDA_TRY(cudaMemcpyAsync(place->plan, place->plan_pinned, sizeof(struct pack_head),
                             cudaMemcpyHostToDevice, rank->lane.compute),
             error);
    return 0;
}

int warmup_run(struct rank *rank, struct error *error)
{
    static const struct shape shapes[] = {
        {1, 1, 0},   {32, 32, 0}, {48, 1, 0},  {64, 1, 0},  {64, 1, 8000}, {96, 1, 0},  {128, 1, 0},
        {192, 1, 0}, {256, 1, 0}, {384, 1, 0}, {512, 1, 0}, {768, 1, 0},   {1024, 1, 0}};
    const struct gpu_limits *limits = &rank->engine->facts.limits;
    struct gpu_kept *kept = rank->engine->kept;
    if (!op_list_computes(rank->program.list) || rank->engine->rank_count > 1 ||
        (kept && kept->warm))
        return 0;
    mem_warmup_begin();
    int status = plan_write(rank, error);
    for (uint32_t i = 0; !status && i < sizeof shapes / sizeof *shapes; i++) {
        if (shapes[i].tokens > limits->tokens_max || shapes[i].rows > limits->rows_max ||
            shapes[i].behind + shapes[i].tokens > limits->context_max)
            continue;
        status = step_empty(rank, &rank->program, batch_of(rank, shapes[i]), error);
        if (!status && drafter_exists(&rank->drafter))
            status = step_empty(rank, &rank->drafter.program, batch_of(rank, shapes[i]), error);
    }
    const bool all = status == 0;
    if (all || status == -ERR_DEVICE_MEMORY)
        status = streams_synchronize(&rank->lane, error);
    if (!status)
        status = mem_trim(&rank->mem, error);
    mem_warmup_end();
    if (!status && kept)
        kept->warm = all;
    return status;
}

/* Up to the first that cannot be had; *ret_count says how many were. */
static int slabs_take(struct rank *rank, uint32_t slabs[GPU_GROUPS_MAX], uint32_t *ret_count,
                      struct error *error)
{
    int status = 0;
    uint32_t i = 0;
    for (; i < rank->engine->facts.model.group_count; i++) {
        status = slabs_grow(&rank->slabs[i], &slabs[i], error);
        if (status)
            break;
    }
    *ret_count = i;
    return status;
}

int warm_least(struct rank *rank, struct error *error)
{
    const struct batch batch = batch_of(rank, (struct shape){1, 1, 0});
    const uint64_t bytes = program_scratch_bytes(&rank->program, &batch);
    uint32_t slabs[GPU_GROUPS_MAX], count;
    void *scratch = NULL;
    struct error why;
    int status = slabs_take(rank, slabs, &count, &why);
    if (!status && bytes > 0)
        status = mem_scratch(&rank->mem, bytes, &scratch, &why);
    bool for_ever = status == -ERR_DEVICE_MEMORY && rank->mem.own_limit;
    if (status && (for_ever || status != -ERR_DEVICE_MEMORY))
        *error = why;
    else
        status = 0; /* others hold the device now: requests wait for it */
    int freed = scratch ? mem_scratch_free(&rank->mem, scratch, bytes, error) : 0;
    if (freed) /* the pool goes next, and wants it back */
        (void)mem_scratch_free(&rank->mem, scratch, bytes, NULL);
    for (uint32_t i = 0; i < count; i++) {
        int shrunk = slabs_shrink(&rank->slabs[i], slabs[i], freed ? &why : error);
        freed = freed ? freed : shrunk;
    }
    if (status || freed)
        return status ? status : freed;
    status = streams_synchronize(&rank->lane, error);
    return status ? status : mem_trim(&rank->mem, error);
}
