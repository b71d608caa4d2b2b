/* Products with experts in e2m1 beside BF16, by tensor cores, of any number of pairs, whose sums do
 * not depend on it: for devices before Hopper, and where a row's bits must not depend on others. On
 * sm_90 experts_e2m1.cu is faster. What it takes to make numbers of 16 bits of the weights is made
 * once for up to 8 TILES pairs, in registers, by looking them up.
 *
 * 16 rows of w (gated: 8 of gate, and the same of up) are on the long side of the instructions, and
 * the pairs of one expert on the short one, eight a tile; the block's warps share k. Lane (g, t)
 * has rows g and g + 8, and of four blocks of 32 columns the block t, whole: which columns meet is
 * the same for w and x, so their order inside the instruction does not matter. A block's exponent
 * is added to those of the eight magnitudes that its elements are looked up in, so no sum is
 * scaled. The block's warps have every fourth run of four blocks each. */
#include "gpu/kernels/common/device_props.cuh"
#include "gpu/kernels/common/mma.cuh"
#include "gpu/kernels/experts/experts_find.cuh"
#include "gpu/kernels/experts/experts_packed.cuh"

namespace HALF
{

#define NARROW_WARPS 4
#define NARROW_THREADS (NARROW_WARPS * WARP)
#define NARROW_ROWS 16 /* of w: a set */
#define NARROW_PAIRS 8 /* of a tile */

/* Outputs of a set. */
__host__ __device__ __forceinline__ uint32_t narrow_width(const struct experts_args &a)
{
    return a.gated ? NARROW_ROWS / 2 : NARROW_ROWS;
}

/* Sums of a tile, by all warps, from the first to the last; `first`: of the tile's pairs among the
 * segments'. */
__device__ __forceinline__ void narrow_store(const struct experts_args &a, const tile &at,
                                             uint32_t set, uint32_t first, float (&c)[4])
{
    __shared__ float sums[NARROW_WARPS][NARROW_ROWS][NARROW_PAIRS];
    uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        sums[warp][lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2] = c[i];
        c[i] = 0.0f; /* for the next set */
    }
    __syncthreads();
    uint32_t row = threadIdx.x / NARROW_PAIRS, pair = threadIdx.x % NARROW_PAIRS;
    uint32_t width = narrow_width(a), n = set * width + row;
    if (row < width && n < experts_outputs(&a) && first + pair < at.count) {
        float y = 0, up = 0;
#pragma unroll
        for (int i = 0; i < NARROW_WARPS; i++) {
            y += sums[i][row][pair];
            up += sums[i][(row + width) % NARROW_ROWS][pair];
        }
        uint32_t number = a.segments[a.own.count + 1 + at.first + first + pair];
        y += experts_bias(a, at.expert, n);
        if (a.gated)
            y = experts_gated(a, y, up + experts_bias(a, at.expert, a.w.n / 2 + n));
        store_value(a.y, (size_t)number * a.y_stride + n, a.dtype, y);
    }
    __syncthreads(); /* sums are read above and written for the next tile */
}

/* What a lane has of one row: addresses; of blocks to come their elements and exponent. */
struct e2m1_row {
    const uint4 *w; /* NULL: zeros */
    const uint8_t *exponents;
    uint4 raw;
    uint32_t exponent;
};

/* Eight magnitudes, times a power of two, in BF16: their low bytes and their high bytes. */
struct e2m1_table {
    uint32_t low[2], high[2];
};

/* What is below 2^-125 is made that, and what is above 2^125 that: numbers and sums are infinite by
 * then, or as good as nothing. */
__device__ __forceinline__ e2m1_table e2m1_table_of(uint32_t exponent)
{
    uint32_t ones = min(max(exponent, 2u), 252u) * 0x00800080, halves = ones | 0x00400000;
    uint32_t first = (ones & 0xffff0000) - 0x00800000; /* 0 and a half */
    uint32_t twos = halves + 0x00800080, fours = halves + 0x01000100;
    return {{__byte_perm(first, halves, 0x6420), __byte_perm(twos, fours, 0x6420)},
            {__byte_perm(first, halves, 0x7531), __byte_perm(twos, fours, 0x7531)}};
}

/* The four elements in the low half of a word, in two pairs. */
__device__ __forceinline__ void e2m1_numbers(const e2m1_table &table, uint32_t four,
                                             uint32_t &first, uint32_t &second)
{
    uint32_t at = four & 0x7777, low = __byte_perm(table.low[0], table.low[1], at);
    uint32_t signs = __byte_perm(four, four << 4, 0x1504) & 0x80808080;
    uint32_t high = __byte_perm(table.high[0], table.high[1], at) | signs;
    first = __byte_perm(low, high, 0x5140);
    second = __byte_perm(low, high, 0x7362);
}

__device__ __forceinline__ void e2m1_find(const struct experts_args &a, uint32_t expert, uint32_t n,
                                          bool valid, e2m1_row &row)
{
    uint32_t blocks = a.w.k / PACKED_EXPONENT;
    size_t at = (size_t)expert * a.w.n + (valid ? n : 0);
    row.w = valid ? static_cast<const uint4 *>(a.w.data) + at * blocks : nullptr;
    row.exponents = static_cast<const uint8_t *>(a.w.scales.data) + at * blocks;
}

__device__ __forceinline__ void e2m1_load(e2m1_row &row, uint32_t block, uint32_t blocks)
{
    bool valid = row.w && block < blocks;
    row.raw = valid ? __ldg(row.w + block) : make_uint4(0, 0, 0, 0);
    row.exponent = valid ? __ldg(row.exponents + block) : 127;
}

