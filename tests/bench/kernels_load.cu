/* What a decode step's products take in the state in which a long run of such steps leaves the GPU:
 * from 256 rows on the power limit brings its clocks down, and then whatever takes the least energy
 * is the fastest. And what the norm and SwiGLU take, with what they read in the L2 as in a step. */
#include <math.h>

#include "gpu/kernels/activation/activation.h"
#include "gpu/kernels/matmul/cublaslt.cuh"
#include "gpu/kernels/norm/norm.h"
#include "tests/bench/kernels.cuh"

static const int LAYERS = 32, PRODUCTS = 4, TURNS_MAX = 4096;
static const uint32_t SHAPE[PRODUCTS][2] = {
    {6144, 4096}, {4096, 4096}, {28672, 4096}, {4096, 14336}};
static const char *const NAME[PRODUCTS] = {"qkv", "o", "gate and up", "down"};

struct matmul_of {
    struct lt_problem problem;
    struct matmul_args args;
    char *weights; /* of all layers, one after the other */
    cublasLtMatmulHeuristicResult_t candidates[TUNE_CANDIDATES];
    int count, choice;
};

static void describe(struct matmul_of &p, int number, uint32_t rows, enum dtype y_dtype)
{
    struct matmul_args &a = p.args;
    a.y_dtype = a.bias_dtype = y_dtype;
    a.rows.max = rows;
    a.w = {p.weights, format_plain(half_t), SHAPE[number][0], SHAPE[number][1]};
    a.x_stride = a.w.k;
    a.y_stride = a.w.n;
    a.x_dtype = half_t;
    a.workspace_bytes = MATMUL_WORKSPACE_BYTES;
    lt_describe(&a, &p.problem);
    p.count = lt_candidates(lt_handle(), &p.problem, p.candidates, TUNE_CANDIDATES);
    p.choice = 0;
}

static void run_layers(struct matmul_of (&all)[PRODUCTS])
{
    for (int layer = 0; layer < LAYERS; layer++)
        for (struct matmul_of &p : all) {
            struct matmul_args at = p.args;
            at.w.data = p.weights + (size_t)layer * at.w.n * at.w.k * 2;
            MUST(lt_run(lt_handle(), &p.problem, &at, &p.candidates[p.choice].algo, stream));
        }
}

/* Microseconds of one layer, after so long of nothing else: by the second half of the time. */
static double sustained_us(struct matmul_of (&all)[PRODUCTS], double seconds, bool story)
{
    cudaEvent_t mark[3];
    for (cudaEvent_t &event : mark)
        MUST(cudaEventCreate(&event));
    double ms = 0, half_ms = 0, told_ms = 0;
    int turns = 0, half = 0;
    MUST(cudaEventRecord(mark[0], stream));
    for (int turn = 1; turn < TURNS_MAX; turn++) {
        float one;
        run_layers(all);
        MUST(cudaEventRecord(mark[turn % 3], stream));
        if (turn == 1)
            continue;
        MUST(cudaEventSynchronize(mark[(turn - 1) % 3]));
        MUST(cudaEventElapsedTime(&one, mark[(turn - 2) % 3], mark[(turn - 1) % 3]));
        ms += one;
        turns++;
        if (story && ms - told_ms > 100) {
            printf("    after %4.0f ms: %.1f us a layer\n", ms, one * 1e3 / LAYERS);
            told_ms = ms;
        }
        if (!half && ms > seconds * 500)
            half = turns, half_ms = ms;
        if (ms > seconds * 1000)
            break;
    }
    MUST(cudaStreamSynchronize(stream));
    for (cudaEvent_t event : mark)
        MUST(cudaEventDestroy(event));
    return (ms - half_ms) * 1e3 / LAYERS / (turns - half);
}

static double alone_us(struct matmul_of &p, int candidate)
{
    return 1e3 *
           time_ms(
               [&] {
                   for (int layer = 0; layer < 8; layer++) {
                       struct matmul_args at = p.args;
                       at.w.data = p.weights + (size_t)layer * at.w.n * at.w.k * 2;
                       MUST(lt_run(lt_handle(), &p.problem, &at, &p.candidates[candidate].algo,
                                   stream));
                   }
               },
               3) /
           8;
}

