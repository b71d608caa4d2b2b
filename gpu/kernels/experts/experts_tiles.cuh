/* Tiles of pairs of one expert by rows of its matrix, on tensor cores: where they lie, what they
 * multiply and where it goes, for the kernels of experts_tiles.cu, whose weights are in 16 bits,
 * and of experts_packed_tiles.cu, whose weights become such. */
#pragma once

#include "gpu/kernels/common/device_props.cuh"
#include "gpu/kernels/common/mma.cuh"
#include "gpu/kernels/experts/experts_find.cuh"

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

/* What a thread copies of x: one piece of every 32nd row. */
#define TILE_EACH (TILE_THREADS / TILE_PIECES) /* rows at a time */

template <int ROWS> struct tile_inputs {
    static constexpr int rows = (ROWS + TILE_EACH - 1) / TILE_EACH;
    const half_t *x[rows]; /* NULL: zeros */
};

template <int ROWS>
__device__ __forceinline__ void tile_inputs_find(const struct experts_args &a, const tile &at,
                                                 tile_inputs<ROWS> &inputs)
{
    uint32_t row = threadIdx.x / TILE_PIECES, k = threadIdx.x % TILE_PIECES * 8;
    const uint32_t *pairs = a.segments + a.own.count + 1 + at.first;
#pragma unroll
    for (int i = 0; i < tile_inputs<ROWS>::rows; i++) {
        uint32_t r = row + i * TILE_EACH;
        inputs.x[i] = r < at.count
                          ? static_cast<const half_t *>(a.x) + experts_input(a, pairs[r]) + k
                          : nullptr;
    }
}

/* Where the inputs of a step lie; the rows of w are behind them. */
template <int ROWS> __device__ __forceinline__ uint32_t tile_stage(uint32_t stages, uint32_t step)
{
    return stages + step % tile_shape<ROWS>::stages * tile_shape<ROWS>::stage_bytes;
}

/* Of a step, into its stage. What is no row, or lies behind the last k, is zeros: the address is
 * one that is there, and is not read. */
template <int ROWS>
__device__ __forceinline__ void tile_inputs_copy(const struct experts_args &a,
                                                 const tile_inputs<ROWS> &inputs, uint32_t stages,
                                                 uint32_t step)
{
    uint32_t row = threadIdx.x / TILE_PIECES, piece = threadIdx.x % TILE_PIECES, k = step * TILE_K;
    uint32_t x = tile_stage<ROWS>(stages, step);
    bool inside = k + piece * 8 < a.w.k;
#pragma unroll
    for (int i = 0; i < tile_inputs<ROWS>::rows; i++) {
        bool valid = inside && inputs.x[i];
        if (row + i * TILE_EACH < ROWS)
            copy_async(x + tile_place(row + i * TILE_EACH, piece), valid ? inputs.x[i] + k : a.x,
                       valid);
    }
}

template <int ROWS> struct tile_sums {
    float c[tile_shape<ROWS>::m][tile_shape<ROWS>::n][4];
};

/* 16 values of k of a stage. Four matrices of 8 x 8 at a time: of x rows, then k; of w k, then
 * rows. */
template <int ROWS>
__device__ __forceinline__ void tile_multiply(tile_sums<ROWS> &sums, uint32_t x, int k)
{
    using shape = tile_shape<ROWS>;
    uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, matrix = lane / 8;
    uint32_t w = x + ROWS * TILE_ROW_BYTES;
    uint32_t row = warp / shape::across * (shape::m * 16) + matrix % 2 * 8 + lane % 8;
    uint32_t column = warp % shape::across * shape::columns + matrix / 2 * 8 + lane % 8;
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
        uint32_t n = first + j * 8;
        float value[2];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            value[i] = c[j][half * 2 + i] + experts_bias(a, at.expert, n + i);
            if (a.gated)
                value[i] = experts_gated(a, value[i],
                                         c[(j + count) % shape::n][half * 2 + i] +
                                             experts_bias(a, at.expert, outputs + n + i));
        }
        *reinterpret_cast<uint32_t *>(y + n) = pack(value[0], value[1], DTYPE_HALF);
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

/* As many as there can be: each expert's last may have fewer rows. */
template <int ROWS> static inline dim3 tile_grid(const struct experts_args *args)
{
    uint64_t pairs = (uint64_t)args->rows.max * args->top, tiles = pairs / ROWS + args->own.count;
    return dim3(static_cast<unsigned>(tiles < pairs ? tiles : pairs),
                ceil_div(experts_outputs(args), args->gated ? TILE_WIDTH / 2 : TILE_WIDTH));
}

/* What is not the weights'. */
static inline bool tile_can(const struct experts_args *args)
{
    return args->dtype == DTYPE_HALF && args->w.k > 0 && args->x_stride % 8 == 0 &&
           args->y_stride % 2 == 0 && experts_outputs(args) % 2 == 0 &&
           reinterpret_cast<uintptr_t>(args->x) % 16 == 0 &&
           reinterpret_cast<uintptr_t>(args->w.data) % 16 == 0 &&
           reinterpret_cast<uintptr_t>(args->y) % 4 == 0;
}

} // namespace HALF
