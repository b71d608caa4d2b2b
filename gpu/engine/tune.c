#include "gpu/engine/tune.h"

#include <string.h>

#include "gpu/base/cuda_error.h"
#include "gpu/kernels/matmul/cublaslt_tune.h"
#include "gpu/program/walk.h"

#define ROWS_FIRST (2 * GEMV_ROWS_MAX) /* a choice serves rows from half of these up */
#define CLOSE_FROM 256u
#define CLOSE_TO 1024u
#define CLOSE 64u

#define LAYERS_TIMED 32 /* whose weights take turns: more than the L2 holds */

/* A product of the model, with as many rows as a step may give it. */
struct shape {
    const struct op *op;
    struct matmul_args args;        /* without addresses but the weight's and the bias */
    const void *data[LAYERS_TIMED]; /* of the same weight in as many layers */
    uint32_t data_count;
    uint32_t rows_max;
};

#define SHAPES_MAX 16

/* The tensor's name without its layer: products of the same one in all layers are one shape. */
static const char *tensor_of(const struct op_list *list, const struct op *op)
{
    const char *name = list->tensors[list->weights[op->weight].parts[0].tensor].name;
    const char *digits = strpbrk(name, "0123456789");
    return op->layer >= 0 && digits ? digits + strspn(digits, "0123456789") : name;
}

static struct shape *shape_find(struct shape *shapes, uint32_t count, const struct op_list *list,
                                const struct op *op)
{
    for (uint32_t i = 0; i < count; i++) {
        if (!strcmp(tensor_of(list, shapes[i].op), tensor_of(list, op)))
            return &shapes[i];
    }
    return NULL;
}

/* `walk`: of no step. */
static struct shape shape_of(const struct rank *rank, const struct walk *walk, const struct op *op)
{
    const struct program *program = walk->program;
    const struct gpu_limits *limits = &rank->engine->facts.limits;
    bool picked = op->rows != ROWS_TOKENS;
    struct shape shape = {.op = op,
                          .args = walk_product(walk, op),
                          .rows_max = picked ? limits->rows_max : limits->tokens_max};
    bool last = op + 1 == program->ops + program->op_count;
    shape.args.gated = !last && op[1].kind == OP_ACTIVATION && op[1].activation.gated;
    shape.args.adds = !last && op[1].kind == OP_ADD;
    shape.args.y_stride = shape.args.w.n;
    shape.args.x = NULL;
    shape.args.bias = op->bias == LIST_NONE ? NULL : walk_weight(walk, op->bias)->data;
    shape.args.y_dtype = scratch_dtype(program, op->out);
    return shape;
}

/* Returns how many. */
static uint32_t shapes_list(const struct rank *rank, const struct program *program,
                            struct shape shapes[SHAPES_MAX])
{
    struct launch launch = {.batch = rank->state.batch};
    struct walk walk;
    uint32_t count = 0;
    walk_begin(&walk, program, &launch);
    for (uint32_t i = 0; i < program->op_count; i++) {
        const struct op *op = &program->ops[i];
        if (op->kind != OP_MATMUL || op->rows == ROWS_SCORED)
            continue;
        struct shape *shape = shape_find(shapes, count, program->list, op);
        if (!shape && count == SHAPES_MAX)
            continue; /* it keeps the library's choice */
        if (!shape) {
            shape = &shapes[count++];
            *shape = shape_of(rank, &walk, op);
        }
        if (shape->data_count < LAYERS_TIMED)
            shape->data[shape->data_count++] = walk_product(&walk, op).w.data;
    }
    return count;
}

struct tune_scratch {
    uint64_t x, y, workspace, bytes; /* offsets; bytes of all */
};

