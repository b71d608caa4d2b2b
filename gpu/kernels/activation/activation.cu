/* Eight outputs a thread, or two times eight where rows alone fill the device: then all of it is
 * under way at once. Bound by latency, and by memory where there are more rows than the device
 * takes at once. Figures: tests/bench/EXPERIMENTS.md. */
#include "gpu/kernels/activation/activation.cuh"
#include "gpu/kernels/activation/activation.h"
#include "gpu/kernels/common/device.cuh"
#include "gpu/kernels/common/device_props.cuh"

#define ACTIVATION_THREADS 256
#define ACTIVATION_BLOCKS 6 /* of an SM, with as many registers as they need */

template <enum activation KIND, bool GATED, int EIGHTS>
__global__ void __launch_bounds__(ACTIVATION_THREADS) activation_kernel(struct activation_args a)
{
    grid_trigger();
    grid_wait();
    uint32_t row = blockIdx.x;
    uint32_t first = (blockIdx.y * EIGHTS * blockDim.x + threadIdx.x) * 8, step = blockDim.x * 8;
    size_t in = (size_t)row * a.in_stride, out = (size_t)row * a.out_stride;
    float8 x[EIGHTS], up[EIGHTS];
#pragma unroll
    for (int e = 0; e < EIGHTS; e++) {
        uint32_t i = first + e * step;
        if (i >= a.size)
            break;
        x[e] = load_float8(a.in, in + i, in + a.size, a.dtype);
        if (GATED)
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
            x[e].v[j] =
                GATED ? activated<KIND>(x[e].v[j]) * up[e].v[j] : activated<KIND>(x[e].v[j]);
        store_float8(a.out, out + i, out + a.size, a.dtype, x[e]);
    }
}

/* 16-bit values, rows in turns, where there are more than the device takes at once: while one is
 * worked on, the next is on its way. */
template <enum activation KIND, bool GATED>
__global__ void __launch_bounds__(ACTIVATION_THREADS, ACTIVATION_BLOCKS)
    activation_rows_kernel(struct activation_args a)
{
    grid_trigger();
    grid_wait();
    uint32_t rows = range_rows(a.rows), row = blockIdx.x;
    uint32_t i = (blockIdx.y * blockDim.x + threadIdx.x) * 8;
    if (i >= a.size)
        return;
    uint4 next[2] = {}; /* both halves, as they lie */
    auto load = [&]() {
        const uint16_t *in = static_cast<const uint16_t *>(a.in) + (size_t)row * a.in_stride + i;
        if (row >= rows)
            return;
        next[0] = *reinterpret_cast<const uint4 *>(in);
        if (GATED)
            next[1] = *reinterpret_cast<const uint4 *>(in + a.size);
    };
    load();
    while (row < rows) {
        const uint32_t first[4] = {next[0].x, next[0].y, next[0].z, next[0].w};
        const uint32_t up[4] = {next[1].x, next[1].y, next[1].z, next[1].w};
        size_t out = (size_t)row * a.out_stride + i;
        row += gridDim.x;
        load();
        float8 value;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float2 x = unpack(first[j], a.dtype), u = unpack(up[j], a.dtype);
            value.v[2 * j] = GATED ? activated<KIND>(x.x) * u.x : activated<KIND>(x.x);
            value.v[2 * j + 1] = GATED ? activated<KIND>(x.y) * u.y : activated<KIND>(x.y);
        }
        store_whole(a.out, out, a.dtype, value);
    }
}

static bool activation_rows_can(const struct activation_args *a)
{
    uintptr_t bits = reinterpret_cast<uintptr_t>(a->in) | reinterpret_cast<uintptr_t>(a->out);
    return a->dtype != DTYPE_F32 && bits % 16 == 0 &&
           (a->size | a->in_stride | a->out_stride) % 8 == 0;
}

template <enum activation KIND, bool GATED>
static cudaError_t activation_launch(const struct activation_args *args, cudaStream_t stream)
{
    unsigned threads = threads_for(args->size, ACTIVATION_THREADS);
    dim3 grid(args->rows.max, ceil_div(args->size, threads * 8));
    uint32_t processors = device_props()->processors;
    if (args->rows.max < processors)
        return launch(activation_kernel<KIND, GATED, 1>, grid, threads, 0, stream, *args);
    uint32_t together = processors * (ACTIVATION_BLOCKS * ACTIVATION_THREADS / threads) / grid.y;
    if (together > 0 && args->rows.max > 4 * together && activation_rows_can(args)) {
        grid.x = together;
        return launch(activation_rows_kernel<KIND, GATED>, grid, threads, 0, stream, *args);
    }
    grid.y = ceil_div(args->size, threads * 16);
    return launch(activation_kernel<KIND, GATED, 2>, grid, threads, 0, stream, *args);
}

template <enum activation KIND>
static cudaError_t activation_of(const struct activation_args *args, cudaStream_t stream)
{
    return args->gated ? activation_launch<KIND, true>(args, stream)
                       : activation_launch<KIND, false>(args, stream);
}

cudaError_t op_activation(const struct activation_args *args, cudaStream_t stream)
{
    return args->kind == ACTIVATE_SILU ? activation_of<ACTIVATE_SILU>(args, stream)
                                       : activation_of<ACTIVATE_GELU_TANH>(args, stream);
}
