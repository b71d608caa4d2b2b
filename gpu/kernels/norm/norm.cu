/* A block per row; each thread keeps its part of the row in registers between the two passes.
 * Bound by latency, of which a row has one chain (read, sum, write), and of many rows by memory.
 * Reads and writes each value once. Figures: tests/bench/EXPERIMENTS.md. */
#include "gpu/kernels/common/device_props.cuh"
#include "gpu/kernels/norm/norm.cuh"
#include "gpu/kernels/norm/norm.h"

#define NORM_RESIDENT 1024 /* threads of an SM, with as many registers as they may need */

template <int TURNS> __global__ void norm_kernel(struct norm_args a)
{
    __shared__ float scratch[WARP];
    float8 weight[TURNS];
    grid_trigger();
#pragma unroll
    for (int turn = 0; turn < TURNS; turn++) {
        uint32_t i = (turn * blockDim.x + threadIdx.x) * 8;
        weight[turn] = {{1, 1, 1, 1, 1, 1, 1, 1}};
        if (a.weight && i < a.size)
            weight[turn] = load_float8(a.weight, i, a.size, a.weight_dtype);
    }
    grid_wait();
    uint32_t row = blockIdx.x;
    size_t residual = (size_t)row * a.residual_stride, delta = (size_t)row * a.delta_stride;
    size_t out = (size_t)row * a.out_stride;
    float8 value[TURNS], add[TURNS];
#pragma unroll
    for (int turn = 0; turn < TURNS; turn++) {
        uint32_t i = (turn * blockDim.x + threadIdx.x) * 8;
        if (i >= a.size)
            break;
        value[turn] = load_float8(a.residual, residual + i, residual + a.size, a.residual_dtype);
        if (a.delta)
            add[turn] = load_float8(a.delta, delta + i, delta + a.size, a.delta_dtype);
    }
    if (row >= range_rows(a.rows)) /* rows up to the bound can be read: no wait for the count */
        return;
    float squares = 0;
#pragma unroll
    for (int turn = 0; turn < TURNS; turn++) {
        uint32_t i = (turn * blockDim.x + threadIdx.x) * 8;
        if (i >= a.size)
            break;
        if (a.delta) {
#pragma unroll
            for (int j = 0; j < 8; j++)
                value[turn].v[j] =
                    round_value(value[turn].v[j] + norm_delta(add[turn].v[j], a), a.residual_dtype);
            store_float8(a.residual, residual + i, residual + a.size, a.residual_dtype,
                         value[turn]);
        }
        squares = norm_squares(squares, value[turn]);
    }
    if (!a.out)
        return;
    float scale = norm_scale(block_sum(squares, scratch), a.size, a.eps);
#pragma unroll
    for (int turn = 0; turn < TURNS; turn++) {
        uint32_t i = (turn * blockDim.x + threadIdx.x) * 8;
        if (i >= a.size)
            break;
        store_float8(a.out, out + i, out + a.size, a.out_dtype,
                     norm_scaled(value[turn], scale, weight[turn]));
    }
}

/* Rows in turns, where there are more than the device takes at once and nothing is added to them:
 * while one is summed, the next is on its way. The same sums in the same order. */
__global__ void __launch_bounds__(NORM_THREADS) norm_rows_kernel(struct norm_args a)
{
    __shared__ float scratch[WARP];
    uint32_t i = threadIdx.x * 8;
    float8 weight = {{1, 1, 1, 1, 1, 1, 1, 1}}, value = {}, next = {};
    grid_trigger();
    if (a.weight && i < a.size)
        weight = load_float8(a.weight, i, a.size, a.weight_dtype);
    grid_wait();
    uint32_t rows = range_rows(a.rows), row = blockIdx.x;
    auto load = [&](float8 &to) {
        size_t from = (size_t)row * a.residual_stride;
        if (row < rows && i < a.size)
            to = load_float8(a.residual, from + i, from + a.size, a.residual_dtype);
    };
    load(next);
    while (row < rows) {
        value = next;
        size_t out = (size_t)row * a.out_stride;
        row += gridDim.x;
        load(next);
        float squares = i < a.size ? norm_squares(0, value) : 0;
        float scale = norm_scale(block_sum(squares, scratch), a.size, a.eps);
        if (i < a.size)
            store_float8(a.out, out + i, out + a.size, a.out_dtype,
                         norm_scaled(value, scale, weight));
    }
}

cudaError_t op_norm(const struct norm_args *args, cudaStream_t stream)
{
    unsigned threads = norm_threads(args->size);
    unsigned turns = ceil_div(args->size, threads * 8);
    unsigned together = device_props()->processors * (NORM_RESIDENT / threads);
    dim3 grid(args->rows.max);
    if (turns <= 1 && args->rows.max > 2 * together && !args->delta && args->out)
        return launch(norm_rows_kernel, dim3(together), threads, 0, stream, *args);
    if (turns <= 1)
        return launch(norm_kernel<1>, grid, threads, 0, stream, *args);
    if (turns <= 2)
        return launch(norm_kernel<2>, grid, threads, 0, stream, *args);
    if (turns <= 4)
        return launch(norm_kernel<4>, grid, threads, 0, stream, *args);
    if (turns <= 8)
        return launch(norm_kernel<8>, grid, threads, 0, stream, *args);
    return cudaErrorInvalidValue;
}
