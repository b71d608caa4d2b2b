/* What the programs that come with it reach on a GPU, beside its limits in the same run:
 *     bench_programs [FOLDER]      their modules; else ../../gpu/programs beside this program
 *
 * gemm at 4,096 and 8,192: cuBLASLt's rate (the best of what it proposes), then ours without
 * clusters and programmatic launch, with either, and with both. Products in a row, as a batch has
 * them; variants take turns, and the middle one of the rounds counts.
 * pipeline: rates of a plain copy and of multiply-adds in registers, then ours by rounds, with
 * warps that have roles and without; 100 % is what the slower of the two limits allows.
 *
 * Programs are called as lanes call them, on memory of this program's own. The last lines are those
 * that record.py keeps (record.py programs BUILD/tests/bench/bench_programs); ends with 1 if a
 * result is wrong or a goal is missed. */
#include <cublasLt.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/lanes/body.h"
#include "tests/bench/on_gpu.h"
#include "tests/bench/programs_limits.cuh"

#define ROW 8 /* products in a row */
#define TURNS 7
#define CANDIDATES 8
#define WORKSPACE_BYTES (64u << 20)
#define ELEMENTS ((uint64_t)1 << 28) /* of pipeline's item */
#define GEMM_GOAL 85.0               /* percent */
#define PIPELINE_GOAL 90.0

static cudaStream_t stream;
static cudaEvent_t begin, end;
static struct sluice_cuda room;
static const struct sluice_cuda *cuda;
static bool missed;
static char kept[8][160]; /* lines for the end */
static int kept_count;

__attribute__((format(printf, 1, 2))) static void keep(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(kept[kept_count++], sizeof(kept[0]), format, arguments);
    va_end(arguments);
}

/* ---- programs ----------------------------------------------------------------------------------
 */

struct batch {
    struct sluice_item items[ROW], *device_items;
    uint32_t count;
};

static void run(const struct program *program, const struct batch *batch)
{
    const struct sluice_batch given = {
        .count = batch->count, .items = batch->items, .device_items = batch->device_items};
    const struct sluice_streams streams = {.count = 1, .streams = {stream}, .cuda = cuda};
    struct sluice_allocator nothing = {.take = NULL};
    int rc = program->enqueue(&given, &streams, &nothing);
    on_gpu_check((cudaError_t)rc, program->name);
}

static void send(struct batch *batch)
{
    if (!batch->device_items)
        batch->device_items = on_gpu_memory(sizeof(batch->items));
    CHECK(cudaMemcpyAsync(batch->device_items, batch->items, sizeof(batch->items),
                          cudaMemcpyHostToDevice, stream));
    CHECK(cudaStreamSynchronize(stream));
}

/* ---- time --------------------------------------------------------------------------------------
 */

static void start(void)
{
    CHECK(cudaEventRecord(begin, stream));
}

static double stop_seconds(void)
{
    float ms = 0;
    CHECK(cudaEventRecord(end, stream));
    CHECK(cudaEventSynchronize(end));
    CHECK(cudaEventElapsedTime(&ms, begin, end));
    return ms / 1e3;
}

