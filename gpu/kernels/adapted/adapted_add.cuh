/* How a warp of adapted_tiles.cu adds B times A x to the sums that it holds. */
#pragma once

#include "gpu/kernels/adapted/adapted_tiles.cuh"

namespace HALF
{

#define ADD_BATCH 7 /* times eight columns, whose sums are made together */

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* A x of a lane's two rows, four values of a rank: the left operand. 0 of a row without the
 * adapter: so that its sums stay what they are, as no adapter has infinities (adapters.h). */
struct inner_values {
#ifdef HALF_BF16
    uint32_t whole[4], rest[4];
#else
    uint32_t whole[2][4], rest[2][4];
#endif
};

__device__ __forceinline__ void inner_load(inner_values &v, uint32_t low_at, bool has_low,
                                           uint32_t high_at, bool has_high)
{
    const uint4 none = {0, 0, 0, 0}, low = has_low ? load_shared(low_at) : none;
    const uint4 high = has_high ? load_shared(high_at) : none;
#ifdef HALF_BF16
    v.whole[0] = __byte_perm(low.x, low.y, 0x5410);
    v.whole[1] = __byte_perm(high.x, high.y, 0x5410);
    v.whole[2] = __byte_perm(low.z, low.w, 0x5410);
    v.whole[3] = __byte_perm(high.z, high.w, 0x5410);
    v.rest[0] = __byte_perm(low.x, low.y, 0x7632);
    v.rest[1] = __byte_perm(high.x, high.y, 0x7632);
    v.rest[2] = __byte_perm(low.z, low.w, 0x7632);
    v.rest[3] = __byte_perm(high.z, high.w, 0x7632);
#else
    const uint32_t words[2][4] = {{low.x, high.x, low.y, high.y}, {low.z, high.z, low.w, high.w}};
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float value = __uint_as_float(words[half][i]);
            v.whole[half][i] = tf32_of(value);
            v.rest[half][i] = tf32_of(value - __uint_as_float(v.whole[half][i]));
        }
#endif
}

__device__ __forceinline__ uint2 load_shared_pair(uint32_t address)
{
    uint2 out;
    asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];" : "=r"(out.x), "=r"(out.y) : "r"(address));
    return out;
}

__device__ __forceinline__ uint32_t load_shared_half(uint32_t address)
{
    uint16_t out;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(out) : "r"(address));
    return out;
}

/* A lane's four values of a row of B, of so many that there are; 0 behind them. WHOLE: a rank is a
 * multiple of four. */
template <bool WHOLE> __device__ __forceinline__ uint2 b_four(uint32_t at, int32_t count)
{
    if constexpr (WHOLE) {
        return count > 0 ? load_shared_pair(at) : make_uint2(0, 0);
    } else {
        uint32_t v[4];
#pragma unroll
        for (int32_t i = 0; i < 4; i++)
            v[i] = i < count ? load_shared_half(at + i * 2) : 0;
        return {v[0] | v[1] << 16, v[2] | v[3] << 16};
    }
}

/* c: of COUNT times eight columns from FIRST on += A x times so many rows of B, of which b[i] are a
 * lane's four values of one. */
template <int FIRST, int COUNT, int REGISTERS>
__device__ __forceinline__ void inner_multiply_b(float (&c)[REGISTERS], const inner_values &v,
                                                 const uint2 (&b)[COUNT])
{
#define SUMS(i) reinterpret_cast<float(&)[4]>(c[(FIRST + (i)) * 4])
#ifdef HALF_BF16
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        mma_half(SUMS(i), v.rest[0], v.rest[1], v.rest[2], v.rest[3], b[i].x, b[i].y);
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        mma_half(SUMS(i), v.whole[0], v.whole[1], v.whole[2], v.whole[3], b[i].x, b[i].y);
#else
#pragma unroll
    for (int half = 0; half < 2; half++) {
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            const float2 of = unpack(half ? b[i].y : b[i].x, DTYPE_HALF);
            mma_tf32(SUMS(i), v.rest[half], of.x, of.y);
            mma_tf32(SUMS(i), v.whole[half], of.x, of.y);
        }
    }
#endif
#undef SUMS
}

/* A warp's two rows of a lane: where their A x is, and which adapters they have. */
struct adapted_rows {
    uint32_t low_at, high_at; /* of the first part that the block has */
    uint32_t low, high;       /* slots */
};

