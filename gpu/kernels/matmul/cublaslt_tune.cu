/* Timing cuBLASLt's candidates and our own kernel, and the file of the winners; the format is in
 * cublaslt_tune.h. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <mutex>

#include "gpu/kernels/matmul/cublaslt.cuh"
#include "protocol/base/error.h"

#define REPEATS 2
#define HOPELESS 1.1f
#define TURN                                                                                       \
    4 /* products between two looks at the clock, so that launching them weighs little,            \
       */
#define TURN_ROWS 256u /* up to so many rows; half as many products up to twice the rows */
#define GAIN 0.98f     /* a candidate must be this much faster than the library's first */
/* And our own than the library's fastest: between steps' other kernels, where power has brought the
 * clocks down, it gains less than it does here. */
#define TILES_GAIN 0.93f
#define PATH_BYTES 4096

struct tuned {
    struct lt_shape shape;
    uint32_t choice;
    int device;
};

static std::mutex lock;
static struct tuned shapes[TUNE_SHAPES_MAX];
static uint32_t shape_count;

static bool same_but_rows(const struct lt_shape *a, const struct lt_shape *b)
{
    return a->n == b->n && a->k == b->k && a->w_format == b->w_format && a->x_dtype == b->x_dtype &&
           a->y_dtype == b->y_dtype && a->bias == b->bias;
}

bool tune_find(const struct lt_shape *shape, uint32_t *ret_rows, uint32_t *ret_choice)
{
    int device = device_props()->ordinal;
    std::lock_guard<std::mutex> guard(lock);
    const struct tuned *best = NULL;
    for (uint32_t i = 0; i < shape_count; i++) {
        const struct tuned *at = &shapes[i];
        if (at->device != device || !same_but_rows(&at->shape, shape) ||
            at->shape.rows < shape->rows || at->shape.rows / 2 >= shape->rows)
            continue;
        if (!best || at->shape.rows < best->shape.rows)
            best = at;
    }
    if (!best)
        return false;
    *ret_rows = best->shape.rows;
    *ret_choice = best->choice;
    return true;
}

static void keep(const struct lt_shape *shape, uint32_t choice)
{
    int device = device_props()->ordinal;
    std::lock_guard<std::mutex> guard(lock);
    uint32_t i = 0;
    while (i < shape_count && !(shapes[i].device == device && shapes[i].shape.rows == shape->rows &&
                                same_but_rows(&shapes[i].shape, shape)))
        i++;
    if (i == TUNE_SHAPES_MAX)
        return;
    shapes[i] = {*shape, choice, device};
    if (i == shape_count)
        shape_count++;
}

struct stopwatch {
    cudaEvent_t begin, end;
    const void *const *weights;
    uint32_t weight_count, next; /* next: the weight whose turn it is */
};

/* `algorithm` NULL: our own; likewise below. */
static cudaError_t run_turn(cublasLtHandle_t handle, struct lt_problem *problem,
                            const struct matmul_args *args, const cublasLtMatmulAlgo_t *algorithm,
                            struct stopwatch *watch, uint32_t turn, cudaStream_t stream)
{
    cudaError_t result = cudaEventRecord(watch->begin, stream);
    for (uint32_t i = 0; i < turn && result == cudaSuccess; i++) {
        struct matmul_args at = *args;
        at.w.data = watch->weights[watch->next++ % watch->weight_count];
        result =
            algorithm ? lt_run(handle, problem, &at, algorithm, stream) : tiles_run(&at, stream);
    }
    if (result == cudaSuccess)
        result = cudaEventRecord(watch->end, stream);
    /* May wait: products are timed before the first step. */
    return result == cudaSuccess ? cudaEventSynchronize(watch->end) : result;
}

/* The fastest of a few turns, in milliseconds; one turn where that is far from the best so far. */
static cudaError_t time_one(cublasLtHandle_t handle, struct lt_problem *problem,
                            const struct matmul_args *args, const cublasLtMatmulAlgo_t *algorithm,
                            struct stopwatch *watch, cudaStream_t stream, float record,
                            float *ret_ms)
{
    float best = INFINITY;
    uint32_t turn = TURN * TURN_ROWS / args->rows.max;
    turn = turn < 1 ? 1 : turn > TURN ? TURN : turn;
    for (int i = 0; i <= REPEATS; i++) { /* the first one warms up */
        float ms = 0;
        cudaError_t result = run_turn(handle, problem, args, algorithm, watch, turn, stream);
        if (result == cudaSuccess)
            result = cudaEventElapsedTime(&ms, watch->begin, watch->end);
        if (result != cudaSuccess)
            return result;
        if (i > 0 && ms < best)
            best = ms;
        if (i == 1 && best > HOPELESS * record)
            break;
    }
    *ret_ms = best;
    return cudaSuccess;
}

