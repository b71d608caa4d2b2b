/* Products with experts in e4m3 of inputs that are rounded to it, by tensor cores, of few pairs and
 * of many: bound by what it takes to make numbers of 16 bits of the weights, so those are made once
 * for up to 8 TILES pairs, in registers. Both are exact in F16, whatever the dtype of x.
 *
 * Rows and pairs stand as experts_narrow.cuh says. Lane (g, t) has rows g and g + 8, and of four
 * runs of 16 columns the run t, whole: which columns meet is the same for w and x, so their order
 * inside the instruction does not matter. The block's warps have every fourth of those fours each.
 * A block has several sets of rows, one behind another; weights of AHEAD steps are on their way,
 * over the end of a set, too. */
#include "gpu/kernels/common/device_props.cuh"
#include "gpu/kernels/experts/experts_narrow.cuh"
#include "gpu/kernels/experts/experts_packed.cuh"

#define E4M3_RUN 64 /* columns of a warp in a step */
#define E4M3_STEP (NARROW_WARPS * E4M3_RUN)
#define E4M3_SETS 4    /* of a block, at most */
#define E4M3_BLOCKS 8  /* of an SM, for which a block may have fewer */
#define E4M3_GROUP 128 /* columns that have one scale, where a row has several */

__device__ __forceinline__ void e4m3_mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                         uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Where a lane asks for weights: the step's columns, the set of rows, and its rows of that. */
struct e4m3_cursor {
    uint32_t k, set;
    const uint8_t *w[2]; /* at the lane's first columns; NULL: zeros */
    const float *scales[2];
};

struct e4m3_block {
    uint4 raw[2];
    float scales[2]; /* of the columns */
};

/* The row of w that a lane's first or second is in a set; w.n: none. */
__device__ __forceinline__ uint32_t e4m3_row(const struct experts_args &a, uint32_t set, int r)
{
    uint32_t g = threadIdx.x % WARP / 4, width = narrow_width(a);
    uint32_t n = set * width + g + (a.gated ? 0 : r * 8);
    return n < experts_outputs(&a) ? n + (a.gated && r ? a.w.n / 2 : 0) : a.w.n;
}

/* The first columns of a lane in a step. */
__device__ __forceinline__ uint32_t e4m3_columns()
{
    return threadIdx.x / WARP * E4M3_RUN + threadIdx.x % 4 * 16;
}

__device__ __forceinline__ void e4m3_rows(const struct experts_args &a, uint32_t expert,
                                          uint32_t last, e4m3_cursor &at)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        uint32_t n = e4m3_row(a, at.set, r);
        at.w[r] = at.set < last && n < a.w.n
                      ? static_cast<const uint8_t *>(a.w.data) +
                            ((size_t)expert * a.w.n + n) * a.w.k + e4m3_columns()
                      : nullptr;
        at.scales[r] = static_cast<const float *>(a.w.scales.data) +
                       packed_scales_at(a.w, expert, n < a.w.n ? n : 0);
    }
}

/* Of a warp's columns in a step; behind the last, the last. */
__device__ __forceinline__ uint32_t e4m3_group(const struct experts_args &a, uint32_t k)
{
    return min(k + threadIdx.x / WARP * E4M3_RUN, a.w.k - 1) / E4M3_GROUP;
}

template <bool GROUPED>
__device__ __forceinline__ void e4m3_ask(const struct experts_args &a, uint32_t expert,
                                         uint32_t last, e4m3_cursor &at, e4m3_block &to)
{
    bool inside = at.k + e4m3_columns() < a.w.k;
    uint32_t group = GROUPED ? e4m3_group(a, at.k) : 0;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        to.raw[r] = inside && at.w[r] ? __ldcs(reinterpret_cast<const uint4 *>(at.w[r] + at.k))
                                      : make_uint4(0, 0, 0, 0);
        to.scales[r] = at.scales[r][group]; /* of other lanes' columns, too */
    }
    at.k += E4M3_STEP;
    if (at.k < a.w.k)
        return;
    at.k = 0;
    at.set++;
    e4m3_rows(a, expert, last, at);
}

/* A lane's run of w times that of the tiles' pairs. */
template <int TILES>
__device__ __forceinline__ void e4m3_multiply(const e4m3_block &of, const uint4 (&xs)[TILES],
                                              float (&c)[TILES][4])
{
    uint32_t w[4][4];
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            uint32_t word = narrow_word(of.raw[r], i);
            w[i][r] = e4m3_widen2(word & 0xffff);
            w[i][r + 2] = e4m3_widen2(word >> 16);
        }
#pragma unroll
    for (int tile = 0; tile < TILES; tile++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t word = narrow_word(xs[tile], i);
            e4m3_mma(c[tile], w[i], e4m3_widen2(word & 0xffff), e4m3_widen2(word >> 16));
        }
}

/* What the pairs of a lane read: its columns, from the first on, and its two pairs' scales. */
struct e4m3_inputs {
    const uint8_t *x; /* NULL: zeros */
    const float *scales[2];
};

template <int TILES>
__device__ __forceinline__ void e4m3_find(const struct experts_packed &p, const tile &at,
                                          e4m3_inputs (&inputs)[TILES])
{
    const struct experts_args &a = p.a;
    uint32_t g = threadIdx.x % WARP / 4, t = threadIdx.x % 4;
    const uint32_t *pairs = a.segments + a.own.count + 1 + at.first;
#pragma unroll
    for (int i = 0; i < TILES; i++) {
        uint32_t own = i * NARROW_PAIRS + g, other = i * NARROW_PAIRS + t * 2;
        inputs[i].x = own < at.count
                          ? static_cast<const uint8_t *>(a.x) +
                                (size_t)packed_row(a, pairs[own]) * a.x_stride + e4m3_columns()
                          : nullptr;
#pragma unroll
        for (int j = 0; j < 2; j++) /* of none, some pair's: its sums are not stored */
            inputs[i].scales[j] =
                p.x_scales +
                (size_t)packed_row(a, pairs[min(other + j, at.count - 1)]) * p.x_groups;
    }
}