static struct tune_scratch tune_scratch_of(const struct shape *shape, uint32_t rows)
{
    struct tune_scratch out = {0};
    const struct matmul_args *args = &shape->args;
    out.y = mem_round((uint64_t)rows * args->w.k * dtype_bytes(args->x_dtype));
    /* Sums of e4m3 are float32, whatever they become. */
    enum dtype y_dtype = args->w.format == FORMAT_E4M3 ? DTYPE_F32 : args->y_dtype;
    out.workspace = out.y + mem_round((uint64_t)rows * args->w.n * dtype_bytes(y_dtype));
    out.bytes = out.workspace + device_traits.workspace_bytes;
    return out;
}

static int shape_time(struct rank *rank, const struct shape *shape, uint32_t rows, bool *ret_timed,
                      struct error *error)
{
    struct tune_scratch scratch = tune_scratch_of(shape, rows);
    struct matmul_args args = shape->args;
    args.rows = (struct row_range){.count = &rank->state.batch.counts->tokens, .max = rows};
    args.y = args.workspace = NULL;
    args.gated = args.gated && matmul_fuses(&args);
    args.adds = args.adds && matmul_fuses(&args);
    *ret_timed = !tune_known(&args);
    if (!*ret_timed)
        return 0;
    void *base = NULL;
    int status = mem_scratch(&rank->mem, scratch.bytes, &base, error);
    if (status)
        return status;
    char *x = (char *)base + scratch.x;
    args.x = x;
    args.y = (char *)base + scratch.y;
    args.workspace = (char *)base + scratch.workspace;
    cudaStream_t compute = rank->lane.compute;
    /* What is multiplied is of no interest, but zeros would take less power than a step has to. y
     * may be added to. */
    uint64_t most = format_bytes(args.w.format, args.w.n, args.w.k);
    cudaError_t failed = cudaMemsetAsync(x, 0, scratch.workspace, compute);
    if (failed == cudaSuccess)
        failed = cudaMemcpyAsync(x, args.w.data, scratch.y < most ? scratch.y : most,
                                 cudaMemcpyDeviceToDevice, compute);
    if (failed == cudaSuccess)
        failed = tune_matmul(&args, shape->data, shape->data_count, compute);
    status = mem_scratch_free(&rank->mem, base, scratch.bytes, error);
    return failed == cudaSuccess ? status : cuda_fail(failed, "tune_matmul", error);
}

/* 32, 48, 64, 96 ..., and closer where the prompts beside decode rows are read: what was timed for
 * many more rows than a product has can be a poor choice, since tiles of 64 to 256 rows cost as
 * much half full as full. With 768 behind 512 a step of 576 rows took a fifth longer than by the
 * library's own choices. */
static uint32_t rows_next(uint32_t rows)
{
    if (rows >= CLOSE_FROM && rows < CLOSE_TO)
        return rows + CLOSE;
    return rows & (rows - 1) ? rows / 3 * 4 : rows / 2 * 3;
}

static int shapes_time(struct rank *rank, const struct program *program, uint32_t *ret_timed,
                       struct error *error)
{
    struct shape shapes[SHAPES_MAX];
    uint64_t until_ns = profile_now_ns() + TUNER_BUDGET_NS;
    uint32_t tokens = rank->engine->facts.limits.tokens_max;
    const uint32_t count = shapes_list(rank, program, shapes);
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
    if (!op_list_computes(rank->program.list) || !directory || rank->program.invariant)
        return 0; /* invariant: what is timed is not used */
    if (tune_load(directory) < 0)
        engine_log(engine, GPU_LOG_WARNING, "%s: no timed products can be read", directory);
    int status = shapes_time(rank, &rank->program, &timed, error);
    if (!status && drafter_exists(&rank->drafter))
        status = shapes_time(rank, &rank->drafter.program, &timed, error);
    if (status && status != -ERR_DEVICE_MEMORY)
        return status;
    if (timed && tune_save(directory))
        engine_log(engine, GPU_LOG_WARNING, "%s: the timed products cannot be kept", directory);
    return mem_trim(&rank->mem, error);
}
