/* Products of few pairs in 16 bits: bound by reading their matrices, of which each is read for one
 * pair. A warp has outputs of a pair, and asks for several turns of k of all of their rows before
 * it waits for the first. Sums have the order of experts.cu, in float32.
 *
 * Where a row's pairs become one (experts_sum.h) a block has all pairs of eight outputs, a warp one
 * pair or more. Which experts those are was known before the kernel in front of this one began, so
 * the first weights are on their way while that one still runs. */
#include "gpu/kernels/common/device_props.cuh"
#include "gpu/kernels/common/half.cuh"
#include "gpu/kernels/experts/experts_few.cuh"

namespace HALF
{

#define FEW_WARPS 8
#define FEW_AHEAD 4 /* turns */
#define FEW_TURN (WARP * 8)
#define SUM_WARPS 16
#define SUM_UNIT 8 /* outputs of a block at a time, as of a product of few rows (gemv.cu) */
#define SUM_EACH 4 /* of them a warp */
#define SUM_PAIRS (SUM_WARPS / (SUM_UNIT / SUM_EACH)) /* at a time */
#define SUM_AHEAD 3

__device__ __forceinline__ uint4 few_load(const half_t *from, uint32_t k, uint32_t end)
{
    return k < end ? __ldcs(reinterpret_cast<const uint4 *>(from + k)) : make_uint4(0, 0, 0, 0);
}

/* In the order of the columns: the eight of a lane, turn by turn. */
__device__ __forceinline__ float few_add(float sum, const uint4 &w, const uint4 &x)
{
    const uint32_t ws[] = {w.x, w.y, w.z, w.w}, xs[] = {x.x, x.y, x.z, x.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float2 a = unpack(ws[i], DTYPE_HALF), b = unpack(xs[i], DTYPE_HALF);
        sum = __fmaf_rn(a.x, b.x, sum);
        sum = __fmaf_rn(a.y, b.y, sum);
    }
    return sum;
}

template <bool GATED>
__global__ void __launch_bounds__(FEW_WARPS *WARP)
    few_kernel(const __grid_constant__ struct experts_args a)
{
    grid_wait();
    grid_trigger(); /* the kernel behind may read routes ahead of its own wait */
    uint32_t pair = blockIdx.y, row = pair / a.top, outputs = GATED ? a.w.n / 2 : a.w.n;
    uint32_t n = blockIdx.x * FEW_WARPS + threadIdx.x / WARP, lane = threadIdx.x % WARP;
    if (n >= outputs || row >= range_rows(a.rows))
        return;
    uint32_t expert = a.routes[(size_t)row * a.route_stride + pair % a.top].expert - a.own.first;
    if (expert >= a.own.count)
        return;
    const half_t *w = static_cast<const half_t *>(a.w.data) + ((size_t)expert * a.w.n + n) * a.w.k;
    const half_t *v = w + (size_t)outputs * a.w.k;
    const half_t *x = static_cast<const half_t *>(a.x) + experts_input(a, pair);
    float gate = 0, up = 0;
    for (uint32_t k = lane * 8; k < a.w.k; k += FEW_AHEAD * FEW_TURN) {
        uint4 ws[FEW_AHEAD], vs[FEW_AHEAD], xs[FEW_AHEAD];
#pragma unroll
        for (int i = 0; i < FEW_AHEAD; i++) {
            ws[i] = few_load(w, k + i * FEW_TURN, a.w.k);
            if (GATED)
                vs[i] = few_load(v, k + i * FEW_TURN, a.w.k);
        }
#pragma unroll
        for (int i = 0; i < FEW_AHEAD; i++)
            xs[i] = k + i * FEW_TURN < a.w.k
                        ? *reinterpret_cast<const uint4 *>(x + k + i * FEW_TURN)
                        : make_uint4(0, 0, 0, 0);
#pragma unroll
        for (int i = 0; i < FEW_AHEAD; i++) {
            gate = few_add(gate, ws[i], xs[i]);
            if (GATED)
                up = few_add(up, vs[i], xs[i]);
        }
    }
    experts_put(a, expert, pair, n, gate, up);
}

__device__ __forceinline__ void sum_wait()
{
    grid_wait();
    grid_trigger();
}

/* SUM_EACH outputs of a pair, from `n` on, by a warp: what they are before they are weighted.
 * `waits`: the first weights are asked for before the kernel in front has ended. */
__device__ __forceinline__ void sum_pair(const struct experts_args &a, uint32_t expert,
                                         uint32_t pair, uint32_t n, bool waits, float *to)
{
    uint32_t lane = threadIdx.x % WARP;
    const half_t *w = static_cast<const half_t *>(a.w.data) + ((size_t)expert * a.w.n + n) * a.w.k;
    const half_t *x = static_cast<const half_t *>(a.x) + experts_input(a, pair);
    float sums[SUM_EACH] = {};
    for (uint32_t k = lane * 8; k < (a.w.k + FEW_TURN - 1) / FEW_TURN * FEW_TURN;
         k += SUM_AHEAD * FEW_TURN) {
        uint4 ws[SUM_AHEAD][SUM_EACH], xs[SUM_AHEAD];
#pragma unroll
        for (int i = 0; i < SUM_AHEAD; i++)
#pragma unroll
            for (int j = 0; j < SUM_EACH; j++)
                ws[i][j] =
                    few_load(w + (size_t)j * a.w.k, k + i * FEW_TURN, n + j < a.w.n ? a.w.k : 0);
        if (waits)
            sum_wait();
        waits = false;
#pragma unroll
        for (int i = 0; i < SUM_AHEAD; i++)
            xs[i] = k + i * FEW_TURN < a.w.k
                        ? *reinterpret_cast<const uint4 *>(x + k + i * FEW_TURN)
                        : make_uint4(0, 0, 0, 0);
#pragma unroll
        for (int i = 0; i < SUM_AHEAD; i++)
#pragma unroll
            for (int j = 0; j < SUM_EACH; j++)
                sums[j] = few_add(sums[j], ws[i][j], xs[i]);
    }
#pragma unroll
    for (int j = 0; j < SUM_EACH; j++) {
        float y = warp_sum(sums[j]);
        if (lane == 0 && n + j < a.w.n)
            to[j] = round_value(y + experts_bias(a, expert, n + j), DTYPE_HALF);
    }
}

/* An output of a row: its pairs' sums, weighted and added in their order. */
__device__ __forceinline__ float sum_weighted(const struct experts_sum_args &s, uint32_t row,
                                              uint32_t n, const float (*pairs)[SUM_UNIT])
{
    const struct combine_args &c = s.combine;
    const struct route *routes = c.routes + (size_t)row * s.experts.route_stride;
    float sum = 0;
    for (uint32_t i = 0; i < c.top; i++)
        if (routes[i].expert - c.own.first < c.own.count)
            sum = __fadd_rn(sum, __fmul_rn(routes[i].weight, pairs[i][n % SUM_UNIT]));
    if (c.shared)
        sum = __fadd_rn(sum, __fmul_rn(routes[c.top].weight,
                                       load_value(c.shared, (size_t)row * c.size + n, c.dtype)));
    return sum;
}

/* To where it goes; the square of what is handed on. */
__device__ __forceinline__ float sum_store(const struct experts_sum_args &s, uint32_t row,
                                           uint32_t n, float sum)
{
    const struct combine_args &c = s.combine;
    const struct matmul_norm_out &norm = s.norm_out;
    size_t at = (size_t)row * c.size + n;
    float value = s.adds ? load_value(c.out, at, DTYPE_F32) + sum : sum;
    store_value(c.out, at, c.out_dtype, value);
    if (!norm.weight)
        return 0;
    store_value(norm.out, (size_t)row * norm.out_stride + n, DTYPE_HALF,
                value * (load_value(norm.weight, n, norm.weight_dtype) + norm.offset));
    return value * value;
}

__global__ void __launch_bounds__(SUM_WARPS *WARP)
    few_sum_kernel(const __grid_constant__ struct experts_sum_args s)
{
    __shared__ float pairs[2][ROUTE_TOP_MAX][SUM_UNIT];
    const struct experts_args &a = s.experts;
    uint32_t row = blockIdx.y, warp = threadIdx.x / WARP, side = 0;
    const struct route *routes = a.routes + (size_t)row * a.route_stride;
    bool there = row < range_rows(a.rows), waits = true;
    float squares = 0;
    for (uint32_t unit = blockIdx.x; there && unit * SUM_UNIT < a.w.n;
         unit += gridDim.x, side ^= 1) {
        uint32_t first = warp / SUM_PAIRS * SUM_EACH, n = unit * SUM_UNIT;
        for (uint32_t i = warp % SUM_PAIRS; i < a.top; i += SUM_PAIRS) {
            uint32_t expert = routes[i].expert - a.own.first;
            if (expert >= a.own.count)
                continue;
            sum_pair(a, expert, row * a.top + i, n + first, waits, &pairs[side][i][first]);
            waits = false;
        }
        if (waits)
            sum_wait(); /* of a warp without a pair */
        waits = false;
        __syncthreads();
        if (threadIdx.x < SUM_UNIT && n + threadIdx.x < a.w.n)
            squares += sum_store(s, row, n + threadIdx.x,
                                 sum_weighted(s, row, n + threadIdx.x, pairs[side]));
    }
    if (waits)
        sum_wait();
    if (!there || !s.norm_out.weight || threadIdx.x >= WARP)
        return;
    squares = warp_sum(squares); /* threads beyond a unit have none */
    if (threadIdx.x == 0)
        s.norm_out.squares[row * MATMUL_PARTS + blockIdx.x] = squares;
}

bool experts_few_can(const struct experts_args *args)
{
    return args->dtype == DTYPE_HALF && args->w.format == FORMAT_HALF && args->w.k % 8 == 0 &&
           args->w.k > 0 && args->x_stride % 8 == 0 &&
           reinterpret_cast<uintptr_t>(args->x) % 16 == 0 &&
           reinterpret_cast<uintptr_t>(args->w.data) % 16 == 0;
}

cudaError_t experts_few(const struct experts_args *args, cudaStream_t stream)
{
    dim3 grid(ceil_div(experts_outputs(args), FEW_WARPS), args->rows.max * args->top);
    return args->gated ? launch(few_kernel<true>, grid, FEW_WARPS * WARP, 0, stream, *args)
                       : launch(few_kernel<false>, grid, FEW_WARPS * WARP, 0, stream, *args);
}

/* What is handed on wants F32's range, and a sum of squares for each SM, as of a product. */
bool experts_few_sum_can(const struct experts_sum_args *args)
{
    bool hands = DTYPE_HALF == DTYPE_BF16 && args->adds && device_props()->major == 9 &&
                 device_props()->processors <= MATMUL_PARTS;
    return experts_few_can(&args->experts) && !args->experts.spread && !args->experts.gated &&
           args->combine.dtype == DTYPE_HALF && args->combine.size == args->experts.w.n &&
           (!args->adds || args->combine.out_dtype == DTYPE_F32) &&
           (!args->norm_out.weight || hands);
}

/* As many blocks as a product of few rows has whose outputs are these. */
cudaError_t experts_few_sum(const struct experts_sum_args *args, cudaStream_t stream)
{
    unsigned units = ceil_div(args->experts.w.n, SUM_UNIT), most = device_props()->processors;
    return launch(few_sum_kernel, dim3(units < most ? units : most, args->experts.rows.max),
                  SUM_WARPS * WARP, 0, stream, *args);
}

} // namespace HALF
