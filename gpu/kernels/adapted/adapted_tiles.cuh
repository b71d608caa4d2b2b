/* What a block of adapted_tiles.cu knows of a step's adapters, how it gets to know it, and how B is
 * brought. */
#pragma once

#include "gpu/kernels/adapted/adapted.cuh"
#include "gpu/kernels/matmul/matmul_tiles_launch.cuh"

namespace HALF
{

#define HELPERS                                                                                    \
    (GROUP_THREADS - WARP) /* threads of the warpgroup that brings, but its first warp */
#define RANK_STEP 16
#define NO_SLOT 0xff
#define SLOT_TURNS (GPU_ADAPTERS_MAX / WARP) /* of a warp, a slot for each lane */
#define TABLE_BYTES 4096
#define INNER_AT_ONCE 8             /* slices that are asked for together */
#define INNER_BYTES_ONE (32u << 10) /* of A x, where one warpgroup multiplies, and where two do */
#define INNER_BYTES_TWO (29u << 10)
#define COLUMNS_MIN 40 /* of an SM, where two do */
/* Where a ring has so many bytes of the weights, B comes before the last quarter of a tile's steps:
 * as much as keeps the memory busy while B is multiplied. */
#define EARLY_BYTES (64u << 10)
#define EARLY_SHARE 4
#define WIDE 128  /* columns, from which on the instructions for B are fetched ahead */
#define NARROW 64 /* up to which an adapter's operands come while another's are multiplied */

template <int GROUPS, int WIDTH, int ACROSS>
using adapted_kind = tiles_kind<GROUPS, WIDTH, 1, ACROSS,
                                (GROUPS == 1 ? INNER_BYTES_ONE : INNER_BYTES_TWO) + TABLE_BYTES>;

template <class KIND>
constexpr bool ADAPTED_EARLY = KIND::stages * 2 * KIND::half_bytes >= EARLY_BYTES;

/* Steps of a tile that come before B: of nothing else, so that a row's bits do not depend on which
 * adapters others have. One at least. */
template <class KIND> __device__ __forceinline__ uint32_t steps_before(uint32_t steps)
{
    return ADAPTED_EARLY<KIND> ? steps - steps / EARLY_SHARE : steps;
}

/* An adapter of the step. */
struct adapted_slot {
    const half_t *b[ADAPT_PARTS]; /* NULL: the part has none */
    float scale;
    uint16_t rank;
    uint8_t has; /* parts, a bit each */
    uint8_t from[ADAPT_PARTS];
};

struct adapted_table {
    uint64_t known, summed; /* barriers: the table is there; A x is */
    uint32_t count;
    bool odd;                          /* some rank is no multiple of four */
    uint8_t slot_of[ADAPTED_ROWS_MAX]; /* NO_SLOT: the row has no adapter */
    uint8_t begins[GPU_ADAPTERS_MAX];  /* of those in the order of the list: see slots_order() */
    uint8_t places[GPU_ADAPTERS_MAX];  /* their slots */
    struct adapted_slot slots[GPU_ADAPTERS_MAX];
};
static_assert(sizeof(struct adapted_table) <= TABLE_BYTES, "it has room");

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* Of a block; addresses in shared memory. */
struct adapted_place {
    adapted_table *table;
    uint32_t inner;    /* A x, [parts from `low` on][rows][room], words */
    uint32_t rows;     /* a multiple of 16 */
    uint32_t low, end; /* parts that its columns are of */
};

template <class KIND> __device__ __forceinline__ uint32_t slots_of_stage(const adapt_args &a)
{
    return min(KIND::stage_bytes / (KIND::width * a.rank_max * 2), (uint32_t)WARP);
}

__device__ __forceinline__ uint32_t room_of(const adapt_args &a)
{
    return ADAPT_RANK_ROOM(a.rank_max);
}

/* Where it has one tile, A x of that one's parts alone is wanted. */
template <class KIND>
__device__ __forceinline__ adapted_place adapted_place_of(const tiles_args &t, const adapt_args &a,
                                                          uint32_t rank)
{
    const uint32_t step = t.up ? KIND::width / 2 : KIND::width;
    adapted_place at = {nullptr, 0, (a.rows.max + WARP_ROWS - 1) / WARP_ROWS * WARP_ROWS, 0,
                        a.part_count};
    tiles_tile tile, next;
    if (t.up || !tiles_find<KIND>(t, step, 0, rank, tile) ||
        tiles_find<KIND>(t, step, 1, rank, next))
        return at;
    while (at.low + 1 < at.end && tile.column >= a.ends[at.low])
        at.low++;
    while (at.end > at.low + 1 && part_begin(a, at.end - 1) >= tile.column + step)
        at.end--;
    return at;
}

/* ---- what is prepared ---- */

__device__ __forceinline__ void helpers_meet()
{
    asm volatile("bar.sync 1, %0;" ::"n"(HELPERS) : "memory");
}

/* All that is read is asked for before any of it is kept. */
__device__ __forceinline__ void slot_fill(const adapt_args &a, adapted_slot &slot, uint32_t adapter)
{
    const struct adapt_place *place = a.places + (adapter - 1);
    const uint32_t rank = place->rank;
    const float scale = place->scale;
    const half_t *b[ADAPT_PARTS];
    uint32_t from[ADAPT_PARTS], has = 0;
#pragma unroll
    for (uint32_t p = 0; p < ADAPT_PARTS; p++) {
        b[p] = static_cast<const half_t *>(place->parts[p].b);
        from[p] = place->parts[p].from;
    }
#pragma unroll
    for (uint32_t p = 0; p < ADAPT_PARTS; p++) {
        has |= b[p] && p < a.part_count ? 1u << p : 0;
        slot.b[p] = b[p];
        slot.from[p] = static_cast<uint8_t>(from[p]);
    }
    slot.rank = static_cast<uint16_t>(rank);
    slot.scale = scale;
    slot.has = static_cast<uint8_t>(has);
}

/* A warp: which slot each adapter of the list gets. A stage of B is given back when all warps have
 * read it: where B takes several, adapters are in the order of how far into its rows a warp first
 * has them, so that each stage has something for each warp. Returns how many there are. */
__device__ __forceinline__ uint32_t slots_order(const adapt_args &a, adapted_table &table,
                                                uint32_t of_stage)
{
    const uint32_t tiles = adapt_tiles(a, false), lane = threadIdx.x % WARP;
    uint32_t count = 0;
    for (uint32_t base = 0; base < tiles; base += WARP) {
        const uint32_t number = base + lane;
        const bool there = number < tiles;
        const struct adapt_tile tile = adapt_tile_get(a, there ? number : 0);
        const bool first =
            there && (!number || adapt_tile_get(a, number - 1).adapter != tile.adapter);
        const uint32_t firsts = __ballot_sync(FULL_MASK, first);
        if (first)
            table.begins[count + __popc(firsts & ((1u << lane) - 1))] =
                static_cast<uint8_t>(a.list[1 + tile.first] % WARP_ROWS);
        count += __popc(firsts);
    }
    __syncwarp();
    uint32_t begins[SLOT_TURNS], before[SLOT_TURNS] = {}, below = 0;
#pragma unroll
    for (uint32_t turn = 0; turn < SLOT_TURNS; turn++)
        begins[turn] = turn * WARP + lane >= count ? WARP_ROWS
                       : count > of_stage          ? table.begins[turn * WARP + lane]
                                                   : 0;
    for (uint32_t begin = 0; begin < WARP_ROWS; begin++)
#pragma unroll
        for (uint32_t turn = 0; turn < SLOT_TURNS; turn++) {
            const uint32_t same = __ballot_sync(FULL_MASK, begins[turn] == begin);
            if (begins[turn] == begin)
                before[turn] = below + __popc(same & ((1u << lane) - 1));
            below += __popc(same);
        }
#pragma unroll
    for (uint32_t turn = 0; turn < SLOT_TURNS; turn++)
        if (turn * WARP + lane < count)
            table.places[turn * WARP + lane] = static_cast<uint8_t>(before[turn]);
    __syncwarp();
    return count;
}

/* A warp: adapters of the step's tiles, which lie side by side, and their rows. */
__device__ __forceinline__ void slots_find(const adapt_args &a, adapted_table &table,
                                           uint32_t of_stage)
{
    const uint32_t tiles = adapt_tiles(a, false), lane = threadIdx.x % WARP;
    const uint32_t all = slots_order(a, table, of_stage);
    uint32_t count = 0;
    bool odd = false;
    for (uint32_t base = 0; base < tiles; base += WARP) {
        uint32_t number = base + lane, rows[ADAPT_TILE];
        struct adapt_tile tile = {0, 0, 0}, before = {0, 0, 0};
        if (number < tiles)
            tile = adapt_tile_get(a, number);
        if (number && number < tiles)
            before = adapt_tile_get(a, number - 1);
#pragma unroll
        for (uint32_t i = 0; i < ADAPT_TILE; i++)
            rows[i] = i < tile.count ? a.list[1 + tile.first + i] : 0;
        bool first = tile.adapter != before.adapter;
        uint32_t firsts = __ballot_sync(FULL_MASK, first);
        uint32_t nth = count + __popc(firsts & (0xffffffffu >> (WARP - 1 - lane))) - 1;
        uint32_t slot = number < tiles ? table.places[nth] : 0;
        if (first)
            slot_fill(a, table.slots[slot], tile.adapter);
        odd |= first && table.slots[slot].rank % 4;
#pragma unroll
        for (uint32_t i = 0; i < ADAPT_TILE; i++)
            if (i < tile.count)
                table.slot_of[rows[i]] = static_cast<uint8_t>(slot);
        count += __popc(firsts);
    }
    odd = __any_sync(FULL_MASK, odd);
    if (lane == 0) {
        table.count = all;
        table.odd = odd;
    }
}

/* A x of four values of a rank, as it is multiplied. */
__device__ __forceinline__ uint4 inner_words(const float4 &sum, float scale)
{
    const float v[4] = {sum.x * scale, sum.y * scale, sum.z * scale, sum.w * scale};
    uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
#ifdef HALF_BF16
        float whole = round_value(v[i], DTYPE_HALF);
        words[i] = pack(v[i], v[i] - whole, DTYPE_HALF);
#else
        words[i] = __float_as_uint(v[i]);
#endif
    }
    return {words[0], words[1], words[2], words[3]};
}

