/* C = A B on the tensor cores (sm_90a).
 *
 * A block has a tile of 128 x 256 of C: two warpgroups multiply 64 rows each, one thread of a third
 * fills a ring of four stages ahead of them by bulk tensor copies. A stage has 64 values of k:
 *
 *     A  [128 rows][64 of k]             one box, 16 KiB
 *     B  4 x [64 of k][64 columns]       four boxes, 8 KiB each: as B lies in memory, not turned
 *
 * in the swizzle of 128 bytes that wgmma reads. One block per SM goes through the tiles in turns;
 * stages of the next tile come in while the last one's results go out.
 *
 * With clusters two blocks one above the other, which need the same columns of B, each bring half
 * of these into the shared memory of both (multicast): a third less is read from the L2. So
 *   - a full barrier counts a whole stage, whoever brings it: the block's own thread expects all of
 *     its bytes before it copies, and those of the other block may be there first;
 *   - a stage is empty when the consumers of both blocks have given it back, to both blocks;
 *   - no block ends while the other may still write to it or arrive there (cluster_sync()).
 * Blocks of one cluster have the same number of tiles, those beyond C as zeros that are not stored.
 *
 * Products of a batch follow each other on the stream. With `programmatic` one is started while the
 * one before it ends: blocks that find no tile left make room, and the next product's go to work
 * there. They need nothing of the one before, so they wait for its end (grid_wait()) only when they
 * are through: then whoever waits for the last product has waited for all.
 *
 * Rows of A or of B that are no multiple of 16 bytes cannot be copied so, nor can a device before
 * Hopper: these have a plain kernel. */
#define HALF_BF16
#include "gpu/kernels/common/ring.cuh"
#include "gpu/kernels/common/wgmma.cuh"
#include "gpu/programs/gemm/gemm.h"

#define GROUP_THREADS 128 /* of a warpgroup */
#define CONSUMERS 2       /* warpgroups that multiply */
#define THREADS ((CONSUMERS + 1) * GROUP_THREADS)
#define GROUP_ROWS 64 /* of C, of a warpgroup */
#define TILE_ROWS (CONSUMERS * GROUP_ROWS)
#define TILE_COLUMNS 256
#define BOX 64 /* values of k in a stage, and of a row of every box: 128 bytes */
#define BOX_BYTES (BOX * BOX * 2)
#define TILE_BOXES (TILE_COLUMNS / BOX)
#define A_BYTES (TILE_ROWS * BOX * 2)
#define STAGE_BYTES (A_BYTES + TILE_BOXES * BOX_BYTES)
#define STAGES 4
#define OUT_BUFFERS 2  /* of a warpgroup, for results on their way out */
#define ALIGNMENT 1024 /* of what is swizzled */
#define SHARED_BYTES (ALIGNMENT + STAGES * STAGE_BYTES + CONSUMERS * OUT_BUFFERS * BOX_BYTES)
#define BAND_ROWS 16 /* tiles of C that are gone through column by column, for the L2 */

#define PLAIN_TILE 16 /* rows, columns and values of k */
#define PLAIN_BLOCKS_MAX 65535

struct gemm_args {
    CUtensorMap a, b, c;
    uint32_t steps;       /* of BOX values of k */
    uint32_t blocks_down; /* of C: of as many tiles as a cluster has blocks */
    uint32_t tiles;       /* of a cluster's size */
};

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* ---- instructions ------------------------------------------------------------------------------
 */

/* c = a b, + c where `add`, of 64 x 256: a along k, b along its columns. */
static __device__ __forceinline__ void multiply_wide(float (&c)[128], uint64_t a, uint64_t b,
                                                     int add)
{
    asm volatile(
        "{\n.reg .pred add;\nsetp.ne.b32 add, %130, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" WGMMA_112
        ",%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127}, "
        "%128, %129, add, 1, 1, 0, 1;\n}\n"
        : WGMMA_C112(c), WGMMA_C16(c + 112)
        : "l"(a), "l"(b), "r"(add));
}

/* The box whose first value is at these coordinates. */
static __device__ __forceinline__ void load_box(uint32_t to, const CUtensorMap *map,
                                                uint32_t column, uint32_t row, uint32_t barrier)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3}], [%4];" ::"r"(to),
                 "l"(map), "r"(column), "r"(row), "r"(barrier)
                 : "memory");
}