static int compare(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static double middle(double *seconds, int count)
{
    qsort(seconds, (size_t)count, sizeof(*seconds), compare);
    return seconds[count / 2];
}

/* ---- gemm --------------------------------------------------------------------------------------
 */

enum { PLAIN, CLUSTERS, PROGRAMMATIC, BOTH, OURS, LIBRARY = OURS, VARIANTS };

struct products {
    uint64_t size;
    void *a, *b, *c[ROW], *workspace;
    struct batch batches[OURS];
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t layout;
    cublasLtMatmulAlgo_t algorithm;
};

static void check_library(cublasStatus_t status)
{
    if (status == CUBLAS_STATUS_SUCCESS)
        return;
    fprintf(stderr, "programs: cuBLASLt: %s\n", cublasLtGetStatusString(status));
    exit(1);
}

/* Its matrices are column-major: to it ours are turned, and C turned is B turned by A turned. */
static void run_library(const struct products *p, const cublasLtMatmulAlgo_t *algorithm)
{
    const float one = 1, zero = 0;
    for (int i = 0; i < ROW; i++)
        check_library(cublasLtMatmul(p->handle, p->operation, &one, p->b, p->layout, p->a,
                                     p->layout, &zero, p->c[i], p->layout, p->c[i], p->layout,
                                     algorithm, p->workspace, WORKSPACE_BYTES, stream));
}

static void open_library(struct products *p)
{
    cublasLtMatmulPreference_t wish;
    cublasLtMatmulHeuristicResult_t found[CANDIDATES];
    const size_t workspace = WORKSPACE_BYTES;
    double best = 1e9;
    int count = 0;
    check_library(cublasLtCreate(&p->handle));
    check_library(cublasLtMatmulDescCreate(&p->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    check_library(
        cublasLtMatrixLayoutCreate(&p->layout, CUDA_R_16BF, p->size, p->size, (int64_t)p->size));
    check_library(cublasLtMatmulPreferenceCreate(&wish));
    check_library(cublasLtMatmulPreferenceSetAttribute(
        wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof(workspace)));
    check_library(cublasLtMatmulAlgoGetHeuristic(p->handle, p->operation, p->layout, p->layout,
                                                 p->layout, p->layout, wish, CANDIDATES, found,
                                                 &count));
    for (int i = 0; i < count; i++) {
        run_library(p, &found[i].algo);
        start();
        run_library(p, &found[i].algo);
        double seconds = stop_seconds();
        if (seconds < best)
            p->algorithm = found[i].algo;
        best = seconds < best ? seconds : best;
    }
    check_library(cublasLtMatmulPreferenceDestroy(wish));
}

static void open_products(struct products *p, uint64_t size)
{
    const size_t elements = size * size;
    memset(p, 0, sizeof(*p));
    p->size = size;
    p->a = on_gpu_memory(elements * 2);
    p->b = on_gpu_memory(elements * 2);
    p->workspace = on_gpu_memory(WORKSPACE_BYTES);
    CHECK(limits_fill_bf16(p->a, elements, 1, stream));
    CHECK(limits_fill_bf16(p->b, elements, 77, stream));
    for (int i = 0; i < ROW; i++)
        p->c[i] = on_gpu_memory(elements * 2);
    for (int variant = 0; variant < OURS; variant++) {
        struct batch *batch = &p->batches[variant];
        batch->count = ROW;
        for (int i = 0; i < ROW; i++) {
            struct sluice_item *item = &batch->items[i];
            *item = (struct sluice_item){.sizes = {size, size, size},
                                         .whole = size,
                                         .inputs = {p->a, p->b},
                                         .outputs = {p->c[i]}};
            item->values[0].integer = variant & 1;
            item->values[1].integer = variant >> 1;
        }
        send(batch);
    }
    open_library(p);
}

static void close_products(struct products *p)
{
    check_library(cublasLtMatrixLayoutDestroy(p->layout));
    check_library(cublasLtMatmulDescDestroy(p->operation));
    check_library(cublasLtDestroy(p->handle));
    CHECK(cudaFree(p->a));
    CHECK(cudaFree(p->b));
    CHECK(cudaFree(p->workspace));
    for (int i = 0; i < ROW; i++)
        CHECK(cudaFree(p->c[i]));
    for (int i = 0; i < OURS; i++)
        CHECK(cudaFree(p->batches[i].device_items));
}

static void run_variant(const struct program *gemm, const struct products *p, int variant)
{
    if (variant == LIBRARY)
        run_library(p, &p->algorithm);
    else
        run(gemm, &p->batches[variant]);
}

static float widened(uint16_t bits)
{
    uint32_t word = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &word, sizeof(value));
    return value;
}

/* The last product of the row; the library sums in another order, so the last bit may differ. */
static void compare_results(const struct program *gemm, const struct products *p)
{
    const size_t elements = p->size * p->size;
    uint16_t *results[VARIANTS];
    double off = 0, all = 0;
    for (int variant = 0; variant < VARIANTS; variant++) {
        results[variant] = malloc(elements * 2);
        if (!results[variant])
            exit(1);
        CHECK(cudaMemsetAsync(p->c[ROW - 1], 0xff, elements * 2, stream));
        run_variant(gemm, p, variant);
        CHECK(cudaMemcpyAsync(results[variant], p->c[ROW - 1], elements * 2, cudaMemcpyDeviceToHost,
                              stream));
        CHECK(cudaStreamSynchronize(stream));
        if (variant < OURS && memcmp(results[0], results[variant], elements * 2) != 0) {
            printf("gemm %lu: variant %d has other bits: WRONG\n", p->size, variant);
            missed = true;
        }
    }
    for (size_t i = 0; i < elements; i++) {
        double want = widened(results[LIBRARY][i]), got = widened(results[0][i]);
        off += (got - want) * (got - want);
        all += want * want;
    }
    if (!(off <= all * 1e-6)) {
        printf("gemm %lu: results are not the library's: WRONG\n", p->size);
        missed = true;
    }
    for (int variant = 0; variant < VARIANTS; variant++)
        free(results[variant]);
}

static void print_products(uint64_t size, double (*seconds)[TURNS])
{
    static const char *const names[] = {"plain", "clusters", "programmatic", "both", "cuBLASLt"};
    double rates[VARIANTS];
    for (int i = 0; i < VARIANTS; i++) {
        rates[i] = 2.0 * (double)size * (double)size * (double)size * ROW /
                   middle(seconds[i], TURNS) / 1e12;
        printf("gemm %lu %s: %.0f TFLOP/s\n", size, names[i], rates[i]);
    }
    const double percent = 100 * rates[BOTH] / rates[LIBRARY];
    missed |= percent < GEMM_GOAL;
    keep("gemm %lu: %.0f TFLOP/s, %.1f %% of cuBLASLt's %.0f, asked %.0f %%", size, rates[BOTH],
         percent, rates[LIBRARY], GEMM_GOAL);
    keep("gemm %lu, gains: clusters %+.1f %%, programmatic launch %+.1f %%, both %+.1f %%", size,
         100 * (rates[BOTH] / rates[PROGRAMMATIC] - 1), 100 * (rates[BOTH] / rates[CLUSTERS] - 1),
         100 * (rates[BOTH] / rates[PLAIN] - 1));
}

static void gemm_bench(const struct program *gemm, uint64_t size)
{
    static struct products products;
    double seconds[VARIANTS][TURNS];
    open_products(&products, size);
    compare_results(gemm, &products);
    for (int turn = 0; turn < TURNS; turn++)
        for (int variant = 0; variant < VARIANTS; variant++) {
            start();
            run_variant(gemm, &products, variant);
            seconds[variant][turn] = stop_seconds();
        }
    print_products(size, seconds);
    close_products(&products);
}

/* ---- pipeline ----------------------------------------------------------------------------------
 */

struct limits {
    double bytes, flops; /* a second; bytes are read or written */
};

static struct limits measure_limits(void *to, const void *from)
{
    const size_t bytes = ELEMENTS * sizeof(float);
    double copies[TURNS], kernels[TURNS], sums[TURNS], flops = 0;
    for (int turn = 0; turn < TURNS; turn++) {
        start();
        CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream));
        copies[turn] = stop_seconds();
        start();
        CHECK(limits_copy(to, from, bytes, stream));
        kernels[turn] = stop_seconds();
        start();
        CHECK(limits_multiply_add(to, cuda->processors, &flops, stream));
        sums[turn] = stop_seconds();
    }
    const double copy = 2 * (double)bytes / middle(copies, TURNS);
    const double kernel = 2 * (double)bytes / middle(kernels, TURNS);
    const struct limits limits = {.bytes = copy > kernel ? copy : kernel,
                                  .flops = flops / middle(sums, TURNS)};
    printf("copy: %.0f GB/s by cudaMemcpyAsync, %.0f by a kernel; multiply-adds: %.1f TFLOP/s\n",
           copy / 1e9, kernel / 1e9, limits.flops / 1e12);
    return limits;
}