/* Each candidate in its place, beside the best so far of the others. */
static void candidates(struct matmul_of (&all)[PRODUCTS])
{
    for (int number = 0; number < PRODUCTS; number++) {
        struct matmul_of &p = all[number];
        double cold[TUNE_CANDIDATES], least = INFINITY;
        int first = 0;
        for (int c = 0; c < p.count; c++) {
            cold[c] = alone_us(p, c);
            if (cold[c] < least)
                least = cold[c], first = c;
        }
        p.choice = first;
        printf("%s: the fastest alone is %d, %.1f us\n", NAME[number], first, least);
    }
    printf("the layer, each as fast as can be alone: %.1f us\n", sustained_us(all, 0.5, true));
    for (int number = 0; number < PRODUCTS; number++) {
        struct matmul_of &p = all[number];
        double least = INFINITY;
        int best = p.choice;
        for (int c = 0; c < p.count; c++) {
            double alone = alone_us(p, c);
            if (alone > 1.2 * alone_us(p, best))
                continue;
            p.choice = c;
            double us = sustained_us(all, 0.16, false);
            printf("    %s %2d: alone %.1f us, the layer %.1f us\n", NAME[number], c, alone, us);
            fflush(stdout);
            if (us < least)
                least = us, best = c;
        }
        p.choice = best;
    }
    printf("the layer, each as is best for it: %.1f us\n", sustained_us(all, 0.5, false));
}

static void small_figure(uint32_t rows, char *memory)
{
    uint32_t *count = to_device(std::vector<uint32_t>(1, rows));
    struct activation_args swiglu = {
        {count, 0, rows}, memory, memory + (64u << 20), 14336, 28672, 14336, half_t,
        ACTIVATE_SILU,    true};
    struct norm_args norm = {{count, 0, rows},
                             memory,
                             memory + (64u << 20),
                             memory + (96u << 20),
                             memory + (128u << 20),
                             4096,
                             4096,
                             4096,
                             4096,
                             DTYPE_F32,
                             DTYPE_F32,
                             half_t,
                             half_t,
                             1e-5f};
    double swiglu_us = 1e3 / LAYERS * time_graph_ms([&] {
                           for (int i = 0; i < LAYERS; i++)
                               MUST(op_activation(&swiglu, stream));
                       });
    double norm_us[2];
    for (enum dtype delta : {DTYPE_F32, half_t}) {
        norm.delta_dtype = delta;
        norm_us[delta == half_t] = 1e3 / LAYERS * time_graph_ms([&] {
                                       for (int i = 0; i < LAYERS; i++)
                                           MUST(op_norm(&norm, stream));
                                   });
    }
    printf(
        "%u rows: swiglu %.2f us, %.0f GB/s; norm %.2f us, %.0f GB/s, with 16 bits added %.2f us\n",
        rows, swiglu_us, rows * 14336 * 6 / swiglu_us / 1e3, norm_us[0],
        rows * 4096 * 14 / norm_us[0] / 1e3, norm_us[1]);
    MUST(cudaFree(count));
}

/* Microseconds of gate and up with SwiGLU in one kernel, or as cuBLASLt's fastest of those alone
 * with SwiGLU behind it; both so long that the clocks are as such work leaves them. */
static double gated_us(struct matmul_of &p, uint32_t *count, void *out, bool fused)
{
    struct matmul_args args = p.args;
    struct activation_args swiglu = {{count, 0, args.rows.max},
                                     args.y,
                                     out,
                                     args.w.n / 2,
                                     args.w.n,
                                     args.w.n / 2,
                                     half_t,
                                     ACTIVATE_SILU,
                                     true};
    args.rows.count = count;
    if (fused) {
        args.gated = true;
        args.y = out;
        args.y_stride = args.w.n / 2;
    }
    auto layers = [&] {
        for (int layer = 0; layer < LAYERS; layer++) {
            args.w.data = p.weights + (size_t)layer * args.w.n * args.w.k * 2;
            if (fused) {
                MUST(op_matmul(&args, stream));
                continue;
            }
            MUST(lt_run(lt_handle(), &p.problem, &args, &p.candidates[p.choice].algo, stream));
            MUST(op_activation(&swiglu, stream));
        }
    };
    return 1e3 / LAYERS * time_graph_ms(layers, 61);
}