/* The same to that place of every block of the cluster in `ranks`, counted on each one's barrier.
 */
static __device__ __forceinline__ void load_box_all(uint32_t to, const CUtensorMap *map,
                                                    uint32_t column, uint32_t row, uint32_t barrier,
                                                    uint16_t ranks)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes."
                 "multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
                 "l"(map), "r"(column), "r"(row), "r"(barrier), "h"(ranks)
                 : "memory");
}

static __device__ __forceinline__ void store_box(const CUtensorMap *map, uint32_t column,
                                                 uint32_t row, uint32_t from)
{
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];\n"
                 "cp.async.bulk.commit_group;" ::"l"(map),
                 "r"(column), "r"(row), "r"(from)
                 : "memory");
}

/* All of this thread's stores but the last so many have read their shared memory. */
template <int PENDING> static __device__ __forceinline__ void store_wait_read()
{
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory");
}

static __device__ __forceinline__ void store_wait()
{
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

/* On the barrier at this place of a block of the cluster. Nothing that this thread wrote is told by
 * it, only that products have read: were it a release to the cluster, the warp would wait until all
 * of its memory accesses are through, in every step. */
static __device__ __forceinline__ void cluster_arrive(uint32_t barrier, uint32_t rank)
{
    asm volatile(
        "mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(cluster_address(barrier, rank))
        : "memory");
}

static __device__ __forceinline__ void group_sync(uint32_t group)
{
    asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "n"(GROUP_THREADS) : "memory");
}

/* ---- tiles and stages --------------------------------------------------------------------------
 */

/* Addresses in shared memory. */
struct gemm_ring {
    uint32_t full, empty; /* barriers */
    uint32_t stages, out;
};

struct gemm_tile {
    uint32_t row, column; /* of C, the first ones */
};

/* The tile that this block is at after so many turns. Bands of rows are gone through column by
 * column, so that what is under way at once needs few rows of A and few columns of B. */
template <int CLUSTER>
static __device__ __forceinline__ bool find_tile(const gemm_args &a, uint32_t turn, uint32_t rank,
                                                 gemm_tile &ret)
{
    const uint32_t height = BAND_ROWS / CLUSTER;
    const uint32_t number = blockIdx.x / CLUSTER + turn * (gridDim.x / CLUSTER);
    if (number >= a.tiles)
        return false;
    const uint32_t across = a.tiles / a.blocks_down, band = number / (height * across);
    const uint32_t inside = number - band * height * across;
    const uint32_t rows = min(height, a.blocks_down - band * height);
    ret.row = ((band * height + inside % rows) * CLUSTER + rank) * TILE_ROWS;
    ret.column = inside / rows * TILE_COLUMNS;
    return true;
}