static double pipeline_seconds(const struct program *pipeline, struct batch *batch, int rounds,
                               int specialized)
{
    double seconds[TURNS];
    batch->items[0].values[0].integer = rounds;
    batch->items[0].values[3].integer = specialized;
    send(batch);
    run(pipeline, batch);
    for (int turn = 0; turn < TURNS; turn++) {
        start();
        run(pipeline, batch);
        seconds[turn] = stop_seconds();
    }
    return middle(seconds, TURNS);
}

/* `goal`: whether this one must reach it. Between the two limits both take their time. */
static void print_pipeline(const struct program *pipeline, struct batch *batch,
                           const struct limits *limits, int rounds, bool goal)
{
    const double bytes = 2.0 * ELEMENTS * sizeof(float), flops = 2.0 * ELEMENTS * rounds;
    const double memory = bytes / limits->bytes, arithmetic = flops / limits->flops;
    const double least = memory > arithmetic ? memory : arithmetic;
    const double roles = pipeline_seconds(pipeline, batch, rounds, 1);
    const double plain = pipeline_seconds(pipeline, batch, rounds, 0);
    const char *bound = memory > arithmetic ? "copy" : "arithmetic";
    printf("pipeline of %d rounds: %.0f GB/s, %.1f TFLOP/s, %.1f %% of the %s bound, without roles "
           "%.1f %%\n",
           rounds, bytes / roles / 1e9, flops / roles / 1e12, 100 * least / roles, bound,
           100 * least / plain);
    if (!goal)
        return;
    missed |= 100 * least / roles < PIPELINE_GOAL;
    keep("pipeline of %d rounds: %.1f %% of the %s bound, asked %.0f %%, without roles %.1f %%",
         rounds, 100 * least / roles, bound, PIPELINE_GOAL, 100 * least / plain);
}

