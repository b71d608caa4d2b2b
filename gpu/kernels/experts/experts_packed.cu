/* Which way products with experts in 8 and 4 bits go, what their inputs become before, and the way
 * of any shape: a warp an output of a pair, in float32. Few pairs are experts_packed_few.cu's,
 * which prepares inputs by itself, many the tensor cores' (of rounded inputs
 * experts_wgmma_eight.cu and experts_eight.cu, of e2m1 experts_e2m1.cu, experts_widened.cu and
 * experts_e2m1_any.cu, else experts_packed_tiles.cu). */
#include "gpu/kernels/experts/experts_packed.cuh"

#define PACKED_WARPS 8
#define PACKED_FEW 64 /* pairs, of which each reads its matrix for itself */
#define PACKED_THREADS 256
#define PACKED_BYTES_THREADS 512
#define PACKED_BYTES_GROUP 128 /* columns that have one scale, where a row has several */
#define PACKED_GRID 65535u
#define PACKED_ALIGNMENT 256

/* ---- inputs ---- */

/* What of x stands in scratch. */
struct packed_room {
    void *x; /* [rows][stride], of the dtype of x, or bytes of e4m3 */
    float *scales;
    uint32_t rows, stride, groups;
    bool by_pair, bytes;
    size_t total; /* bytes */
};

static size_t aligned(size_t bytes)
{
    return (bytes + PACKED_ALIGNMENT - 1) / PACKED_ALIGNMENT * PACKED_ALIGNMENT;
}

static bool is_prepared(const struct weight *w)
{
    return w->order || w->input.rounding != ROUNDING_NONE;
}

/* `base` may be NULL: the size alone. What an expert has of its own makes inputs those of pairs. */
static struct packed_room room_cut(const struct weight *w, uint32_t rows, uint32_t top, bool spread,
                                   enum dtype dtype, void *base)
{
    struct packed_room room = {};
    bool own = w->order || w->input.scales;
    if (!is_prepared(w))
        return room;
    room.by_pair = own || !spread;
    room.rows = room.by_pair ? rows * top : rows;
    room.stride = (w->k + PACKED_UNIT - 1) / PACKED_UNIT * PACKED_UNIT;
    room.groups = w->input.rounding == ROUNDING_GROUP ? ceil_div(w->k, w->input.group) : 1;
    size_t bytes = aligned((size_t)room.rows * room.stride * dtype_bytes(dtype));
    room.total = bytes + aligned((size_t)room.rows * room.groups * sizeof(float));
    room.x = base;
    room.scales = base ? reinterpret_cast<float *>(static_cast<char *>(base) + bytes) : NULL;
    return room;
}

size_t experts_scratch_bytes(const struct weight *w, uint32_t own, uint32_t rows, uint32_t top,
                             bool spread, enum dtype dtype)
{
    uint64_t pairs = (uint64_t)rows * top;
    size_t widened = experts_widened_bytes(w, own, pairs, dtype);
    size_t prepared = room_cut(w, rows, top, spread, dtype, NULL).total;
    size_t ordered = bf16::experts_e2m1_bytes(w, own, pairs, dtype);
    size_t most = widened > prepared ? widened : prepared;
    return most > ordered ? most : ordered;
}

/* The number of x that stands at column k. */
__device__ __forceinline__ float prepare_load(const struct experts_args &a, size_t x,
                                              const uint32_t *order, uint32_t k)
{
    return load_value(a.x, x + (order ? order[k] : k), a.dtype);
}

__device__ __forceinline__ void prepare_store(const struct experts_args &a,
                                              const struct packed_room &to, size_t at, float value,
                                              const e4m3_divisor *by)
{
    uint32_t rounded = by ? e4m3_round2(e4m3_quotient(value, *by), 0.0f) : 0;
    if (to.bytes) {
        static_cast<uint8_t *>(to.x)[at] = static_cast<uint8_t>(rounded);
        return;
    }
    if (by)
        value = e4m3_value(static_cast<uint8_t>(rounded));
    store_value(to.x, at, a.dtype, value);
}

