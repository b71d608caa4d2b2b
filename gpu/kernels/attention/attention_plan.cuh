/* How the decode path divides a step: items, counted on the device.
 *
 * An item is one KV head of one split of one row (for up to 8 * TILES of the head's queries). Items
 * are numbered through the rows; partial results ("records", one per query and head) likewise. The
 * sums over rows are in shared memory; an entry covers `per` consecutive rows, so that any number
 * of rows fits. Where the records would not fit into the scratch buffer, an item is all splits of
 * a row ("whole"): it folds them itself, in the same order, to the same bits. */
#pragma once

#include "gpu/kernels/attention/attention.cuh"

#define PLAN_ENTRIES 512
#define PLAN_DIRECT UINT32_MAX /* record base of rows whose items write the output themselves */

/* More records than this are not worth their memory: rows are then attended whole. */
#define RECORD_BYTES_MAX ((size_t)64 << 20)

struct attention_plan {
    uint32_t items[PLAN_ENTRIES + 1], records[PLAN_ENTRIES + 1]; /* before an entry */
    uint32_t warp_items[WARP], warp_records[WARP];
    uint32_t rows, per, entries, whole;
    uint4 row[PLAN_ENTRIES]; /* slot, position, q_len, token; where an entry is one row */
};

struct attention_item {
    attention_row row;
    uint32_t index;      /* of the row */
    uint32_t head, tile; /* KV head; which queries */
    uint32_t split, split_end;
    uint32_t record; /* of the row's first split, query 0, head 0; PLAN_DIRECT: none */
};

/* The scratch buffer begins with where each row's records are. */
static inline size_t header_bytes(uint32_t rows)
{
    return ((size_t)rows * sizeof(uint32_t) + 255) / 256 * 256;
}

/* Of all records that these bounds allow. */
static inline size_t record_bytes(const struct batch *bounds, uint32_t heads, uint32_t head_dim)
{
    size_t tokens = (size_t)bounds->rows_max * bounds->decode_len_max;
    if (tokens > bounds->tokens_max)
        tokens = bounds->tokens_max;
    size_t splits = ceil_div(bounds->context_max, ATTENTION_SPLIT);
    return tokens * heads * splits * (sizeof(float2) + sizeof(float) * head_dim);
}

struct plan_shape {
    uint32_t kv_heads, group; /* query heads per KV head */
    uint32_t tile_rows;       /* queries of an item at most */
    bool all;                 /* also rows of more than ATTENTION_DECODE_MAX tokens */
};

__device__ __forceinline__ uint32_t plan_tiles(const plan_shape &shape, const attention_row &row)
{
    return (row.q_len * shape.group + shape.tile_rows - 1) / shape.tile_rows;
}

/* Items and records of one row. */
__device__ __forceinline__ uint2 plan_row(const plan_shape &shape, const attention_row &row,
                                          bool whole)
{
    if (row.q_len > ATTENTION_DECODE_MAX && !shape.all)
        return make_uint2(0, 0);
    uint32_t records =
        row.splits > 1 && !whole ? row.splits * row.q_len * shape.kv_heads * shape.group : 0;
    return make_uint2(plan_tiles(shape, row) * shape.kv_heads * (whole ? 1 : row.splits), records);
}

/* Called by all threads of the block; blockDim is at most 32 warps. Ends with a barrier. */
__device__ static void plan_count(attention_plan &plan, const struct batch &batch,
                                  const struct batch_group &group, const plan_shape &shape,
                                  bool whole)
{
    /* Rows are read before their number is known: one latency less. */
    uint32_t rows = batch.counts->rows, max = batch.rows_max;
    uint32_t per = (max + PLAN_ENTRIES - 1) / PLAN_ENTRIES,
             entries = per ? (max + per - 1) / per : 0;
    uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    uint32_t items_before = 0, records_before = 0;
    for (uint32_t base = 0; base < entries; base += blockDim.x) {
        uint32_t entry = base + threadIdx.x, items = 0, records = 0;
        for (uint32_t i = entry * per; i < (entry + 1) * per && i < max; i++) {
            uint4 raw = *reinterpret_cast<const uint4 *>(&batch.rows[i]);
            uint2 add = plan_row(shape, attention_row_of(raw, group), whole);
            if (per == 1)
                plan.row[i] = raw;
            items += i < rows ? add.x : 0;
            records += i < rows ? add.y : 0;
        }
        for (uint32_t offset = 1; offset < WARP; offset *= 2) {
            uint32_t i = __shfl_up_sync(FULL_MASK, items, offset);
            uint32_t r = __shfl_up_sync(FULL_MASK, records, offset);
            if (lane >= offset)
                items += i, records += r;
        }
        if (lane == WARP - 1)
            plan.warp_items[warp] = items, plan.warp_records[warp] = records;
        __syncthreads();
        for (uint32_t w = 0; w < blockDim.x / WARP; w++) {
            if (w == warp)
                items += items_before, records += records_before;
            items_before += plan.warp_items[w];
            records_before += plan.warp_records[w];
        }
        if (entry < entries)
            plan.items[entry + 1] = items, plan.records[entry + 1] = records;
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        plan.items[0] = plan.records[0] = 0;
        plan.rows = rows;
        plan.per = per;
        plan.entries = entries;
        plan.whole = whole;
    }
    __syncthreads();
}

