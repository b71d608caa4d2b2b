/* Eight elements of a row a thread; bound by memory. With the add and the norm behind it a block
 * has a whole row, as in norm.cu. */
#include "gpu/kernels/common/device.cuh"
#include "gpu/kernels/experts/combine.h"
#include "gpu/kernels/norm/norm.cuh"

__device__ __forceinline__ void combine_add(const struct combine_args &a, const void *from,
                                            size_t row, uint32_t first, float weight,
                                            struct float8 *sum)
{
    size_t at = row * a.size;
    float8 x = load_float8(from, at + first, at + a.size, a.dtype);
#pragma unroll
    for (int j = 0; j < 8; j++)
        sum->v[j] = __fadd_rn(sum->v[j], __fmul_rn(weight, x.v[j]));
}

__device__ __forceinline__ float8 combine_sum(const struct combine_args &a, uint32_t row,
                                              uint32_t first)
{
    const struct route *routes = a.routes + (size_t)row * (a.top + (a.shared != nullptr));
    struct float8 sum = {};
#pragma unroll 4
    for (uint32_t i = 0; i < a.top; i++)
        if (routes[i].expert - a.own.first < a.own.count)
            combine_add(a, a.x, (size_t)row * a.top + i, first, routes[i].weight, &sum);
    if (a.shared)
        combine_add(a, a.shared, row, first, routes[a.top].weight, &sum);
    return sum;
}

__global__ void combine_kernel(const __grid_constant__ struct combine_args a)
{
    grid_trigger();
    grid_wait();
    uint32_t row = blockIdx.x, first = (blockIdx.y * blockDim.x + threadIdx.x) * 8;
    if (row >= range_rows(a.rows) || first >= a.size)
        return;
    struct float8 sum = combine_sum(a, row, first);
    size_t at = (size_t)row * a.size;
    store_float8(a.out, at + first, at + a.size, a.out_dtype, sum);
}

cudaError_t op_combine(const struct combine_args *args, cudaStream_t stream)
{
    unsigned threads = threads_for(args->size, 256);
    return launch(combine_kernel, dim3(args->rows.max, ceil_div(args->size, threads * 8)), threads,
                  0, stream, *args);
}

/* What norm_kernel does of a delta that is summed here. */
template <int TURNS>
__global__ void __launch_bounds__(NORM_THREADS)
    combine_norm_kernel(const __grid_constant__ struct combine_args c,
                        const __grid_constant__ struct norm_args a)
{
    __shared__ float scratch[WARP];
    float8 weight[TURNS], value[TURNS];
    float squares = 0;
    uint32_t row = blockIdx.x;
    size_t residual = (size_t)row * a.residual_stride, out = (size_t)row * a.out_stride;
    auto at = [](int turn) { return (turn * blockDim.x + threadIdx.x) * 8; };
    grid_trigger();
#pragma unroll
    for (int turn = 0; turn < TURNS; turn++)
        weight[turn] = norm_weights(a.weight, at(turn), a.size, a.weight_dtype, a.offset);
    grid_wait();
    if (row >= range_rows(a.rows))
        return;
#pragma unroll
    for (int turn = 0; turn < TURNS && at(turn) < a.size; turn++) {
        uint32_t i = at(turn);
        value[turn] = load_float8(a.residual, residual + i, residual + a.size, a.residual_dtype);
        float8 delta = combine_sum(c, row, i);
#pragma unroll
        for (int j = 0; j < 8; j++)
            delta.v[j] = round_value(delta.v[j], c.out_dtype);
        norm_add(value[turn], delta, a);
        store_float8(a.residual, residual + i, residual + a.size, a.residual_dtype, value[turn]);
        squares = norm_squares(squares, value[turn]);
    }
    float scale = norm_scale(block_sum(squares, scratch), a.size, a.eps);
#pragma unroll
    for (int turn = 0; turn < TURNS && at(turn) < a.size; turn++)
        store_float8(a.out, out + at(turn), out + a.size, a.out_dtype,
                     norm_scaled(value[turn], scale, weight[turn]));
}

cudaError_t op_combine_norm(const struct combine_args *combine, const struct norm_args *norm,
                            cudaStream_t stream)
{
    unsigned threads = norm_threads(norm->size), turns = ceil_div(norm->size, threads * 8);
    dim3 grid(combine->rows.max);
    bool simple = norm->form == NORM_SCALED && norm->out && !norm->delta_normed && turns <= 2 &&
                  norm->delta == combine->out && norm->size == combine->size;
    if (simple && turns <= 1)
        return launch(combine_norm_kernel<1>, grid, threads, 0, stream, *combine, *norm);
    if (simple)
        return launch(combine_norm_kernel<2>, grid, threads, 0, stream, *combine, *norm);
    cudaError_t result = op_combine(combine, stream);
    return result == cudaSuccess ? op_norm(norm, stream) : result;
}