/* Helpers: A x of all rows, of the parts that the block's columns are of. */
__device__ __forceinline__ void inner_take(const adapt_args &a, const adapted_place &at)
{
    uint32_t room = room_of(a), quads = room / 4, parts = at.end - at.low;
    uint32_t slices = inner_slices(a);
    for (uint32_t i = threadIdx.x - WARP; i < a.rows.max * parts * quads; i += HELPERS) {
        uint32_t r = i % quads * 4, row = i / quads / parts, p = at.low + i / quads % parts;
        uint32_t number = at.table->slot_of[row];
        if (number == NO_SLOT)
            continue;
        const adapted_slot &slot = at.table->slots[number];
        if (!(slot.has >> p & 1) || r >= ADAPT_RANK_ROOM(slot.rank))
            continue;
        const float *from = a.sums + inner_sums(a, row, slot.from[p], 0) + r;
        float4 sum = {};
        for (uint32_t first = 0; first < slices; first += INNER_AT_ONCE) {
            float4 of[INNER_AT_ONCE];
#pragma unroll
            for (int i = 0; i < INNER_AT_ONCE; i++)
                of[i] = *reinterpret_cast<const float4 *>(from + (first + i) * room);
#pragma unroll
            for (int i = 0; i < INNER_AT_ONCE; i++) {
                sum.x += of[i].x;
                sum.y += of[i].y;
                sum.z += of[i].z;
                sum.w += of[i].w;
            }
        }
        store_shared(at.inner + (((p - at.low) * at.rows + row) * room + r) * 4,
                     inner_words(sum, slot.scale));
    }
}

