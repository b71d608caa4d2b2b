/* Decode attention: what a block keeps in shared memory, and the warps that fill it. */
#pragma once

#include "gpu/kernels/attention/attention_plan.cuh"
#include "gpu/kernels/common/ring.cuh"

#define DECODE_WARPS 8
/* Registers are dealt to groups of four warps: two that attend, one that brings. */
#define DECODE_THREADS ((DECODE_WARPS + 4) * WARP)
#define ITEMS 2 /* looked up ahead */
#define FETCH_WARPS 3
#define PIECE 16            /* positions that are next to each other in every cache */
#define SPAN (2 * PIECE)    /* of a split, per warp */
#define DECODE_STAGES_MAX 4 /* of a ring, each K or V of one warp's part of a split */
/* Of all rings. More only lengthens the queue in which look-ups stand, too: with 192 KiB decode
 * attention took 1 to 4 % longer. */
#define RING_BYTES_MAX (128u << 10)
#define MERGE_ROWS 4 /* queries merged over the warps at a time */

namespace HALF
{

/* A head's dimensions, as the lanes that have outputs share them: lane g has chunks of eight, next
 * to each other. Of 96 two lanes of eight have none: what they multiply goes nowhere. */
template <int HD> struct head_shape {
    static const int chunks = (HD + 63) / 64; /* of a lane */
    static const int tiles = chunks * 4;      /* of rows of the outputs */
    static const int lanes = HD / 8 / chunks; /* that have some */
};

/* What the warps' results of a split are put together in. */
template <int HD, int TILES> struct decode_merged {
    float2 stat[DECODE_WARPS][8 * TILES];
    alignas(16) float merge[DECODE_WARPS][MERGE_ROWS][HD];
};

template <int HD, int TILES> struct decode_shared : decode_merged<HD, TILES> {
    static const uint32_t piece = PIECE * HD * 2, part = 2 * piece; /* bytes of K, or V */
    attention_plan plan;
    ring_barriers<DECODE_STAGES_MAX> barriers[DECODE_WARPS];
    uint64_t item_full[ITEMS]; /* its queries are there */
    attention_item item[ITEMS];
    alignas(16) half_t q[ITEMS][8 * TILES][HD];
    /* then [DECODE_WARPS][stages][part], aligned to 128 */
};

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* What a lane of a fetching warp is to fetch: its warp's part of one split. */
struct fetch_part {
    uint32_t position, head, splits; /* splits: of the item */
    uint32_t block[2];               /* of the lower and the upper 16 positions */
    bool low, high;                  /* which of them are wanted */
};

/* Asks for the block numbers, and does not wait for them: under load that takes microseconds, for
 * the answer queues behind all that was fetched. */
__device__ __forceinline__ fetch_part fetch_look_up(const attention_args &a,
                                                    const struct batch_group &group,
                                                    const attention_plan &plan,
                                                    const plan_shape &shape, uint32_t block_shift,
                                                    uint32_t base, uint32_t turn, uint32_t second,
                                                    uint32_t warp, bool mine)
{
    uint32_t number = plan.whole ? base : base + second * gridDim.x;
    bool exists = number < plan.items[plan_entries(plan)];
    attention_item item = plan_find(plan, a.batch, group, shape, exists ? number : base);
    uint32_t split = item.split + (plan.whole ? turn + second : 0);
    fetch_part out;
    exists = exists && mine && split < item.split_end;
    out.position = split * ATTENTION_SPLIT + warp * SPAN;
    out.head = item.head;
    out.splits = plan.whole ? item.split_end - item.split : 1;
    out.low = exists && out.position <= item.row.last && out.position + PIECE > item.row.first;
    out.high =
        exists && out.position + PIECE <= item.row.last && out.position + SPAN > item.row.first;
    out.block[0] = out.low ? __ldg(item.row.table + (out.position >> block_shift)) : 0;
    out.block[1] = out.high ? __ldg(item.row.table + ((out.position + PIECE) >> block_shift)) : 0;
    return out;
}

/* One of the warps that fetch, for warps fetcher, fetcher + 3 and fetcher + 6. Lanes look up two
 * splits at a time (of one item where items are whole, else of two items): lane 4 i + c for warp
 * fetcher + 3 c in split i. Copies are issued in the order in which they are used, for a ring has
 * few stages: K and V of a split, then the next split's. Lane 0 waits and issues for all: racecheck
 * takes every bulk copy of a warp for its first lane's, and calls it a race unless that lane
 * waited. */
template <int HD, int TILES>
__device__ static void decode_fetch(const attention_args &a, const struct batch_group &group,
                                    decode_shared<HD, TILES> &shared, const plan_shape &shape,
                                    uint32_t ring, uint32_t stages, uint32_t block_shift,
                                    uint32_t fetcher)
{
    const uint32_t part = decode_shared<HD, TILES>::part, half = part / 2;
    uint32_t total = shared.plan.items[plan_entries(shared.plan)];
    uint32_t step = gridDim.x * (shared.plan.whole ? 1 : 2), base = blockIdx.x, turn = 0;
    uint32_t lane = threadIdx.x % WARP, warp = fetcher + FETCH_WARPS * (lane % 4);
    uint32_t second = lane / 4 % 2;
    ring_cursor mine_at = {0, 0}; /* the next of this lane's ring */
    bool mine = lane < 8 && lane % 4 < FETCH_WARPS && warp < DECODE_WARPS;
    uint64_t policy = policy_once(), to_v = a.kv.v - a.kv.k;
    if (base >= total)
        return;
    fetch_part next =
        fetch_look_up(a, group, shared.plan, shape, block_shift, base, turn, second, warp, mine);
    while (base < total) {
        fetch_part now = next;
        const char *k[2] = {NULL, NULL};
        bool joined = now.low && now.high && block_shift > 4; /* next to each other */
        if (now.low)
            k[0] = attention_place_in(group, now.block[0], block_shift, now.position, now.head,
                                      a.kv.k, HD * 2);
        if (now.high && !joined)
            k[1] = attention_place_in(group, now.block[1], block_shift, now.position + PIECE,
                                      now.head, a.kv.k, HD * 2);
        turn += 2;
        if (turn >= now.splits)
            turn = 0, base += step;
        if (base < total)
            next = fetch_look_up(a, group, shared.plan, shape, block_shift, base, turn, second,
                                 warp, mine);
        uint32_t low = __ballot_sync(FULL_MASK, now.low), high = __ballot_sync(FULL_MASK, now.high);
        uint32_t whole = __ballot_sync(FULL_MASK, joined);
        for (uint32_t round = 0; round < 4 * FETCH_WARPS; round++) {
            uint32_t asked = round / (2 * FETCH_WARPS) * 4 + round % FETCH_WARPS, bit = 1u << asked;
            uint64_t offset = round / FETCH_WARPS % 2 ? to_v : 0;
            if (!((low | high) & bit))
                continue;
            uint64_t k_low = __shfl_sync(FULL_MASK, reinterpret_cast<uint64_t>(k[0]), asked);
            uint64_t k_high = __shfl_sync(FULL_MASK, reinterpret_cast<uint64_t>(k[1]), asked);
            ring_cursor at = {__shfl_sync(FULL_MASK, mine_at.stage, asked),
                              __shfl_sync(FULL_MASK, mine_at.phase, asked)};
            if (lane == 0) {
                uint32_t of = fetcher + FETCH_WARPS * (asked % 4);
                uint32_t full = ring_barrier(shared_address(shared.barriers[of].full), at);
                uint32_t to = ring + (of * stages + at.stage) * part;
                ring_wait_empty(shared_address(shared.barriers[of].empty), at);
                barrier_expect(full, (low & bit ? half : 0) + (high & bit ? half : 0));
                if (low & bit)
                    copy_bulk(to, reinterpret_cast<const char *>(k_low + offset),
                              whole & bit ? part : half, full, policy);
                if (high & ~whole & bit)
                    copy_bulk(to + half, reinterpret_cast<const char *>(k_high + offset), half,
                              full, policy);
            }
            if (lane % 4 == asked % 4)
                ring_next(mine_at, stages);
            __syncwarp();
        }
    }
}

/* Between the last warp and those that attend, by barriers with numbers: slot `slot` of the items
 * is filled, or read. */
__device__ __forceinline__ void items_sync(uint32_t slot, bool read)
{
    asm volatile("bar.sync %0, %1;" ::"r"(2 + slot + (read ? ITEMS : 0)),
                 "n"((DECODE_WARPS + 1) * WARP)
                 : "memory");
}

__device__ __forceinline__ void items_arrive(uint32_t slot, bool read)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(2 + slot + (read ? ITEMS : 0)),
                 "n"((DECODE_WARPS + 1) * WARP)
                 : "memory");
}