void gated_bench()
{
    char *weights, *memory, *workspace, *out;
    size_t bytes = (size_t)LAYERS * SHAPE[2][0] * SHAPE[2][1] * 2;
    MUST(cudaMalloc(&weights, bytes));
    MUST(cudaMalloc(&memory, 160u << 20));
    MUST(cudaMalloc(&workspace, MATMUL_WORKSPACE_BYTES));
    MUST(cudaMalloc(&out, 64u << 20));
    fill_random(weights, bytes);
    fill_random(memory, 160u << 20);
    for (uint32_t rows :
         {17u, 32u, 64u, 96u, 128u, 160u, 192u, 224u, 256u, 272u, 512u, 1536u, 2048u}) {
        struct matmul_of p = {};
        uint32_t *count = to_device(std::vector<uint32_t>(1, rows));
        p.weights = weights;
        p.args.x = memory;
        p.args.y = memory + (32u << 20);
        p.args.workspace = workspace;
        describe(p, 2, rows, half_t);
        for (int c = 1; c < p.count; c++)
            if (alone_us(p, c) < alone_us(p, p.choice))
                p.choice = c;
        printf("gate and up of %4u rows with SwiGLU:", rows);
        for (int turn = 0; turn < 2; turn++) {
            double fused = gated_us(p, count, out, true), apart = gated_us(p, count, out, false);
            printf("  %6.2f us, apart %6.2f", fused, apart);
        }
        printf("\n");
        fflush(stdout);
        MUST(cudaFree(count));
    }
    MUST(cudaFree(weights));
    MUST(cudaFree(memory));
    MUST(cudaFree(workspace));
    MUST(cudaFree(out));
}

void load_bench()
{
    char *weights, *memory, *workspace;
    struct matmul_of all[PRODUCTS] = {};
    size_t bytes = 0;
    for (auto &shape : SHAPE)
        bytes += (size_t)LAYERS * shape[0] * shape[1] * 2;
    MUST(cudaMalloc(&weights, bytes));
    MUST(cudaMalloc(&memory, 256u << 20));
    MUST(cudaMalloc(&workspace, MATMUL_WORKSPACE_BYTES));
    fill_random(weights, bytes);
    fill_random(memory, 256u << 20);
    for (uint32_t rows : {128u, 256u}) {
        for (enum dtype delta : {half_t, DTYPE_F32}) {
            size_t at = 0;
            for (int i = 0; i < PRODUCTS; i++) {
                all[i].weights = weights + at;
                at += (size_t)LAYERS * SHAPE[i][0] * SHAPE[i][1] * 2;
                all[i].args.x = memory + ((size_t)i << 25);
                all[i].args.y = memory + (128u << 20) + ((size_t)i << 25);
                all[i].args.workspace = workspace;
                describe(all[i], i, rows, i % 2 ? delta : half_t);
            }
            printf("products of %u rows, o and down in %d bits\n", rows,
                   delta == DTYPE_F32 ? 32 : 16);
            if (delta == DTYPE_F32 && rows == 256)
                candidates(all);
            else
                printf("    the library's first: %.1f us a layer\n", sustained_us(all, 0.5, false));
        }
    }
    MUST(cudaFree(weights));
    MUST(cudaFree(memory));
    MUST(cudaFree(workspace));
}

void small_bench()
{
    char *memory;
    MUST(cudaMalloc(&memory, 256u << 20));
    fill_random(memory, 256u << 20);
    for (uint32_t rows : {64u, 128u, 256u})
        small_figure(rows, memory);
    MUST(cudaFree(memory));
}
