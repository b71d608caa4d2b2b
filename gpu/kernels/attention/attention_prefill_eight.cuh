/* The group of four warps that brings keys and values in e4m3 for attention_prefill_wgmma.cu.
 *
 * Each warp has a quarter of every tile of its own. Bulk copies bring it as it is kept, elements
 * and scales, into a ring of the warp; from there the warp makes it 16 bits, in the order that the
 * products want. So no registers wait for memory, and copies are ahead of the widening, across the
 * ends of items, too. The warps meet once an item, where its first copy is asked for. Queries have
 * two buffers, so that they come while the item before is attended to.
 *
 * A stage of a ring is filled again by the warp that has read it, so no barrier says that it is
 * empty. */
#pragma once

#include "gpu/kernels/attention/attention_prefill_load.cuh"
#include "gpu/kernels/attention/kv_wide.cuh"

#define EIGHT_ROWS (KEYS / 4) /* of a tile, a warp's */

namespace HALF
{

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* What is asked for next. */
struct eight_feed {
    uint32_t item; /* of the block's items, from 0 */
    uint32_t tile, tile_end;
    bool values, over;
    uint64_t pieces; /* where they are, by lanes as wgmma_look_up() says */
    wgmma_rows rows; /* of the first warp, which finds items; */
    uint32_t taken;  /* and of its first lane: the next number but gridDim.x */
};

/* What all of it needs. */
template <int HD> struct eight_loader {
    const struct attention_args &a;
    const struct batch_group &group;
    const prefill_spans &spans;
    wgmma_shared<HD, true> &shared;
    uint32_t block_shift, warp, lane;
};

/* The item's number feed.item: found by the first warp, told to all. */
template <int HD, bool PACKED>
__device__ __forceinline__ void eight_next(const eight_loader<HD> &l, eight_feed &feed)
{
    wgmma_work &item = l.shared.kept.items[feed.item % EIGHT_ITEMS];
    if (l.warp == 0) {
        uint32_t taken = __shfl_sync(FULL_MASK, feed.taken, 0);
        uint32_t number = feed.item ? gridDim.x + taken : blockIdx.x;
        wgmma_work work = {};
        bool found = PACKED ? work_find_packed<HD>(l.a, l.group, l.spans, feed.rows, number, work)
                            : work_find<HD, 1>(l.a, l.group, feed.rows, number, work);
        if (l.lane == 0) {
            item = work;
            if (found)
                feed.taken = atomicAdd(l.a.batch.next_item, 1);
        }
    }
    named_sync(BARRIER_LOAD, GROUP_THREADS);
    feed.over = item.queries == 0;
    if (feed.over)
        return;
    feed.tile = item.tile;
    feed.tile_end = item.tile_end;
    feed.pieces = wgmma_look_up(l.a, l.group, item, l.block_shift, feed.tile, PIECE, l.a.kv.k,
                                HD + sizeof(float));
}

/* The next quarter of a tile into a stage that the warp has read; then where the next one is. One
 * lane asks for all, as racecheck takes every bulk copy of a warp for its first lane's. */
template <int HD, bool PACKED>
__device__ __forceinline__ void eight_ask(const eight_loader<HD> &l, eight_feed &feed,
                                          uint32_t stage)
{
    const uint32_t bytes = wgmma_kept<HD, true>::piece;
    if (feed.over)
        return;
    const wgmma_work &item = l.shared.kept.items[feed.item % EIGHT_ITEMS];
    uint32_t begin = feed.tile * KEYS + l.warp * EIGHT_ROWS;
    bool low = begin <= item.last && begin + PIECE > item.first;
    bool high = begin + PIECE <= item.last && begin + 2 * PIECE > item.first;
    uint64_t part = feed.values ? l.a.kv.v - l.a.kv.k : 0;
    uint64_t from = __shfl_sync(FULL_MASK, feed.pieces, l.warp * 2) + part;
    uint64_t above = __shfl_sync(FULL_MASK, feed.pieces, l.warp * 2 + 1) + part;
    if (l.lane == 0) {
        uint32_t full = shared_address(&l.shared.kept.full[l.warp][stage]);
        uint32_t to = shared_address(l.shared.kept.ring[l.warp][stage]);
        bool joined = low && high && above == from + bytes;
        barrier_expect(full, (low ? bytes : 0) + (high ? bytes : 0));
        if (low)
            copy_bulk(to, reinterpret_cast<const void *>(from), joined ? 2 * bytes : bytes, full);
        if (high && !joined)
            copy_bulk(to + bytes, reinterpret_cast<const void *>(above), bytes, full);
    }
    feed.values = !feed.values;
    if (feed.values)
        return;
    if (++feed.tile < feed.tile_end) {
        feed.pieces = wgmma_look_up(l.a, l.group, item, l.block_shift, feed.tile, PIECE, l.a.kv.k,
                                    HD + sizeof(float));
    } else {
        feed.item++;
        eight_next<HD, PACKED>(l, feed);
    }
}

/* Rows of a quarter become zeros where they are not the item's to read: lane i has row i. */
template <int HD>
__device__ __forceinline__ void eight_clear(const wgmma_work &item, uint32_t first_row, char *kept)
{
    uint32_t row = threadIdx.x % WARP, position = first_row + row;
    kept += row / PIECE * wgmma_kept<HD, true>::piece;
    if (position < item.first || position > item.last) {
        for (uint32_t i = 0; i < HD / 16; i++)
            reinterpret_cast<uint4 *>(kept + row % PIECE * HD)[i] = make_uint4(0, 0, 0, 0);
        reinterpret_cast<float *>(kept + PIECE * HD)[row % PIECE] = 0;
    }
    __syncwarp();
}

/* A quarter as it is kept becomes rows of 16 bits, `to` being the first. Four lanes have 64
 * elements of a row. Of dimension 128 eight lanes that access shared memory at a time have one half
 * of a row and the other one of the row beside: other banks, of those that they read and of those
 * that they write. */
template <int HD> __device__ __forceinline__ void eight_widen_rows(uint32_t kept, uint32_t to)
{
    const uint32_t at_once = WARP / (HD / 16), batch = HD == 64 ? 2 : 4;
    uint32_t four = threadIdx.x % WARP / 4, unit = threadIdx.x % 4;
    uint32_t row = HD == 64 ? four : four / 4 * 2 + four % 2;
    uint32_t half = HD == 64 ? 0 : (four ^ four / 2) % 2;
    uint32_t from = kept + row * HD + half * 64 + unit * 16;
    uint32_t scales = kept + PIECE * HD + row * sizeof(float);
    to += half * (KEYS * 128) + swizzled(row, unit * 2);
#pragma unroll
    for (uint32_t first = 0; first < EIGHT_ROWS; first += batch * at_once) {
        uint4 words[batch];
        float scale[batch];
#pragma unroll
        for (uint32_t i = 0; i < batch; i++) {
            uint32_t more = first + i * at_once, inside = more % PIECE;
            uint32_t piece = more / PIECE * wgmma_kept<HD, true>::piece;
            words[i] = load_shared(from + piece + inside * HD);
            scale[i] = __uint_as_float(load_shared_word(scales + piece + inside * sizeof(float)));
        }
#pragma unroll
        for (uint32_t i = 0; i < batch; i++) {
            uint32_t more = first + i * at_once, at = (to ^ more % 8 * 16) + more * 128;
            store_shared(at, eight_widen(make_uint2(words[i].x, words[i].y), scale[i]));
            store_shared(at ^ 16, eight_widen(make_uint2(words[i].z, words[i].w), scale[i]));
        }
    }
}

/* The warp's quarter of a tile of keys or values into `tile_at`, once `ring` has it back. */
template <int HD>
__device__ __forceinline__ void
eight_bring(const eight_loader<HD> &l, wgmma_loader &loader, ring_barriers<EIGHT_STAGES> &ring,
            const wgmma_work &item, uint32_t tile, uint32_t tile_at, const ring_cursor &at)
{
    char *kept = l.shared.kept.ring[l.warp][at.stage];
    uint32_t first = tile * KEYS + l.warp * EIGHT_ROWS;
    ring_wait_full(shared_address(l.shared.kept.full[l.warp]), at);
    if (first < item.first || first + EIGHT_ROWS - 1 > item.last)
        eight_clear<HD>(item, first, kept);
    pending_then_wait(loader.pending, shared_address(ring.empty), loader.at);
    eight_widen_rows<HD>(shared_address(kept), tile_at + l.warp * (EIGHT_ROWS * 128));
    proxy_fence(); /* what was written is for products, what was read for the next copy */
    barrier_arrive(ring_barrier(shared_address(ring.full), loader.at));
    pending_tell(loader.pending);
    __syncwarp();
}

/* As wgmma_load(). A number is asked for when an item is found, and used when all of the item's
 * keys and values have been asked for. */
template <int HD, bool PACKED>
__device__ static void wgmma_load_eight(const struct attention_args &a,
                                        const struct batch_group &group, const prefill_spans &spans,
                                        wgmma_shared<HD, true> &shared, uint32_t block_shift)
{
    const uint32_t stages = wgmma_kept<HD, true>::stages;
    const eight_loader<HD> l = {a,
                                group,
                                spans,
                                shared,
                                block_shift,
                                threadIdx.x % GROUP_THREADS / WARP,
                                threadIdx.x % WARP};
    wgmma_loader loader = {};
    eight_feed feed = {};
    ring_cursor at = {0, 0}; /* of what is kept */
    feed.taken = UINT32_MAX;
    if (l.warp == 0)
        rows_count<HD, PACKED>(a, group, spans.tiles, feed.rows);
    eight_next<HD, PACKED>(l, feed);
    for (uint32_t stage = 0; stage < stages; stage++)
        eight_ask<HD, PACKED>(l, feed, stage);
    for (uint32_t number = 0;; number++) {
        const wgmma_work &item = shared.kept.items[number % EIGHT_ITEMS];
        if (item.queries == 0)
            break;
        wgmma_bring_q<HD, true, PACKED>(loader, a, shared, wgmma_work(item));
        for (uint32_t tile = item.tile; tile < item.tile_end; tile++) {
            uint32_t stage = loader.at.stage;
            eight_bring(l, loader, shared.k_ring, item, tile, shared_address(&shared.k[stage]), at);
            eight_ask<HD, PACKED>(l, feed, at.stage);
            ring_next(at, stages);
            eight_bring(l, loader, shared.v_ring, item, tile, shared_address(&shared.v[stage]), at);
            eight_ask<HD, PACKED>(l, feed, at.stage);
            ring_next(at, stages);
            ring_next(loader.at, EIGHT_STAGES);
        }
    }
    bool leader = threadIdx.x % GROUP_THREADS == 0;
    if (leader && feed.taken + 1 == feed.rows.before * (PACKED ? a.kv_heads : a.heads))
        *a.batch.next_item = 0;
    wgmma_bring_end(loader, shared);
}

#endif

} // namespace HALF
