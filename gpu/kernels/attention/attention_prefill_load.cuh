/* What attention_prefill_wgmma.cu works on, and the group of four warps that brings it: the first
 * keys and values, the others queries. Of keys and values in e4m3 attention_prefill_eight.cuh is
 * that group.
 *
 * Blocks stay, and take one item after the other: GROUP_QUERIES queries for each group of
 * consumers, of one row and query head; PACKED: one KV head, and a span of its keys
 * (attention_prefill_spans.cuh). Numbers come from batch.next_item; the row is found and
 * queries and the first keys are asked for while the consumers are still at the item before. */
#pragma once

#include "gpu/kernels/attention/attention_prefill_spans.cuh"
#include "gpu/kernels/attention/attention_tile.cuh"
#include "gpu/kernels/common/cluster_push.cuh"
#include "gpu/kernels/common/memory_map.cuh"
#include "gpu/kernels/common/ring.cuh"

#define GROUP_THREADS 128
#define GROUP_QUERIES 64
#define KEYS PREFILL_KEYS
#define STAGES 2       /* of keys, and of values */
#define Q_STAGES 2     /* of queries: the next item's come while this one is attended to */
#define EIGHT_ITEMS 8  /* that are kept, of e4m3: more than warps can be apart in */
#define PIECE 16       /* positions that are next to each other in every cache */
#define NUMBERS 4      /* of items, handed from warp to warp; more than they can be apart in */
#define BARRIER_LOAD 1 /* named barriers: of those who load; and each group's turn */
#define BARRIER_TURN 2

/* An item. PACKED: token and position are those of the row's first token. */
struct wgmma_work {
    const uint32_t *table;
    uint32_t token;             /* of the first query */
    uint32_t queries, position; /* how many; the first one's; without any there are no more items */
    uint32_t first, last;       /* keys that some query sees */
    uint32_t tile, tile_end;    /* of keys */
    uint32_t head, kv_head;
    uint32_t query;  /* PACKED: the first, from the row's first */
    uint32_t record; /* PACKED: of all queries; SPAN_WHOLE: they need none */
};

