#include "gpu/tuner.h"

#include <time.h>

#include "gpu/cuda.h"
#include "gpu/kernels/tune.h"

#define ROWS_FIRST (2 * PRODUCT_SMALL_MAX) /* a choice serves rows from half of these up */

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* A product of the model, with as many rows as a step may give it. */
struct shape {
    const struct weight *weight;
    const void *bias;
    uint32_t rows_max;
    enum dtype y_dtype;
};

#define SHAPES 5

/* Returns how many. */
static uint32_t shapes_list(const struct rank *rank, struct shape shapes[SHAPES])
{
    const struct layer_weights *layer = &rank->weights.layers[0];
    uint32_t tokens = rank->engine->facts.limits.tokens_max;
    enum dtype compute = device_traits.compute, delta = forward_delta_dtype(&rank->forward);
    shapes[0] = (struct shape){&layer->qkv, layer->qkv_bias, tokens, compute};
    shapes[1] = (struct shape){&layer->o, layer->o_bias, tokens, delta};
    shapes[2] = (struct shape){&layer->gate_up, layer->gate_up_bias, tokens, compute};
    shapes[3] = (struct shape){&layer->down, layer->down_bias, tokens, delta};
    shapes[4] =
        (struct shape){&rank->weights.head, NULL, rank->engine->facts.limits.rows_max, DTYPE_F32};
    return rank->forward.hands_on ? SHAPES - 1 : SHAPES;
}

struct room {
    char *base;
    uint64_t x, y, workspace, bytes; /* offsets; bytes of all */
};

static struct room room_of(const struct shape *shape, uint32_t rows)
{
    struct room room = {0};
    room.y = mem_round((uint64_t)rows * shape->weight->k * dtype_bytes(device_traits.compute));
    room.workspace =
        room.y + mem_round((uint64_t)rows * shape->weight->n * dtype_bytes(shape->y_dtype));
    room.bytes = room.workspace + device_traits.workspace_bytes;
    return room;
}

static int shape_time(struct rank *rank, const struct shape *shape, uint32_t rows, bool *ret_timed,
                      struct error *error)
{
    struct room room = room_of(shape, rows);
    struct product_args args = {
        .rows = {.count = &rank->state.batch.counts->tokens, .max = rows},
        .w = *shape->weight,
        .bias = shape->bias,
        .x_stride = shape->weight->k,
        .y_stride = shape->weight->n,
        .x_dtype = device_traits.compute,
        .y_dtype = shape->y_dtype,
        .bias_dtype = rank->weights.vector,
        .workspace_bytes = device_traits.workspace_bytes,
    };
    *ret_timed = !tune_known(&args);
    if (!*ret_timed)
        return 0;
    void *base = NULL;
    int status = mem_scratch(&rank->mem, room.bytes, &base, error);
    if (status)
        return status;
    args.x = (char *)base + room.x;
    args.y = (char *)base + room.y;
    args.workspace = (char *)base + room.workspace;
    cudaStream_t compute = rank->lane.compute;
    /* What is multiplied is of no interest, but it must not be slower for being odd: zeros. */
    cudaError_t failed = cudaMemsetAsync((void *)args.x, 0, room.y, compute);
    if (failed == cudaSuccess)
        failed = tune_product(&args, compute);
    status = mem_scratch_free(&rank->mem, base, room.bytes, error);
    return failed == cudaSuccess ? status : cuda_fail(failed, "tune_product", error);
}

static int shapes_time(struct rank *rank, uint32_t *ret_timed, struct error *error)
{
    struct shape shapes[SHAPES];
    uint64_t until_ns = now_ns() + TUNER_BUDGET_NS;
    uint32_t tokens = rank->engine->facts.limits.tokens_max;
    const uint32_t count = shapes_list(rank, shapes);
    *ret_timed = 0;
    for (uint32_t rows = ROWS_FIRST; rows < 2 * tokens; rows *= 2) {
        for (uint32_t i = 0; i < count && now_ns() < until_ns; i++) {
            uint32_t most = rows < tokens ? rows : tokens;
            if (most >= 2 * shapes[i].rows_max)
                continue;
            bool timed;
            int status = shape_time(rank, &shapes[i], most, &timed, error);
            if (status)
                return status;
            *ret_timed += timed;
        }
    }
    return 0;
}

int tuner_run(struct rank *rank, struct error *error)
{
    const struct gpu_engine *engine = rank->engine;
    const char *directory = engine->cache_dir;
    uint32_t timed = 0;
    if (engine->facts.null || !directory)
        return 0;
    if (tune_load(directory) < 0)
        engine_log(engine, GPU_LOG_WARNING, "%s: no timed products can be read", directory);
    int status = shapes_time(rank, &timed, error);
    if (status && status != -ERR_DEVICE_MEMORY)
        return status;
    if (timed && tune_save(directory))
        engine_log(engine, GPU_LOG_WARNING, "%s: the timed products cannot be kept", directory);
    return mem_trim(&rank->mem, error);
}
