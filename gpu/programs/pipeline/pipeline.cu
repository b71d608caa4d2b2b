/* Two stages in one block, each with a pipeline of its own (sm_90a):
 *
 *   loader warp    x ---> in[0], in[1]         bulk copies, counted on in.full
 *   compute warps         in ---> out[0], out[1]      in.full -> in.empty; out.empty -> out.full
 *   storer warp                   out ---> y   bulk copies, waited for before out.empty
 *
 * While tile t is computed, t + 1 is on its way in and t - 1 on its way out. Barriers alone order
 * the roles: no warp waits for one that is not its neighbour, and no __syncthreads() is behind the
 * first. Blocks go through the tiles of all items in turns, so a batch of any lengths fills them.
 *
 * Where there are no bulk copies, and where a request asks for it, threads do all by themselves. */
#define HALF_BF16
#include "gpu/kernels/common/ring.cuh"
#include "gpu/programs/pipeline/pipeline.h"

#define TILE 4096 /* elements */
#define BUFFERS 2
#define COMPUTE_WARPS 8
#define COMPUTE_THREADS (COMPUTE_WARPS * WARP)
#define THREADS (COMPUTE_THREADS + 2 * WARP)
#define QUADS (TILE / 4 / COMPUTE_THREADS) /* of a thread and tile */
#define BLOCKS_OF_SM 3                     /* as shared memory has room for */

#define PLAIN_THREADS 256
#define PLAIN_BLOCKS_MAX 1024

struct coefficients {
    uint32_t rounds;
    float a, b;
};

static __device__ __forceinline__ coefficients coefficients_of(const struct sluice_item &item)
{
    return {(uint32_t)item.values[PIPELINE_ROUNDS].integer, (float)item.values[PIPELINE_A].number,
            (float)item.values[PIPELINE_B].number};
}

/* Values side by side, so that no result is waited for. */
template <int COUNT>
static __device__ __forceinline__ void compute(float (&v)[COUNT], const coefficients &p)
{
#pragma unroll 4
    for (uint32_t round = 0; round < p.rounds; round++)
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            v[i] = __fmaf_rn(v[i], p.b, p.a);
}

struct pipeline_shared {
    float in[BUFFERS][TILE], out[BUFFERS][TILE];
    ring_barriers<BUFFERS> in_ring, out_ring;
};

/* ---- roles -------------------------------------------------------------------------------------
 */

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* Tiles of all items one after the other, of which a block has every gridDim.x-th. */
struct tile_walk {
    const struct sluice_item *item, *end;
    uint64_t tile; /* counted from the item's first */
};

static __device__ __forceinline__ tile_walk walk_begin(const struct sluice_item *items,
                                                       uint32_t count)
{
    return {items, items + count, blockIdx.x};
}

/* The tile's first element and how many it has; false behind the last. */
static __device__ __forceinline__ bool walk_find(tile_walk &walk, uint64_t &first, uint32_t &count)
{
    for (; walk.item < walk.end; walk.item++) {
        const uint64_t size = walk.item->sizes[0], tiles = (size + TILE - 1) / TILE;
        if (walk.tile < tiles) {
            first = walk.tile * TILE;
            count = (uint32_t)(size - first < TILE ? size - first : TILE);
            return true;
        }
        walk.tile -= tiles;
    }
    return false;
}

/* Copies go in units of 16 bytes; the last few elements of an item go by threads. */
static __device__ __forceinline__ uint32_t copied_bytes(uint32_t count)
{
    return count / 4 * 16;
}

/* Before others read by bulk copies what this thread has written to shared memory. */
static __device__ __forceinline__ void writes_before_copy()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

static __device__ __forceinline__ void store_bulk(void *to, uint32_t from, uint32_t bytes)
{
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from),
                 "r"(bytes)
                 : "memory");
}