/* What a warp adds of one adapter's part. */
struct adapted_run {
    uint32_t b_at, row_bytes; /* the lane's values of the tile's first row of B; from row to row */
    int32_t count;            /* of its values that there are */
    uint32_t begin, end;      /* columns of the tile that are the part's */
    bool low, high;           /* rows that have the adapter */
};

/* c: of COUNT times eight columns from FIRST on, eight times so many. */
template <int FIRST, int COUNT, bool WHOLE, int REGISTERS>
__device__ __forceinline__ void run_add(float (&c)[REGISTERS], const inner_values &values,
                                        const adapted_run &run)
{
    const int most = COUNT < ADD_BATCH ? COUNT : ADD_BATCH;
    uint2 b[most];
#pragma unroll
    for (int i = 0; i < most; i++) {
        const uint32_t column = (FIRST + i) * 8;
        const bool in = column >= run.begin && column < run.end;
        b[i] = b_four<WHOLE>(run.b_at + column * run.row_bytes, in ? run.count : 0);
    }
    inner_multiply_b<FIRST>(c, values, b);
    if constexpr (COUNT > most)
        run_add<FIRST + most, COUNT - most, WHOLE>(c, values, run);
}

/* HALF 0, 1: the tile's columns of gate, of up; 2: all of them. */
template <class KIND, int HALF_OF, bool WHOLE>
__device__ __forceinline__ void part_add(float (&c)[KIND::width / 2], const adapt_args &a,
                                         const adapted_place &at, const adapted_rows &rows,
                                         uint32_t rank, uint32_t p, adapted_run run)
{
    const int eights = KIND::width / 8, first = HALF_OF == 1 ? eights / 2 : 0;
    const int count = HALF_OF == 2 ? eights : eights / 2;
    const uint32_t k = threadIdx.x % 4 * 4;
    const uint32_t offset = ((p - at.low) * at.rows * room_of(a) + k) * 4;
    for (uint32_t r = 0; r < rank; r += RANK_STEP, run.b_at += RANK_STEP * 2) {
        inner_values values;
        inner_load(values, rows.low_at + offset + r * 4, run.low, rows.high_at + offset + r * 4,
                   run.high);
        run.count = static_cast<int32_t>(rank - r - k);
        run_add<first, count, WHOLE>(c, values, run);
    }
}

/* An adapter in a stage: its slot, rank and parts, a bit each; where its rows of B are, and bytes
 * from one to the next. */
struct adapted_one {
    uint32_t number, rank, has, b_at, row_bytes;
};

/* A warp: what one adapter adds to the rows of it that have it. */
template <class KIND, bool WHOLE>
__device__ __forceinline__ void
slot_add(float (&c)[KIND::width / 2], const tiles_args &t, const adapt_args &a,
         const adapted_place &at, const adapted_rows &rows, const adapted_one &of, uint32_t column)
{
    const uint32_t lane = threadIdx.x % WARP, rank = of.rank, has = of.has;
    adapted_run run = {of.b_at + lane / 4 * of.row_bytes + lane % 4 * 8,
                       of.row_bytes,
                       0,
                       0,
                       KIND::width,
                       rows.low == of.number,
                       rows.high == of.number};
    if (t.up) {
        if (has & 1)
            part_add<KIND, 0, WHOLE>(c, a, at, rows, rank, 0, run);
        if (has & 2)
            part_add<KIND, 1, WHOLE>(c, a, at, rows, rank, 1, run);
        return;
    }
    for (uint32_t p = at.low; p < at.end; p++) {
        run.begin = max(part_begin(a, p), column) - column;
        run.end = max(a.ends[p], column) - column;
        if (has >> p & 1)
            part_add<KIND, 2, WHOLE>(c, a, at, rows, rank, p, run);
    }
}

/* A warp's slots, a bit each. */
__device__ __forceinline__ uint64_t slots_of_rows(const adapted_rows &rows)
{
    uint64_t own = (rows.low == NO_SLOT ? 0 : UINT64_C(1) << rows.low) |
                   (rows.high == NO_SLOT ? 0 : UINT64_C(1) << rows.high);
    uint32_t first = __reduce_or_sync(FULL_MASK, static_cast<uint32_t>(own));
    uint32_t second = __reduce_or_sync(FULL_MASK, static_cast<uint32_t>(own >> 32));
    return first | static_cast<uint64_t>(second) << 32;
}