/* Groups of columns, a warp each. */
__device__ __forceinline__ void prepare_groups(const struct experts_args &a,
                                               const struct packed_room &to, size_t x, uint32_t row)
{
    uint32_t group = a.w.input.group, lane = threadIdx.x % WARP;
    for (uint32_t g = threadIdx.x / WARP; g < to.groups; g += PACKED_THREADS / WARP) {
        uint32_t end = min((g + 1) * group, a.w.k);
        float greatest = 0;
        for (uint32_t k = g * group + lane; k < end; k += WARP)
            greatest = fmaxf(greatest, fabsf(load_value(a.x, x + k, a.dtype)));
        float scale = e4m3_scale(warp_greatest(greatest));
        e4m3_divisor by = e4m3_divide_by(scale);
        for (uint32_t k = g * group + lane; k < end; k += WARP)
            prepare_store(a, to, (size_t)row * to.stride + k, load_value(a.x, x + k, a.dtype), &by);
        if (lane == 0)
            to.scales[(size_t)row * to.groups + g] = scale;
    }
}

/* Of whole rows; called by the whole block. */
__device__ __forceinline__ float prepare_scale(const struct experts_args &a, size_t x,
                                               const uint32_t *order, uint32_t expert)
{
    __shared__ float scratch[WARP];
    const struct weight_input &input = a.w.input;
    if (input.rounding != ROUNDING_TOKEN)
        return input.scales ? input.scales[expert] : input.scale;
    float greatest = 0;
    for (uint32_t k = threadIdx.x; k < a.w.k; k += PACKED_THREADS)
        greatest = fmaxf(greatest, fabsf(prepare_load(a, x, order, k)));
    greatest = block_reduce(greatest, 0.0f, scratch, [](float of) { return warp_greatest(of); });
    return e4m3_scale_to(greatest, input.scale);
}

/* What a block makes a row of: of the step, or a pair's. */
struct prepare_row {
    uint32_t expert;
    size_t x; /* where it reads */
};

/* False: there is nothing to make. */
__device__ __forceinline__ bool prepare_find(const struct experts_args &a,
                                             const struct packed_room &to, prepare_row &ret)
{
    uint32_t made = blockIdx.x, row = to.by_pair ? made / a.top : made;
    ret = {0, (size_t)(a.spread ? row : made) * a.x_stride};
    if (row >= range_rows(a.rows))
        return false;
    if (to.by_pair)
        ret.expert =
            a.routes[(size_t)row * a.route_stride + made % a.top].expert - a.own.first;
    return ret.expert < a.own.count;
}

__global__ void __launch_bounds__(PACKED_THREADS)
    packed_prepare_kernel(const __grid_constant__ struct experts_args a,
                          const __grid_constant__ struct packed_room to)
{
    grid_wait();
    grid_trigger();
    uint32_t made = blockIdx.x;
    prepare_row of;
    if (!prepare_find(a, to, of))
        return;
    if (a.w.input.rounding == ROUNDING_GROUP) {
        prepare_groups(a, to, of.x, made);
        return;
    }
    const uint32_t *order = a.w.order ? a.w.order + (size_t)of.expert * a.w.k : NULL;
    bool rounds = a.w.input.rounding != ROUNDING_NONE;
    float scale = rounds ? prepare_scale(a, of.x, order, of.expert) : 1.0f;
    e4m3_divisor by = e4m3_divide_by(scale);
    for (uint32_t k = threadIdx.x; k < a.w.k; k += PACKED_THREADS)
        prepare_store(a, to, (size_t)made * to.stride + k, prepare_load(a, of.x, order, k),
                      rounds ? &by : NULL);
    if (rounds && threadIdx.x == 0)
        to.scales[made] = scale;
}

