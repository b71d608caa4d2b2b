/* Products of up to ADAPTED_ROWS_MAX rows in the tiles of matmul_tiles.cuh, whose blocks add what
 * rows' adapters do to the sums that they hold: B times A x, which the kernel before makes.
 *
 * Behind the steps of a tile the ring goes on with B: a stage holds, of as many adapters of the
 * step as fit, the rows of B that the tile's columns are. So B is under way while weights are
 * multiplied, and comes once. Where a ring holds so many weights that the memory stays busy while B
 * is multiplied, B comes before the last quarter of the steps; narrow tiles gain nothing by that.
 * A warp multiplies with the adapters that its rows have; each of them with all of its rows, of
 * which those that do not have it are 0, so that others do not see what an adapter's numbers are:
 * they are finite (adapters.h).
 *
 * Products begin when x is there, which the kernel of A x says (x_tell()), not when A x is.
 *
 * Three warps that would be idle find out, while weights go by, which adapters there are and where,
 * and put A x of the block's parts into shared memory, scaled, as the product wants it: in BF16 as
 * the sum of two numbers, of which the second is what the first leaves, and in F16, whose range is
 * small, in float32, multiplied as the sum of two in tf32. */
#include "gpu/kernels/adapted/adapted_add.cuh"

namespace HALF
{

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* Before a tile whose products go on behind B: where sums have nothing to begin with, the compiler
 * takes it for something that is set in between, and makes each product wait for the one before. */
template <class KIND> __device__ __forceinline__ void sums_clear(float (&c)[KIND::width / 2])
{
#pragma unroll
    for (int i = 0; i < KIND::width / 2; i++)
        c[i] = 0;
    wgmma_hold(c);
}

/* DRY: nothing is brought or kept (slots_add()). */
template <class KIND>
__device__ __forceinline__ void adapted_tile(float (&c)[KIND::width / 2], const tiles_args &t,
                                             const adapt_args &a, const adapted_place &at,
                                             adapted_rows &rows, const tiles_ring &ring,
                                             ring_cursor &cursor, uint32_t column, bool dry)
{
    const uint32_t group = threadIdx.x / GROUP_THREADS - 1, before = steps_before<KIND>(t.steps);
    const uint32_t warp = threadIdx.x / WARP - GROUP_THREADS / WARP;
    const uint32_t row = warp * WARP_ROWS + threadIdx.x % WARP / 4;
    if (ADAPTED_EARLY<KIND>) {
        sums_clear<KIND>(c);
        tiles_multiply<KIND, true>(c, ring, cursor, group, dry ? 0 : before);
    } else {
        tiles_multiply<KIND>(c, ring, cursor, group, before);
    }
    if (!dry) {
        barrier_wait(shared_address(&at.table->summed), 0);
        rows.low_at = at.inner + row * room_of(a) * 4;
        rows.high_at = rows.low_at + 8 * room_of(a) * 4;
        if (row < at.rows) {
            rows.low = at.table->slot_of[row];
            rows.high = at.table->slot_of[row + 8];
        }
    }
    slots_add<KIND>(c, t, a, at, rows, ring, cursor, column, dry);
    if (ADAPTED_EARLY<KIND>)
        tiles_multiply<KIND, true>(c, ring, cursor, group, dry ? 0 : t.steps - before);
}

template <class KIND>
__device__ __forceinline__ void adapted_compute(const tiles_args &t, const adapt_args &a,
                                                const adapted_place &at, const tiles_ring &ring,
                                                uint32_t rank)
{
    const int width = KIND::width;
    const uint32_t warp = threadIdx.x / WARP - GROUP_THREADS / WARP, first = warp * WARP_ROWS;
    const uint32_t out = ring.out + warp * OUT_BYTES;
    adapted_rows rows = {out, out, NO_SLOT, NO_SLOT};
    ring_cursor cursor = {0, 0};
    tiles_tile tile = {0, 0};
    uint32_t turn = 0;
    bool dry = width >= WIDE;
    for (;;) {
        float c[width / 2];
        if (!dry && !tiles_find<KIND>(t, t.up ? width / 2 : width, turn++, rank, tile))
            break;
        adapted_tile<KIND>(c, t, a, at, rows, ring, cursor, tile.column, dry);
        if (!dry)
            tiles_store<width>(c, t,
                               {out, tile.row + first, min(tile.row + t.block_rows, t.rows),
                                tile.column, t.columns});
        dry = false;
    }
}

#endif

template <class KIND>
__global__ void __launch_bounds__(KIND::threads, 1)
    adapted_kernel(const __grid_constant__ struct tiles_args t,
                   const __grid_constant__ struct adapt_args a)
{
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
    extern __shared__ __align__(ALIGNMENT) char memory[];
    __shared__ ring_barriers<STAGES_MAX> barriers;
    const uint32_t rank = KIND::cluster > 1 ? cluster_rank() : 0;
    const uint32_t skip = (0u - shared_address(memory)) % ALIGNMENT;
    char *room = memory + skip + KIND::stages * KIND::stage_bytes + KIND::warps * OUT_BYTES;
    adapted_table *table = reinterpret_cast<adapted_table *>(room);
    adapted_place at = adapted_place_of<KIND>(t, a, rank);
    at.table = table;
    at.inner = shared_address(room + TABLE_BYTES);
    if (threadIdx.x == 0) {
        barrier_init(shared_address(&table->known), HELPERS);
        barrier_init(shared_address(&table->summed), HELPERS);
    }
    const tiles_ring ring = tiles_begin<KIND>(barriers, memory);
    if (threadIdx.x < GROUP_THREADS) {
        registers_less<56>();
        if (threadIdx.x >= WARP)
            adapted_prepare(a, at, slots_of_stage<KIND>(a));
        else
            adapted_load<KIND>(t, a, at, ring, rank);
    } else {
        registers_more<224>();
        adapted_compute<KIND>(t, a, at, ring, rank);
    }
    if (KIND::cluster > 1)
        cluster_sync();
#endif
}

/* ---- launching ---- */

/* Parts that a block's columns are of, at most. */
template <class KIND>
static uint32_t parts_of_block(const struct matmul_args *product, const struct adapt_args *a)
{
    const uint32_t across = KIND::width * KIND::across;
    const bool once = ceil_div(product->w.n, across) <= device_props()->processors / KIND::cluster;
    uint32_t most = 1;
    if (product->gated || !once)
        return a->part_count;
    for (uint32_t p = 0; p < a->part_count; p++) {
        uint32_t end = p + 1;
        while (end < a->part_count && a->ends[end - 1] < a->ends[p] - 1 + KIND::width)
            end++;
        most = end - p > most ? end - p : most;
    }
    return most;
}

template <class KIND>
static cudaError_t adapted_launch(const struct matmul_args *product, const struct adapt_args *adapt,
                                  cudaStream_t stream)
{
    static struct device_once once;
    struct tiles_args t;
    cudaError_t result = device_allow(&once, adapted_kernel<KIND>, device_props(), ALIGNMENT);
    if (result == cudaSuccess)
        result = tiles_describe<KIND>(product, &t);
    return result == cudaSuccess
               ? tiles_start<KIND>(adapted_kernel<KIND>, t.tiles, stream, t, *adapt)
               : result;
}

struct adapted_choice {
    uint64_t cost;
    cudaError_t (*run)(const struct matmul_args *product, const struct adapt_args *adapt,
                       cudaStream_t stream);
};

template <int GROUPS, int WIDTH>
static void adapted_try(const struct matmul_args *product, const struct adapt_args *a,
                        struct adapted_choice *best)
{
    using kind = adapted_kind<GROUPS, WIDTH, 2>;
    const uint32_t rows = ceil_div(a->rows.max, WARP_ROWS) * WARP_ROWS;
    const uint32_t inner =
        parts_of_block<kind>(product, a) * rows * ADAPT_RANK_ROOM(a->rank_max) * 4;
    const uint64_t cost = tiles_cost<kind>(product);
    if (inner <= (GROUPS == 1 ? INNER_BYTES_ONE : INNER_BYTES_TWO) && cost < best->cost)
        *best = {cost, adapted_launch<kind>};
}

template <int GROUPS>
static struct adapted_choice adapted_choose(const struct matmul_args *product,
                                            const struct adapt_args *a)
{
    struct adapted_choice best = {UINT64_MAX, NULL};
    adapted_try<GROUPS, 224>(product, a, &best);
    adapted_try<GROUPS, 192>(product, a, &best);
    adapted_try<GROUPS, 128>(product, a, &best);
    adapted_try<GROUPS, 96>(product, a, &best);
    adapted_try<GROUPS, 64>(product, a, &best);
    adapted_try<GROUPS, 48>(product, a, &best);
    adapted_try<GROUPS, 32>(product, a, &best);
    return best;
}

static struct adapted_choice choose(const struct matmul_args *product, const struct adapt_args *a)
{
    return a->rows.max <= GROUP_ROWS ? adapted_choose<1>(product, a)
                                     : adapted_choose<2>(product, a);
}

bool adapted_can(const struct matmul_args *product, const struct adapt_args *a)
{
    bool fits = a->list && a->sums && a->alike && !a->invariant && !product->invariant &&
                a->x_dtype == DTYPE_HALF && a->rows.max > 0 && a->rows.max <= ADAPTED_ROWS_MAX &&
                a->rank_max > 0 && a->rank_max <= ADAPTED_RANK_MAX && a->part_count > 0 &&
                a->part_count <= ADAPT_PARTS && a->ends[a->part_count - 1] == product->w.n &&
                product->rows.max == a->rows.max && product->w.k == a->k && product->x == a->x &&
                product->x_stride == a->x_stride;
    /* Many rows in narrow tiles: x is read so often that there is more to lose than to gain. */
    if (fits && a->rows.max > GROUP_ROWS && !product->gated)
        fits = product->w.n >= COLUMNS_MIN * device_props()->processors;
    for (uint32_t p = 0; fits && p < a->part_count; p++)
        fits = a->ends[p] % 8 == 0;
    if (fits && product->gated)
        fits = a->part_count == 2 && a->ends[1] == 2 * a->ends[0];
    return fits && tiles_fit(product) && choose(product, a).run;
}

cudaError_t adapted_tiles(const struct matmul_args *product, const struct adapt_args *adapt,
                          cudaStream_t stream)
{
    return choose(product, adapt).run(product, adapt, stream);
}

} // namespace HALF