namespace HALF
{

/* Who brings queries: all of the group, or all but its first warp, which brings the rest. */
template <bool EIGHT> constexpr uint32_t Q_THREADS = EIGHT ? GROUP_THREADS : GROUP_THREADS - WARP;

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
    half_t k[STAGES][halves][KEYS][64];
    half_t v[STAGES][halves][KEYS][64];
    ring_barriers<Q_STAGES> q_ring;
    ring_barriers<STAGES> k_ring, v_ring;
    wgmma_work work[Q_STAGES]; /* whose queries they are */
    uint64_t cut;              /* values have come of which some rows are to become zeros */
    uint64_t number_full[NUMBERS];
    uint32_t number[NUMBERS]; /* of items */
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

/* ---- which item ---- */

/* Rows whose tiles of queries are counted, 32 at a time, a lane each. Every warp counts for itself;
 * numbers of items only grow, so it goes on from where it is. */
struct wgmma_rows {
    uint4 row;       /* first words of this lane's struct batch_row */
    uint32_t sum;    /* tiles of all rows from `base` up to it */
    uint32_t base;   /* the first lane's row */
    uint32_t before; /* tiles of the rows before */
};

template <int HD, bool PACKED>
__device__ __forceinline__ void rows_count(const struct attention_args &a,
                                           const struct batch_group &group, uint32_t span,
                                           wgmma_rows &rows)
{
    uint32_t lane = threadIdx.x % WARP, index = rows.base + lane;
    rows.row = make_uint4(0, 0, 0, 0);
    if (index < a.batch.counts->rows)
        rows.row = *reinterpret_cast<const uint4 *>(&a.batch.rows[index]);
    uint32_t q_len = rows.row.z, per = PACKED ? a.heads / a.kv_heads : 1;
    rows.sum = q_len > ATTENTION_DECODE_MAX ? spans_tiles(q_len, per, QUERIES<HD>) : 0;
    if (PACKED && rows.sum && !spans_are_tiles(rows.row.y, q_len, span)) {
        uint32_t tiles = rows.sum;
        rows.sum = 0;
        for (uint32_t tile = 0; tile < tiles; tile++)
            rows.sum +=
                spans_of(rows.row.y, q_len, per, QUERIES<HD>, tile, group.window, span).count;
    }
#pragma unroll
    for (uint32_t offset = 1; offset < WARP; offset *= 2) {
        uint32_t other = __shfl_up_sync(FULL_MASK, rows.sum, offset);
        rows.sum += lane >= offset ? other : 0;
    }
}

/* The row of tile (PACKED: unit) `number`, by its lane; rows.before is then of the rows before
 * those that were counted. False where there are not so many: rows.before is the number of all. */
template <int HD, bool PACKED>
__device__ __forceinline__ bool rows_find(const struct attention_args &a,
                                          const struct batch_group &group, uint32_t span,
                                          wgmma_rows &rows, uint32_t number, uint32_t &lane)
{
    uint32_t all;
    while (all = __shfl_sync(FULL_MASK, rows.sum, WARP - 1), number - rows.before >= all) {
        rows.before += all;
        rows.base += WARP;
        if (rows.base >= a.batch.counts->rows)
            return false;
        rows_count<HD, PACKED>(a, group, span, rows);
    }
    lane = __ffs(__ballot_sync(FULL_MASK, rows.sum > number - rows.before)) - 1;
    return true;
}

/* Item `number`: heads of a tile follow each other, and within a row the last tile, which sees the
 * most keys, comes first. BLOCKS of a cluster have a head each. False where there are not so many.
 */
template <int HD, uint32_t BLOCKS>
__device__ __forceinline__ bool work_find(const struct attention_args &a,
                                          const struct batch_group &group, wgmma_rows &rows,
                                          uint32_t number, wgmma_work &work)
{
    const uint32_t each = a.heads / BLOCKS;
    uint32_t tile = number / each, lane;
    if (!rows_find<HD, false>(a, group, SPAN_WHOLE, rows, tile, lane))
        return false;
    tile -= rows.before;
    uint32_t slot = __shfl_sync(FULL_MASK, rows.row.x, lane);
    uint32_t position = __shfl_sync(FULL_MASK, rows.row.y, lane);
    uint32_t q_len = __shfl_sync(FULL_MASK, rows.row.z, lane);
    uint32_t token = __shfl_sync(FULL_MASK, rows.row.w, lane);
    uint32_t query = (__shfl_sync(FULL_MASK, rows.sum, lane) - 1 - tile) * QUERIES<HD>;
    work.table = group.tables + (size_t)slot * group.blocks_max;
    work.token = token + query;
    work.queries = q_len - query < QUERIES<HD> ? q_len - query : QUERIES<HD>;
    work.position = position + query;
    work.last = work.position + work.queries - 1;
    work.first =
        group.window && work.position >= group.window ? work.position - group.window + 1 : 0;
    work.tile = work.first / KEYS;
    work.tile_end = work.last / KEYS + 1;
    work.head = number % each * BLOCKS + (BLOCKS > 1 ? cluster_rank() : 0);
    work.kv_head = work.head / (a.heads / a.kv_heads);
    return true;
}

/* The same of a KV head's queries and a span of their keys. */
template <int HD>
__device__ __forceinline__ bool
work_find_packed(const struct attention_args &a, const struct batch_group &group,
                 const prefill_spans &spans, wgmma_rows &rows, uint32_t number, wgmma_work &work)
{
    uint32_t unit = number / a.kv_heads, per = a.heads / a.kv_heads, lane;
    if (!rows_find<HD, true>(a, group, spans.tiles, rows, unit, lane))
        return false;
    uint32_t slot = __shfl_sync(FULL_MASK, rows.row.x, lane);
    work.position = __shfl_sync(FULL_MASK, rows.row.y, lane);
    uint32_t q_len = __shfl_sync(FULL_MASK, rows.row.z, lane);
    work.token = __shfl_sync(FULL_MASK, rows.row.w, lane);
    uint32_t row_unit = __shfl_sync(FULL_MASK, rows.sum, lane ? lane - 1 : 0);
    row_unit = rows.before + (lane ? row_unit : 0);
    work.head = work.kv_head = number % a.kv_heads;
    uint32_t left = unit - row_unit, tile = spans_tiles(q_len, per, QUERIES<HD>) - 1;
    if (spans_are_tiles(work.position, q_len, spans.tiles))
        tile -= left, left = 0;
    spans_reach reach;
    for (;; left -= reach.count, tile--) {
        reach = spans_of(work.position, q_len, per, QUERIES<HD>, tile, group.window, spans.tiles);
        if (left < reach.count)
            break;
    }
    work.table = group.tables + (size_t)slot * group.blocks_max;
    work.query = tile * QUERIES<HD>;
    work.queries = min(q_len * per - work.query, QUERIES<HD>);
    work.first = reach.first;
    work.last = reach.last;
    work.tile = spans_before(reach, left);
    work.tile_end = spans_before(reach, left + 1);
    work.record = reach.count == 1 ? SPAN_WHOLE : number;
    if (reach.count > 1 && !left && !work.head && threadIdx.x % GROUP_THREADS == 0)
        spans.tile_unit[work.token + tile] = unit;
    return true;
}

/* ---- copies ---- */

/* Where the keys of one tile are, `rows` at a time, which are next to each other: lane i of a warp
 * looks up the i-th so many. */
__device__ __forceinline__ uint64_t wgmma_look_up(const struct attention_args &a,
                                                  const struct batch_group &group,
                                                  const wgmma_work &work, uint32_t block_shift,
                                                  uint32_t tile, uint32_t rows, uint32_t row_bytes)
{
    uint32_t begin = tile * KEYS + threadIdx.x * rows % KEYS;
    uint32_t position = begin > work.last               ? work.last / rows * rows
                        : begin + rows - 1 < work.first ? work.first / rows * rows
                                                        : begin;
    return reinterpret_cast<uint64_t>(
        attention_place(group, work.table, block_shift, position, work.kv_head, a.kv.k, row_bytes));
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

/* The same in elements of `q`; without PACKED from the item's head. */
template <bool PACKED, int HD>
__device__ __forceinline__ size_t wgmma_query_at(const struct attention_args &a,
                                                 const wgmma_work &work, uint32_t query)
{
    wgmma_query at = wgmma_query_of<PACKED>(a, work, query);
    return (size_t)(work.token + at.token) * a.q_stride + (PACKED ? at.head * HD : 0);
}

/* The item's queries; those that do not exist as zeros. */
template <int HD, bool EIGHT, bool PACKED>
__device__ __forceinline__ void wgmma_fetch_q(const struct attention_args &a,
                                              wgmma_shared<HD, EIGHT> &shared,
                                              const wgmma_work &work, uint32_t stage)
{
    const uint32_t units = HD / 8, at_once = Q_THREADS<EIGHT> / units;
    uint32_t thread = threadIdx.x % GROUP_THREADS - (GROUP_THREADS - Q_THREADS<EIGHT>);
    uint32_t unit = thread % units, first_row = thread / units;
    const uint32_t first_head = PACKED ? 0 : work.head * HD;
    const half_t *from = static_cast<const half_t *>(a.q) + first_head + unit * 8;
    for (uint32_t query = first_row; query < QUERIES<HD>; query += at_once) {
        bool valid = query < work.queries;
        uint32_t to = shared_address(shared.q[stage][query / GROUP_QUERIES][unit / 8]);
        copy_async(to + swizzled(query % GROUP_QUERIES, unit % 8),
                   from + wgmma_query_at<PACKED, HD>(a, work, valid ? query : 0), valid);
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
        if (position >= work.first && position <= work.last)
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

/* The warp that brings keys and values. */
template <int HD> struct wgmma_keeper {
    const struct attention_args &a;
    const struct batch_group &group;
    const wgmma_memory &memory;
    wgmma_shared<HD, false> &shared;
    uint32_t block_shift;
    ring_cursor k, v;
    uint32_t cut; /* parity of that barrier's phase */
};

template <int HD, uint32_t BLOCKS>
__device__ __forceinline__ void wgmma_bring_k(wgmma_keeper<HD> &w, uint64_t pieces)
{
    uint32_t to = shared_address(&w.shared.k[w.k.stage]);
    ring_wait_empty(shared_address(w.shared.k_ring.empty), w.k);
    wgmma_fetch<HD, BLOCKS>(w.memory, pieces, to,
                            ring_barrier(shared_address(w.shared.k_ring.full), w.k));
    ring_next(w.k, STAGES);
}

template <int HD, uint32_t BLOCKS>
__device__ __forceinline__ void wgmma_bring_v(wgmma_keeper<HD> &w, const wgmma_work &work,
                                              uint64_t pieces, uint32_t tile)
{
    uint32_t to = shared_address(&w.shared.v[w.v.stage]), cut = shared_address(&w.shared.cut);
    uint32_t full = ring_barrier(shared_address(w.shared.v_ring.full), w.v);
    bool whole = tile * KEYS >= work.first && tile * KEYS + KEYS - 1 <= work.last;
    ring_wait_empty(shared_address(w.shared.v_ring.empty), w.v);
    wgmma_fetch<HD, BLOCKS>(w.memory, pieces + (w.a.kv.v - w.a.kv.k), to, whole ? full : cut);
    if (!whole) {
        barrier_wait(cut, w.cut);
        w.cut ^= 1;
        wgmma_cut<HD>(work, tile, to);
        if (threadIdx.x % WARP == 0)
            barrier_arrive(full);
    }
    ring_next(w.v, STAGES);
}

/* An item's: keys are a tile ahead, as they are given back first. */
template <int HD, uint32_t BLOCKS>
__device__ __forceinline__ void wgmma_bring_item(wgmma_keeper<HD> &w, const wgmma_work &work)
{
    uint32_t tile = work.tile, rows = w.memory.rows;
    uint64_t now = wgmma_look_up(w.a, w.group, work, w.block_shift, tile, rows, HD * 2), next = 0;
    wgmma_bring_k<HD, BLOCKS>(w, now);
    for (; tile < work.tile_end; tile++, now = next) {
        if (tile + 1 < work.tile_end) {
            next = wgmma_look_up(w.a, w.group, work, w.block_shift, tile + 1, rows, HD * 2);
            wgmma_bring_k<HD, BLOCKS>(w, next);
        }
        wgmma_bring_v<HD, BLOCKS>(w, work, now, tile);
    }
}

/* To all threads that load, of all blocks of a cluster. */
template <int HD, uint32_t BLOCKS>
__device__ __forceinline__ void numbers_tell(wgmma_shared<HD, false> &shared, uint32_t stage,
                                             uint32_t number)
{
#pragma unroll
    for (uint32_t rank = 0; rank < BLOCKS; rank++) {
        uint32_t to = shared_address(&shared.number[stage]);
        uint32_t full = shared_address(&shared.number_full[stage]);
        if (BLOCKS > 1)
            to = cluster_address(to, rank), full = cluster_address(full, rank);
        asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(to), "r"(number) : "memory");
        cluster_arrive(full);
    }
}

template <int HD>
__device__ __forceinline__ uint32_t numbers_next(wgmma_shared<HD, false> &shared, ring_cursor &at)
{
    cluster_wait(ring_barrier(shared_address(shared.number_full), at), at.phase);
    uint32_t number = *static_cast<volatile uint32_t *>(&shared.number[at.stage]);
    ring_next(at, NUMBERS);
    return number;
}

template <int HD, bool PACKED, uint32_t BLOCKS>
__device__ __forceinline__ bool
wgmma_find(const struct attention_args &a, const struct batch_group &group,
           const prefill_spans &spans, wgmma_rows &rows, uint32_t number, wgmma_work &work)
{
    return PACKED ? work_find_packed<HD>(a, group, spans, rows, number, work)
                  : work_find<HD, BLOCKS>(a, group, rows, number, work);
}

/* Each block, or cluster, asks for a number once for every item that it has, the first of which is
 * its own number: as many numbers are handed out as there are items, and who has the last leaves
 * the count as it was found. */
template <int HD, bool PACKED, uint32_t BLOCKS>
__device__ static void wgmma_load_keys(const struct attention_args &a,
                                       const struct batch_group &group, const prefill_spans &spans,
                                       const wgmma_memory &memory, wgmma_shared<HD, false> &shared,
                                       uint32_t block_shift)
{
    const bool leader = threadIdx.x % WARP == 0 && (BLOCKS == 1 || cluster_rank() == 0);
    uint32_t number = blockIdx.x / BLOCKS, taken = UINT32_MAX;
    wgmma_keeper<HD> keeper = {a, group, memory, shared, block_shift, {0, 0}, {0, 0}, 0};
    ring_cursor at = {0, 0}; /* of numbers */
    wgmma_rows rows = {};
    wgmma_work work;
    rows_count<HD, PACKED>(a, group, spans.tiles, rows);
    while (wgmma_find<HD, PACKED, BLOCKS>(a, group, spans, rows, number, work)) {
        if (leader)
            taken = atomicAdd(a.batch.next_item, 1);
        wgmma_bring_item<HD, BLOCKS>(keeper, work);
        if (leader)
            numbers_tell<HD, BLOCKS>(shared, at.stage, gridDim.x / BLOCKS + taken);
        __syncwarp();
        number = numbers_next(shared, at);
    }
    if (leader && taken + 1 == rows.before * ((PACKED ? a.kv_heads : a.heads) / BLOCKS))
        *a.batch.next_item = 0;
}

template <int HD, bool PACKED, uint32_t BLOCKS>
__device__ static void
wgmma_load_queries(const struct attention_args &a, const struct batch_group &group,
                   const prefill_spans &spans, wgmma_shared<HD, false> &shared)
{
    uint32_t number = blockIdx.x / BLOCKS;
    ring_cursor at = {0, 0};
    wgmma_loader loader = {};
    wgmma_rows rows = {};
    wgmma_work work;
    rows_count<HD, PACKED>(a, group, spans.tiles, rows);
    while (wgmma_find<HD, PACKED, BLOCKS>(a, group, spans, rows, number, work)) {
        wgmma_bring_q<HD, false, PACKED>(loader, a, shared, work);
        pending_tell(loader.pending);
        number = numbers_next(shared, at);
    }
    wgmma_bring_end(loader, shared);
}

template <int HD, bool PACKED, uint32_t BLOCKS>
__device__ __forceinline__ void wgmma_load(const struct attention_args &a,
                                           const struct batch_group &group,
                                           const prefill_spans &spans, const wgmma_memory &memory,
                                           wgmma_shared<HD, false> &shared, uint32_t block_shift)
{
    if (threadIdx.x % GROUP_THREADS < WARP)
        wgmma_load_keys<HD, PACKED, BLOCKS>(a, group, spans, memory, shared, block_shift);
    else
        wgmma_load_queries<HD, PACKED, BLOCKS>(a, group, spans, shared);
}

#endif

} // namespace HALF
