/* A block per row; each thread keeps its part of the row in registers between the two passes.
 * Bound by latency, of which a row has one chain (read, sum, write), and of many rows by memory.
 * Reads and writes each value once. Figures: tests/bench/EXPERIMENTS.md. */
#include "gpu/kernels/common/device_props.cuh"
#include "gpu/kernels/norm/norm.cuh"
#include "gpu/kernels/norm/norm.h"

#define NORM_RESIDENT 1024 /* threads of an SM, with as many registers as they may need */

/* Where a thread's turn is in its row. */
__device__ __forceinline__ uint32_t norm_at(int turn)
{
    return (turn * blockDim.x + threadIdx.x) * 8;
}

/* Whole block: the mean is taken off a row's values. */
template <int TURNS>
__device__ __forceinline__ void norm_center(float8 (&value)[TURNS], const struct norm_args &a,
                                            float *scratch)
{
    float sum = 0;
#pragma unroll
    for (int turn = 0; turn < TURNS && norm_at(turn) < a.size; turn++)
#pragma unroll
        for (int j = 0; j < 8; j++)
            sum += value[turn].v[j]; /* past the row's end: 0 */
    float mean = block_sum(sum, scratch) / (float)a.size;
#pragma unroll
    for (int turn = 0; turn < TURNS; turn++)
#pragma unroll
        for (int j = 0; j < 8; j++)
            value[turn].v[j] = norm_at(turn) + j < a.size ? value[turn].v[j] - mean : 0.0f;
}

/* Whole block: what each thread has of a row becomes what is stored of it. */
template <norm_form FORM, int TURNS>
__device__ __forceinline__ void norm_row(float8 (&value)[TURNS], const float8 (&weight)[TURNS],
                                         const struct norm_args &a, float *scratch)
{
    if (FORM == NORM_ROUNDED)
        return;
    if (FORM == NORM_CENTERED)
        norm_center(value, a, scratch);
    float squares = 0;
#pragma unroll
    for (int turn = 0; turn < TURNS && norm_at(turn) < a.size; turn++)
        squares = norm_squares(squares, value[turn]);
    float scale = norm_scale(block_sum(squares, scratch), a.size, a.eps);
#pragma unroll
    for (int turn = 0; turn < TURNS; turn++) {
        uint32_t i = norm_at(turn);
        if (i >= a.size)
            break;
        value[turn] = norm_scaled(value[turn], scale, weight[turn]);
        if (FORM == NORM_CENTERED && a.bias) {
            float8 bias = load_float8(a.bias, i, a.size, a.weight_dtype);
#pragma unroll
            for (int j = 0; j < 8; j++)
                value[turn].v[j] += bias.v[j];
        }
    }
}

/* Whole block: what is added is normed before. */
template <int TURNS>
__device__ __forceinline__ void norm_behind(float8 (&add)[TURNS], const float8 (&weight)[TURNS],
                                            const struct norm_args &a, float *scratch)
{
    float squares = 0;
#pragma unroll
    for (int turn = 0; turn < TURNS && norm_at(turn) < a.size; turn++)
        squares = norm_squares(squares, add[turn]);
    float scale = norm_scale(block_sum(squares, scratch), a.size, a.delta_eps);
#pragma unroll
    for (int turn = 0; turn < TURNS && norm_at(turn) < a.size; turn++)
        add[turn] = norm_scaled_delta(add[turn], scale, weight[turn], a);
}

