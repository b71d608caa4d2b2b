/* A block per row and part of it; bound by memory. */
#include "gpu/kernels/common/device.cuh"
#include "gpu/kernels/sampling/gather.h"

__global__ void gather_kernel(struct gather_args a)
{
    grid_trigger();
    grid_wait();
    uint32_t row = blockIdx.x;
    uint32_t i = (blockIdx.y * blockDim.x + threadIdx.x) * 8;
    if (row >= range_rows(a.rows) || i >= a.size)
        return;
    size_t from = (size_t)a.index[a.rows.first + row] * a.in_stride;
    size_t to = (size_t)row * a.out_stride;
    float8 value = load_float8(a.in, from + i, from + a.size, a.dtype);
    if (a.scale != 0) {
#pragma unroll
        for (int j = 0; j < 8; j++)
            value.v[j] *= a.scale;
    }
    store_float8(a.out, to + i, to + a.size, a.dtype, value);
}

cudaError_t op_gather(const struct gather_args *args, cudaStream_t stream)
{
    unsigned threads = threads_for(args->size, 256);
    return launch(gather_kernel, dim3(args->rows.max, ceil_div(args->size, threads * 8)), threads,
                  0, stream, *args);
}
