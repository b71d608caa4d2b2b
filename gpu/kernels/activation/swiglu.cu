/* Eight outputs a thread, or two times eight where rows alone fill the device: then all of it is
 * under way at once. Bound by latency, and by memory where there are more rows than the device
 * takes at once. Figures: tests/bench/EXPERIMENTS.md. */
#include "gpu/kernels/activation/swiglu.cuh"
#include "gpu/kernels/activation/swiglu.h"
#include "gpu/kernels/common/device.cuh"
#include "gpu/kernels/common/device_props.cuh"

#define SWIGLU_THREADS 256
#define SWIGLU_BLOCKS 6 /* of an SM, with as many registers as they need */

template <int EIGHTS>
__global__ void __launch_bounds__(SWIGLU_THREADS) swiglu_kernel(struct swiglu_args a)
{
    grid_trigger();
    grid_wait();
    uint32_t row = blockIdx.x;
    uint32_t first = (blockIdx.y * EIGHTS * blockDim.x + threadIdx.x) * 8, step = blockDim.x * 8;
    size_t in = (size_t)row * a.in_stride, out = (size_t)row * a.out_stride;
    float8 gate[EIGHTS], up[EIGHTS];
#pragma unroll
    for (int e = 0; e < EIGHTS; e++) {
        uint32_t i = first + e * step;
        if (i >= a.size)
            break;
        gate[e] = load_float8(a.in, in + i, in + a.size, a.dtype);
        up[e] = load_float8(a.in, in + a.size + i, in + 2 * (size_t)a.size, a.dtype);
    }
    if (row >= range_rows(a.rows)) /* rows up to the bound can be read: no wait for the count */
        return;
#pragma unroll
    for (int e = 0; e < EIGHTS; e++) {
        uint32_t i = first + e * step;
        if (i >= a.size)
            break;
#pragma unroll
        for (int j = 0; j < 8; j++)
            gate[e].v[j] = gated(gate[e].v[j], up[e].v[j]);
        store_float8(a.out, out + i, out + a.size, a.dtype, gate[e]);
    }
}

/* 16-bit values, rows in turns, where there are more than the device takes at once: while one is
 * worked on, the next is on its way. */
__global__ void __launch_bounds__(SWIGLU_THREADS, SWIGLU_BLOCKS)
    swiglu_rows_kernel(struct swiglu_args a)
{
    grid_trigger();
    grid_wait();
    uint32_t rows = range_rows(a.rows), row = blockIdx.x;
    uint32_t i = (blockIdx.y * blockDim.x + threadIdx.x) * 8;
    if (i >= a.size)
        return;
    uint4 next[2] = {}; /* gate and up, as they lie */
    auto load = [&]() {
        const uint16_t *in = static_cast<const uint16_t *>(a.in) + (size_t)row * a.in_stride + i;
        if (row >= rows)
            return;
        next[0] = *reinterpret_cast<const uint4 *>(in);
        next[1] = *reinterpret_cast<const uint4 *>(in + a.size);
    };
    load();
    while (row < rows) {
        const uint32_t gate[4] = {next[0].x, next[0].y, next[0].z, next[0].w};
        const uint32_t up[4] = {next[1].x, next[1].y, next[1].z, next[1].w};
        size_t out = (size_t)row * a.out_stride + i;
        row += gridDim.x;
        load();
        float8 value;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float2 g = unpack(gate[j], a.dtype), u = unpack(up[j], a.dtype);
            value.v[2 * j] = gated(g.x, u.x);
            value.v[2 * j + 1] = gated(g.y, u.y);
        }
        store_whole(a.out, out, a.dtype, value);
    }
}

static bool swiglu_rows_can(const struct swiglu_args *a)
{
    uintptr_t bits = reinterpret_cast<uintptr_t>(a->in) | reinterpret_cast<uintptr_t>(a->out);
    return a->dtype != DTYPE_F32 && bits % 16 == 0 &&
           (a->size | a->in_stride | a->out_stride) % 8 == 0;
}

cudaError_t op_swiglu(const struct swiglu_args *args, cudaStream_t stream)
{
    unsigned threads = threads_for(args->size, SWIGLU_THREADS);
    dim3 grid(args->rows.max, ceil_div(args->size, threads * 8));
    uint32_t processors = device_props()->processors;
    if (args->rows.max < processors)
        return launch(swiglu_kernel<1>, grid, threads, 0, stream, *args);
    uint32_t together = processors * (SWIGLU_BLOCKS * SWIGLU_THREADS / threads) / grid.y;
    if (together > 0 && args->rows.max > 4 * together && swiglu_rows_can(args)) {
        grid.x = together;
        return launch(swiglu_rows_kernel, grid, threads, 0, stream, *args);
    }
    grid.y = ceil_div(args->size, threads * 16);
    return launch(swiglu_kernel<2>, grid, threads, 0, stream, *args);
}
