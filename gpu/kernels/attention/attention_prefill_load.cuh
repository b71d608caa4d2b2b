/* What attention_prefill_wgmma.cu works on, and the group of four warps that brings it: one keys,
 * one values, one queries, of the items that the fourth finds (attention_prefill_items.cuh). Of
 * keys and values in e4m3 attention_prefill_eight.cuh is that group.
 *
 * Blocks stay, and take one item after the other. Each warp is as far ahead as its buffers are
 * many, across the ends of items, too; and where a tile is in memory is looked up before its buffer
 * is waited for. */
#pragma once

#include "gpu/kernels/attention/attention_prefill_items.cuh"
#include "gpu/kernels/attention/attention_tile.cuh"
#include "gpu/kernels/common/memory_map.cuh"

#define GROUP_THREADS 128
#define GROUP_QUERIES 64
#define Q_STAGES 2     /* of queries: the next item's come while this one is attended to */
#define EIGHT_STAGES 2 /* of keys, and of values, of e4m3 once they are 16 bits */
#define EIGHT_ITEMS 8  /* that are kept, of e4m3: more than warps can be apart in */
#define PIECE 16       /* positions that are next to each other in every cache */
#define BARRIER_LOAD 1 /* named barriers: of those who load; and each group's turn */
#define BARRIER_TURN 2

