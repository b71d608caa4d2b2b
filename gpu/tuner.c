#include "gpu/tuner.h"

#include "gpu/cuda.h"
#include "gpu/kernels/tune.h"

#define ROWS_FIRST (2 * PRODUCT_SMALL_MAX) /* a choice serves rows from half of these up */

#define LAYERS_TIMED 32 /* whose weights take turns: more than the L2 holds */

/* A product of the model, with as many rows as a step may give it. */
struct shape {
    const struct weight *weight;
    const void *data[LAYERS_TIMED]; /* of this weight in as many layers */
    uint32_t data_count;
    const void *bias;
    uint32_t rows_max;
    enum dtype y_dtype;
    bool gated; /* SwiGLU stands behind it */
};

#define SHAPES 5

static struct shape shape_of(const struct weight *weight, const void *bias, uint32_t rows_max,
                             enum dtype y_dtype)
{
    return (struct shape){.weight = weight,
                          .data = {weight->data},
                          .data_count = 1,
                          .bias = bias,
                          .rows_max = rows_max,
                          .y_dtype = y_dtype};
}

/* Returns how many. */
static uint32_t shapes_list(const struct rank *rank, struct shape shapes[SHAPES])
{
    const struct weights *weights = &rank->weights;
    const struct layer_weights *first = &weights->layers[0];
    const struct gpu_limits *limits = &rank->engine->facts.limits;
    uint32_t tokens = limits->tokens_max, layers = rank->forward.config->layers;
    enum dtype compute = rank->forward.dtype, delta = forward_delta_dtype(&rank->forward);
    shapes[0] = shape_of(&first->qkv, first->qkv_bias, tokens, compute);
    shapes[1] = shape_of(&first->o, first->o_bias, tokens, delta);
    shapes[2] = shape_of(&first->gate_up, first->gate_up_bias, tokens, compute);
    shapes[2].gated = true;
    shapes[3] = shape_of(&first->down, first->down_bias, tokens, delta);
    shapes[4] = shape_of(&weights->head, NULL, limits->rows_max, DTYPE_F32);
    for (uint32_t i = 1; i < layers && i < LAYERS_TIMED; i++) {
        const struct layer_weights *layer = &weights->layers[i];
        const void *data[] = {layer->qkv.data, layer->o.data, layer->gate_up.data,
                              layer->down.data};
        for (uint32_t shape = 0; shape < 4; shape++)
            shapes[shape].data[shapes[shape].data_count++] = data[shape];
    }
    return rank->forward.hands_on ? SHAPES - 1 : SHAPES;
}

struct room {
    char *base;
    uint64_t x, y, workspace, bytes; /* offsets; bytes of all */
};

static struct room room_of(const struct shape *shape, uint32_t rows, enum dtype x_dtype)
{
    struct room room = {0};
    room.y = mem_round((uint64_t)rows * shape->weight->k * dtype_bytes(x_dtype));
    room.workspace =
        room.y + mem_round((uint64_t)rows * shape->weight->n * dtype_bytes(shape->y_dtype));
    room.bytes = room.workspace + device_traits.workspace_bytes;
    return room;
}

static int shape_time(struct rank *rank, const struct shape *shape, uint32_t rows, bool *ret_timed,
                      struct error *error)
{
    struct room room = room_of(shape, rows, rank->forward.dtype);
    struct product_args args = {
        .rows = {.count = &rank->state.batch.counts->tokens, .max = rows},
        .w = *shape->weight,
        .bias = shape->bias,
        .x_stride = shape->weight->k,
        .y_stride = shape->weight->n,
        .x_dtype = rank->forward.dtype,
        .y_dtype = shape->y_dtype,
        .bias_dtype = rank->weights.vector,
        .workspace_bytes = device_traits.workspace_bytes,
        .gated = shape->gated,
    };
    args.gated = shape->gated && product_fuses(&args);
    *ret_timed = !tune_known(&args);
    if (!*ret_timed)
        return 0;
    void *base = NULL;
    int status = mem_scratch(&rank->mem, room.bytes, &base, error);
    if (status)
        return status;
    char *x = (char *)base + room.x;
    args.x = x;
    args.y = (char *)base + room.y;
    args.workspace = (char *)base + room.workspace;
    cudaStream_t compute = rank->lane.compute;
    /* What is multiplied is of no interest, but zeros would take less power than a step has to. */
    uint64_t most = (uint64_t)shape->weight->n * shape->weight->k * dtype_bytes(args.w.dtype);
    cudaError_t failed = cudaMemsetAsync(x, 0, room.y, compute);
    if (failed == cudaSuccess)
        failed = cudaMemcpyAsync(x, args.w.data, room.y < most ? room.y : most,
                                 cudaMemcpyDeviceToDevice, compute);
    if (failed == cudaSuccess)
        failed = tune_product(&args, shape->data, shape->data_count, compute);
    status = mem_scratch_free(&rank->mem, base, room.bytes, error);
    return failed == cudaSuccess ? status : cuda_fail(failed, "tune_product", error);
}

/* 32, 48, 64, 96 ...: what was timed for many more rows than a product has can be a poor choice. */
static uint32_t rows_next(uint32_t rows)
{
    return rows & (rows - 1) ? rows / 3 * 4 : rows / 2 * 3;
}

static int shapes_time(struct rank *rank, uint32_t *ret_timed, struct error *error)
{
    struct shape shapes[SHAPES];
    uint64_t until_ns = profile_now_ns() + TUNER_BUDGET_NS;
    uint32_t tokens = rank->engine->facts.limits.tokens_max;
    const uint32_t count = shapes_list(rank, shapes);
    *ret_timed = 0;
    for (uint32_t rows = ROWS_FIRST; rows < 2 * tokens; rows = rows_next(rows)) {
        for (uint32_t i = 0; i < count && profile_now_ns() < until_ns; i++) {
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