/* What was summed of columns of group `of`, times their scales: of the lane's two rows and two
 * pairs. */
template <int TILES>
__device__ __forceinline__ void e4m3_scale(const float (&w)[2], const e4m3_inputs (&inputs)[TILES],
                                           uint32_t of, float (&part)[TILES][4],
                                           float (&sums)[TILES][4])
{
#pragma unroll
    for (int tile = 0; tile < TILES; tile++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            sums[tile][i] += part[tile][i] * (inputs[tile].scales[i % 2][of] * w[i / 2]);
            part[tile][i] = 0.0f;
        }
}

template <int TILES, bool GROUPED>
__global__ void __launch_bounds__(NARROW_THREADS, TILES <= 2   ? 4
                                                  : TILES == 4 ? 3
                                                               : 2)
    e4m3_kernel(const __grid_constant__ struct experts_packed p, uint32_t sets)
{
    const struct experts_args &a = p.a;
    constexpr int AHEAD = TILES == 1 ? 3 : 4;
    tile at;
    grid_wait();
    grid_trigger();
    if (!tile_begin<TILES * NARROW_PAIRS>(a, at))
        return;
    uint32_t width = narrow_width(a);
    uint32_t all = (experts_outputs(&a) + width - 1) / width, set = blockIdx.y * sets;
    uint32_t last = min(set + sets, all);
    e4m3_cursor ahead = {0, set, {}, {}};
    e4m3_rows(a, at.expert, last, ahead);
    e4m3_block blocks[AHEAD];
#pragma unroll
    for (int i = 0; i < AHEAD; i++)
        e4m3_ask<GROUPED>(a, at.expert, last, ahead, blocks[i]);
    e4m3_inputs inputs[TILES];
    e4m3_find<TILES>(p, at, inputs);
    float part[TILES][4] = {}, sums[TILES][4] = {};
    uint32_t k = 0;
    while (set < last)
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            if (set >= last)
                break;
            bool inside = k + e4m3_columns() < a.w.k, whole = k + E4M3_STEP >= a.w.k;
            e4m3_block now = blocks[i];
            uint4 x[TILES];
#pragma unroll
            for (int tile = 0; tile < TILES; tile++)
                x[tile] = inside && inputs[tile].x
                              ? *reinterpret_cast<const uint4 *>(inputs[tile].x + k)
                              : make_uint4(0, 0, 0, 0);
            e4m3_ask<GROUPED>(a, at.expert, last, ahead, blocks[i]);
            e4m3_multiply<TILES>(now, x, part);
            if (GROUPED || whole)
                e4m3_scale<TILES>(now.scales, inputs, GROUPED ? e4m3_group(a, k) : 0, part, sums);
            k += E4M3_STEP;
            if (!whole)
                continue;
#pragma unroll
            for (int tile = 0; tile < TILES; tile++)
                if (tile * NARROW_PAIRS < at.count)
                    narrow_store(a, at, set, tile * NARROW_PAIRS, sums[tile]);
            k = 0;
            set++;
        }
}

bool experts_e4m3_can(const struct experts_args *args)
{
    const struct weight *w = &args->w;
    bool grouped = w->input.rounding == ROUNDING_GROUP;
    bool groups = w->scales.k == E4M3_GROUP && w->input.group == E4M3_GROUP;
    return w->format == FORMAT_E4M3 && w->input.rounding != ROUNDING_NONE &&
           (grouped ? groups : w->scales.k == 0) && !w->order && w->k > 0 && w->k % 16 == 0 &&
           reinterpret_cast<uintptr_t>(w->data) % 16 == 0 && device_props()->major >= 9;
}

template <int TILES>
static cudaError_t e4m3_launch(const struct experts_packed *p, cudaStream_t stream)
{
    const struct experts_args *a = &p->a;
    uint64_t pairs = (uint64_t)a->rows.max * a->top;
    uint64_t tiles = pairs / (TILES * NARROW_PAIRS) + a->own.count;
    uint32_t width = narrow_width(*a);
    tiles = tiles < pairs ? tiles : pairs;
    uint64_t all = tiles * ceil_div(experts_outputs(a), width);
    uint32_t sets = static_cast<uint32_t>(all / (device_props()->processors * E4M3_BLOCKS));
    sets = sets < 1 ? 1 : sets > E4M3_SETS ? E4M3_SETS : sets;
    dim3 grid(static_cast<unsigned>(tiles), ceil_div(experts_outputs(a), width * sets));
    return a->w.scales.k
               ? launch(e4m3_kernel<TILES, true>, grid, NARROW_THREADS, 0, stream, *p, sets)
               : launch(e4m3_kernel<TILES, false>, grid, NARROW_THREADS, 0, stream, *p, sets);
}

/* Of an expert with more pairs than a tile has, numbers are made more than once. */
cudaError_t experts_e4m3(const struct experts_packed *p, cudaStream_t stream)
{
    uint64_t each = (uint64_t)p->a.rows.max * p->a.top / p->a.own.count;
    return each <= 3    ? e4m3_launch<1>(p, stream)
           : each <= 10 ? e4m3_launch<2>(p, stream)
           : each <= 24 ? e4m3_launch<4>(p, stream)
                        : e4m3_launch<8>(p, stream);
}
