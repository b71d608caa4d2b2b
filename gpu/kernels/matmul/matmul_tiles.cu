/* Which tiles a product takes (matmul_tiles.cuh), and their launch. */
#include "gpu/kernels/common/device_props.cuh"
#include "gpu/kernels/matmul/matmul.cuh"
#include "gpu/kernels/matmul/matmul_tiles.cuh"

#define TILES_ROWS_COST 16 /* columns that a step's rows of x are worth */
#define TILES_OUT_COST 4   /* steps that a tile's results take */
#define TILES_PAIR_COST 98 /* what a tile of a pair costs, of 100 */
#define SWIZZLED_ROWS 8    /* a box of x begins at a whole group of these */

namespace HALF
{

struct tiles_choice {
    uint64_t cost;
    cudaError_t (*run)(const struct matmul_args *args, cudaStream_t stream);
};

template <class KIND>
static cudaError_t tiles_describe(const struct matmul_args *args, struct tiles_args *a)
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

template <class KIND>
static cudaError_t tiles_launch(const struct matmul_args *args, cudaStream_t stream)
{
    const struct device_props *device = device_props();
    const uint32_t room = device->processors / KIND::cluster;
    static struct device_once once;
    struct tiles_args a;
    cudaError_t result = device_allow(&once, tiles_kernel<KIND>, device, ALIGNMENT);
    if (result == cudaSuccess)
        result = tiles_describe<KIND>(args, &a);
    if (result != cudaSuccess)
        return result;
    cudaLaunchAttribute attributes[2];
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((a.tiles < room ? a.tiles : room) * KIND::cluster);
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
    return cudaLaunchKernelEx(&config, tiles_kernel<KIND>, a);
}

/* ---- choosing ---- */

bool matmul_tiles_can(const struct matmul_args *a)
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
           weight_is_plain(&a->w) && (a->invariant || a->rows.max > MATMUL_APART_MAX) &&
           a->w.format == FORMAT_HALF && a->x_dtype == DTYPE_HALF;
}

/* What the turns of the busiest SM cost, in columns of a step. Beside its own a tile pays for the
 * rows of x (narrow ones take more energy, too), and for its results; pairs take a little less. */
template <class KIND>
static void tiles_try(const struct matmul_args *args, struct tiles_choice *best)
{
    const uint32_t width = KIND::width;
    const uint32_t down = ceil_div(args->rows.max, KIND::rows * KIND::down);
    const uint32_t tiles = down * ceil_div(args->w.n, width * KIND::across);
    const uint32_t turns = ceil_div(tiles, device_props()->processors / KIND::cluster);
    const uint64_t tile =
        (uint64_t)ceil_div(args->w.k, STEP_K) * (width + TILES_ROWS_COST) + TILES_OUT_COST * width;
    const uint64_t cost = turns * tile * (KIND::cluster > 1 ? TILES_PAIR_COST : 100);
    if (cost < best->cost)
        *best = {cost, tiles_launch<KIND>};
}

/* Of equals the widest, which reads x least often. */
template <int DOWN>
static void tiles_try_many(const struct matmul_args *args, struct tiles_choice *best)
{
    tiles_try<tiles_kind<2, 256, DOWN, 1>>(args, best);
    tiles_try<tiles_kind<2, 224, DOWN, 1>>(args, best);
    tiles_try<tiles_kind<2, 192, DOWN, 1>>(args, best);
    tiles_try<tiles_kind<2, 176, DOWN, 1>>(args, best);
    tiles_try<tiles_kind<2, 160, DOWN, 1>>(args, best);
    tiles_try<tiles_kind<2, 128, DOWN, 1>>(args, best);
}

/* Of numbers of rows of which there are so few tiles that each must be narrow, in pairs side by
 * side, which read x half as often. */
static void tiles_try_some(const struct matmul_args *args, struct tiles_choice *best)
{
    tiles_try<tiles_kind<2, 224, 1, 2>>(args, best);
    tiles_try<tiles_kind<2, 192, 1, 2>>(args, best);
    tiles_try<tiles_kind<2, 128, 1, 2>>(args, best);
    tiles_try<tiles_kind<2, 96, 1, 2>>(args, best);
    tiles_try<tiles_kind<2, 64, 1, 2>>(args, best);
    tiles_try<tiles_kind<2, 48, 1, 2>>(args, best);
    tiles_try<tiles_kind<2, 32, 1, 2>>(args, best);
}

/* Of up to GROUP_ROWS rows, down to so few columns that each SM has some of a small matrix. */
static void tiles_try_few(const struct matmul_args *args, struct tiles_choice *best)
{
    tiles_try<tiles_kind<1, 256, 1, 2>>(args, best);
    tiles_try<tiles_kind<1, 224, 1, 2>>(args, best);
    tiles_try<tiles_kind<1, 192, 1, 2>>(args, best);
    tiles_try<tiles_kind<1, 128, 1, 2>>(args, best);
    tiles_try<tiles_kind<1, 96, 1, 2>>(args, best);
    tiles_try<tiles_kind<1, 64, 1, 2>>(args, best);
    tiles_try<tiles_kind<1, 48, 1, 2>>(args, best);
    tiles_try<tiles_kind<1, 32, 1, 2>>(args, best);
    tiles_try<tiles_kind<1, 16, 1, 2>>(args, best);
}

/* Pairs one above the other are of use where there are many tiles: gate and up. Up to
 * MATMUL_APART_MAX rows come here only where bits may not depend on their number. */
cudaError_t matmul_tiles(const struct matmul_args *args, cudaStream_t stream)
{
    struct tiles_choice best = {UINT64_MAX, NULL};
    if (args->rows.max <= GROUP_ROWS) {
        tiles_try_few(args, &best);
        return best.run(args, stream);
    }
    if (args->gated)
        tiles_try_many<2>(args, &best);
    if (args->rows.max <= MATMUL_APART_MAX)
        tiles_try_some(args, &best);
    tiles_try_many<1>(args, &best);
    return best.run(args, stream);
}

} // namespace HALF