static void pipeline_bench(const struct program *pipeline)
{
    static const int rounds[] = {0, 8, 32, 64, 128, 256, 1, 1024}; /* the last two with a goal */
    static struct batch batch;
    const uint32_t count = sizeof(rounds) / sizeof(rounds[0]);
    void *x = on_gpu_memory(ELEMENTS * sizeof(float)), *y = on_gpu_memory(ELEMENTS * sizeof(float));
    CHECK(limits_fill_f32(x, ELEMENTS, stream));
    const struct limits limits = measure_limits(y, x);
    batch.count = 1;
    batch.items[0] =
        (struct sluice_item){.sizes = {ELEMENTS}, .whole = ELEMENTS, .inputs = {x}, .outputs = {y}};
    batch.items[0].values[1].number = 0.25;
    batch.items[0].values[2].number = 0.5;
    for (uint32_t i = 0; i < count; i++)
        print_pipeline(pipeline, &batch, &limits, rounds[i], i + 2 >= count);
    CHECK(cudaFree(batch.device_items));
    CHECK(cudaFree(x));
    CHECK(cudaFree(y));
}

/* ---- all of it ---------------------------------------------------------------------------------
 */

int main(int argc, char **argv)
{
    char folder[PATH_MAX];
    struct error error;
    on_gpu_folder(argc, argv, folder);
    if (body_open(&room, &cuda, &error)) {
        fprintf(stderr, "programs: %s\n", error.text);
        return 1;
    }
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    const struct program pipeline = on_gpu_load(folder, "pipeline"),
                         gemm = on_gpu_load(folder, "gemm");
    pipeline_bench(&pipeline);
    gemm_bench(&gemm, 4096);
    gemm_bench(&gemm, 8192);
    for (int i = 0; i < kept_count; i++)
        puts(kept[i]);
    return missed;
}
