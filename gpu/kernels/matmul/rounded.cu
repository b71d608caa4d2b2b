/* Inputs rounded to e4m3, by token, by group or by one scale; and scales, bias, activation and add
 * behind a product that has none of these. Both read and write little beside what weights are. */
#include "gpu/kernels/activation/activation.cuh"
#include "gpu/kernels/common/e4m3.cuh"
#include "gpu/kernels/matmul/rounded.cuh"
#include "gpu/kernels/norm/norm.cuh"

#define EACH 16 /* values of a thread */
#define ROUND_THREADS_MAX 1024
#define FINISH_THREADS 128
#define HAND_THREADS NORM_THREADS
#define HAND_TURNS 4 /* of eight outputs a thread */
#define ALIGNMENT 256

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* What `spread` may have to hold. */
static size_t spread_most(const struct weight *w)
{
    size_t blocks = (size_t)ceil_div(w->n, LT_BLOCK) * (ceil_div(w->k, LT_BLOCK) + 3);
    return blocks > w->n ? blocks : w->n;
}

struct rounded rounded_cut(const struct weight *w, uint32_t rows, void *base)
{
    struct rounded out = {};
    char *at = static_cast<char *>(base);
    out.rows = out.piece = (rows + 3) / 4 * 4;
    out.stride = (w->k + EACH - 1) / EACH * EACH;
    out.groups = w->input.rounding == ROUNDING_GROUP ? ceil_div(w->k, w->input.group) : 1;
    uint32_t raw_rows = out.rows < RAW_ROWS_MAX ? out.rows : RAW_ROWS_MAX;
    size_t bytes = aligned((size_t)out.rows * out.stride);
    size_t scales = aligned((size_t)out.rows * out.groups * sizeof(float));
    size_t spread = aligned(spread_most(w) * sizeof(float));
    size_t raw = aligned((size_t)raw_rows * w->n * sizeof(float));
    out.total = bytes + scales + spread + raw;
    if (!base)
        return out;
    out.bytes = reinterpret_cast<uint8_t *>(at);
    out.scales = reinterpret_cast<float *>(at + bytes);
    out.spread = reinterpret_cast<float *>(at + bytes + scales);
    out.raw = reinterpret_cast<float *>(at + bytes + scales + spread);
    return out;
}

struct rounded rounded_handed(const struct weight_input *input, uint32_t k, uint32_t rows, void *x)
{
    struct rounded out = {};
    bool groups = input->rounding == ROUNDING_GROUP;
    out.rows = (rows + 3) / 4 * 4;
    out.piece = groups && rows >= 4 ? rows / 4 * 4 : out.rows;
    out.stride = k;
    out.groups = groups ? ceil_div(k, input->group) : 1;
    out.bytes = static_cast<uint8_t *>(x);
    out.scales = reinterpret_cast<float *>(out.bytes + MATMUL_ROUNDED_SCALES_AT(rows, k));
    out.total = MATMUL_ROUNDED_SCALES_AT(rows, k) + (size_t)out.rows * out.groups * sizeof(float);
    return out;
}

struct rounded rounded_of(const struct matmul_args *a)
{
    struct rounded cut = rounded_cut(&a->w, a->rows.max, a->scratch);
    struct rounded out =
        rounded_handed(&a->w.input, a->w.k, a->rows.max, const_cast<void *>(a->x));
    out.spread = cut.spread;
    out.raw = cut.raw;
    return out;
}

bool rounded_can(const struct matmul_args *a)
{
    uint32_t group = a->w.input.group;
    bool groups = group >= EACH && group <= EACH * WARP && (group & (group - 1)) == 0;
    return a->scratch && a->w.input.rounding != ROUNDING_NONE &&
           (a->w.input.rounding != ROUNDING_GROUP || groups) &&
           rounded_cut(&a->w, a->rows.max, NULL).total <= a->scratch_bytes;
}

/* Values k .. k + 15 of a row, those past its end as 0. */
__device__ __forceinline__ void round_load(float (&v)[EACH], const struct matmul_args &a,
                                           uint32_t row, uint32_t k)
{
    const char *at = static_cast<const char *>(a.x) +
                     ((size_t)row * a.x_stride + k) * (a.x_dtype == DTYPE_F32 ? 4 : 2);
    uint32_t left = k < a.w.k ? a.w.k - k : 0;
    if (left >= EACH && reinterpret_cast<uintptr_t>(at) % 16 == 0) {
        float8 low = load_whole(at, 0, a.x_dtype), high = load_whole(at, 8, a.x_dtype);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            v[i] = low.v[i];
            v[8 + i] = high.v[i];
        }
        return;
    }
