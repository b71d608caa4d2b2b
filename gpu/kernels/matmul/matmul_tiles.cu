/* Which tiles a product takes (matmul_tiles.cuh), and their launch. */
#include "gpu/kernels/matmul/matmul_tiles_launch.cuh"

namespace HALF
{

struct tiles_choice {
    uint64_t cost;
    cudaError_t (*run)(const struct matmul_args *args, cudaStream_t stream);
};

template <class KIND>
static cudaError_t tiles_launch(const struct matmul_args *args, cudaStream_t stream)
{
    static struct device_once once;
    struct tiles_args a;
    cudaError_t result = device_allow(&once, tiles_kernel<KIND>, device_props(), ALIGNMENT);
    if (result == cudaSuccess)
        result = tiles_describe<KIND>(args, &a);
    return result == cudaSuccess ? tiles_start<KIND>(tiles_kernel<KIND>, a.tiles, stream, a)
                                 : result;
}

/* ---- choosing ---- */

bool matmul_tiles_can(const struct matmul_args *a)
{
    return tiles_fit(a) && (a->invariant || a->rows.max > MATMUL_APART_MAX);
}

template <class KIND>
static void tiles_try(const struct matmul_args *args, struct tiles_choice *best)
{
    const uint64_t cost = tiles_cost<KIND>(args);
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
