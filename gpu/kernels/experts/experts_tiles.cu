/* Products of many pairs, expert by expert, by tensor cores.
 *
 * A tile is up to ROWS pairs of one expert and 128 rows of its matrix: outputs, or gate's rows of
 * 64 channels and up's of the same, laid out so that a thread has both of a channel in its
 * registers. Which pairs a tile has, only the device knows: the grid has room for as many tiles as
 * there can be, a block counts through the segments to its own, and one behind the last ends. So no
 * tile is of two experts, an expert's matrix is read once for ROWS of its pairs, and that of one
 * without pairs is not read. Rows of x are gathered from where they lie by copies of 16 bytes, into
 * a ring of stages of 64 values of k, whose pieces of 16 bytes change places by their row, so that
 * eight rows of a column lie in different banks.
 *
 * ROWS follows from how many pairs an expert has if all have as many; others are right, too, and
 * take more tiles, or tiles with fewer rows. Each output is summed in the order of k, wherever in a
 * tile its pair stands: it depends on neither neighbours nor ROWS. */
#include "gpu/kernels/activation/activation.cuh"
#include "gpu/kernels/common/device_props.cuh"
#include "gpu/kernels/common/mma.cuh"
#include "gpu/kernels/experts/experts.cuh"

namespace HALF
{

#define TILE_WARPS 8
#define TILE_THREADS (TILE_WARPS * WARP)
#define TILE_WIDTH 128 /* rows of w */
#define TILE_K 64
#define TILE_PIECES (TILE_K / 8) /* of 16 bytes in a row of a stage */
#define TILE_ROW_BYTES (TILE_K * 2)
#define TILE_FIXED 256 /* bytes of shared memory beside the stages, at most */

/* Warps stand in so many rows of warps; a warp's part of the tile in instructions of 16 x 8. */
template <int ROWS> struct tile_shape {
    static constexpr int down = ROWS >= 64 ? 2 : 1, across = TILE_WARPS / down;
    static constexpr int columns = TILE_WIDTH / across; /* of a warp */
    static constexpr int m = ROWS / down / 16, n = columns / 8;
    static constexpr uint32_t stages = ROWS > 64 ? 3 : 4; /* two blocks of an SM, or more */
    static constexpr uint32_t stage_bytes = (ROWS + TILE_WIDTH) * TILE_ROW_BYTES;
};

struct tile {
    uint32_t expert, first, count; /* of the segments' pairs */
};

/* A warp; false: there are fewer tiles. */
template <int ROWS>
__device__ __forceinline__ bool tile_find(const struct experts_args &a, uint32_t number, tile &ret)
{
    uint32_t lane = threadIdx.x % WARP, own = a.own.count, before = 0;
    for (uint32_t base = 0; base < own; base += WARP) {
        uint32_t expert = base + lane;
        uint32_t first = expert < own ? a.segments[expert] : 0;
        uint32_t count = expert < own ? a.segments[expert + 1] - first : 0;
        uint32_t tiles = (count + ROWS - 1) / ROWS, end = tiles;
#pragma unroll
        for (int step = 1; step < WARP; step *= 2) {
            uint32_t left = __shfl_up_sync(FULL_MASK, end, step);
            end += lane >= step ? left : 0;
        }
        uint32_t beyond = __ballot_sync(FULL_MASK, number < before + end);
        if (beyond) {
            int source = __popc(~beyond & (beyond - 1)); /* the first one */
            uint32_t skipped = (number - before - (end - tiles)) * ROWS;
            skipped = __shfl_sync(FULL_MASK, skipped, source);
            count = __shfl_sync(FULL_MASK, count, source);
            ret = {base + source, __shfl_sync(FULL_MASK, first, source) + skipped,
                   min(count - skipped, (uint32_t)ROWS)};
            return true;
        }
        before += __shfl_sync(FULL_MASK, end, WARP - 1);
    }
    return false;
}

/* The row of the expert's matrix that row r of the tile's is; a.w.n: none. */
template <int ROWS>
__device__ __forceinline__ uint32_t tile_weight_row(const struct experts_args &a, uint32_t r)
{
    using shape = tile_shape<ROWS>;
    if (!a.gated)
        return min(blockIdx.y * TILE_WIDTH + r, a.w.n);
    const uint32_t half = shape::columns / 2;
    uint32_t in_warp = r % shape::columns, channels = a.w.n / 2;
    uint32_t channel = blockIdx.y * (TILE_WIDTH / 2) + r / shape::columns * half + in_warp % half;
    return channel < channels ? channel + in_warp / half * channels : a.w.n;
}

__device__ __forceinline__ uint32_t tile_place(uint32_t row, uint32_t piece)
{
    return row * TILE_ROW_BYTES + ((piece ^ row) % TILE_PIECES) * 16;
}

/* What a thread copies: one piece of every 32nd row. */
template <int ROWS> struct tile_copies {
    static constexpr int each = TILE_THREADS / TILE_PIECES; /* rows at a time */
    static constexpr int x_rows = (ROWS + each - 1) / each, w_rows = TILE_WIDTH / each;
    const half_t *x[x_rows], *w[w_rows]; /* NULL: zeros */
};

template <int ROWS>
__device__ __forceinline__ void tile_copies_find(const struct experts_args &a, const tile &at,
                                                 tile_copies<ROWS> &copies)
{
    using them = tile_copies<ROWS>;
    uint32_t row = threadIdx.x / TILE_PIECES, k = threadIdx.x % TILE_PIECES * 8;
    const uint32_t *pairs = a.segments + a.own.count + 1 + at.first;
    const half_t *w = static_cast<const half_t *>(a.w.data) + (size_t)at.expert * a.w.n * a.w.k + k;
#pragma unroll
    for (int i = 0; i < them::x_rows; i++) {
        uint32_t r = row + i * them::each;
        copies.x[i] = r < at.count
                          ? static_cast<const half_t *>(a.x) + experts_input(a, pairs[r]) + k
                          : nullptr;
    }
#pragma unroll
    for (int i = 0; i < them::w_rows; i++) {
        uint32_t n = tile_weight_row<ROWS>(a, row + i * them::each);
        copies.w[i] = n < a.w.n ? w + (size_t)n * a.w.k : nullptr;
    }
}

/* Of a step, into its stage. What is no row, or lies behind the last k, is zeros: the address is
 * one that is there, and is not read. */
template <int ROWS>
__device__ __forceinline__ void tile_copy(const struct experts_args &a,
                                          const tile_copies<ROWS> &copies, uint32_t stages,
                                          uint32_t step)
{
    using them = tile_copies<ROWS>;
    uint32_t row = threadIdx.x / TILE_PIECES, piece = threadIdx.x % TILE_PIECES, k = step * TILE_K;
    uint32_t x = stages + step % tile_shape<ROWS>::stages * tile_shape<ROWS>::stage_bytes;
    uint32_t w = x + ROWS * TILE_ROW_BYTES;
    bool inside = k + piece * 8 < a.w.k;
#pragma unroll
    for (int i = 0; i < them::x_rows; i++) {
        bool valid = inside && copies.x[i];
        if (row + i * them::each < ROWS)
            copy_async(x + tile_place(row + i * them::each, piece), valid ? copies.x[i] + k : a.x,
                       valid);
    }
#pragma unroll
    for (int i = 0; i < them::w_rows; i++) {
        bool valid = inside && copies.w[i];
        copy_async(w + tile_place(row + i * them::each, piece), valid ? copies.w[i] + k : a.w.data,
                   valid);
    }
}

template <int ROWS> struct tile_sums {
    float c[tile_shape<ROWS>::m][tile_shape<ROWS>::n][4];
};

/* One stage. Four matrices of 8 x 8 at a time: of x rows, then k; of w k, then rows. */
template <int ROWS> __device__ __forceinline__ void tile_multiply(tile_sums<ROWS> &sums, uint32_t x)
{
    using shape = tile_shape<ROWS>;
    uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, matrix = lane / 8;
    uint32_t w = x + ROWS * TILE_ROW_BYTES;
    uint32_t row = warp / shape::across * (shape::m * 16) + matrix % 2 * 8 + lane % 8;
    uint32_t column = warp % shape::across * shape::columns + matrix / 2 * 8 + lane % 8;
#pragma unroll
    for (int k = 0; k < TILE_K / 16; k++) {
        uint32_t left[shape::m][4], right[shape::n / 2][4];
#pragma unroll
        for (int i = 0; i < shape::m; i++)
            load_matrices(left[i], x + tile_place(row + i * 16, k * 2 + matrix / 2));
#pragma unroll
        for (int i = 0; i < shape::n / 2; i++)
            load_matrices(right[i], w + tile_place(column + i * 16, k * 2 + matrix % 2));
#pragma unroll
        for (int i = 0; i < shape::m; i++)
#pragma unroll
            for (int j = 0; j < shape::n; j++)
                mma_half(sums.c[i][j], left[i][0], left[i][1], left[i][2], left[i][3],
                         right[j / 2][j % 2 * 2], right[j / 2][j % 2 * 2 + 1]);
    }
}

template <enum activation KIND>
__device__ __forceinline__ uint32_t tile_gated(const float *gate, const float *up)
{
    return pack(activated<KIND>(gate[0]) * up[0], activated<KIND>(gate[1]) * up[1], DTYPE_HALF);
}

/* Two neighbours of row `row` of the tile at a time. */
template <int ROWS>
__device__ __forceinline__ void tile_store_row(const struct experts_args &a, const tile &at,
                                               const float (*c)[4], int half, uint32_t row)
{
    using shape = tile_shape<ROWS>;
    const int count = shape::n / 2;
    uint32_t width = a.gated ? shape::columns / 2 : shape::columns;
    uint32_t outputs = a.gated ? a.w.n / 2 : a.w.n;
    uint32_t first = blockIdx.y * (a.gated ? TILE_WIDTH / 2 : TILE_WIDTH) +
                     threadIdx.x / WARP % shape::across * width + threadIdx.x % 4 * 2;
    uint32_t pair = a.segments[a.own.count + 1 + at.first + row];
    half_t *y = static_cast<half_t *>(a.y) + (size_t)pair * a.y_stride;
#pragma unroll
    for (int j = 0; j < shape::n; j++) {
        if (first + j * 8 >= outputs || (a.gated && j >= count))
            continue;
        uint32_t value = pack(c[j][half * 2], c[j][half * 2 + 1], DTYPE_HALF);
        if (a.gated && j < count) {
            const float *gate = c[j] + half * 2, *up = c[(j + count) % shape::n] + half * 2;
            value = a.activation == ACTIVATE_SILU ? tile_gated<ACTIVATE_SILU>(gate, up)
                                                  : tile_gated<ACTIVATE_GELU_TANH>(gate, up);
        }
        *reinterpret_cast<uint32_t *>(y + first + j * 8) = value;
    }
}

template <int ROWS>
__device__ __forceinline__ void tile_store(const struct experts_args &a, const tile &at,
                                           const tile_sums<ROWS> &sums)
{
    using shape = tile_shape<ROWS>;
    uint32_t row = threadIdx.x / WARP / shape::across * (shape::m * 16) + threadIdx.x % WARP / 4;
#pragma unroll
    for (int i = 0; i < shape::m; i++)
#pragma unroll
        for (int half = 0; half < 2; half++)
            if (row + i * 16 + half * 8 < at.count)
                tile_store_row<ROWS>(a, at, sums.c[i], half, row + i * 16 + half * 8);
}

template <int ROWS>
__global__ void __launch_bounds__(TILE_THREADS, 2)
    tiles_kernel(const __grid_constant__ struct experts_args a)
{
    extern __shared__ __align__(128) char memory[];
    __shared__ tile found;
    __shared__ bool is_there;
    grid_trigger();
    grid_wait();
    if (threadIdx.x < WARP) {
        tile at = {};
        bool there = tile_find<ROWS>(a, blockIdx.x, at);
        if (threadIdx.x == 0) {
            found = at;
            is_there = there;
        }
    }
    __syncthreads();
    if (!is_there)
        return;
    const int ahead = tile_shape<ROWS>::stages - 1;
    tile at = found;
    tile_copies<ROWS> copies;
    tile_sums<ROWS> sums = {};
    tile_copies_find<ROWS>(a, at, copies);
    uint32_t stages = shared_address(memory), steps = (a.w.k + TILE_K - 1) / TILE_K;
    for (uint32_t step = 0; step < ahead; step++) {
        if (step < steps)
            tile_copy<ROWS>(a, copies, stages, step);
        copy_async_commit();
    }
    /* A stage is filled again behind the step after the one that read it: all have met since. */
    for (uint32_t step = 0; step < steps; step++) {
        copy_async_wait<ahead - 1>();
        __syncthreads();
        if (step + ahead < steps)
            tile_copy<ROWS>(a, copies, stages, step + ahead);
        copy_async_commit();
        tile_multiply<ROWS>(sums, stages + step % tile_shape<ROWS>::stages *
                                               tile_shape<ROWS>::stage_bytes);
    }
    tile_store<ROWS>(a, at, sums);
}

bool experts_tiles_can(const struct experts_args *args)
{
    return args->w.format == FORMAT_HALF && args->dtype == DTYPE_HALF && args->w.k > 0 &&
           args->w.k % 8 == 0 && args->x_stride % 8 == 0 && args->y_stride % 2 == 0 &&
           experts_outputs(args) % 2 == 0 && reinterpret_cast<uintptr_t>(args->x) % 16 == 0 &&
           reinterpret_cast<uintptr_t>(args->w.data) % 16 == 0 &&
           reinterpret_cast<uintptr_t>(args->y) % 4 == 0;
}

template <int ROWS>
static cudaError_t tiles_launch(const struct experts_args *args, cudaStream_t stream)
{
    static struct device_once once;
    const uint32_t bytes = tile_shape<ROWS>::stages * tile_shape<ROWS>::stage_bytes;
    uint64_t pairs = (uint64_t)args->rows.max * args->top;
    uint64_t tiles = pairs / ROWS + args->own.count; /* each expert's last may have fewer rows */
    cudaError_t result = device_allow(&once, tiles_kernel<ROWS>, device_props(), TILE_FIXED);
    if (result != cudaSuccess)
        return result;
    return launch(tiles_kernel<ROWS>,
                  dim3(pairs ? (unsigned)(tiles < pairs ? tiles : pairs) : 0,
                       ceil_div(args->gated ? args->w.n / 2 : args->w.n,
                                args->gated ? TILE_WIDTH / 2 : TILE_WIDTH)),
                  TILE_THREADS, bytes, stream, *args);
}

cudaError_t experts_tiles(const struct experts_args *args, cudaStream_t stream)
{
    uint64_t each = (uint64_t)args->rows.max * args->top / args->own.count;
    return each <= 16   ? tiles_launch<16>(args, stream)
           : each <= 64 ? tiles_launch<64>(args, stream)
                        : tiles_launch<128>(args, stream);
}

} // namespace HALF
