/* A block per row and part of it; bound by memory. */
#include "gpu/kernels/common/softcap.cuh"
#include "gpu/kernels/sampling/softcap.h"

__global__ void softcap_kernel(struct softcap_args a)
{
    grid_trigger();
    grid_wait();
    uint32_t row = blockIdx.x;
    uint32_t i = (blockIdx.y * blockDim.x + threadIdx.x) * 8;
    if (row >= range_rows(a.rows) || i >= a.size)
        return;
    size_t at = (size_t)row * a.stride, end = at + a.size;
    float8 value = load_float8(a.x, at + i, end, DTYPE_F32);
#pragma unroll
    for (int j = 0; j < 8; j++)
        value.v[j] = softcap_of(value.v[j], a.cap);
    store_float8(a.x, at + i, end, DTYPE_F32, value);
}

cudaError_t op_softcap(const struct softcap_args *args, cudaStream_t stream)
{
    unsigned threads = threads_for(args->size, 256);
    return launch(softcap_kernel, dim3(args->rows.max, ceil_div(args->size, threads * 8)), threads,
                  0, stream, *args);
}
