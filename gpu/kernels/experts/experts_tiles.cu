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
#include "gpu/kernels/experts/experts_tiles.cuh"

namespace HALF
{

/* What a thread copies of w: one piece of every 32nd row. */
template <int ROWS> struct tile_weights {
    static constexpr int rows = TILE_WIDTH / TILE_EACH;
    const half_t *w[rows]; /* NULL: zeros */
};

template <int ROWS>
__device__ __forceinline__ void tile_weights_find(const struct experts_args &a, const tile &at,
                                                  tile_weights<ROWS> &weights)
{
    uint32_t row = threadIdx.x / TILE_PIECES, k = threadIdx.x % TILE_PIECES * 8;
    const half_t *w = static_cast<const half_t *>(a.w.data) + (size_t)at.expert * a.w.n * a.w.k + k;
#pragma unroll
    for (int i = 0; i < tile_weights<ROWS>::rows; i++) {
        uint32_t n = tile_weight_row<ROWS>(a, row + i * TILE_EACH);
        weights.w[i] = n < a.w.n ? w + (size_t)n * a.w.k : nullptr;
    }
}

/* As tile_inputs_copy. */
template <int ROWS>
__device__ __forceinline__ void tile_weights_copy(const struct experts_args &a,
                                                  const tile_weights<ROWS> &weights,
                                                  uint32_t stages, uint32_t step)
{
    uint32_t row = threadIdx.x / TILE_PIECES, piece = threadIdx.x % TILE_PIECES, k = step * TILE_K;
    uint32_t w = tile_stage<ROWS>(stages, step) + ROWS * TILE_ROW_BYTES;
    bool inside = k + piece * 8 < a.w.k;
#pragma unroll
    for (int i = 0; i < tile_weights<ROWS>::rows; i++) {
        bool valid = inside && weights.w[i];
        copy_async(w + tile_place(row + i * TILE_EACH, piece), valid ? weights.w[i] + k : a.w.data,
                   valid);
    }
}

template <int ROWS>
__global__ void __launch_bounds__(TILE_THREADS, 2)
    tiles_kernel(const __grid_constant__ struct experts_args a)
{
    extern __shared__ __align__(128) char memory[];
    const int ahead = tile_shape<ROWS>::stages - 1;
    tile at;
    grid_wait();
    grid_trigger();
    if (!tile_begin<ROWS>(a, at))
        return;
    tile_inputs<ROWS> inputs;
    tile_weights<ROWS> weights;
    tile_sums<ROWS> sums = {};
    tile_inputs_find<ROWS>(a, at, inputs);
    tile_weights_find<ROWS>(a, at, weights);
    uint32_t stages = shared_address(memory), steps = (a.w.k + TILE_K - 1) / TILE_K;
    for (uint32_t step = 0; step < ahead; step++) {
        if (step < steps) {
            tile_inputs_copy<ROWS>(a, inputs, stages, step);
            tile_weights_copy<ROWS>(a, weights, stages, step);
        }
        copy_async_commit();
    }
    /* A stage is filled again behind the step after the one that read it: all have met since. */
    for (uint32_t step = 0; step < steps; step++) {
        copy_async_wait<ahead - 1>();
        __syncthreads();
        if (step + ahead < steps) {
            tile_inputs_copy<ROWS>(a, inputs, stages, step + ahead);
            tile_weights_copy<ROWS>(a, weights, stages, step + ahead);
        }
        copy_async_commit();
#pragma unroll
        for (int k = 0; k < TILE_K / 16; k++)
            tile_multiply<ROWS>(sums, tile_stage<ROWS>(stages, step), k);
    }
    tile_store<ROWS>(a, at, sums);
}

bool experts_tiles_can(const struct experts_args *args)
{
    return args->w.format == FORMAT_HALF && args->w.k % 8 == 0 && tile_can(args);
}

template <int ROWS>
static cudaError_t tiles_launch(const struct experts_args *args, cudaStream_t stream)
{
    static struct device_once once;
    const uint32_t bytes = tile_shape<ROWS>::stages * tile_shape<ROWS>::stage_bytes;
    cudaError_t result = device_allow(&once, tiles_kernel<ROWS>, device_props(), TILE_FIXED);
    if (result != cudaSuccess)
        return result;
    return launch(tiles_kernel<ROWS>, tile_grid<ROWS>(args), TILE_THREADS, bytes, stream, *args);
}

cudaError_t experts_tiles(const struct experts_args *args, cudaStream_t stream)
{
    uint64_t each = (uint64_t)args->rows.max * args->top / args->own.count;
    return each <= 16   ? tiles_launch<16>(args, stream)
           : each <= 64 ? tiles_launch<64>(args, stream)
                        : tiles_launch<128>(args, stream);
}

} // namespace HALF
