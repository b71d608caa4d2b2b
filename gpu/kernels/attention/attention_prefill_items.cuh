/* Which items attention_prefill_wgmma.cu works on, and how those who bring them are told.
 *
 * An item has up to GROUP_QUERIES queries for each group that attends, of one row and query head;
 * PACKED: of one KV head, and a span of its keys (attention_prefill_spans.cuh). Items are numbered
 * through the rows, and numbers come from batch.next_item.
 *
 * Of keys and values in 16 bits one warp finds items and tells those that bring keys, values and
 * queries, through a ring in shared memory: of all blocks of a cluster, whose first block's warp
 * finds for all. It takes a number only when an item's last keys are about to be asked for: a block
 * that took one earlier would have it wait while others are through. */
#pragma once

#include <string.h>

#include "gpu/kernels/attention/attention_prefill_spans.cuh"
#include "gpu/kernels/common/cluster_push.cuh"
#include "gpu/kernels/common/ring.cuh"

#define KEYS PREFILL_KEYS
#define ITEMS 4        /* that are told and not yet brought; even */
#define ITEM_READERS 3 /* warps of a block that are told */

/* An item. PACKED: token and position are those of the row's first token. */
struct wgmma_work {
    const uint32_t *table;
    uint32_t token;             /* of the first query */
    uint32_t queries, position; /* how many; the first one's; without any there are no more items */
    uint32_t first, last;       /* keys that some query sees */
    uint32_t kept;              /* the row's last, up to which all are there */
    uint32_t tile, tile_end;    /* of keys */
    uint32_t head, kv_head;
    uint32_t query;  /* PACKED: the first, from the row's first */
    uint32_t record; /* PACKED: of all queries; SPAN_WHOLE: they need none */
};

/* What the warp that finds items and those that bring them tell each other; of e4m3 nothing. */
template <bool EIGHT> struct wgmma_told {
};
template <> struct wgmma_told<false> {
    wgmma_work items[ITEMS];
    ring_barriers<ITEMS> ring; /* given back to the cluster's first block */
    uint64_t wanted;           /* the next item is to be found */
};

namespace HALF
{

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* Rows whose tiles of queries are counted, 32 at a time, a lane each. Numbers of items only
 * grow, so the warp that finds them goes on from where it is. */
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
 * most keys, comes first. BLOCKS of a cluster have a head each, of which this is the first. False
 * where there are not so many. */
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
    work.kept = position + q_len - 1;
    work.first =
        group.window && work.position >= group.window ? work.position - group.window + 1 : 0;
    work.tile = work.first / KEYS;
    work.tile_end = work.last / KEYS + 1;
    work.head = number % each * BLOCKS;
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
    work.position = __shfl_sync(FULL_MASK, rows.row.y, lane);
    uint32_t q_len = __shfl_sync(FULL_MASK, rows.row.z, lane);
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
    uint32_t slot = __shfl_sync(FULL_MASK, rows.row.x, lane);
    work.token = __shfl_sync(FULL_MASK, rows.row.w, lane);
    work.table = group.tables + (size_t)slot * group.blocks_max;
    work.query = tile * QUERIES<HD>;
    work.queries = min(q_len * per - work.query, QUERIES<HD>);
    work.first = reach.first;
    work.last = reach.last;
    work.kept = work.position + q_len - 1;
    work.tile = spans_before(reach, left);
    work.tile_end = spans_before(reach, left + 1);
    work.record = reach.count == 1 ? SPAN_WHOLE : number;
    if (reach.count > 1 && !left && !work.head && threadIdx.x % WARP == 0)
        spans.tile_unit[work.token + tile] = unit;
    return true;
}

/* ---- how they are told ---- */

/* A cursor in one register: the number of the stage, and STAGES more in every other turn. */
template <uint32_t STAGES> struct ring_count {
    uint32_t count;

    __device__ __forceinline__ ring_cursor at() const
    {
        bool odd = count >= STAGES;
        return {odd ? count - STAGES : count, odd};
    }
    __device__ __forceinline__ void next()
    {
        count = count + 1 == 2 * STAGES ? 0 : count + 1;
    }
};

