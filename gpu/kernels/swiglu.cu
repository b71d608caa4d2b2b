/* Eight outputs a thread; bound by memory. */
#include "gpu/kernels/device.cuh"
#include "gpu/kernels/swiglu.h"

__global__ void swiglu_kernel(struct swiglu_args a)
{
    grid_trigger();
    grid_wait();
    uint32_t row = blockIdx.x;
    uint32_t i = (blockIdx.y * blockDim.x + threadIdx.x) * 8;
    if (i >= a.size)
        return;
    size_t in = (size_t)row * a.in_stride, out = (size_t)row * a.out_stride;
    eight gate = load_eight(a.in, in + i, in + a.size, a.dtype);
    eight up = load_eight(a.in, in + a.size + i, in + 2 * (size_t)a.size, a.dtype);
    if (row >= span_rows(a.rows)) /* rows up to the bound can be read: no wait for the count */
        return;
#pragma unroll
    for (int j = 0; j < 8; j++)
        gate.v[j] = gate.v[j] / (1.0f + expf(-gate.v[j])) * up.v[j];
    store_eight(a.out, out + i, out + a.size, a.dtype, gate);
}

cudaError_t op_swiglu(const struct swiglu_args *args, cudaStream_t stream)
{
    unsigned threads = threads_for(args->size, 256);
    return launch(swiglu_kernel, dim3(args->rows.max, ceil_div(args->size, threads * 8)), threads, 0,
                  stream, *args);
}