/* Whole block. Nobody of the cluster goes on before the barriers of all are there. */
template <int CLUSTER>
static __device__ __forceinline__ gemm_ring begin(ring_barriers<STAGES> &barriers,
                                                  const char *memory)
{
    gemm_ring ring;
    ring.full = shared_address(barriers.full);
    ring.empty = shared_address(barriers.empty);
    ring.stages = (shared_address(memory) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    ring.out = ring.stages + STAGES * STAGE_BYTES;
    if (threadIdx.x == 0) {
        ring_init(ring.full, STAGES, 1);
        ring_init(ring.empty, STAGES, CLUSTER * CONSUMERS * GROUP_THREADS / WARP);
        barrier_init_done();
    }
    if (CLUSTER > 1)
        cluster_sync();
    else
        __syncthreads();
    return ring;
}

/* One stage: A of this block, and B, of which each block of the cluster brings its part to all. */
template <int CLUSTER>
static __device__ __forceinline__ void load_stage(const gemm_args &a, uint32_t to, uint32_t barrier,
                                                  const gemm_tile &tile, uint32_t k, uint32_t rank)
{
    const uint32_t own = TILE_BOXES / CLUSTER;
    barrier_expect(barrier, STAGE_BYTES);
    load_box(to, &a.a, k, tile.row, barrier);
#pragma unroll
    for (uint32_t i = 0; i < own; i++) {
        const uint32_t box = rank * own + i, column = tile.column + box * BOX;
        const uint32_t place = to + A_BYTES + box * BOX_BYTES;
        if (CLUSTER > 1)
            load_box_all(place, &a.b, column, k, barrier, (1u << CLUSTER) - 1);
        else
            load_box(place, &a.b, column, k, barrier);
    }
}

/* One thread: brings the block's tiles, in their order. */
template <int CLUSTER>
static __device__ __forceinline__ void load_tiles(const gemm_args &a, const gemm_ring &ring,
                                                  uint32_t rank)
{
    const uint32_t steps = a.steps;
    ring_cursor at = {0, 0};
    gemm_tile tile;
    for (uint32_t turn = 0; find_tile<CLUSTER>(a, turn, rank, tile); turn++)
        for (uint32_t step = 0; step < steps; step++, ring_next(at, STAGES)) {
            ring_wait_empty(ring.empty, at);
            load_stage<CLUSTER>(a, ring.stages + at.stage * STAGE_BYTES,
                                ring_barrier(ring.full, at), tile, step * BOX, rank);
        }
}

/* A warp has read a stage: said to every block that writes there. */
template <int CLUSTER>
static __device__ __forceinline__ void give_back(const gemm_ring &ring, const ring_cursor &at)
{
    const uint32_t lane = threadIdx.x % WARP;
    if (CLUSTER > 1 && lane < CLUSTER)
        cluster_arrive(ring_barrier(ring.empty, at), lane);
    if (CLUSTER == 1 && lane == 0)
        ring_give_back(ring.empty, at);
}

/* A warpgroup: c = its rows of the tile. A stage is given back one step later, when nothing reads
 * it any more. */
template <int CLUSTER>
static __device__ __forceinline__ void multiply_tile(float (&c)[128], const gemm_ring &ring,
                                                     ring_cursor &at, uint32_t group,
                                                     uint32_t steps)
{
    ring_cursor before = {0, 0};
    for (uint32_t step = 0; step < steps; step++) {
        const uint32_t stage = ring.stages + at.stage * STAGE_BYTES;
        const uint32_t a = stage + group * (GROUP_ROWS * BOX * 2), b = stage + A_BYTES;
        ring_wait_full(ring.full, at);
        wgmma_begin();
#pragma unroll
        for (int k = 0; k < BOX / 16; k++)
            multiply_wide(c, wgmma_operand(a + k * 32, 16),
                          wgmma_operand(b + k * 16 * BOX * 2, BOX_BYTES), step > 0 || k > 0);
        wgmma_commit();
        wgmma_wait<1>();
        if (step > 0)
            give_back<CLUSTER>(ring, before);
        before = at;
        ring_next(at, STAGES);
    }
    wgmma_wait<0>();
    wgmma_hold(c);
    give_back<CLUSTER>(ring, before);
}

/* A warpgroup: 64 columns at a time through shared memory, swizzled as the copy out reads them,
 * which leaves out what is beyond C. Its first thread copies, and waits for what it copied. */
static __device__ __forceinline__ void store_tile(const float (&c)[128], const gemm_args &a,
                                                  const gemm_ring &ring, const gemm_tile &tile,
                                                  uint32_t group)
{
    const uint32_t thread = threadIdx.x % GROUP_THREADS, lane = thread % WARP;
    const uint32_t row = thread / WARP * 16 + lane / 4, t = lane % 4;
#pragma unroll
    for (uint32_t box = 0; box < TILE_BOXES; box++) {
        const uint32_t to = ring.out + (group * OUT_BUFFERS + box % OUT_BUFFERS) * BOX_BYTES;
        if (thread == 0)
            store_wait_read<OUT_BUFFERS - 1>();
        group_sync(group);
#pragma unroll
        for (uint32_t unit = 0; unit < BOX / 8; unit++)
#pragma unroll
            for (uint32_t half = 0; half < 2; half++) {
                const uint32_t at = (box * 8 + unit) * 4 + half * 2, r = row + half * 8;
                const uint32_t word = pack(c[at], c[at + 1], DTYPE_BF16);
                asm volatile(
                    "st.shared.u32 [%0], %1;" ::"r"(to + r * 128 + ((unit ^ (r & 7)) * 16) + t * 4),
                    "r"(word)
                    : "memory");
            }
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        group_sync(group);
        if (thread == 0)
            store_box(&a.c, tile.column + box * BOX, tile.row + group * GROUP_ROWS, to);
    }
}

/* A warpgroup. */
template <int CLUSTER>
static __device__ __forceinline__ void compute_tiles(const gemm_args &a, const gemm_ring &ring,
                                                     uint32_t rank)
{
    const uint32_t group = threadIdx.x / GROUP_THREADS - 1;
    ring_cursor at = {0, 0};
    gemm_tile tile;
    float c[128];
    for (uint32_t turn = 0; find_tile<CLUSTER>(a, turn, rank, tile); turn++) {
        multiply_tile<CLUSTER>(c, ring, at, group, a.steps);
        store_tile(c, a, ring, tile, group);
    }
    if (threadIdx.x % GROUP_THREADS == 0)
        store_wait();
}

#endif

/* ---- kernels -----------------------------------------------------------------------------------
 */

template <int CLUSTER>
static __global__ void __launch_bounds__(THREADS, 1)
    gemm_kernel(const __grid_constant__ struct gemm_args a)
{
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
    extern __shared__ __align__(ALIGNMENT) char memory[];
    __shared__ ring_barriers<STAGES> barriers;
    const uint32_t rank = CLUSTER > 1 ? cluster_rank() : 0;
    const gemm_ring ring = begin<CLUSTER>(barriers, memory);
    grid_trigger(); /* what it starts waits for our end by itself */
    if (threadIdx.x < GROUP_THREADS) {
        registers_less<40>();
        if (threadIdx.x < WARP && warp_elect())
            load_tiles<CLUSTER>(a, ring, rank);
    } else {
        registers_more<232>();
        compute_tiles<CLUSTER>(a, ring, rank);
    }
    grid_wait();
    if (CLUSTER > 1)
        cluster_sync();
#endif
}

/* A thread has one element of C. */
static __global__ void gemm_plain(const struct sluice_item *items, uint32_t number)
{
    __shared__ float a_tile[PLAIN_TILE][PLAIN_TILE + 1], b_tile[PLAIN_TILE][PLAIN_TILE + 1];
    const struct sluice_item &item = items[number];
    const uint64_t m = item.sizes[GEMM_M], k = item.sizes[GEMM_K], n = item.sizes[GEMM_N];
    const __nv_bfloat16 *a = static_cast<const __nv_bfloat16 *>(item.inputs[0]);
    const __nv_bfloat16 *b = static_cast<const __nv_bfloat16 *>(item.inputs[1]);
    __nv_bfloat16 *c = static_cast<__nv_bfloat16 *>(item.outputs[0]);
    const uint64_t column = (uint64_t)blockIdx.x * PLAIN_TILE + threadIdx.x;
    for (uint64_t first = (uint64_t)blockIdx.y * PLAIN_TILE; first < m;
         first += (uint64_t)gridDim.y * PLAIN_TILE) {
        const uint64_t row = first + threadIdx.y;
        float sum = 0;
        for (uint64_t step = 0; step < k; step += PLAIN_TILE) {
            const uint64_t right = step + threadIdx.x, down = step + threadIdx.y;
            a_tile[threadIdx.y][threadIdx.x] =
                row < m && right < k ? __bfloat162float(a[row * k + right]) : 0.0f;
            b_tile[threadIdx.y][threadIdx.x] =
                down < k && column < n ? __bfloat162float(b[down * n + column]) : 0.0f;
            __syncthreads();
            for (int i = 0; i < PLAIN_TILE; i++)
                sum = __fmaf_rn(a_tile[threadIdx.y][i], b_tile[i][threadIdx.x], sum);
            __syncthreads();
        }
        if (row < m && column < n)
            c[row * n + column] = __float2bfloat16_rn(sum);
    }
}

/* ---- launching ---------------------------------------------------------------------------------
 */

static uint32_t parts(uint64_t size, uint64_t of)
{
    return (uint32_t)((size + of - 1) / of);
}

static int enqueue_plain(const struct sluice_batch *batch, uint32_t number, cudaStream_t stream)
{
    const struct sluice_item *item = &batch->items[number];
    const uint32_t down = parts(item->sizes[GEMM_M], PLAIN_TILE);
    const dim3 grid(parts(item->sizes[GEMM_N], PLAIN_TILE),
                    down < PLAIN_BLOCKS_MAX ? down : PLAIN_BLOCKS_MAX);
    gemm_plain<<<grid, dim3(PLAIN_TILE, PLAIN_TILE), 0, stream>>>(batch->device_items, number);
    return (int)cudaGetLastError();
}

static int describe(const struct sluice_cuda *cuda, const struct sluice_item *item,
                    struct gemm_args *args)
{
    const uint64_t m = item->sizes[GEMM_M], k = item->sizes[GEMM_K], n = item->sizes[GEMM_N];
    const struct sluice_matrix a = {item->inputs[0], SLUICE_BF16, 128, m, k, TILE_ROWS, BOX};
    const struct sluice_matrix b = {item->inputs[1], SLUICE_BF16, 128, k, n, BOX, BOX};
    const struct sluice_matrix c = {item->outputs[0], SLUICE_BF16, 128, m, n, GROUP_ROWS, BOX};
    int rc = cuda->tensor_map(&args->a, &a);
    if (!rc)
        rc = cuda->tensor_map(&args->b, &b);
    return rc ? rc : cuda->tensor_map(&args->c, &c);
}

/* `behind`: it may begin before the product in front of it has ended. */
template <int CLUSTER>
static int enqueue_tiles(const struct sluice_cuda *cuda, const struct sluice_item *item,
                         bool behind, cudaStream_t stream)
{
    struct gemm_args args;
    int rc = describe(cuda, item, &args);
    if (rc)
        return rc;
    args.steps = parts(item->sizes[GEMM_K], BOX);
    args.blocks_down = parts(item->sizes[GEMM_M], TILE_ROWS * CLUSTER);
    args.tiles = args.blocks_down * parts(item->sizes[GEMM_N], TILE_COLUMNS);
    const uint32_t room = cuda->processors / CLUSTER;
    cudaLaunchAttribute attributes[2];
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((args.tiles < room ? args.tiles : room) * CLUSTER);
    config.blockDim = dim3(THREADS);
    config.dynamicSmemBytes = SHARED_BYTES;
    config.stream = stream;
    config.attrs = attributes;
    if (CLUSTER > 1) {
        attributes[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
        attributes[config.numAttrs++].val.clusterDim = {CLUSTER, 1, 1};
    }
    if (behind) {
        attributes[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attributes[config.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
    }
    cudaError_t result = cudaFuncSetAttribute(
        gemm_kernel<CLUSTER>, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES);
    return (int)(result == cudaSuccess ? cudaLaunchKernelEx(&config, gemm_kernel<CLUSTER>, args)
                                       : result);
}

/* Not by what else is in the batch: an item's bits are its own. */
static bool has_tiles(const struct sluice_cuda *cuda, const struct sluice_item *item)
{
    return cuda->major == 9 && item->sizes[GEMM_K] % 8 == 0 && item->sizes[GEMM_N] % 8 == 0;
}

static int enqueue(const struct sluice_batch *batch, const struct sluice_streams *streams,
                   struct sluice_allocator *allocator)
{
    const struct sluice_cuda *cuda = streams->cuda;
    cudaStream_t stream = streams->streams[0];
    int rc = 0;
    (void)allocator;
    for (uint32_t i = 0; !rc && i < batch->count; i++) {
        const struct sluice_item *item = &batch->items[i];
        /* The first one waits for its inputs, as whatever the stream is given does. */
        const bool behind = i > 0 && item->values[GEMM_PROGRAMMATIC].integer;
        if (!has_tiles(cuda, item))
            rc = enqueue_plain(batch, i, stream);
        else if (item->values[GEMM_CLUSTER].integer && item->sizes[GEMM_M] > TILE_ROWS)
            rc = enqueue_tiles<2>(cuda, item, behind, stream);
        else
            rc = enqueue_tiles<1>(cuda, item, behind, stream);
    }
    return rc;
}

SLUICE_EXPORT const struct sluice_program sluice_program_cuda = GEMM;