#pragma unroll
    for (uint32_t i = 0; i < EACH; i++)
        v[i] = i < left ? load_value(at, i, a.x_dtype) : 0.0f;
}

/* The weights' scales in `columns` columns: of all rows, or of as many as there are blocks. */
__device__ __forceinline__ void round_spread(const struct matmul_args &a, const struct rounded &to)
{
    uint32_t blocks = a.w.scales.k ? (a.w.k + a.w.scales.k - 1) / a.w.scales.k : 0;
    uint32_t rows = blocks ? (a.w.n + a.w.scales.n - 1) / a.w.scales.n : 1;
    const float *from = static_cast<const float *>(a.w.scales.data);
    for (uint32_t i = threadIdx.x; i < rows * to.columns; i += blockDim.x) {
        uint32_t row = i / to.columns, column = i % to.columns;
        to.spread[i] = !blocks ? from[0] : column < blocks ? from[row * blocks + column] : 0.0f;
    }
}

/* A block per row, from `first_row` on; the one that has no row spreads the weights' scales. A row
 * goes by in turns, the last of which begins at `last`; the first is asked for last, and kept. */
__global__ void __launch_bounds__(ROUND_THREADS_MAX)
    round_kernel(const __grid_constant__ struct matmul_args a, const struct rounded to,
                 uint32_t first_row, uint32_t last)
{
    __shared__ float scratch[WARP];
    const enum weight_rounding how = a.w.input.rounding;
    uint32_t row = first_row + blockIdx.x, each = blockDim.x * EACH;
    grid_trigger(); /* the kernel behind waits for this one by itself */
    grid_wait();
    if (row == a.rows.max) {
        round_spread(a, to);
        return;
    }
    float v[EACH], greatest = 0, scale = a.w.input.scale;
    for (uint32_t first = how == ROUNDING_TOKEN ? last : 0;; first -= each) {
        round_load(v, a, row, first + threadIdx.x * EACH);
        greatest = fmaxf(greatest, e4m3_greatest(v));
        if (first == 0)
            break;
    }
    if (how == ROUNDING_TOKEN) {
        greatest =
            block_reduce(greatest, 0.0f, scratch, [](float of) { return warp_greatest(of); });
        scale = e4m3_scale_to(greatest, a.w.input.scale);
    }
    if (how != ROUNDING_GROUP && threadIdx.x == 0)
        to.scales[rounded_scale_at(to, row, 0)] = scale;
    /* All threads of a warp go round as often: they ask each other for the greatest of a group. */
    uint32_t threads = how == ROUNDING_GROUP ? a.w.input.group / EACH : 1;
    for (uint32_t first = 0; first < to.stride; first += each) {
        uint32_t k = first + threadIdx.x * EACH;
        if (first > 0)
            round_load(v, a, row, k);
        if (how == ROUNDING_GROUP) {
            greatest = e4m3_greatest(v);
            for (uint32_t offset = threads / 2; offset; offset /= 2)
                greatest = fmaxf(greatest, __shfl_xor_sync(FULL_MASK, greatest, offset));
            scale = e4m3_scale(greatest);
            if (threadIdx.x % threads == 0 && k < a.w.k)
                to.scales[rounded_scale_at(to, row, k / a.w.input.group)] = scale;
        }
        if (k < to.stride)
            *reinterpret_cast<uint4 *>(to.bytes + (size_t)row * to.stride + k) =
                e4m3_round16(v, e4m3_divide_by(scale));
    }
}

cudaError_t rounded_make(const struct matmul_args *a, const struct rounded *to, cudaStream_t stream)
{
    uint32_t first = a->x_rounded ? a->rows.max : 0;
    unsigned threads = ceil_div(to->stride, EACH * WARP) * WARP;
    threads = threads < ROUND_THREADS_MAX ? threads : ROUND_THREADS_MAX;
    uint32_t last = (to->stride - 1) / (EACH * threads) * (EACH * threads);
    return launch(round_kernel, dim3(a->rows.max - first + (to->columns ? 1 : 0)), threads, 0,
                  stream, *a, *to, first, last);
}

/* ---- behind a product ---- */

