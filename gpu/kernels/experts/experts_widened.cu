/* Products of many pairs with experts in e2m1: some experts' matrices become BF16 in scratch, which
 * with their exponents is exact, and are multiplied as such (experts_wgmma.cu), then the next.
 * No scratch grows with the pairs, as it does for experts_e2m1.cu, which is faster. */
#include "gpu/kernels/common/device_props.cuh"
#include "gpu/kernels/experts/experts_packed.cuh"

#define WIDEN_THREADS 256
#define WIDEN_BYTES ((size_t)256 << 20) /* of scratch, at most, or an expert's */

/* A thread a unit. */
__global__ void __launch_bounds__(WIDEN_THREADS)
    widen_kernel(const __grid_constant__ struct weight w, struct expert_range slice,
                 const uint32_t *segments, uint4 *to)
{
    uint32_t units = w.k / PACKED_UNIT, unit = blockIdx.x * WIDEN_THREADS + threadIdx.x;
    uint32_t row = unit / units, k = unit % units * PACKED_UNIT;
    grid_wait();
    grid_trigger();
    uint32_t expert = slice.first + row / w.n, n = row % w.n, words[PACKED_UNIT / 2];
    if (row >= slice.count * w.n || segments[expert] == segments[expert + 1])
        return;
    uint4 raw = packed_load<FORMAT_E2M1>(packed_row_at(w, FORMAT_E2M1, expert, n) +
                                         packed_bytes(FORMAT_E2M1, k));
    float scale = packed_scale(w, packed_scales_at(w, expert, n), k);
#pragma unroll
    for (int i = 0; i < PACKED_UNIT / 2; i++) {
        float2 pair = packed_pair<FORMAT_E2M1>(raw, i, 0.0f);
        words[i] = pack(pair.x * scale, pair.y * scale, DTYPE_BF16);
    }
    to[(size_t)unit * 2] = make_uint4(words[0], words[1], words[2], words[3]);
    to[(size_t)unit * 2 + 1] = make_uint4(words[4], words[5], words[6], words[7]);
}

static size_t matrix_bytes(const struct weight *w)
{
    return (size_t)w->n * w->k * 2;
}

/* Of how many experts at a time. */
static uint32_t slice_count(const struct weight *w, uint32_t own)
{
    size_t fit = WIDEN_BYTES / matrix_bytes(w);
    return fit == 0 ? 1 : fit < own ? static_cast<uint32_t>(fit) : own;
}

size_t experts_widened_bytes(const struct weight *w, uint32_t own, uint64_t pairs, enum dtype dtype)
{
    bool can = device_props()->major == 9 && w->format == FORMAT_E2M1 && dtype == DTYPE_BF16 &&
               w->k > 0 && w->n > 0 && w->k % PACKED_UNIT == 0;
    return can && pairs > EXPERTS_E2M1_MOST * (uint64_t)own
               ? slice_count(w, own) * matrix_bytes(w)
               : 0;
}

/* As they are in scratch. */
static struct experts_args widened_of(const struct experts_args *args)
{
    struct experts_args of = *args;
    of.w = {};
    of.w.data = args->scratch;
    of.w.format = FORMAT_BF16;
    of.w.n = args->w.n;
    of.w.k = args->w.k;
    return of;
}

bool experts_widened_can(const struct experts_args *args)
{
    uint64_t pairs = (uint64_t)args->rows.max * args->top;
    size_t bytes = experts_widened_bytes(&args->w, args->own.count, pairs, args->dtype);
    struct experts_args of = widened_of(args);
    return bytes > 0 && args->scratch_bytes >= bytes && !args->invariant && !args->w.order &&
           args->w.input.rounding == ROUNDING_NONE && args->w.scales.exponents &&
           reinterpret_cast<uintptr_t>(args->w.data) % 16 == 0 && bf16::experts_wgmma_can(&of);
}

cudaError_t experts_widened(const struct experts_args *args, cudaStream_t stream)
{
    const struct experts_args of = widened_of(args);
    const uint32_t own = args->own.count, each = slice_count(&args->w, own);
    uint64_t units = (uint64_t)args->w.n * (args->w.k / PACKED_UNIT);
    cudaError_t result = cudaSuccess;
    struct expert_range slice = {0, 0};
    for (; slice.first < own && result == cudaSuccess; slice.first += each) {
        slice.count = own - slice.first < each ? own - slice.first : each;
        result = launch(widen_kernel, dim3(ceil_div(slice.count * units, WIDEN_THREADS)),
                        WIDEN_THREADS, 0, stream, args->w, slice, args->segments,
                        static_cast<uint4 *>(args->scratch));
        if (result == cudaSuccess)
            result = bf16::experts_wgmma(&of, slice, stream);
    }
    return result;
}