/* The last warp: where the items are, and their queries. Query r of an item is token r / group of
 * the row, head r % group of the KV head's. */
template <int HD, int TILES>
__device__ static void decode_items(const attention_args &a, const struct batch_group &group,
                                    decode_shared<HD, TILES> &shared, const plan_shape &shape)
{
    uint32_t total = shared.plan.items[plan_entries(shared.plan)], lane = threadIdx.x % WARP;
    uint32_t slot = 0, use = 0;
    for (uint32_t number = blockIdx.x; number < total; number += gridDim.x) {
        attention_item item = plan_find(shared.plan, a.batch, group, shape, number);
        uint32_t rows = item.row.q_len * shape.group - item.tile * shape.tile_rows;
        if (rows > shape.tile_rows)
            rows = shape.tile_rows;
        uint32_t full = shared_address(&shared.item_full[slot]);
        if (use)
            items_sync(slot, true);
        if (lane == 0) {
            shared.item[slot] = item;
            barrier_expect(full, rows * HD * 2);
        }
        __syncwarp();
        if (lane < rows) {
            uint32_t r = item.tile * shape.tile_rows + lane;
            size_t token = item.row.token + r / shape.group;
            uint32_t head = item.head * shape.group + r % shape.group;
            copy_bulk(shared_address(shared.q[slot][lane]),
                      static_cast<const half_t *>(a.q) + token * a.q_stride + head * HD, HD * 2,
                      full);
        }
        items_arrive(slot, false);
        if (++slot == ITEMS)
            slot = 0, use++;
    }
}

#endif

} // namespace HALF