template <int TURNS, norm_form FORM, bool BEHIND>
__global__ void __launch_bounds__(NORM_THREADS) norm_kernel(struct norm_args a)
{
    __shared__ float scratch[WARP];
    float8 weight[TURNS], behind[TURNS];
    grid_trigger();
#pragma unroll
    for (int turn = 0; turn < TURNS; turn++) {
        weight[turn] = norm_weights(a.weight, norm_at(turn), a.size, a.weight_dtype, a.offset);
        if (BEHIND)
            behind[turn] = norm_weights(a.delta_weight, norm_at(turn), a.size, a.weight_dtype,
                                        a.delta_offset);
    }
    grid_wait();
    uint32_t row = blockIdx.x;
    size_t residual = (size_t)row * a.residual_stride, delta = (size_t)row * a.delta_stride;
    size_t out = (size_t)row * a.out_stride;
    float8 value[TURNS], add[TURNS];
#pragma unroll
    for (int turn = 0; turn < TURNS; turn++) {
        uint32_t i = norm_at(turn);
        if (i >= a.size)
            break;
        value[turn] = load_float8(a.residual, residual + i, residual + a.size, a.residual_dtype);
        if (a.delta)
            add[turn] = load_float8(a.delta, delta + i, delta + a.size, a.delta_dtype);
    }
    if (row >= range_rows(a.rows)) /* rows up to the bound can be read: no wait for the count */
        return;
    if (BEHIND)
        norm_behind(add, behind, a, scratch);
#pragma unroll
    for (int turn = 0; turn < TURNS && a.delta; turn++) {
        uint32_t i = norm_at(turn);
        if (i >= a.size)
            break;
        norm_add(value[turn], add[turn], a);
        store_float8(a.residual, residual + i, residual + a.size, a.residual_dtype, value[turn]);
    }
    if (!a.out)
        return;
    norm_row<FORM>(value, weight, a, scratch);
#pragma unroll
    for (int turn = 0; turn < TURNS; turn++) {
        uint32_t i = norm_at(turn);
        if (i >= a.size)
            break;
        store_float8(a.out, out + i, out + a.size, a.out_dtype, value[turn]);
    }
}

/* Rows in turns, where there are more than the device takes at once and nothing is added to them:
 * while one is summed, the next is on its way. The same sums in the same order. */
template <norm_form FORM>
__global__ void __launch_bounds__(NORM_THREADS) norm_rows_kernel(struct norm_args a)
{
    __shared__ float scratch[WARP];
    uint32_t i = threadIdx.x * 8;
    float8 value[1] = {}, next = {};
    grid_trigger();
    float8 weight[1] = {norm_weights(a.weight, i, a.size, a.weight_dtype, a.offset)};
    grid_wait();
    uint32_t rows = range_rows(a.rows), row = blockIdx.x;
    auto load = [&](float8 &to) {
        size_t from = (size_t)row * a.residual_stride;
        if (row < rows && i < a.size)
            to = load_float8(a.residual, from + i, from + a.size, a.residual_dtype);
    };
    load(next);
    while (row < rows) {
        value[0] = next;
        size_t out = (size_t)row * a.out_stride;
        row += gridDim.x;
        load(next);
        norm_row<FORM>(value, weight, a, scratch);
        if (i < a.size)
            store_float8(a.out, out + i, out + a.size, a.out_dtype, value[0]);
    }
}

template <norm_form FORM, bool BEHIND>
static cudaError_t norm_launch(const struct norm_args *args, cudaStream_t stream)
{
    unsigned threads = norm_threads(args->size);
    unsigned turns = ceil_div(args->size, threads * 8);
    unsigned together = device_props()->processors * (NORM_RESIDENT / threads);
    dim3 grid(args->rows.max);
    if (turns <= 1 && args->rows.max > 2 * together && !args->delta && args->out)
        return launch(norm_rows_kernel<FORM>, dim3(together), threads, 0, stream, *args);
    if (turns <= 1)
        return launch(norm_kernel<1, FORM, BEHIND>, grid, threads, 0, stream, *args);
    if (turns <= 2)
        return launch(norm_kernel<2, FORM, BEHIND>, grid, threads, 0, stream, *args);
    if (turns <= 4)
        return launch(norm_kernel<4, FORM, BEHIND>, grid, threads, 0, stream, *args);
    if (turns <= 8)
        return launch(norm_kernel<8, FORM, BEHIND>, grid, threads, 0, stream, *args);
    return cudaErrorInvalidValue;
}

cudaError_t op_norm(const struct norm_args *args, cudaStream_t stream)
{
    if (norm_refused(args))
        return cudaErrorInvalidValue;
    bool rounded = args->form == NORM_ROUNDED;
    if (args->delta_normed)
        return rounded ? norm_launch<NORM_ROUNDED, true>(args, stream)
                       : norm_launch<NORM_SCALED, true>(args, stream);
    if (args->form == NORM_CENTERED)
        return norm_launch<NORM_CENTERED, false>(args, stream);
    return rounded ? norm_launch<NORM_ROUNDED, false>(args, stream)
                   : norm_launch<NORM_SCALED, false>(args, stream);
}