__device__ __forceinline__ void adapted_prepare(const adapt_args &a, const adapted_place &at,
                                                uint32_t of_stage)
{
    if (a.lists) /* else it is older than the kernels before, as places are */
        grid_wait();
    for (uint32_t row = threadIdx.x - WARP; row < at.rows; row += HELPERS)
        at.table->slot_of[row] = NO_SLOT;
    helpers_meet();
    if (threadIdx.x / WARP == 1)
        slots_find(a, *at.table, of_stage);
    helpers_meet();
    barrier_arrive(shared_address(&at.table->known));
    grid_wait();
    inner_take(a, at);
    barrier_arrive(shared_address(&at.table->summed));
}

/* ---- what is brought ---- */

/* One thread: B of a slot, of the tile's columns. Returns bytes; copies where `barrier`. */
template <class KIND>
__device__ __forceinline__ uint32_t slot_bring(const tiles_args &t, const adapt_args &a,
                                               const adapted_place &at, const adapted_slot &slot,
                                               uint32_t column, uint32_t to, uint32_t barrier)
{
    const uint32_t step = t.up ? KIND::width / 2 : KIND::width, row = slot.rank * 2;
    uint32_t bytes = 0;
    for (uint32_t p = at.low; p < at.end; p++) {
        uint32_t begin = t.up ? 0 : part_begin(a, p);
        uint32_t end = t.up ? t.columns : a.ends[p];
        uint32_t first = max(begin, column), last = min(end, column + step);
        if (!(slot.has >> p & 1) || first >= last)
            continue;
        uint32_t place = (first - column + (t.up ? p * step : 0)) * row;
        if (barrier)
            copy_bulk(to + place, slot.b[p] + (size_t)(first - begin) * slot.rank,
                      (last - first) * row, barrier, policy_once());
        bytes += (last - first) * row;
    }
    return bytes;
}

