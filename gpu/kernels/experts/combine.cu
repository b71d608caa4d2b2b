/* Eight elements of a row a thread; bound by memory. */
#include "gpu/kernels/common/device.cuh"
#include "gpu/kernels/experts/combine.h"

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

__global__ void combine_kernel(const __grid_constant__ struct combine_args a)
{
    grid_trigger();
    grid_wait();
    uint32_t row = blockIdx.x, first = (blockIdx.y * blockDim.x + threadIdx.x) * 8;
    if (row >= range_rows(a.rows) || first >= a.size)
        return;
    const struct route *routes = a.routes + (size_t)row * (a.top + (a.shared != nullptr));
    struct float8 sum = {};
    for (uint32_t i = 0; i < a.top; i++)
        if (routes[i].expert - a.own.first < a.own.count)
            combine_add(a, a.x, (size_t)row * a.top + i, first, routes[i].weight, &sum);
    if (a.shared)
        combine_add(a, a.shared, row, first, routes[a.top].weight, &sum);
    size_t at = (size_t)row * a.size;
    store_float8(a.out, at + first, at + a.size, a.out_dtype, sum);
}

cudaError_t op_combine(const struct combine_args *args, cudaStream_t stream)
{
    unsigned threads = threads_for(args->size, 256);
    return launch(combine_kernel, dim3(args->rows.max, ceil_div(args->size, threads * 8)), threads,
                  0, stream, *args);
}