/* Rows of whole units become bytes, eight columns a thread and turn. */
__device__ __forceinline__ float8 bytes_load(const struct experts_args &a, size_t x, uint32_t k)
{
    return k < a.w.k ? load_whole(a.x, x + k, a.dtype) : float8{};
}

__device__ __forceinline__ float bytes_scale(const struct experts_args &a, const prepare_row &of)
{
    __shared__ float scratch[WARP];
    const struct weight_input &input = a.w.input;
    float greatest = 0;
    if (input.rounding != ROUNDING_TOKEN)
        return input.scales ? input.scales[of.expert] : input.scale;
#pragma unroll 4
    for (uint32_t k = threadIdx.x * 8; k < a.w.k; k += blockDim.x * 8)
        greatest = fmaxf(greatest, e4m3_greatest(bytes_load(a, of.x, k).v));
    greatest = block_reduce(greatest, 0.0f, scratch, [](float of) { return warp_greatest(of); });
    return e4m3_scale_to(greatest, input.scale);
}

__global__ void __launch_bounds__(PACKED_BYTES_THREADS)
    packed_bytes_kernel(const __grid_constant__ struct experts_args a,
                        const __grid_constant__ struct packed_room to)
{
    grid_wait();
    grid_trigger();
    const bool grouped = a.w.input.rounding == ROUNDING_GROUP;
    prepare_row of;
    if (!prepare_find(a, to, of))
        return;
    float *scales = to.scales + (size_t)blockIdx.x * to.groups;
    float scale = grouped ? 0 : bytes_scale(a, of);
    if (!grouped && threadIdx.x == 0)
        *scales = scale;
#pragma unroll 4
    for (uint32_t base = 0; base < a.w.k; base += blockDim.x * 8) { /* all of a warp's lanes */
        uint32_t k = base + threadIdx.x * 8;
        float8 value = bytes_load(a, of.x, k);
        if (grouped) {
            float greatest = e4m3_greatest(value.v);
#pragma unroll
            for (int offset = PACKED_BYTES_GROUP / 16; offset; offset /= 2)
                greatest = fmaxf(greatest, __shfl_xor_sync(FULL_MASK, greatest, offset));
            scale = e4m3_scale(greatest);
            if (k < a.w.k && k % PACKED_BYTES_GROUP == 0)
                scales[k / PACKED_BYTES_GROUP] = scale;
        }
        if (k < a.w.k)
            *reinterpret_cast<uint2 *>(static_cast<uint8_t *>(to.x) +
                                       (size_t)blockIdx.x * to.stride + k) =
                e4m3_round8(value.v, e4m3_divide_by(scale));
    }
}

static cudaError_t packed_prepare(const struct experts_args *args, struct experts_packed *ret,
                                  cudaStream_t stream)
{
    struct packed_room room =
        room_cut(&args->w, args->rows.max, args->top, args->spread, args->dtype, args->scratch);
    if (!is_prepared(&args->w))
        return cudaSuccess;
    if (!args->scratch || room.total > args->scratch_bytes)
        return cudaErrorNotSupported;
    room.bytes = experts_eight_can(args);
    ret->a.x = room.x;
    ret->a.x_stride = room.stride;
    ret->a.spread = !room.by_pair;
    ret->a.w.order = NULL;
    if (args->w.input.rounding != ROUNDING_NONE) {
        ret->x_scales = room.scales;
        ret->x_groups = room.groups;
    }
    if (room.bytes && args->x_stride % 8 == 0 && reinterpret_cast<uintptr_t>(args->x) % 16 == 0)
        return launch(packed_bytes_kernel, dim3(room.rows),
                      threads_for(args->w.k, PACKED_BYTES_THREADS), 0, stream, *args, room);
    return launch(packed_prepare_kernel, dim3(room.rows), PACKED_THREADS, 0, stream, *args, room);
}

/* ---- products ---- */

