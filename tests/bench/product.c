/* The CPU device's products beside what the machine can do: one layer set of a model of a billion
 * parameters, through the emulated stream, at several numbers of rows.
 *
 *   ninja -C .build/release bench_matmul && .build/release/tests/gpu/kernels/bench_product
 * [THREADS]
 *
 * The rate at which the same threads read the same memory is taken in the same run. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "gpu/emu/emu.h"
#include "gpu/kernels/load/fill.h"
#include "gpu/kernels/matmul/matmul.h"

#define LAYERS 3
#define SHAPES 4
#define ROWS_MAX 64
#define PIECE (256u << 10)

static const uint32_t shape[SHAPES][2] = {{3072, 2048}, {2048, 2048}, {16384, 2048}, {2048, 8192}};
static cudaStream_t stream;

struct reading {
    const void *data;
    uint64_t *out;
};

static void must(cudaError_t error)
{
    if (error != cudaSuccess) {
        fprintf(stderr, "bench_matmul: %s\n", cudaGetErrorString(error));
        exit(EXIT_FAILURE);
    }
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void *make(size_t bytes)
{
    void *device;
    must(cudaMalloc(&device, bytes));
    must(cudaMemsetAsync(device, 0, bytes, stream));
    must(cudaStreamSynchronize(stream));
    return device;
}

static void read_piece(const void *params, uint32_t index)
{
    const struct reading *reading = params;
    const uint64_t *from =
        (const uint64_t *)dev((const char *)reading->data + (size_t)index * PIECE);
    uint64_t sum[8] = {0};
    for (size_t i = 0; i < PIECE / 8; i += 8)
        for (size_t j = 0; j < 8; j++)
            sum[j] ^= from[i + j];
    uint64_t *out = dev(reading->out);
    out[index % 64 * 8] = sum[0] ^ sum[1] ^ sum[2] ^ sum[3] ^ sum[4] ^ sum[5] ^ sum[6] ^ sum[7];
}

static double read_rate(const void *data, size_t bytes)
{
    struct reading reading = {data, make(64 * 64)};
    double best = 0;
    for (int i = 0; i < 5; i++) {
        double start = now();
        must(emu_launch(stream, "read", read_piece, &reading, sizeof reading,
                        (uint32_t)(bytes / PIECE)));
        must(cudaStreamSynchronize(stream));
        double rate = (double)(bytes / PIECE * PIECE) / (now() - start);
        best = rate > best ? rate : best;
    }
    return best;
}

/* All products of LAYERS layers; seconds. */
static double run(char *weights, float *x, float *y, const uint32_t *count, uint32_t rows)
{
    double best = 1e9;
    for (int repeat = 0; repeat < 4; repeat++) {
        char *at = weights;
        double start = now();
        for (uint32_t i = 0; i < LAYERS * SHAPES; i++) {
            const uint32_t *s = shape[i % SHAPES];
            struct matmul_args args = {
                .rows = {count, 0, rows},
                .w = {.data = at, .format = FORMAT_BF16, .n = s[0], .k = s[1]},
                .x = x,
                .y = y,
                .x_stride = 8192,
                .y_stride = 16384,
            };
            must(op_matmul(&args, stream));
            at += (size_t)s[0] * s[1] * 2;
        }
        must(cudaStreamSynchronize(stream));
        double took = now() - start;
        best = took < best ? took : best;
    }
    return best;
}

int main(int argc, char **argv)
{
    static const uint32_t rows[] = {1, 4, 8, 16, 64};
    struct emu_options options = {.engine = EMU_THREADS,
                                  .team_threads = argc > 1 ? (uint32_t)atoi(argv[1]) : 0};
    int least, greatest;
    size_t elements = 0;
    must(emu_setup(&options));
    must(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    must(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest));
    for (uint32_t i = 0; i < LAYERS * SHAPES; i++)
        elements += (size_t)shape[i % SHAPES][0] * shape[i % SHAPES][1];
    char *weights = make(elements * 2);
    uint32_t *count = make(4);
    float *x = make(ROWS_MAX * 8192 * 4), *y = make(ROWS_MAX * 16384 * 4);
    struct fill_args fill = {.place = {.rows = (uint32_t)(elements / 8192),
                                       .columns = 8192,
                                       .width = 8192,
                                       .run = 1,
                                       .step = 1,
                                       .to_stride = 8192},
                             .to = weights,
                             .to_dtype = DTYPE_BF16,
                             .deviation = 0.02f};
    must(op_fill(&fill, stream));
    fill.place.rows = ROWS_MAX;
    fill.to = x;
    fill.to_dtype = DTYPE_F32;
    fill.deviation = 1;
    must(op_fill(&fill, stream));
    must(cudaStreamSynchronize(stream));
    double limit = read_rate(weights, elements * 2);
    printf("read %.1f GB/s\n", limit / 1e9);
    for (uint32_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        must(cudaMemcpyAsync(count, &rows[i], 4, cudaMemcpyHostToDevice, stream));
        must(cudaStreamSynchronize(stream));
        double took = run(weights, x, y, count, rows[i]), rate = (double)elements * 2 / took;
        printf(
            "%2u rows: %.1f ms, %.1f GB/s of weights, %.0f %% of the read rate, %.1f Gmul-add/s\n",
            rows[i], took * 1e3, rate / 1e9, 100 * rate / limit,
            (double)elements * rows[i] / took / 1e9);
    }
    return 0;
}