__device__ __forceinline__ uint32_t plan_entries(const attention_plan &plan)
{
    return plan.entries;
}

/* Keys that no query of the item's tile sees are left out: they would count nothing. Of a row whose
 * items leave no records, for these are numbered by the row's splits. */
__device__ __forceinline__ void plan_narrow(attention_item &item, const struct batch_group &group,
                                            const plan_shape &shape)
{
    const uint32_t first_query = item.tile * shape.tile_rows / shape.group;
    const uint32_t last_query = ((item.tile + 1) * shape.tile_rows - 1) / shape.group;
    const uint32_t first = item.row.position + first_query;
    item.row.last = item.row.position + min(last_query, item.row.q_len - 1);
    item.row.first = group.window && first >= group.window ? first - group.window + 1 : 0;
    item.row.split_first = item.row.first / ATTENTION_SPLIT;
    item.row.splits = item.row.last / ATTENTION_SPLIT - item.row.split_first + 1;
    item.split = item.row.split_first;
    item.split_end = item.split + item.row.splits;
}

/* Item `number`, which is below plan.items[plan_entries()] and of this entry. */
__device__ static attention_item plan_item(const attention_plan &plan, const struct batch &batch,
                                           const struct batch_group &group, const plan_shape &shape,
                                           uint32_t number, uint32_t entry)
{
    attention_item item;
    item.index = entry * plan.per;
    item.record = plan.records[entry];
    number -= plan.items[entry];
    for (;; item.index++) {
        item.row = plan.per == 1 ? attention_row_of(plan.row[item.index], group)
                                 : attention_row_at(batch, group, item.index);
        uint2 size = plan_row(shape, item.row, plan.whole);
        if (number < size.x)
            break;
        number -= size.x;
        item.record += size.y;
    }
    uint32_t tiles = plan_tiles(shape, item.row);
    item.tile = 0;
    if (tiles > 1) {
        item.tile = number % tiles;
        number /= tiles;
    }
    item.split = item.row.split_first;
    if (number >= shape.kv_heads) { /* without a division where rows are short */
        item.split += number / shape.kv_heads;
        number %= shape.kv_heads;
    }
    item.head = number;
    item.split_end = plan.whole ? item.split + item.row.splits : item.split + 1;
    if (plan.whole || item.row.splits == 1)
        item.record = PLAN_DIRECT;
    if (shape.all && tiles > 1 && item.record == PLAN_DIRECT)
        plan_narrow(item, group, shape);
    return item;
}

__device__ static attention_item plan_find(const attention_plan &plan, const struct batch &batch,
                                           const struct batch_group &group, const plan_shape &shape,
                                           uint32_t number)
{
    uint32_t low = 0, high = plan_entries(plan);
    while (high - low > 1) { /* plan.items[low] <= number < plan.items[high] */
        uint32_t middle = (low + high) / 2;
        if (plan.items[middle] <= number)
            low = middle;
        else
            high = middle;
    }
    return plan_item(plan, batch, group, shape, number, low);
}

/* The entry of an item where all lanes ask for the same: each looks at one of 32, two times. */
__device__ __forceinline__ uint32_t plan_entry_by_warp(const attention_plan &plan, uint32_t number)
{
    static_assert(PLAN_ENTRIES <= WARP * WARP, "two looks do not suffice");
    uint32_t entries = plan_entries(plan), step = (entries + WARP - 1) / WARP;
    uint32_t lane = threadIdx.x % WARP, at = lane * step;
    bool before = at < entries && plan.items[at] <= number;
    uint32_t first = (__popc(__ballot_sync(FULL_MASK, before)) - 1) * step;
    at = first + lane;
    before = lane < step && at < entries && plan.items[at] <= number;
    return first + __popc(__ballot_sync(FULL_MASK, before)) - 1;
}