/* Eight sums of a row of the part, scaled, with their bias. */
template <bool ALIGNED>
__device__ __forceinline__ float8 finish_sums(const struct matmul_args &a,
                                              const struct rounded &from,
                                              const struct rounded_part &part, uint32_t row,
                                              uint32_t n)
{
    float8 y = load_whole(from.raw, (size_t)row * a.w.n + n, DTYPE_F32), by, bias;
    if (!part.scaled) {
        float by_row = from.scales[rounded_scale_at(from, part.first + row, 0)];
        if (ALIGNED && a.w.scales.n == 1) /* and no columns: those are scaled before */
            by = load_whole(a.w.scales.data, n, DTYPE_F32);
        else
#pragma unroll
            for (int i = 0; i < 8; i++)
                by.v[i] = weight_scale(a.w, n + i, 0);
#pragma unroll
        for (int i = 0; i < 8; i++)
            y.v[i] *= by_row * by.v[i];
    }
    if (a.bias) {
        if (ALIGNED)
            bias = load_whole(a.bias, n, a.bias_dtype);
        else
#pragma unroll
            for (int i = 0; i < 8; i++)
                bias.v[i] = load_value(a.bias, n + i, a.bias_dtype);
#pragma unroll
        for (int i = 0; i < 8; i++)
            y.v[i] += bias.v[i];
    }
    return y;
}

template <enum activation KIND> __device__ __forceinline__ void finish_activate(float8 &y)
{
#pragma unroll
    for (int i = 0; i < 8; i++)
        y.v[i] = y.v[i] / (1.0f + expf(activation_exponent<KIND>(y.v[i])));
}

__device__ __forceinline__ void finish_act(const struct matmul_args &a, float8 &y)
{
    if (a.activation == ACTIVATE_SILU)
        finish_activate<ACTIVATE_SILU>(y);
    else
        finish_activate<ACTIVATE_GELU_TANH>(y);
}

/* Eight outputs a thread: what is read lies in the L2, and small loads do not bring it from there
 * as fast as it can. */
