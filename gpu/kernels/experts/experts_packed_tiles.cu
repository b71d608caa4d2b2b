/* Products of many pairs with experts in 8 and 4 bits, by tensor cores.
 *
 * Tiles are those of experts_tiles.cu, but for w: a thread takes units of 16 elements from memory a
 * step before they are wanted, and puts them into the stage as numbers of 16 bits less their zeros,
 * which are exact. What x is multiplied by is summed apart over the columns that have one scale, at
 * least 16, and added to the sums times the scales of its row and of its output. Up to 64 pairs a
 * tile: two sets of sums have no room for more. */
#include "gpu/kernels/experts/experts_packed.cuh"
#include "gpu/kernels/experts/experts_tiles.cuh"

namespace HALF
{

#define UNIT_PARTS (TILE_K / PACKED_UNIT)                  /* units of a row in a stage */
#define UNIT_ROWS (TILE_WIDTH * UNIT_PARTS / TILE_THREADS) /* rows of a thread */
#define UNIT_EACH (TILE_WIDTH / UNIT_ROWS)                 /* from one of them to the next */

/* A thread's rows of w, at its unit of a stage. */
struct tile_units {
    const uint8_t *w[UNIT_ROWS]; /* NULL: zeros */
    size_t scales[UNIT_ROWS];
    uint4 raw[UNIT_ROWS]; /* of a step */
    float zero[UNIT_ROWS];
};

template <enum format FORMAT, int ROWS>
__device__ __forceinline__ void units_find(const struct experts_args &a, const tile &at,
                                           tile_units &units)
{
#pragma unroll
    for (int i = 0; i < UNIT_ROWS; i++) {
        uint32_t n = tile_weight_row<ROWS>(a, threadIdx.x / UNIT_PARTS + i * UNIT_EACH);
        units.w[i] = n < a.w.n ? packed_row_at(a.w, FORMAT, at.expert, n) : nullptr;
        units.scales[i] = packed_scales_at(a.w, at.expert, n < a.w.n ? n : 0);
    }
}

/* Bytes that are all zeros less a zero of 0 are the numbers 0: what is no row, and what lies behind
 * the last k. */
template <enum format FORMAT>
__device__ __forceinline__ void units_load(const struct experts_args &a, tile_units &units,
                                           uint32_t step)
{
    uint32_t k = step * TILE_K + threadIdx.x % UNIT_PARTS * PACKED_UNIT;
#pragma unroll
    for (int i = 0; i < UNIT_ROWS; i++) {
        bool valid = units.w[i] && k < a.w.k;
        units.raw[i] = valid ? packed_load<FORMAT>(units.w[i] + packed_bytes(FORMAT, k))
                             : make_uint4(0, 0, 0, 0);
        units.zero[i] = valid ? packed_zero(a.w, units.scales[i], k) : 0.0f;
    }
}

template <enum format FORMAT, int ROWS>
__device__ __forceinline__ void units_store(const tile_units &units, uint32_t stages, uint32_t step)
{
    uint32_t w = tile_stage<ROWS>(stages, step) + ROWS * TILE_ROW_BYTES;
    uint32_t piece = threadIdx.x % UNIT_PARTS * 2;
#pragma unroll
    for (int i = 0; i < UNIT_ROWS; i++) {
        uint32_t row = threadIdx.x / UNIT_PARTS + i * UNIT_EACH, words[PACKED_UNIT / 2];
#pragma unroll
        for (int j = 0; j < PACKED_UNIT / 2; j++) {
            float2 pair = packed_pair<FORMAT>(units.raw[i], j, units.zero[i]);
            words[j] = pack(pair.x, pair.y, DTYPE_HALF);
        }
        store_shared(w + tile_place(row, piece),
                     make_uint4(words[0], words[1], words[2], words[3]));
        store_shared(w + tile_place(row, piece + 1),
                     make_uint4(words[4], words[5], words[6], words[7]));
    }
}

/* Of the rows and the columns that a thread has sums of. */
template <int ROWS> struct tile_scales {
    uint32_t x[tile_shape<ROWS>::m * 2]; /* rows of x */
    size_t w[tile_shape<ROWS>::n * 2];
};

template <int ROWS>
__device__ __forceinline__ void scales_find(const struct experts_args &a, const tile &at,
                                            tile_scales<ROWS> &scales)
{
    using shape = tile_shape<ROWS>;
    uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    uint32_t row = warp / shape::across * (shape::m * 16) + lane / 4;
    uint32_t column = warp % shape::across * shape::columns + lane % 4 * 2;
    const uint32_t *pairs = a.segments + a.own.count + 1 + at.first;
#pragma unroll
    for (int i = 0; i < shape::m * 2; i++)
        scales.x[i] = packed_row(a, pairs[min(row + i * 8, at.count - 1)]);
#pragma unroll
    for (int j = 0; j < shape::n * 2; j++) {
        uint32_t n = tile_weight_row<ROWS>(a, column + j / 2 * 8 + j % 2);
        scales.w[j] = packed_scales_at(a.w, at.expert, n < a.w.n ? n : 0);
    }
}

/* What was summed of columns up to k goes to the sums, times their scales. */
template <int ROWS>
__device__ __forceinline__ void scales_apply(const struct experts_packed &p,
                                             const tile_scales<ROWS> &scales, uint32_t k,
                                             tile_sums<ROWS> &part, tile_sums<ROWS> &sums)
{
    using shape = tile_shape<ROWS>;
    float w[shape::n * 2];
#pragma unroll
    for (int j = 0; j < shape::n * 2; j++)
        w[j] = packed_scale(p.a.w, scales.w[j], k);
#pragma unroll
    for (int i = 0; i < shape::m * 2; i++) {
        float x = packed_x_scale(p, scales.x[i], k);
#pragma unroll
        for (int j = 0; j < shape::n * 2; j++) {
            float &of = part.c[i / 2][j / 2][i % 2 * 2 + j % 2];
            sums.c[i / 2][j / 2][i % 2 * 2 + j % 2] += of * (x * w[j]);
            of = 0.0f;
        }
    }
}

/* A stage; `p.each` columns have one scale. */
template <int ROWS>
__device__ __forceinline__ void
packed_multiply(const struct experts_packed &p, const tile_scales<ROWS> &scales, uint32_t x,
                uint32_t step, tile_sums<ROWS> &part, tile_sums<ROWS> &sums)
{
#pragma unroll
    for (int i = 0; i < TILE_K / 16; i++) {
        uint32_t k = step * TILE_K + i * 16;
        tile_multiply<ROWS>(part, x, i);
        if (k < p.a.w.k && ((k + 16) % p.each == 0 || k + 16 == p.a.w.k))
            scales_apply<ROWS>(p, scales, k, part, sums);
    }
}

template <enum format FORMAT, int ROWS>
__global__ void __launch_bounds__(TILE_THREADS, ROWS > 16 ? 1 : 2)
    packed_tiles_kernel(const __grid_constant__ struct experts_packed p)
{
    extern __shared__ __align__(128) char memory[];
    const int ahead = tile_shape<ROWS>::stages - 1;
    const struct experts_args &a = p.a;
    tile at;
    grid_wait();
    grid_trigger();
    if (!tile_begin<ROWS>(a, at))
        return;
    tile_inputs<ROWS> inputs;
    tile_units units;
    tile_scales<ROWS> scales;
    tile_sums<ROWS> part = {}, sums = {};
    tile_inputs_find<ROWS>(a, at, inputs);
    units_find<FORMAT, ROWS>(a, at, units);
    scales_find<ROWS>(a, at, scales);
    uint32_t stages = shared_address(memory), steps = (a.w.k + TILE_K - 1) / TILE_K;
    for (uint32_t step = 0; step < ahead; step++) {
        if (step < steps) {
            tile_inputs_copy<ROWS>(a, inputs, stages, step);
            units_load<FORMAT>(a, units, step);
            units_store<FORMAT, ROWS>(units, stages, step);
        }
        copy_async_commit();
    }
    /* A stage is filled again behind the step after the one that read it: all have met since. */
    for (uint32_t step = 0; step < steps; step++) {
        bool more = step + ahead < steps;
        copy_async_wait<ahead - 1>();
        __syncthreads();
        if (more) {
            tile_inputs_copy<ROWS>(a, inputs, stages, step + ahead);
            units_load<FORMAT>(a, units, step + ahead);
        }
        copy_async_commit();
        packed_multiply<ROWS>(p, scales, tile_stage<ROWS>(stages, step), step, part, sums);
        if (more)
            units_store<FORMAT, ROWS>(units, stages, step + ahead);
    }
    tile_store<ROWS>(a, at, sums);
}

bool experts_packed_tiles_can(const struct experts_packed *p)
{
    return packed_whole_units(p) && tile_can(&p->a);
}

template <enum format FORMAT, int ROWS>
static cudaError_t packed_launch(const struct experts_packed *p, cudaStream_t stream)
{
    static struct device_once once;
    const uint32_t bytes = tile_shape<ROWS>::stages * tile_shape<ROWS>::stage_bytes;
    cudaError_t result =
        device_allow(&once, packed_tiles_kernel<FORMAT, ROWS>, device_props(), TILE_FIXED);
    if (result != cudaSuccess)
        return result;
    return launch(packed_tiles_kernel<FORMAT, ROWS>, tile_grid<ROWS>(&p->a), TILE_THREADS, bytes,
                  stream, *p);
}

template <enum format FORMAT>
static cudaError_t packed_rows(const struct experts_packed *p, cudaStream_t stream)
{
    uint64_t each = (uint64_t)p->a.rows.max * p->a.top / p->a.own.count;
    return each <= 16 ? packed_launch<FORMAT, 16>(p, stream) : packed_launch<FORMAT, 64>(p, stream);
}

cudaError_t experts_packed_tiles(const struct experts_packed *p, cudaStream_t stream)
{
    return p->a.w.format == FORMAT_E4M3   ? packed_rows<FORMAT_E4M3>(p, stream)
           : p->a.w.format == FORMAT_U4   ? packed_rows<FORMAT_U4>(p, stream)
           : p->a.w.format == FORMAT_E2M1 ? packed_rows<FORMAT_E2M1>(p, stream)
                                          : packed_rows<FORMAT_U8>(p, stream);
}

} // namespace HALF