namespace HALF
{

/* Who brings queries: all of the group, or its last warp. */
template <bool EIGHT> constexpr uint32_t Q_THREADS = EIGHT ? GROUP_THREADS : WARP;

/* Buffers of keys, and of values: as many as there is room for. */
template <int HD, bool EIGHT> constexpr uint32_t K_STAGES = EIGHT ? EIGHT_STAGES : HD == 64 ? 4 : 3;
template <int HD, bool EIGHT> constexpr uint32_t V_STAGES = EIGHT ? EIGHT_STAGES : HD == 64 ? 4 : 2;

/* Of keys and values in e4m3: what is brought as it is kept, of each warp that brings
 * (attention_prefill_eight.cuh). */
template <int HD, bool EIGHT> struct wgmma_kept {
};
template <int HD> struct wgmma_kept<HD, true> {
    static const uint32_t stages = HD == 64 ? 4 : 2; /* of a quarter of a tile, of keys or values */
    static const uint32_t piece = PIECE * (HD + sizeof(float)), part = KEYS / 4 * (piece / PIECE);
    alignas(16) char ring[GROUP_THREADS / WARP][stages][part];
    uint64_t full[GROUP_THREADS / WARP][stages];
    wgmma_work items[EIGHT_ITEMS];
};

template <int HD, bool EIGHT> struct wgmma_shared {
    static const int halves = HD / 64; /* rows of 128 bytes hold 64 dimensions */
    half_t q[Q_STAGES][CONSUMERS<HD>][halves][GROUP_QUERIES][64];
    half_t k[K_STAGES<HD, EIGHT>][halves][KEYS][64];
    half_t v[V_STAGES<HD, EIGHT>][halves][KEYS][64];
    ring_barriers<Q_STAGES> q_ring;
    ring_barriers<K_STAGES<HD, EIGHT>> k_ring;
    ring_barriers<V_STAGES<HD, EIGHT>> v_ring;
    uint64_t cut[V_STAGES<HD, EIGHT>]; /* values have come of which some are to become zeros */
    wgmma_work work[Q_STAGES];         /* whose queries they are */
    wgmma_told<EIGHT> told;
    wgmma_kept<HD, EIGHT> kept;
};

/* Where keys and values are. */
struct wgmma_memory {
    CUtensorMap map;
    uint32_t rows; /* of a copy */
};

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* The place of 16-byte unit `unit` of row `row`, in rows of 128 bytes. */
__device__ __forceinline__ uint32_t swizzled(uint32_t row, uint32_t unit)
{
    return row * 128 + ((unit ^ (row & 7)) * 16);
}

__device__ __forceinline__ void proxy_fence()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void named_sync(uint32_t barrier, uint32_t threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

__device__ __forceinline__ void named_arrive(uint32_t barrier, uint32_t threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

/* ---- copies ---- */

/* Where the keys of one tile are (values: by `part`), `rows` at a time, which are next to each
 * other: lane i of a warp looks up the i-th so many. */
__device__ __forceinline__ uint64_t wgmma_look_up(const struct attention_args &a,
                                                  const struct batch_group &group,
                                                  const wgmma_work &work, uint32_t block_shift,
                                                  uint32_t tile, uint32_t rows, uint64_t part,
                                                  uint32_t row_bytes)
{
    uint32_t begin = tile * KEYS + threadIdx.x * rows % KEYS;
    uint32_t position = begin > work.kept               ? work.kept / rows * rows
                        : begin + rows - 1 < work.first ? work.first / rows * rows
                                                        : begin;
    return reinterpret_cast<uint64_t>(
        attention_place(group, work.table, block_shift, position, work.kv_head, part, row_bytes));
}

/* Where a query of the item is. */
struct wgmma_query {
    uint32_t token, head; /* token: from the item's */
};

template <bool PACKED>
__device__ __forceinline__ wgmma_query wgmma_query_of(const struct attention_args &a,
                                                      const wgmma_work &work, uint32_t query)
{
    if (!PACKED)
        return {query, work.head};
    uint32_t per = a.heads / a.kv_heads, token = (work.query + query) / per;
    return {token, work.head * per + work.query + query - token * per};
}

/* The item's queries; those that do not exist as zeros. A thread's are so many apart that it goes
 * from one to the next without a division. */
template <int HD, bool EIGHT, bool PACKED>
__device__ __forceinline__ void wgmma_fetch_q(const struct attention_args &a,
                                              wgmma_shared<HD, EIGHT> &shared,
                                              const wgmma_work &work, uint32_t stage)
{
    const uint32_t units = HD / 8, at_once = Q_THREADS<EIGHT> / units;
    uint32_t thread = threadIdx.x % GROUP_THREADS - (GROUP_THREADS - Q_THREADS<EIGHT>);
    uint32_t unit = thread % units, query = thread / units, queries = work.queries;
    uint32_t per = PACKED ? a.heads / a.kv_heads : 1, tokens = at_once / per, heads = at_once % per;
    wgmma_query at = wgmma_query_of<PACKED>(a, work, query < queries ? query : 0);
    uint32_t head = at.head - (PACKED ? work.head * per : 0); /* PACKED: of the KV head's */
    const half_t *from = static_cast<const half_t *>(a.q) +
                         (size_t)(work.token + at.token) * a.q_stride + at.head * HD + unit * 8;
    uint32_t to = shared_address(shared.q[stage][0][unit / 8]) + swizzled(0, unit % 8);
    for (; query < QUERIES<HD>; query += at_once) {
        uint32_t group = query / GROUP_QUERIES * (uint32_t)sizeof(shared.q[0][0]);
        bool valid = query < queries;
        copy_async((to ^ query % 8 * 16) + group + query % GROUP_QUERIES * 128, from, valid);
        if (query + at_once >= queries)
            continue;
        from += (size_t)tokens * a.q_stride;
        if (!PACKED)
            continue;
        from += heads * HD;
        head += heads;
        if (head >= per) {
            head -= per;
            from += a.q_stride - per * HD;
        }
    }
    copy_async_commit();
}

/* Copies' arrival is told when the next ones have been asked for, or before a wait. */
__device__ __forceinline__ void pending_tell(uint32_t &pending)
{
    if (!pending)
        return;
    copy_async_wait<0>();
    proxy_fence();
    barrier_arrive(pending);
    pending = 0;
}

__device__ __forceinline__ void pending_then_wait(uint32_t &pending, uint32_t empty,
                                                  const ring_cursor &at)
{
    if (barrier_test(ring_barrier(empty, at), at.phase ^ 1))
        return;
    pending_tell(pending);
    ring_wait_empty(empty, at);
}

__device__ __forceinline__ void pending_next(uint32_t &pending, uint32_t full)
{
    if (pending) {
        copy_async_wait<1>();
        proxy_fence();
        barrier_arrive(pending);
    }
    pending = full;
}

/* ---- the group that loads ---- */

struct wgmma_loader {
    ring_cursor at; /* of keys and values */
    ring_cursor q;
    uint32_t pending;
};

/* A tile of keys or values into `to`; they count on `barrier`. Of two BLOCKS each brings half of it
 * for both. */
template <int HD, uint32_t BLOCKS>
__device__ __forceinline__ void wgmma_fetch(const wgmma_memory &memory, uint64_t pieces,
                                            uint32_t to, uint32_t barrier)
{
    bool chosen = threadIdx.x % WARP == 0;
    if (chosen)
        barrier_expect(barrier, KEYS * HD * 2);
    uint32_t begin = BLOCKS > 1 ? cluster_rank() * (KEYS / BLOCKS) : 0;
    for (uint32_t row = begin; row < begin + KEYS / BLOCKS; row += memory.rows) {
        uint64_t from = __shfl_sync(FULL_MASK, pieces, row / memory.rows);
#pragma unroll
        for (uint32_t half = 0; half < HD / 64; half++) {
            uint32_t at = to + half * (KEYS * 128) + row * 128;
            if (chosen && BLOCKS > 1)
                copy_box_memory_both<HD>(at, &memory.map, half, from, barrier);
            else if (chosen)
                copy_box_memory<HD>(at, &memory.map, half, from, barrier);
        }
    }
    __syncwarp();
}

/* Zeros for values of positions that are not the item's to read: what is there may be no number. */
template <int HD>
__device__ __forceinline__ void wgmma_cut(const wgmma_work &work, uint32_t tile, uint32_t to)
{
    for (uint32_t row = threadIdx.x % WARP; row < KEYS; row += WARP) {
        uint32_t position = tile * KEYS + row;
        if (position >= work.first && position <= work.kept)
            continue;
#pragma unroll
        for (uint32_t unit = 0; unit < HD / 8; unit++)
            store_shared(to + unit / 8 * (KEYS * 128) + row * 128 + unit % 8 * 16,
                         make_uint4(0, 0, 0, 0));
    }
    proxy_fence();
    __syncwarp();
}

template <int HD, bool EIGHT, bool PACKED>
__device__ __forceinline__ void wgmma_bring_q(wgmma_loader &loader, const struct attention_args &a,
                                              wgmma_shared<HD, EIGHT> &shared,
                                              const wgmma_work &work)
{
    const uint32_t stage = loader.q.stage;
    pending_then_wait(loader.pending, shared_address(shared.q_ring.empty), loader.q);
    wgmma_fetch_q<HD, EIGHT, PACKED>(a, shared, work, stage);
    if (threadIdx.x % GROUP_THREADS == GROUP_THREADS - 1)
        shared.work[stage] = work;
    pending_next(loader.pending, ring_barrier(shared_address(shared.q_ring.full), loader.q));
    ring_next(loader.q, Q_STAGES);
}

/* There are no more items. */
template <int HD, bool EIGHT>
__device__ __forceinline__ void wgmma_bring_end(wgmma_loader &loader,
                                                wgmma_shared<HD, EIGHT> &shared)
{
    ring_wait_empty(shared_address(shared.q_ring.empty), loader.q);
    if (threadIdx.x % GROUP_THREADS == GROUP_THREADS - 1)
        shared.work[loader.q.stage].queries = 0;
    barrier_arrive(ring_barrier(shared_address(shared.q_ring.full), loader.q));
}

/* A warp that brings keys, or values. The next item is wanted when the last keys of this one are.
 */
template <int HD, bool VALUES, uint32_t BLOCKS>
__device__ __forceinline__ void
wgmma_load_tiles(const struct attention_args &a, const struct batch_group &group,
                 const wgmma_memory &memory, wgmma_shared<HD, false> &shared, uint32_t block_shift)
{
    const uint32_t stages = VALUES ? V_STAGES<HD, false> : K_STAGES<HD, false>;
    const uint32_t tiles = shared_address(VALUES ? &shared.v[0] : &shared.k[0]);
    const uint32_t full = shared_address(VALUES ? shared.v_ring.full : shared.k_ring.full);
    const uint32_t empty = shared_address(VALUES ? shared.v_ring.empty : shared.k_ring.empty);
    const uint64_t part = VALUES ? a.kv.v : a.kv.k;
    const bool chosen = threadIdx.x % WARP == 0;
    ring_count<stages> count = {0};
    ring_count<ITEMS> item = {0};
    uint32_t cut = 0; /* parities of those barriers' phases, a bit each */
    for (;; items_give_back<BLOCKS>(shared.told, item)) {
        const wgmma_work &work = items_next<BLOCKS>(shared.told, item.at());
        if (work.queries == 0)
            break;
        uint32_t tile = work.tile;
        uint64_t now = wgmma_look_up(a, group, work, block_shift, tile, memory.rows, part, HD * 2);
        for (uint64_t next = now; tile < work.tile_end; tile++, now = next) {
            if (tile + 1 < work.tile_end)
                next =
                    wgmma_look_up(a, group, work, block_shift, tile + 1, memory.rows, part, HD * 2);
            else if (!VALUES && chosen && (BLOCKS == 1 || cluster_rank() == 0))
                barrier_arrive(shared_address(&shared.told.wanted));
            const ring_cursor at = count.at();
            uint32_t to = tiles + at.stage * (uint32_t)sizeof(shared.k[0]);
            bool whole =
                !VALUES || (tile * KEYS >= work.first && tile * KEYS + KEYS - 1 <= work.kept);
            uint32_t some = shared_address(&shared.cut[VALUES ? at.stage : 0]);
            ring_wait_empty(empty, at);
            wgmma_fetch<HD, BLOCKS>(memory, now, to, whole ? ring_barrier(full, at) : some);
            if (!whole) {
                barrier_wait(some, cut >> at.stage & 1);
                cut ^= 1u << at.stage;
                wgmma_cut<HD>(work, tile, to);
                if (chosen)
                    barrier_arrive(ring_barrier(full, at));
            }
            count.next();
        }
    }
}

/* The warp that brings queries. */
template <int HD, bool PACKED, uint32_t BLOCKS>
__device__ __forceinline__ void wgmma_load_queries(const struct attention_args &a,
                                                   wgmma_shared<HD, false> &shared)
{
    ring_count<ITEMS> item = {0};
    wgmma_loader loader = {};
    for (;; items_give_back<BLOCKS>(shared.told, item)) {
        const wgmma_work &work = items_next<BLOCKS>(shared.told, item.at());
        if (work.queries == 0)
            break;
        wgmma_bring_q<HD, false, PACKED>(loader, a, shared, work);
        pending_tell(loader.pending);
    }
    wgmma_bring_end(loader, shared);
}

/* The one that brings queries is the last: its threads are those of Q_THREADS. */
template <int HD, bool PACKED, uint32_t BLOCKS>
__device__ __forceinline__ void wgmma_load(const struct attention_args &a,
                                           const struct batch_group &group,
                                           const prefill_spans &spans, const wgmma_memory &memory,
                                           wgmma_shared<HD, false> &shared, uint32_t block_shift)
{
    uint32_t warp = threadIdx.x % GROUP_THREADS / WARP;
    if (warp == 0)
        wgmma_load_tiles<HD, false, BLOCKS>(a, group, memory, shared, block_shift);
    else if (warp == 1)
        wgmma_load_tiles<HD, true, BLOCKS>(a, group, memory, shared, block_shift);
    else if (warp == 2)
        items_find<HD, PACKED, BLOCKS>(a, group, spans, shared.told);
    else
        wgmma_load_queries<HD, PACKED, BLOCKS>(a, shared);
}

#endif

} // namespace HALF