/* A lane's part of row n: a number a turn. */
__device__ __forceinline__ float numbers_sum(const struct experts_packed &p, uint32_t expert,
                                             uint32_t pair, uint32_t n)
{
    const struct weight &w = p.a.w;
    uint32_t row = packed_row(p.a, pair);
    size_t x = (size_t)row * p.a.x_stride, scales = packed_scales_at(w, expert, n);
    const uint8_t *from = packed_row_at(w, w.format, expert, n);
    float sum = 0;
    for (uint32_t k = threadIdx.x % WARP; k < w.k; k += WARP)
        sum += packed_element(w, from, k, packed_zero(w, scales, k)) *
               load_value(p.a.x, x + k, p.a.dtype) * packed_x_scale(p, row, k) *
               packed_scale(w, scales, k);
    return sum;
}

__global__ void __launch_bounds__(PACKED_WARPS *WARP)
    packed_numbers_kernel(const __grid_constant__ struct experts_packed p)
{
    grid_wait();
    grid_trigger();
    const struct experts_args &a = p.a;
    uint32_t pairs = range_rows(a.rows) * a.top, outputs = a.gated ? a.w.n / 2 : a.w.n;
    uint32_t n = blockIdx.x * PACKED_WARPS + threadIdx.x / WARP;
    if (n >= outputs)
        return;
    for (uint32_t pair = blockIdx.y; pair < pairs; pair += gridDim.y) {
        uint32_t expert =
            a.routes[(size_t)(pair / a.top) * a.route_stride + pair % a.top].expert - a.own.first;
        if (expert >= a.own.count)
            continue;
        float y = numbers_sum(p, expert, pair, n);
        float up = a.gated ? numbers_sum(p, expert, pair, outputs + n) : 0;
        experts_put(a, expert, pair, n, y, up);
    }
}

static cudaError_t packed_numbers(const struct experts_packed *p, uint64_t pairs,
                                  cudaStream_t stream)
{
    return launch(packed_numbers_kernel,
                  dim3(ceil_div(experts_outputs(&p->a), PACKED_WARPS),
                       static_cast<unsigned>(pairs < PACKED_GRID ? pairs : PACKED_GRID)),
                  PACKED_WARPS * WARP, 0, stream, *p);
}

static uint32_t common_divisor(uint32_t a, uint32_t b)
{
    while (b) {
        uint32_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Columns of one scale; all of them, as whole units, where there is one. */
static uint32_t each_of(const struct weight *w)
{
    uint32_t group = w->input.rounding == ROUNDING_GROUP ? w->input.group : 0;
    uint32_t each = common_divisor(w->scales.k, group);
    return each ? each : (w->k + PACKED_UNIT - 1) / PACKED_UNIT * PACKED_UNIT;
}

cudaError_t experts_packed(const struct experts_args *args, cudaStream_t stream)
{
    struct experts_packed p = {};
    uint64_t pairs = (uint64_t)args->rows.max * args->top;
    p.a = *args;
    p.each = each_of(&args->w);
    if (pairs == 0)
        return cudaSuccess;
    if (bf16::experts_e2m1_can(args))
        return bf16::experts_e2m1(args, stream);
    if (experts_widened_can(args))
        return experts_widened(args, stream);
    if (bf16::experts_e2m1_any_can(args))
        return bf16::experts_e2m1_any(args, stream);
    bool units = packed_whole_units(&p), few = units && experts_packed_few_can(args);
    if (few && pairs <= PACKED_FEW && !experts_eight_can(args))
        return experts_packed_few(args, stream);
    cudaError_t result = packed_prepare(args, &p, stream);
    if (result != cudaSuccess)
        return result;
    if (experts_wgmma_eight_can(&p))
        return experts_wgmma_eight(&p, stream);
    if (experts_eight_can(args))
        return experts_eight(&p, stream);
    if (bf16::experts_packed_tiles_can(&p))
        return bf16::experts_packed_tiles(&p, stream);
    if (f16::experts_packed_tiles_can(&p))
        return f16::experts_packed_tiles(&p, stream);
    return few ? experts_packed_few(args, stream) : packed_numbers(&p, pairs, stream);
}