static cudaError_t time_all(const struct matmul_args *args, cublasLtHandle_t handle,
                            struct lt_problem *problem, struct stopwatch *watch,
                            cudaStream_t stream)
{
    cublasLtMatmulHeuristicResult_t candidates[TUNE_CANDIDATES];
    int count = lt_candidates(handle, problem, candidates, TUNE_CANDIDATES);
    float best = INFINITY;
    int choice = -1;
    for (int i = 0; i < count + tiles_can(args); i++) {
        float ms = 0;
        cudaError_t result = time_one(handle, problem, args, i < count ? &candidates[i].algo : NULL,
                                      watch, stream, best, &ms);
        if (result == cudaErrorNotSupported)
            continue;
        if (result != cudaSuccess)
            return result;
        float gain = i == count ? TILES_GAIN : choice == 0 ? GAIN : 1.0f;
        if (choice < 0 || ms < best * gain) {
            best = ms;
            choice = i < count ? i : TUNE_TILES;
        }
    }
    if (choice >= 0) {
        keep(&problem->shape, static_cast<uint32_t>(choice));
        lt_forget();
    }
    return cudaSuccess;
}

/* The product that the library makes of such args; false: none. */
static bool asked(const struct matmul_args *args, struct matmul_args *ret)
{
    if (matmul_scaled_asks(args, ret))
        return true;
    *ret = *args;
    return args->rows.max > GEMV_ROWS_MAX && !args->gated && matmul_lt_can(args);
}

cudaError_t tune_matmul(const struct matmul_args *args, const void *const *weights,
                        uint32_t weight_count, cudaStream_t stream)
{
    struct lt_problem problem;
    struct stopwatch watch = {NULL, NULL, weights, weight_count, 0};
    struct matmul_args inner;
    if (!asked(args, &inner))
        return cudaSuccess;
    cublasLtHandle_t handle = lt_handle();
    if (!handle)
        return cudaErrorInitializationError;
    if (!lt_describe(&inner, &problem))
        return cudaSuccess;
    cudaError_t result = cudaEventCreate(&watch.begin);
    if (result != cudaSuccess)
        return result;
    result = cudaEventCreate(&watch.end);
    if (result == cudaSuccess) {
        result = time_all(&inner, handle, &problem, &watch, stream);
        cudaEventDestroy(watch.end);
    }
    cudaEventDestroy(watch.begin);
    return result;
}

bool tune_known(const struct matmul_args *args)
{
    struct lt_problem problem;
    struct matmul_args inner;
    uint32_t rows, choice;
    if (!asked(args, &inner) || !lt_describe(&inner, &problem))
        return true;
    return tune_find(&problem.shape, &rows, &choice) && rows == problem.shape.rows;
}

static bool file_path(const char *dir, const char *suffix, char *path)
{
    cudaDeviceProp device;
    char name[sizeof(device.name)];
    if (cudaGetDeviceProperties(&device, device_props()->ordinal) != cudaSuccess)
        return false;
    size_t i = 0;
    for (; device.name[i] && i + 1 < sizeof(name); i++) {
        char c = device.name[i];
        bool digit = c >= '0' && c <= '9', lower = c >= 'a' && c <= 'z',
             upper = c >= 'A' && c <= 'Z';
        name[i] = upper ? static_cast<char>(c - 'A' + 'a') : lower || digit ? c : '-';
    }
    name[i] = 0;
    int length =
        snprintf(path, PATH_BYTES, "%s/products-%s-%zu%s", dir, name, cublasLtGetVersion(), suffix);
    return length > 0 && length < PATH_BYTES;
}

int tune_load(const char *dir)
{
    char path[PATH_BYTES], line[TUNE_LINE_BYTES];
    if (!file_path(dir, "", path))
        return -ERR_IO;
    FILE *file = fopen(path, "re");
    if (file) {
        struct lt_shape shape;
        uint32_t choice;
        for (uint32_t i = 0; i < TUNE_SHAPES_MAX && fgets(line, sizeof(line), file); i++)
            if (tune_line_read(line, &shape, &choice))
                keep(&shape, choice);
        fclose(file);
        lt_forget();
    }
    std::lock_guard<std::mutex> guard(lock);
    return static_cast<int>(shape_count);
}

int tune_save(const char *dir)
{
    char path[PATH_BYTES], temporary[PATH_BYTES], suffix[32];
    snprintf(suffix, sizeof(suffix), ".%ld", static_cast<long>(getpid()));
    if (!file_path(dir, "", path) || !file_path(dir, suffix, temporary))
        return -ERR_IO;
    FILE *file = fopen(temporary, "we");
    if (!file)
        return -ERR_IO;
    int device = device_props()->ordinal;
    lock.lock();
    for (uint32_t i = 0; i < shape_count; i++) {
        char line[TUNE_LINE_BYTES];
        if (shapes[i].device == device &&
            tune_line_write(&shapes[i].shape, shapes[i].choice, line) > 0)
            fputs(line, file);
    }
    lock.unlock();
    bool bad = ferror(file) != 0;
    if (fclose(file) || bad || rename(temporary, path)) {
        unlink(temporary);
        return -ERR_IO;
    }
    return 0;
}
