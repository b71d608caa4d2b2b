/* Which tiles a product of many rows takes (matmul_tiles.cuh), and their launch. */
#include "gpu/kernels/common/device_props.cuh"
#include "gpu/kernels/matmul/matmul.cuh"
#include "gpu/kernels/matmul/matmul_tiles.cuh"

#define TILES_ROWS_COST 16 /* columns that a step's rows of x are worth */
#define TILES_OUT_COST 4   /* steps that a tile's results take */
#define TILES_PAIR_COST 98 /* what a tile of a pair costs, of 100 */

namespace HALF
{

struct tiles_choice {
    uint64_t cost;
    cudaError_t (*run)(const struct matmul_args *args, cudaStream_t stream);
};

template <int WIDTH, int CLUSTER>
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
    a->down = ceil_div(a->rows, TILE_ROWS * CLUSTER);
    a->block_rows = ceil_div(a->rows, a->down * CLUSTER);
    a->columns = args->gated ? args->w.n / 2 : args->w.n;
    a->y_stride = args->y_stride;
    a->up = args->gated ? a->columns : 0;
    a->steps = ceil_div(args->w.k, STEP_K);
    a->tiles = a->down * ceil_div(a->columns, args->gated ? WIDTH / 2 : WIDTH);
    a->band = BAND_ROWS / CLUSTER;
    cudaError_t result =
        tensor_map(&a->x, args->x, DTYPE_HALF, a->rows, args->w.k, args->x_stride, a->block_rows);
    return result == cudaSuccess ? tensor_map(&a->w, args->w.data, DTYPE_HALF, args->w.n, args->w.k,
                                              args->w.k, WIDTH / 2)
                                 : result;
}

template <int WIDTH, int CLUSTER>
static cudaError_t tiles_launch(const struct matmul_args *args, cudaStream_t stream)
{
    const struct device_props *device = device_props();
    const uint32_t room = device->processors / CLUSTER;
    static struct device_once once;
    struct tiles_args a;
    cudaError_t result = device_allow(&once, tiles_kernel<WIDTH, CLUSTER>, device, ALIGNMENT);
    if (result == cudaSuccess)
        result = tiles_describe<WIDTH, CLUSTER>(args, &a);
    if (result != cudaSuccess)
        return result;
    cudaLaunchAttribute attributes[2];
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((a.tiles < room ? a.tiles : room) * CLUSTER);
    config.blockDim = dim3(THREADS);
    config.dynamicSmemBytes = tiles_shared(WIDTH);
    config.stream = stream;
    config.attrs = attributes;
    attributes[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[config.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
    if (CLUSTER > 1) {
        attributes[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
        attributes[config.numAttrs++].val.clusterDim = {CLUSTER, 1, 1};
    }
    return cudaLaunchKernelEx(&config, tiles_kernel<WIDTH, CLUSTER>, a);
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
           weight_is_plain(&a->w) && a->rows.max > MATMUL_APART_MAX && a->w.format == FORMAT_HALF &&
           a->x_dtype == DTYPE_HALF;
}

/* What the turns of the busiest SM cost, in columns of a step. Beside its own a tile pays for the
 * rows of x (narrow ones take more energy, too), and for its results; pairs take a little less. */
template <int WIDTH, int CLUSTER>
static void tiles_try(const struct matmul_args *args, struct tiles_choice *best)
{
    const uint32_t down = ceil_div(args->rows.max, TILE_ROWS * CLUSTER);
    const uint32_t tiles = down * ceil_div(args->w.n, WIDTH);
    const uint32_t turns = ceil_div(tiles, device_props()->processors / CLUSTER);
    const uint64_t tile =
        (uint64_t)ceil_div(args->w.k, STEP_K) * (WIDTH + TILES_ROWS_COST) + TILES_OUT_COST * WIDTH;
    const uint64_t cost = turns * tile * (CLUSTER > 1 ? TILES_PAIR_COST : 100);
    if (cost < best->cost)
        *best = {cost, tiles_launch<WIDTH, CLUSTER>};
}

/* Of equals the widest, which reads x least often. */
template <int CLUSTER>
static void tiles_try_all(const struct matmul_args *args, struct tiles_choice *best)
{
    tiles_try<256, CLUSTER>(args, best);
    tiles_try<224, CLUSTER>(args, best);
    tiles_try<192, CLUSTER>(args, best);
    tiles_try<176, CLUSTER>(args, best);
    tiles_try<160, CLUSTER>(args, best);
    tiles_try<128, CLUSTER>(args, best);
}

/* Pairs are of use where there are many tiles: gate and up. */
cudaError_t matmul_tiles(const struct matmul_args *args, cudaStream_t stream)
{
    struct tiles_choice best = {UINT64_MAX, NULL};
    if (args->gated)
        tiles_try_all<2>(args, &best);
    tiles_try_all<1>(args, &best);
    return best.run(args, stream);
}

} // namespace HALF