/* A warp: stages of B, a lane for each slot. */
template <class KIND>
__device__ __forceinline__ void slots_bring(const tiles_args &t, const adapt_args &a,
                                            const adapted_place &at, const tiles_ring &ring,
                                            ring_cursor &cursor, uint32_t column)
{
    const uint32_t of_stage = slots_of_stage<KIND>(a), each = KIND::width * a.rank_max * 2;
    const uint32_t lane = threadIdx.x % WARP, count = at.table->count;
    for (uint32_t first = 0; first < count; first += of_stage) {
        const uint32_t barrier = ring_barrier(ring.full, cursor);
        const bool own = lane < of_stage && first + lane < count;
        const adapted_slot &slot = at.table->slots[own ? first + lane : 0];
        uint32_t bytes = own ? slot_bring<KIND>(t, a, at, slot, column, 0, 0) : 0;
        bytes = __reduce_add_sync(FULL_MASK, bytes);
        ring_wait_empty(ring.empty, cursor);
        if (lane == 0)
            barrier_expect(barrier, bytes);
        __syncwarp();
        if (own)
            slot_bring<KIND>(t, a, at, slot, column,
                             ring.stages + cursor.stage * KIND::stage_bytes + lane * each, barrier);
        ring_next(cursor, KIND::stages);
    }
}

/* A warp: what one lane of it brings, after which all know where the ring is. */
template <class KIND>
__device__ __forceinline__ void adapted_steps(const tiles_filler<KIND> &filler, ring_cursor &cursor,
                                              bool one, uint32_t first, uint32_t end,
                                              uint32_t under_way)
{
    ring_cursor own = cursor;
    if (one)
        filler.steps(own, first, end, under_way);
    __syncwarp();
    const uint32_t stage = cursor.stage + end - first;
    cursor = {stage % KIND::stages, cursor.phase ^ (stage / KIND::stages & 1)};
}

/* A warp, of which one lane brings all but B. */
template <class KIND>
__device__ __forceinline__ void adapted_load(const tiles_args &t, const adapt_args &a,
                                             const adapted_place &at, const tiles_ring &ring,
                                             uint32_t rank)
{
    tiles_filler<KIND> filler = {t, ring, rank, {0, 0}};
    const bool one = warp_elect();
    const uint32_t before = steps_before<KIND>(t.steps), ahead = min(before, KIND::stages);
    ring_cursor cursor = {0, 0};
    if (!filler.find(0))
        return;
    for (uint32_t i = 0; one && i < ahead; i++)
        filler.weights(i, i);
    x_wait(a);
    grid_trigger();
    for (uint32_t i = 0; one && i < ahead; i++)
        filler.rows(i, i);
    for (uint32_t turn = 0; filler.find(turn); turn++) {
        adapted_steps<KIND>(filler, cursor, one, 0, before, turn ? 0 : ahead);
        barrier_wait(shared_address(&at.table->known), 0);
        slots_bring<KIND>(t, a, at, ring, cursor, filler.tile.column);
        adapted_steps<KIND>(filler, cursor, one, before, t.steps, 0);
    }
}

#endif

} // namespace HALF