static __device__ __forceinline__ void store_commit()
{
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/* All stores but the last so many have read their shared memory. */
template <int PENDING> static __device__ __forceinline__ void store_wait_read()
{
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory");
}

static __device__ __forceinline__ void store_wait()
{
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

/* One thread. */
static __device__ __forceinline__ void load_tiles(pipeline_shared &shared, tile_walk walk)
{
    const uint32_t full = shared_address(shared.in_ring.full);
    const uint32_t empty = shared_address(shared.in_ring.empty);
    ring_cursor at = {0, 0};
    uint64_t first;
    uint32_t count;
    for (; walk_find(walk, first, count); walk.tile += gridDim.x, ring_next(at, BUFFERS)) {
        const uint32_t bytes = copied_bytes(count), barrier = ring_barrier(full, at);
        ring_wait_empty(empty, at);
        barrier_expect(barrier, bytes);
        if (bytes > 0)
            copy_bulk(shared_address(shared.in[at.stage]),
                      static_cast<const float *>(walk.item->inputs[0]) + first, bytes, barrier);
    }
}

/* One thread. A buffer is given back a tile later: its copy has run beside the next one's. */
static __device__ __forceinline__ void store_tiles(pipeline_shared &shared, tile_walk walk)
{
    const uint32_t full = shared_address(shared.out_ring.full);
    const uint32_t empty = shared_address(shared.out_ring.empty);
    ring_cursor at = {0, 0}, before = {0, 0};
    uint64_t first;
    uint32_t count;
    for (bool begun = false; walk_find(walk, first, count); walk.tile += gridDim.x) {
        const uint32_t bytes = copied_bytes(count);
        ring_wait_full(full, at);
        if (bytes > 0)
            store_bulk(static_cast<float *>(walk.item->outputs[0]) + first,
                       shared_address(shared.out[at.stage]), bytes);
        store_commit();
        store_wait_read<1>();
        if (begun)
            ring_give_back(empty, before);
        begun = true;
        before = at;
        ring_next(at, BUFFERS);
    }
    store_wait();
}

/* The elements behind the last quad of an item, by as many threads. */
static __device__ __forceinline__ void compute_rest(const struct sluice_item &item, uint64_t first,
                                                    uint32_t count, const coefficients &p)
{
    const uint64_t i = first + count / 4 * 4 + threadIdx.x;
    if (threadIdx.x >= count % 4)
        return;
    float v[1] = {static_cast<const float *>(item.inputs[0])[i]};
    compute(v, p);
    static_cast<float *>(item.outputs[0])[i] = v[0];
}

/* All compute warps. A tile is in registers before the first round, so the next may come in. Every
 * thread speaks for itself: that a lane may for its warp after __syncwarp() is beyond racecheck. */
static __device__ __forceinline__ void compute_tiles(pipeline_shared &shared, tile_walk walk)
{
    const uint32_t in_full = shared_address(shared.in_ring.full);
    const uint32_t in_empty = shared_address(shared.in_ring.empty);
    const uint32_t out_full = shared_address(shared.out_ring.full);
    const uint32_t out_empty = shared_address(shared.out_ring.empty);
    ring_cursor at = {0, 0};
    uint64_t first;
    uint32_t count;
    for (; walk_find(walk, first, count); walk.tile += gridDim.x, ring_next(at, BUFFERS)) {
        const coefficients p = coefficients_of(*walk.item);
        const float4 *in = reinterpret_cast<const float4 *>(shared.in[at.stage]);
        float4 *out = reinterpret_cast<float4 *>(shared.out[at.stage]);
        float v[QUADS * 4] = {};
        ring_wait_full(in_full, at);
#pragma unroll
        for (uint32_t i = 0; i < QUADS; i++)
            if (const uint32_t quad = i * COMPUTE_THREADS + threadIdx.x; quad < count / 4) {
                const float4 four = in[quad];
                v[i * 4] = four.x, v[i * 4 + 1] = four.y;
                v[i * 4 + 2] = four.z, v[i * 4 + 3] = four.w;
            }
        reads_before_copy();
        ring_give_back(in_empty, at);
        compute(v, p);
        ring_wait_empty(out_empty, at);
#pragma unroll
        for (uint32_t i = 0; i < QUADS; i++)
            if (const uint32_t quad = i * COMPUTE_THREADS + threadIdx.x; quad < count / 4)
                out[quad] = make_float4(v[i * 4], v[i * 4 + 1], v[i * 4 + 2], v[i * 4 + 3]);
        writes_before_copy();
        barrier_arrive(ring_barrier(out_full, at));
        compute_rest(*walk.item, first, count, p);
    }
}

#endif

/* ---- kernels -----------------------------------------------------------------------------------
 */

static __global__ void __launch_bounds__(THREADS, BLOCKS_OF_SM)
    pipeline_specialized(const struct sluice_item *items, uint32_t count)
{
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
    extern __shared__ __align__(128) char memory[];
    pipeline_shared &shared = *reinterpret_cast<pipeline_shared *>(memory);
    const uint32_t warp = threadIdx.x / WARP;
    if (threadIdx.x == 0) {
        ring_init(shared_address(shared.in_ring.full), BUFFERS, 1);
        ring_init(shared_address(shared.in_ring.empty), BUFFERS, COMPUTE_THREADS);
        ring_init(shared_address(shared.out_ring.full), BUFFERS, COMPUTE_THREADS);
        ring_init(shared_address(shared.out_ring.empty), BUFFERS, 1);
        barrier_init_done();
    }
    __syncthreads();
    if (warp < COMPUTE_WARPS)
        compute_tiles(shared, walk_begin(items, count));
    else if (warp == COMPUTE_WARPS && warp_elect())
        load_tiles(shared, walk_begin(items, count));
    else if (warp == COMPUTE_WARPS + 1 && warp_elect())
        store_tiles(shared, walk_begin(items, count));
#endif
}

/* A row of blocks for each item. */
static __global__ void pipeline_plain(const struct sluice_item *items)
{
    const struct sluice_item &item = items[blockIdx.y];
    const uint64_t count = item.sizes[0], quads = count / 4;
    const uint64_t stride = (uint64_t)gridDim.x * PLAIN_THREADS;
    const uint64_t thread = (uint64_t)blockIdx.x * PLAIN_THREADS + threadIdx.x;
    const coefficients p = coefficients_of(item);
    const float *x = static_cast<const float *>(item.inputs[0]);
    float *y = static_cast<float *>(item.outputs[0]);
    for (uint64_t i = thread; i < quads; i += stride) {
        const float4 four = reinterpret_cast<const float4 *>(x)[i];
        float v[4] = {four.x, four.y, four.z, four.w};
        compute(v, p);
        reinterpret_cast<float4 *>(y)[i] = make_float4(v[0], v[1], v[2], v[3]);
    }
    for (uint64_t i = quads * 4 + thread; i < count; i += stride) {
        float v[1] = {x[i]};
        compute(v, p);
        y[i] = v[0];
    }
}

/* ---- launching ---------------------------------------------------------------------------------
 */

static int enqueue_plain(const struct sluice_batch *batch, cudaStream_t stream)
{
    uint64_t longest = 1;
    for (uint32_t i = 0; i < batch->count; i++)
        longest = batch->items[i].sizes[0] > longest ? batch->items[i].sizes[0] : longest;
    const uint64_t blocks = (longest + 4 * PLAIN_THREADS - 1) / (4 * PLAIN_THREADS);
    const dim3 grid((unsigned)(blocks < PLAIN_BLOCKS_MAX ? blocks : PLAIN_BLOCKS_MAX),
                    batch->count);
    pipeline_plain<<<grid, PLAIN_THREADS, 0, stream>>>(batch->device_items);
    return (int)cudaGetLastError();
}

static int enqueue(const struct sluice_batch *batch, const struct sluice_streams *streams,
                   struct sluice_allocator *allocator)
{
    bool specialized = streams->cuda->major == 9;
    uint64_t tiles = 0;
    (void)allocator;
    for (uint32_t i = 0; i < batch->count; i++) {
        specialized = specialized && batch->items[i].values[PIPELINE_SPECIALIZED].integer;
        tiles += (batch->items[i].sizes[0] + TILE - 1) / TILE;
    }
    if (!specialized)
        return enqueue_plain(batch, streams->streams[0]);
    cudaError_t result =
        cudaFuncSetAttribute(pipeline_specialized, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             (int)sizeof(pipeline_shared));
    if (result != cudaSuccess)
        return (int)result;
    const uint64_t room = (uint64_t)streams->cuda->processors * BLOCKS_OF_SM;
    pipeline_specialized<<<(unsigned)(tiles < room ? tiles : room), THREADS,
                           sizeof(pipeline_shared), streams->streams[0]>>>(batch->device_items,
                                                                           batch->count);
    return (int)cudaGetLastError();
}

SLUICE_EXPORT const struct sluice_program sluice_program_cuda = PIPELINE;