template <bool ALIGNED>
__global__ void __launch_bounds__(FINISH_THREADS)
    finish_kernel(const __grid_constant__ struct matmul_args a, const struct rounded from,
                  const struct rounded_part part)
{
    uint32_t row = blockIdx.y, n = (blockIdx.x * FINISH_THREADS + threadIdx.x) * 8;
    uint32_t outputs = a.gated ? a.w.n / 2 : a.w.n;
    grid_wait();
    grid_trigger();
    if (n >= outputs)
        return;
    float8 y = finish_sums<ALIGNED>(a, from, part, row, n);
    if (a.gated || a.activates)
        finish_act(a, y);
    size_t at = (size_t)(part.first + row) * a.y_stride + n;
    if (a.gated) {
        float8 up = finish_sums<ALIGNED>(a, from, part, row, outputs + n);
#pragma unroll
        for (int i = 0; i < 8; i++)
            y.v[i] *= up.v[i];
    }
    if (ALIGNED) {
        if (a.adds) {
            float8 before = load_whole(a.y, at, a.y_dtype);
#pragma unroll
            for (int i = 0; i < 8; i++)
                y.v[i] += before.v[i];
        }
        store_whole(a.y, at, a.y_dtype, y);
        return;
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
        store_value(a.y, at + i, a.y_dtype,
                    a.adds ? y.v[i] + load_value(a.y, at + i, a.y_dtype) : y.v[i]);
}

cudaError_t rounded_finish(const struct matmul_args *a, const struct rounded *from,
                           struct rounded_part part, cudaStream_t stream)
{
    uint32_t outputs = a->gated ? a->w.n / 2 : a->w.n;
    uintptr_t places = reinterpret_cast<uintptr_t>(a->y) | reinterpret_cast<uintptr_t>(a->bias) |
                       reinterpret_cast<uintptr_t>(a->w.scales.data);
    bool aligned = a->y_stride % 8 == 0 && places % 16 == 0;
    dim3 grid(ceil_div(outputs, 8 * FINISH_THREADS), part.count);
    return launch(aligned ? finish_kernel<true> : finish_kernel<false>, grid, FINISH_THREADS, 0,
                  stream, *a, *from, part);
}

/* ---- behind a product whose results are handed on rounded ---- */

/* Outputs n .. n + 7 of a row, as they would be stored; with `adds` they are. */
__device__ __forceinline__ float8 hand_outputs(const struct matmul_args &a,
                                               const struct rounded &from, uint32_t row, uint32_t n)
{
    const struct rounded_part all = {0, a.rows.max, false};
    size_t at = (size_t)row * a.y_stride + n;
    float8 before = {}, up;
    if (a.adds)
        before = load_whole(a.y, at, a.y_dtype);
    if (a.gated)
        up = finish_sums<true>(a, from, all, row, a.w.n / 2 + n);
    float8 y = finish_sums<true>(a, from, all, row, n);
    if (a.adds) {
#pragma unroll
        for (int i = 0; i < 8; i++)
            y.v[i] += before.v[i];
        store_whole(a.y, at, a.y_dtype, y);
        return y;
    }
    finish_act(a, y);
#pragma unroll
    for (int i = 0; i < 8; i++)
        y.v[i] = round_value(a.gated ? y.v[i] * up.v[i] : y.v[i], a.y_dtype);
    return y;
}

/* Whole block: a row's values are normed, in the order of norm.cu, and rounded to 16 bits. */
template <int TURNS>
__device__ __forceinline__ void hand_norm(float8 (&value)[TURNS], const float8 (&weight)[TURNS],
                                          const struct matmul_args &a, float *scratch)
{
    float squares = 0;
#pragma unroll
    for (int turn = 0; turn < TURNS; turn++)
        squares = norm_squares(squares, value[turn]);
    float scale = norm_scale(block_sum(squares, scratch), a.w.n, a.norm_out.eps);
#pragma unroll
    for (int turn = 0; turn < TURNS; turn++) {
        value[turn] = norm_scaled(value[turn], scale, weight[turn]);
#pragma unroll
        for (int i = 0; i < 8; i++)
            value[turn].v[i] = round_value(value[turn].v[i], a.x_dtype);
    }
}

/* A block per row, as large as a norm's: what it computes has the bits that kernels apart give. */
template <int TURNS>
__global__ void __launch_bounds__(HAND_THREADS)
    hand_kernel(const __grid_constant__ struct matmul_args a, const struct rounded from,
                const struct rounded to)
{
    __shared__ float scratch[WARP];
    const bool norm = a.norm_out.weight;
    const uint32_t row = blockIdx.x, outputs = a.gated ? a.w.n / 2 : a.w.n;
    float8 value[TURNS] = {}, weight[TURNS] = {};
    grid_trigger();
#pragma unroll
    for (int turn = 0; turn < TURNS && norm; turn++)
        weight[turn] = norm_weights(a.norm_out.weight, (turn * blockDim.x + threadIdx.x) * 8,
                                    outputs, a.norm_out.weight_dtype, a.norm_out.offset);
    grid_wait();
#pragma unroll
    for (int turn = 0; turn < TURNS; turn++) {
        uint32_t n = (turn * blockDim.x + threadIdx.x) * 8;
        if (n < outputs)
            value[turn] = hand_outputs(a, from, row, n);
    }
    if (norm)
        hand_norm(value, weight, a, scratch);
    __builtin_assume(a.hands.rounding != ROUNDING_GROUP);
    rounded_row(value, a.hands, to, row, scratch);
}

bool rounded_hand_can(const struct matmul_args *a)
{
    const bool norm = a->norm_out.weight;
    uint32_t outputs = a->gated ? a->w.n / 2 : a->w.n;
    uint32_t stride = norm ? a->norm_out.out_stride : a->y_stride;
    uintptr_t places = reinterpret_cast<uintptr_t>(a->y) | reinterpret_cast<uintptr_t>(a->bias) |
                       reinterpret_cast<uintptr_t>(a->norm_out.out) |
                       reinterpret_cast<uintptr_t>(a->w.scales.data);
    bool one = a->hands.rounding == ROUNDING_TOKEN || a->hands.rounding == ROUNDING_STATIC;
    bool what = norm ? a->adds && !a->gated && !a->activates && a->x_dtype != DTYPE_F32
                     : !a->adds && (a->gated || a->activates) && a->y_dtype != DTYPE_F32;
    return one && what && a->rows.max <= RAW_ROWS_MAX && outputs % 16 == 0 &&
           outputs <= HAND_THREADS * 8 * HAND_TURNS && places % 16 == 0 && a->y_stride % 8 == 0 &&
           stride >= outputs;
}

cudaError_t rounded_hand(const struct matmul_args *a, const struct rounded *from,
                         cudaStream_t stream)
{
    uint32_t outputs = a->gated ? a->w.n / 2 : a->w.n;
    unsigned threads = norm_threads(outputs), turns = ceil_div(outputs, threads * 8);
    void *out = a->norm_out.weight ? a->norm_out.out : a->y;
    struct rounded to = rounded_handed(&a->hands, outputs, a->rows.max, out);
    return launch(turns <= 1   ? hand_kernel<1>
                  : turns <= 2 ? hand_kernel<2>
                               : hand_kernel<HAND_TURNS>,
                  dim3(a->rows.max), threads, 0, stream, *a, *from, to);
}
