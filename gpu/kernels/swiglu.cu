/* Eight outputs a thread, or two times eight where rows alone fill the device: then all of it is
 * under way at once. Bound by latency: at 256 rows of 14,336 the L2 is busy for 59 % of the time
 * and memory for 36 % (ncu). */
#include "gpu/kernels/device.cuh"
#include "gpu/kernels/facts.cuh"
#include "gpu/kernels/swiglu.cuh"
#include "gpu/kernels/swiglu.h"

#define SWIGLU_THREADS 256

template <int EIGHTS>
__global__ void __launch_bounds__(SWIGLU_THREADS) swiglu_kernel(struct swiglu_args a)
{
    grid_trigger();
    grid_wait();
    uint32_t row = blockIdx.x;
    uint32_t first = (blockIdx.y * EIGHTS * blockDim.x + threadIdx.x) * 8, step = blockDim.x * 8;
    size_t in = (size_t)row * a.in_stride, out = (size_t)row * a.out_stride;
    eight gate[EIGHTS], up[EIGHTS];
#pragma unroll
    for (int e = 0; e < EIGHTS; e++) {
        uint32_t i = first + e * step;
        if (i >= a.size)
            break;
        gate[e] = load_eight(a.in, in + i, in + a.size, a.dtype);
        up[e] = load_eight(a.in, in + a.size + i, in + 2 * (size_t)a.size, a.dtype);
    }
    if (row >= span_rows(a.rows)) /* rows up to the bound can be read: no wait for the count */
        return;
#pragma unroll
    for (int e = 0; e < EIGHTS; e++) {
        uint32_t i = first + e * step;
        if (i >= a.size)
            break;
#pragma unroll
        for (int j = 0; j < 8; j++)
            gate[e].v[j] = gated(gate[e].v[j], up[e].v[j]);
        store_eight(a.out, out + i, out + a.size, a.dtype, gate[e]);
    }
}

cudaError_t op_swiglu(const struct swiglu_args *args, cudaStream_t stream)
{
    unsigned threads = threads_for(args->size, SWIGLU_THREADS);
    dim3 grid(args->rows.max, ceil_div(args->size, threads * 8));
    if (args->rows.max < device_facts()->processors)
        return launch(swiglu_kernel<1>, grid, threads, 0, stream, *args);
    grid.y = ceil_div(args->size, threads * 16);
    return launch(swiglu_kernel<2>, grid, threads, 0, stream, *args);
}