/* What one adapter's rows are multiplied with. */
template <class KIND> struct slot_operands {
    inner_values values;
    uint2 b[KIND::width / 8];
};

template <class KIND>
__device__ __forceinline__ void slot_take(slot_operands<KIND> &to, const adapted_place &at,
                                          const adapted_rows &rows, bool there, uint32_t number,
                                          uint32_t b_at)
{
    const uint32_t rank = there ? at.table->slots[number].rank : 0, lane = threadIdx.x % WARP;
    const uint32_t k = lane % 4 * 4;
    const bool has = there && at.table->slots[number].has >> at.low & 1;
    inner_load(to.values, rows.low_at + k * 4, has && rows.low == number, rows.high_at + k * 4,
               has && rows.high == number);
#pragma unroll
    for (int i = 0; i < KIND::width / 8; i++)
        to.b[i] = b_four<true>(b_at + ((i * 8 + lane / 4) * rank + k) * 2,
                               has ? static_cast<int32_t>(rank - k) : 0);
}

/* The slots of `own` in a stage, of one part and ranks up to RANK_STEP: two at a time. */
template <class KIND>
__device__ __forceinline__ void
slots_add_small(float (&c)[KIND::width / 2], const adapted_place &at, const adapted_rows &rows,
                uint64_t &own, uint32_t first, uint32_t end, uint32_t stage, uint32_t each)
{
    for (;;) {
        slot_operands<KIND> of[2];
        bool more = true;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const uint32_t number = static_cast<uint32_t>(__ffsll(static_cast<long long>(own))) - 1;
            const bool there = number < end; /* without any it is more than every number */
            if (i == 0 && !there)
                return;
            own = there ? own & (own - 1) : own;
            slot_take(of[i], at, rows, there, number, stage + (number - first) * each);
            more = there;
        }
#pragma unroll
        for (int i = 0; i < 2; i++)
            inner_multiply_b<0>(c, of[i].values, of[i].b);
        if (!more)
            return;
    }
}

/* A warp: what adapters add. DRY: nothing. What is read then is its own memory for results, and
 * does not count; but its instructions are here when they are needed: behind the other kernels of a
 * layer they come out of memory, a line at a time, in the queue behind all weights. */
template <class KIND>
__device__ __forceinline__ void slots_add(float (&c)[KIND::width / 2], const tiles_args &t,
                                          const adapt_args &a, adapted_place at,
                                          const adapted_rows &rows, const tiles_ring &ring,
                                          ring_cursor &cursor, uint32_t column, bool dry)
{
    const uint32_t of_stage = slots_of_stage<KIND>(a), each = KIND::width * a.rank_max * 2;
    const uint32_t count = dry ? 1 : at.table->count;
    const bool small = !t.up && at.end - at.low == 1 && a.rank_max <= RANK_STEP;
    uint64_t own = dry ? 1 : slots_of_rows(rows);
    at.rows = dry ? 0 : at.rows;
    for (uint32_t first = 0; first < count; first += of_stage) {
        const uint32_t stage = ring.stages + cursor.stage * KIND::stage_bytes;
        if (!dry)
            ring_wait_full(ring.full, cursor);
        if constexpr (KIND::width <= NARROW)
            if (small && !at.table->odd)
                slots_add_small<KIND>(c, at, rows, own, first, first + of_stage, stage, each);
        while (own) {
            adapted_one of = {0, RANK_STEP, ~0u, rows.low_at, 0};
            const uint32_t number = static_cast<uint32_t>(__ffsll(static_cast<long long>(own))) - 1;
            if (number >= first + of_stage)
                break;
            own &= own - 1;
            if (!dry) {
                const adapted_slot &slot = at.table->slots[number];
                of = {number, slot.rank, slot.has, stage + (number - first) * each, slot.rank * 2u};
            }
            if (of.rank % 4 == 0)
                slot_add<KIND, true>(c, t, a, at, rows, of, column);
            else
                slot_add<KIND, false>(c, t, a, at, rows, of, column);
        }
        if (dry)
            return;
        reads_before_copy();
        __syncwarp();
        tiles_give_back<KIND>(ring, cursor);
        ring_next(cursor, KIND::stages);
    }
}

#endif

} // namespace HALF
