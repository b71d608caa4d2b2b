/* What launchers of tiles share (matmul_tiles.cuh): how a product is told to the kernel, whether it
 * can be, and what tiles of a kind would take. */
#pragma once

#include "gpu/kernels/common/device_props.cuh"
#include "gpu/kernels/matmul/matmul.cuh"
#include "gpu/kernels/matmul/matmul_tiles.cuh"

#define TILES_ROWS_COST 16 /* columns that a step's rows of x are worth */
#define TILES_OUT_COST 4   /* steps that a tile's results take */
#define TILES_PAIR_COST 98 /* what a tile of a pair costs, of 100 */
#define SWIZZLED_ROWS 8    /* a box of x begins at a whole group of these */

namespace HALF
{

template <class KIND>
cudaError_t tiles_describe(const struct matmul_args *args, struct tiles_args *a)
{
    a->y = args->y;
    a->bias = args->bias;
    a->bias_dtype = args->bias_dtype;
    a->out = args->gated                  ? args->activation == ACTIVATE_SILU ? OUT_SILU : OUT_GELU
             : args->adds                 ? OUT_ADD
             : args->y_dtype == DTYPE_F32 ? OUT_FLOAT
                                          : OUT_HALF;
    a->rows = args->rows.max;
    a->down = ceil_div(a->rows, KIND::rows * KIND::down);
    a->block_rows = ceil_div(a->rows, a->down * KIND::down);
    if (KIND::across > 1) /* each of the pair brings half of them */
        a->block_rows = ceil_div(a->block_rows, 2 * SWIZZLED_ROWS) * 2 * SWIZZLED_ROWS;
    a->columns = args->gated ? args->w.n / 2 : args->w.n;
    a->y_stride = args->y_stride;
    a->up = args->gated ? a->columns : 0;
    a->steps = ceil_div(args->w.k, STEP_K);
    const uint32_t width = args->gated ? KIND::width / 2 : KIND::width;
    a->tiles = a->down * ceil_div(a->columns, width * KIND::across);
    a->band = BAND_ROWS / KIND::down;
    cudaError_t result = tensor_map(&a->x, args->x, DTYPE_HALF, a->rows, args->w.k, args->x_stride,
                                    a->block_rows / KIND::across);
    return result == cudaSuccess ? tensor_map(&a->w, args->w.data, DTYPE_HALF, args->w.n, args->w.k,
                                              args->w.k, KIND::width / 2)
                                 : result;
}

/* Blocks of the kernel for the tiles, one an SM. */
template <class KIND, class... Params, class... Args>
cudaError_t tiles_start(void (*kernel)(Params...), uint32_t tiles, cudaStream_t stream,
                        const Args &...args)
{
    const uint32_t room = device_props()->processors / KIND::cluster;
    cudaLaunchAttribute attributes[2];
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((tiles < room ? tiles : room) * KIND::cluster);
    config.blockDim = dim3(KIND::threads);
    config.dynamicSmemBytes = KIND::shared;
    config.stream = stream;
    config.attrs = attributes;
    attributes[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[config.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
    if (KIND::cluster > 1) {
        attributes[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
        attributes[config.numAttrs++].val.clusterDim = {KIND::cluster, 1, 1};
    }
    return cudaLaunchKernelEx(&config, kernel, Params(args)...);
}

/* But for the number of rows. */
static inline bool tiles_fit(const struct matmul_args *a)
{
    const bool plain = !a->activates && !a->norm_out.weight && !a->norm_in.squares;
    const bool copied = tensor_map_can() && a->w.k > 0 && a->w.k % 8 == 0 && a->x_stride % 8 == 0 &&
                        reinterpret_cast<uintptr_t>(a->x) % 16 == 0 &&
                        reinterpret_cast<uintptr_t>(a->w.data) % 16 == 0;
    const bool stored = a->w.n % (a->gated ? 16 : 8) == 0 && a->y_stride % 8 == 0 &&
                        reinterpret_cast<uintptr_t>(a->y) % 16 == 0;
    const bool gated = !a->gated || (!a->adds && !a->bias && a->y_dtype == DTYPE_HALF);
    const bool summed =
        a->adds ? a->y_dtype == DTYPE_F32 : a->y_dtype == DTYPE_F32 || a->y_dtype == DTYPE_HALF;
    return device_props()->major == 9 && plain && copied && stored && gated && summed &&
           weight_is_plain(&a->w) && a->w.format == FORMAT_HALF && a->x_dtype == DTYPE_HALF;
}

/* What the turns of the busiest SM cost, in columns of a step. Beside its own a tile pays for the
 * rows of x (narrow ones take more energy, too), and for its results; pairs take a little less. */
template <class KIND> uint64_t tiles_cost(const struct matmul_args *args)
{
    const uint32_t width = KIND::width;
    const uint32_t down = ceil_div(args->rows.max, KIND::rows * KIND::down);
    const uint32_t tiles = down * ceil_div(args->w.n, width * KIND::across);
    const uint32_t turns = ceil_div(tiles, device_props()->processors / KIND::cluster);
    const uint64_t tile =
        (uint64_t)ceil_div(args->w.k, STEP_K) * (width + TILES_ROWS_COST) + TILES_OUT_COST * width;
    return turns * tile * (KIND::cluster > 1 ? TILES_PAIR_COST : 100);
}

} // namespace HALF
