/* Which way products of pairs go, and the ways that are right for all, in float32: of few pairs a
 * warp an output of one, the expert out of the row's routes; of more a warp an output and
 * EXPERTS_ROWS pairs of one expert at a time, so that weights are read once for as many; which
 * pairs, segments say. Both sum in one order. Pairs of 16 bits are, few of them, experts_few.cu's,
 * and more the tensor cores' (experts_tiles.cu, of many on sm_90 experts_wgmma.cu); weights in 8
 * and 4 bits go ways of their own (experts_packed.cu). */
#include "gpu/kernels/common/whole.h"
#include "gpu/kernels/experts/experts_few.cuh"
#include "gpu/kernels/experts/experts_packed.cuh"

#define EXPERTS_WARPS 8
#define EXPERTS_ROWS 8
#define EXPERTS_FEW 64       /* pairs; each reads its matrix for itself */
#define EXPERTS_FEW_TUNED 24 /* the same, tuned, in 16 bits; of more, tiles */

struct expert_sums {
    float gate[EXPERTS_ROWS], up[EXPERTS_ROWS];
};

/* Output n of `count` pairs, `x` where each has its input: eight values of k a lane and turn. */
template <int ROWS>
__device__ __forceinline__ void experts_sum(const struct experts_args &a, uint32_t expert,
                                            uint32_t n, const size_t *x, uint32_t count,
                                            struct expert_sums *sums)
{
    enum dtype w_dtype = dtype_of(a.w.format);
    size_t gate = ((size_t)expert * a.w.n + n) * a.w.k, up = gate + (size_t)(a.w.n / 2) * a.w.k;
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        sums->gate[r] = sums->up[r] = 0.0f;
#pragma unroll 2
    for (uint32_t k = threadIdx.x % WARP * 8; k < a.w.k; k += WARP * 8) {
        float8 w = load_float8(a.w.data, gate + k, gate + a.w.k, w_dtype), v = {};
        if (a.gated)
            v = load_float8(a.w.data, up + k, up + a.w.k, w_dtype);
#pragma unroll
        for (int r = 0; r < ROWS; r++)
            if (r < count) {
                float8 value = load_float8(a.x, x[r] + k, x[r] + a.w.k, a.dtype);
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    sums->gate[r] = __fmaf_rn(w.v[i], value.v[i], sums->gate[r]);
                    sums->up[r] = __fmaf_rn(v.v[i], value.v[i], sums->up[r]);
                }
            }
    }
}

__global__ void __launch_bounds__(EXPERTS_WARPS *WARP)
    experts_few_kernel(const __grid_constant__ struct experts_args a)
{
    grid_wait();
    grid_trigger();
    uint32_t pair = blockIdx.y, row = pair / a.top, outputs = a.gated ? a.w.n / 2 : a.w.n;
    uint32_t n = blockIdx.x * EXPERTS_WARPS + threadIdx.x / WARP;
    if (n >= outputs || row >= range_rows(a.rows))
        return;
    uint32_t expert = a.routes[(size_t)row * a.route_stride + pair % a.top].expert - a.own.first;
    if (expert >= a.own.count)
        return;
    size_t x = experts_input(a, pair);
    struct expert_sums sums;
    experts_sum<1>(a, expert, n, &x, 1, &sums);
    experts_put(a, expert, pair, n, sums.gate[0], sums.up[0]);
}

__global__ void __launch_bounds__(EXPERTS_WARPS *WARP)
    experts_any_kernel(const __grid_constant__ struct experts_args a)
{
    grid_wait();
    grid_trigger();
    uint32_t expert = blockIdx.y, outputs = a.gated ? a.w.n / 2 : a.w.n;
    uint32_t n = blockIdx.x * EXPERTS_WARPS + threadIdx.x / WARP;
    if (n >= outputs)
        return;
    const uint32_t *pairs = a.segments + a.own.count + 1;
    uint32_t end = a.segments[expert + 1];
    for (uint32_t at = a.segments[expert]; at < end; at += EXPERTS_ROWS) {
        uint32_t count = min(end - at, (uint32_t)EXPERTS_ROWS);
        size_t x[EXPERTS_ROWS];
        struct expert_sums sums;
#pragma unroll
        for (int r = 0; r < EXPERTS_ROWS; r++)
            x[r] = r < count ? experts_input(a, pairs[at + r]) : 0;
        experts_sum<EXPERTS_ROWS>(a, expert, n, x, count, &sums);
#pragma unroll
        for (int r = 0; r < EXPERTS_ROWS; r++)
            if (r < count)
                experts_put(a, expert, pairs[at + r], n, sums.gate[r], sums.up[r]);
    }
}

/* Groups of inputs are of columns as they stand, so they go with no order. */
bool experts_takes(const struct weight *w)
{
    bool groups = w->input.rounding == ROUNDING_GROUP;
    if (w->format <= FORMAT_F16)
        return weight_is_plain(w);
    bool exponents = w->scales.exponents && w->scales.k == PACKED_EXPONENT;
    return w->scales.data && (w->scales.exponents ? exponents : w->scales.dtype == DTYPE_F32) &&
           (!groups || (w->input.group && !w->order)) && (!w->zeros || whole_is(w->format));
}

cudaError_t op_experts(const struct experts_args *args, cudaStream_t stream)
{
    if (!experts_can(args) || !experts_takes(&args->w))
        return cudaErrorNotSupported;
    if (args->w.format > FORMAT_F16)
        return experts_packed(args, stream);
    uint64_t pairs = (uint64_t)args->rows.max * args->top;
    unsigned outputs = ceil_div(experts_outputs(args), EXPERTS_WARPS);
    bool few = pairs <= EXPERTS_FEW_TUNED || (args->invariant && pairs <= EXPERTS_FEW);
    if (pairs == 0)
        return cudaSuccess;
    if (few && bf16::experts_few_can(args))
        return bf16::experts_few(args, stream);
    if (few && f16::experts_few_can(args))
        return f16::experts_few(args, stream);
    if (!args->invariant && bf16::experts_wgmma_can(args))
        return bf16::experts_wgmma(args, {0, args->own.count}, stream);
    if (!args->invariant && f16::experts_wgmma_can(args))
        return f16::experts_wgmma(args, {0, args->own.count}, stream);
    if (!args->invariant && bf16::experts_tiles_can(args))
        return bf16::experts_tiles(args, stream);
    if (!args->invariant && f16::experts_tiles_can(args))
        return f16::experts_tiles(args, stream);
    if (pairs <= EXPERTS_FEW)
        return launch(experts_few_kernel, dim3(outputs, (unsigned)pairs), EXPERTS_WARPS * WARP, 0,
                      stream, *args);
    return launch(experts_any_kernel, dim3(outputs, args->own.count), EXPERTS_WARPS * WARP, 0,
                  stream, *args);
}

bool experts_sum_can(const struct experts_sum_args *args)
{
    uint64_t pairs = (uint64_t)args->experts.rows.max * args->experts.top;
    return experts_can(&args->experts) && pairs <= EXPERTS_FEW_TUNED &&
           (bf16::experts_few_sum_can(args) || f16::experts_few_sum_can(args));
}

cudaError_t op_experts_sum(const struct experts_sum_args *args, cudaStream_t stream)
{
    if (!experts_sum_can(args))
        return cudaErrorNotSupported;
    return bf16::experts_few_sum_can(args) ? bf16::experts_few_sum(args, stream)
                                           : f16::experts_few_sum(args, stream);
}