/* The lane's block of w times that of the tiles' pairs: eight steps of 16 columns, four of each
 * lane. */
template <int TILES>
__device__ __forceinline__ void e2m1_multiply(const e2m1_row (&rows)[2],
                                              const __nv_bfloat16 *const (&x)[TILES],
                                              uint32_t block, uint32_t blocks, float (&c)[TILES][4])
{
    e2m1_table tables[2] = {e2m1_table_of(rows[0].exponent), e2m1_table_of(rows[1].exponent)};
    uint32_t w[8][4];
#pragma unroll
    for (int step = 0; step < 8; step++)
#pragma unroll
        for (int r = 0; r < 2; r++)
            e2m1_numbers(tables[r], word_of(rows[r].raw, step / 2) >> step % 2 * 16, w[step][r],
                         w[step][r + 2]);
#pragma unroll
    for (int tile = 0; tile < TILES; tile++) {
        const uint4 *from =
            reinterpret_cast<const uint4 *>(x[tile] + (size_t)block * PACKED_EXPONENT);
        bool valid = x[tile] && block < blocks;
#pragma unroll
        for (int i = 0; i < 4; i++) { /* eight columns */
            uint4 v = valid ? from[i] : make_uint4(0, 0, 0, 0);
            mma_half(c[tile], w[2 * i][0], w[2 * i][1], w[2 * i][2], w[2 * i][3], v.x, v.y);
            mma_half(c[tile], w[2 * i + 1][0], w[2 * i + 1][1], w[2 * i + 1][2], w[2 * i + 1][3],
                     v.z, v.w);
        }
    }
}

template <int TILES>
__global__ void __launch_bounds__(NARROW_THREADS, TILES == 1   ? 6
                                                  : TILES == 4 ? 4
                                                               : 3)
    e2m1_kernel(const __grid_constant__ struct experts_args a)
{
    uint32_t warp = threadIdx.x / WARP, g = threadIdx.x % WARP / 4, t = threadIdx.x % 4;
    uint32_t blocks = a.w.k / PACKED_EXPONENT, n = blockIdx.y * narrow_width(a) + g;
    tile at;
    grid_wait();
    grid_trigger();
    if (!tile_begin<TILES * NARROW_PAIRS>(a, at))
        return;
    e2m1_row rows[2];
    e2m1_find(a, at.expert, n, n < (a.gated ? a.w.n / 2 : a.w.n), rows[0]);
    e2m1_find(a, at.expert, a.gated ? a.w.n / 2 + n : n + 8,
              a.gated ? n < a.w.n / 2 : n + 8 < a.w.n, rows[1]);
    const __nv_bfloat16 *x[TILES];
    const uint32_t *pairs = a.segments + a.own.count + 1 + at.first;
#pragma unroll
    for (int i = 0; i < TILES; i++)
        x[i] = i * NARROW_PAIRS + g < at.count ? static_cast<const __nv_bfloat16 *>(a.x) +
                                                     experts_input(a, pairs[i * NARROW_PAIRS + g])
                                               : nullptr;
    float c[TILES][4] = {};
    e2m1_load(rows[0], warp * 4 + t, blocks);
    e2m1_load(rows[1], warp * 4 + t, blocks);
    for (uint32_t run = warp * 4; run < blocks; run += NARROW_WARPS * 4) {
        e2m1_row now[2] = {rows[0], rows[1]};
        e2m1_load(rows[0], run + NARROW_WARPS * 4 + t, blocks);
        e2m1_load(rows[1], run + NARROW_WARPS * 4 + t, blocks);
        e2m1_multiply<TILES>(now, x, run + t, blocks, c);
    }
#pragma unroll
    for (int i = 0; i < TILES; i++)
        if (i * NARROW_PAIRS < at.count)
            narrow_store(a, at, blockIdx.y, i * NARROW_PAIRS, c[i]);
}

bool experts_e2m1_any_can(const struct experts_args *args)
{
    return args->dtype == DTYPE_BF16 && args->w.format == FORMAT_E2M1 && args->w.scales.exponents &&
           args->w.scales.n == 1 && args->w.k % PACKED_EXPONENT == 0 && args->w.k > 0 &&
           device_props()->major >= 8 && args->x_stride % 8 == 0 &&
           reinterpret_cast<uintptr_t>(args->x) % 16 == 0 &&
           reinterpret_cast<uintptr_t>(args->w.data) % 16 == 0;
}

template <int TILES>
static cudaError_t e2m1_launch(const struct experts_args *args, cudaStream_t stream)
{
    uint64_t pairs = (uint64_t)args->rows.max * args->top;
    uint64_t tiles = pairs / (TILES * NARROW_PAIRS) + args->own.count;
    uint32_t width = narrow_width(*args);
    return launch(e2m1_kernel<TILES>,
                  dim3(static_cast<unsigned>(tiles < pairs ? tiles : pairs),
                       ceil_div(experts_outputs(args), width)),
                  NARROW_THREADS, 0, stream, *args);
}

cudaError_t experts_e2m1_any(const struct experts_args *args, cudaStream_t stream)
{
    uint64_t each = (uint64_t)args->rows.max * args->top / args->own.count;
    return each <= 8    ? e2m1_launch<1>(args, stream)
           : each <= 32 ? e2m1_launch<4>(args, stream)
                        : e2m1_launch<8>(args, stream);
}

} // namespace HALF