template <uint32_t BLOCKS>
__device__ __forceinline__ void items_wait(uint32_t barrier, uint32_t parity)
{
    if (BLOCKS > 1)
        cluster_wait(barrier, parity);
    else
        barrier_wait(barrier, parity);
}

/* By one warp: lane i tells block i of the cluster, whose head is the i-th of the item's. */
template <uint32_t BLOCKS>
__device__ __forceinline__ void items_tell(wgmma_told<false> &told, const ring_cursor &at,
                                           const wgmma_work &work)
{
    const uint32_t lane = threadIdx.x % WARP, words = sizeof(wgmma_work) / sizeof(uint32_t);
    uint32_t full = ring_barrier(shared_address(told.ring.full), at);
    if (BLOCKS == 1 && lane == 0) {
        told.items[at.stage] = work;
        barrier_arrive(full);
    }
    if (BLOCKS > 1 && lane < BLOCKS) {
        uint32_t to = cluster_address(shared_address(&told.items[at.stage]), lane), word[words];
        wgmma_work own = work;
        own.head += lane;
        memcpy(word, &own, sizeof own);
#pragma unroll
        for (uint32_t i = 0; i < words; i++)
            asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(to + i * 4), "r"(word[i])
                         : "memory");
        cluster_arrive(cluster_address(full, lane));
    }
    __syncwarp();
}

/* The item stays where it is until the whole warp gives it back. */
template <uint32_t BLOCKS>
__device__ __forceinline__ const wgmma_work &items_next(wgmma_told<false> &told,
                                                        const ring_cursor &at)
{
    items_wait<BLOCKS>(ring_barrier(shared_address(told.ring.full), at), at.phase);
    return told.items[at.stage];
}

template <uint32_t BLOCKS>
__device__ __forceinline__ void items_give_back(wgmma_told<false> &told, ring_count<ITEMS> &item)
{
    uint32_t empty = ring_barrier(shared_address(told.ring.empty), item.at());
    __syncwarp();
    if (BLOCKS == 1 && threadIdx.x % WARP == 0)
        barrier_arrive(empty);
    if (BLOCKS > 1 && threadIdx.x % WARP == 0)
        cluster_arrive(cluster_address(empty, 0));
    item.next();
}

/* The warp that finds items. Each block, or cluster, asks for a number once for every item that it
 * has, the first of which is its own number: as many numbers are handed out as there are items, and
 * who has the last leaves the count as it was found. */
template <int HD, bool PACKED, uint32_t BLOCKS>
__device__ __forceinline__ void items_find(const struct attention_args &a,
                                           const struct batch_group &group,
                                           const prefill_spans &spans, wgmma_told<false> &told)
{
    uint32_t number = blockIdx.x / BLOCKS;
    ring_count<ITEMS> item = {0};
    wgmma_rows rows = {};
    if (BLOCKS > 1 && cluster_rank() > 0)
        return;
    rows_count<HD, PACKED>(a, group, spans.tiles, rows);
    for (;; item.next()) {
        wgmma_work work = {};
        items_wait<BLOCKS>(ring_barrier(shared_address(told.ring.empty), item.at()),
                           item.at().phase ^ 1);
        bool found = PACKED ? work_find_packed<HD>(a, group, spans, rows, number, work)
                            : work_find<HD, BLOCKS>(a, group, rows, number, work);
        items_tell<BLOCKS>(told, item.at(), work);
        if (!found)
            break;
        barrier_wait(shared_address(&told.wanted), item.count % 2);
        if (threadIdx.x % WARP == 0)
            number = gridDim.x / BLOCKS + atomicAdd(a.batch.next_item, 1);
        number = __shfl_sync(FULL_MASK, number, 0);
    }
    uint32_t asked = number + 1 - gridDim.x / BLOCKS; /* by all, where this was the last */
    bool last = asked == rows.before * ((PACKED ? a.kv_heads : a.heads) / BLOCKS);
    if (threadIdx.x % WARP == 0 && last)
        *a.batch.next_item = 0;
}

#endif

} // namespace HALF
