/* Decode attention: what one warp does, alone. It attends to items (attention_plan.cuh) one after
 * the other and brings their keys and values itself, by bulk copies into a ring of its own: SPAN
 * positions of K, then of V, then of the next span, ahead through all of its items.
 *
 * Its first item is the one of its own number; every other is whichever comes next, by a count that
 * all warps share: SMs get unequal shares of the memory, and rows are unequally long. The next
 * item's number is asked for when few parts of the one before are left to fetch, for what is taken
 * early is missing where there is time for it; then where its blocks lie. Bits do not depend on who
 * attends to an item. */
#pragma once

#include "gpu/kernels/attention/attention_math.cuh"
#include "gpu/kernels/attention/attention_math_eight.cuh"

/* Up to so many rows a block's warps share each item; products, too, take another way up to here.
 */
#define ATTENTION_FEW_ROWS 16
#define WARP_STAGES_MAX 16
/* Shared memory that a block leaves to others, each of which takes 1 KiB for itself: op_rope's,
 * that are about to end, and the combining kernel's, that wait for this one. */
#define LEFT_BYTES (8u << 10)

namespace HALF
{

/* Rows of the decode path; rows of several splits leave records. `whole`: they may not fit. */
cudaError_t attention_warps(const struct attention_args *args, const struct decode_scratch *scratch,
                            bool whole, cudaStream_t stream);

/* EIGHT: keys and values in e4m3, of which a piece has its scales behind it. */
template <int HD, bool EIGHT> struct warp_shape {
    static const int warps = HD > 128 ? 4 : 8;
    static const uint32_t piece = PIECE * (EIGHT ? HD + sizeof(float) : HD * 2);
    static const uint32_t part = 2 * piece; /* bytes of K, or V */
};

template <int HD> struct warp_shared {
    attention_plan plan;
    uint64_t full[warp_shape<HD, false>::warps][WARP_STAGES_MAX];
    /* then the rings, [warps that have items][stages][part], aligned to 128 */
};

/* What all warps know. */
struct warp_world {
    const attention_args *args;
    const struct batch_group *group;
    const attention_plan *plan;
    plan_shape shape;
    uint32_t block_shift, total; /* of items */
    uint32_t first, dealt;       /* this warp's first item; all that are so dealt */
    uint32_t ring, full, stages; /* this warp's, in shared memory */
    uint64_t policy;
};

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* One split of an item, to be fetched; lane i has its piece i. */
struct warp_part {
    uint32_t number, entry, split, split_end;
    uint32_t span, span_last; /* of SPAN positions, counted from 0 */
    uint32_t old;             /* spans below hold nothing that this step writes */
    uint32_t head, position;  /* position: of the lane's piece */
    uint32_t rows, block;     /* rows: positions of the lane's piece that are read */
    unsigned long long slab;
};

/* Asks for the block numbers of a split, and does not wait for them. */
__device__ __forceinline__ warp_part part_find(const warp_world &world, uint32_t number,
                                               uint32_t split)
{
    warp_part part;
    part.number = number;
    part.rows = part.block = part.entry = 0;
    if (number >= world.total)
        return part;
    part.entry = plan_entry_by_warp(*world.plan, number);
    attention_item item =
        plan_item(*world.plan, world.args->batch, *world.group, world.shape, number, part.entry);
    part.split = split == UINT32_MAX ? item.split : split;
    part.split_end = item.split_end;
    part.head = item.head;
    uint32_t begin = part.split * ATTENTION_SPLIT, end = begin + ATTENTION_SPLIT - 1;
    uint32_t from = item.row.first > begin ? item.row.first : begin;
    uint32_t to = item.row.last < end ? item.row.last : end;
    part.span = from / SPAN;
    part.span_last = to / SPAN;
    part.old = item.row.position / SPAN;
    part.position = begin + threadIdx.x % WARP * PIECE;
    if (part.position <= to && part.position + PIECE > from) {
        uint32_t left = to - part.position + 1;
        part.rows = left < PIECE ? left : PIECE;
        part.block = __ldg(item.row.table + (part.position >> world.block_shift));
    }
    return part;
}

/* Asks for the slab that the block is in, from whose first block it is counted from here on. */
__device__ __forceinline__ void part_slab(const warp_world &world, warp_part &part)
{
    uint32_t blocks = world.group->slab_blocks, slab = part.block / blocks;
    part.block -= slab * blocks;
    part.slab = 0;
    if (part.rows)
        part.slab = __ldg(reinterpret_cast<const unsigned long long *>(world.group->slabs) + slab);
}

/* Where the lane's keys are. */
template <int HD, bool EIGHT>
__device__ __forceinline__ const char *part_keys(const warp_world &world, const warp_part &part)
{
    const struct batch_group &group = *world.group;
    uint32_t inside = part.position & ((1u << world.block_shift) - 1);
    return reinterpret_cast<const char *>(part.slab) + (size_t)part.block * group.block_bytes +
           world.args->kv.k +
           (((size_t)part.head << world.block_shift) + inside) *
               (warp_shape<HD, EIGHT>::piece / PIECE);
}

struct warp_fetch {
    warp_part now, next;
    const char *keys; /* of the lane's piece of `now` */
    ring_cursor to;   /* the stage that is filled next, behind which none is waited for */
    uint32_t known;   /* of `next`: 0 nothing, 1 its number was asked for, 2 its blocks, 3 slabs */
    uint32_t taken;   /* lane 0: the answer to the first question */
    uint32_t queue;   /* lane i: items i, i + WARP, ... that this warp fetches */
    uint32_t entries; /* of the plan, of those */
    uint32_t queued, attended; /* how many items are in the queue; are out of it */
    bool values;               /* the keys of now.span have been asked for */
};

/* Parts that are left to fetch when an item's successor is asked for, its blocks, and its slabs. */
#define AHEAD_NUMBER 4
#define AHEAD_BLOCKS 2
#define AHEAD_SLABS 0

__device__ __forceinline__ bool fetch_more(const warp_world &world, const warp_fetch &fetch)
{
    return fetch.now.number < world.total;
}

/* `fresh`: the next part is of another item. */
template <int HD, bool EIGHT>
__device__ __forceinline__ void fetch_turn(const warp_world &world, warp_fetch &fetch, bool fresh)
{
    fetch.now = fetch.next;
    if (fresh && threadIdx.x % WARP == fetch.queued++ % WARP)
        fetch.queue = fetch.now.number, fetch.entries = fetch.now.entry;
    fetch.known = 0;
    fetch.values = false;
    if (fetch_more(world, fetch))
        fetch.keys = part_keys<HD, EIGHT>(world, fetch.now);
}

template <int HD, bool EIGHT>
__device__ __forceinline__ void fetch_begin(const warp_world &world, warp_fetch &fetch)
{
    fetch.to = {0, 0};
    fetch.queued = fetch.attended = 0;
    fetch.next = part_find(world, world.first, UINT32_MAX);
    part_slab(world, fetch.next);
    fetch_turn<HD, EIGHT>(world, fetch, true);
}

/* The next item to attend to, in the order in which they are fetched: the last is none. */
__device__ __forceinline__ uint32_t fetch_item(warp_fetch &fetch, uint32_t *ret_entry)
{
    uint32_t lane = fetch.attended++ % WARP;
    *ret_entry = __shfl_sync(FULL_MASK, fetch.entries, lane);
    return __shfl_sync(FULL_MASK, fetch.queue, lane);
}

/* Takes an item for this warp, and waits for its number: the comparison does, and so does the
 * exchange between lanes that the compiler makes of an atomic add. Each warp with items asks until
 * there are none, so `total` numbers are handed out: who has the last leaves the count as it was
 * found. */
__device__ __forceinline__ void fetch_take(const warp_world &world, warp_fetch &fetch)
{
    if (threadIdx.x % WARP)
        return;
    fetch.taken = atomicAdd(world.args->batch.next_item, 1);
    if (fetch.taken + 1 == world.total)
        *world.args->batch.next_item = 0;
}

/* A step further with the part after this one, of which `left` are still to come; all steps where
 * it is its turn. */
template <int HD, bool EIGHT>
__device__ __forceinline__ void fetch_ahead(const warp_world &world, warp_fetch &fetch,
                                            uint32_t left, bool turn)
{
    bool more = fetch.now.split + 1 < fetch.now.split_end;
    uint32_t known = fetch.known; /* a question is not answered by the call that asks it */
    if (known == 0 && left <= AHEAD_NUMBER) {
        if (!more)
            fetch_take(world, fetch);
        fetch.known = 1;
    }
    if (turn ? known < 2 : known == 1 && left <= AHEAD_BLOCKS) {
        uint32_t number = fetch.now.number;
        if (!more)
            number = world.dealt + __shfl_sync(FULL_MASK, fetch.taken, 0);
        fetch.next = part_find(world, number, more ? fetch.now.split + 1 : UINT32_MAX);
        fetch.known = 2;
    }
    if (turn ? known < 3 : known == 2 && left <= AHEAD_SLABS) {
        part_slab(world, fetch.next);
        fetch.known = 3;
    }
    if (turn)
        fetch_turn<HD, EIGHT>(world, fetch, !more);
}

/* Asks for the next part: keys of a span, or values. The stage is free. `ahead`: there is time to
 * look up what comes later. */
template <int HD, bool EIGHT>
__device__ __forceinline__ void fetch_part(const warp_world &world, warp_fetch &fetch, bool ahead)
{
    if (!fetch_more(world, fetch))
        return;
    uint32_t low = fetch.now.span % (ATTENTION_SPLIT / SPAN) * 2;
    uint32_t rows_low = __shfl_sync(FULL_MASK, fetch.now.rows, low);
    uint32_t rows_high = __shfl_sync(FULL_MASK, fetch.now.rows, low + 1);
    const uint32_t row_bytes = warp_shape<HD, EIGHT>::piece / PIECE;
    if (EIGHT) { /* scales are behind the last row */
        rows_low = rows_low ? PIECE : 0;
        rows_high = rows_high ? PIECE : 0;
    }
    uint64_t keys = reinterpret_cast<uint64_t>(fetch.keys);
    uint64_t keys_low = __shfl_sync(FULL_MASK, keys, low);
    uint64_t keys_high = __shfl_sync(FULL_MASK, keys, low + 1);
    uint32_t barrier = ring_barrier(world.full, fetch.to);
    uint32_t to = world.ring + fetch.to.stage * warp_shape<HD, EIGHT>::part;
    bool joined = world.block_shift > 4 && rows_low && rows_high; /* next to each other */
    uint64_t values = fetch.values ? world.args->kv.v - world.args->kv.k : 0;
    if (warp_elect()) {
        barrier_expect(barrier, (rows_low + rows_high) * row_bytes);
        if (rows_low)
            copy_bulk(to, reinterpret_cast<const char *>(keys_low + values),
                      (joined ? rows_low + rows_high : rows_low) * row_bytes, barrier,
                      world.policy);
        if (rows_high && !joined)
            copy_bulk(to + warp_shape<HD, EIGHT>::piece,
                      reinterpret_cast<const char *>(keys_high + values), rows_high * row_bytes,
                      barrier, world.policy);
    }
    __syncwarp();
    ring_next(fetch.to, world.stages);
    bool turn = fetch.values && fetch.now.span == fetch.now.span_last;
    if (!turn) {
        fetch.now.span += fetch.values;
        fetch.values = !fetch.values;
    }
    uint32_t left = turn ? 0 : 2 * (fetch.now.span_last - fetch.now.span) + !fetch.values;
    if (turn || ahead)
        fetch_ahead<HD, EIGHT>(world, fetch, left, turn);
}

/* ---- arithmetic ------------------------------------------------------------------------------ */

/* Queries of an item from device memory; those that it does not have are zeros. */
template <int HD, int TILES>
__device__ __forceinline__ void warp_load_q(decode_state<HD, TILES> &s, const attention_args &a,
                                            const attention_item &item, const plan_shape &shape)
{
    uint32_t lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
    const half_t *from[TILES];
    bool valid[TILES];
#pragma unroll
    for (int n = 0; n < TILES; n++) {
        uint32_t r = item.tile * shape.tile_rows + n * 8 + g;
        uint32_t token = item.row.q_len > 1 ? r / shape.group : 0;
        uint32_t head = item.head * shape.group + r - token * shape.group;
        from[n] = static_cast<const half_t *>(a.q) + (size_t)(item.row.token + token) * a.q_stride +
                  head * HD + t * 8;
        valid[n] = n * 8 + g < shape.tile_rows && r < item.row.q_len * shape.group;
    }
#pragma unroll
    for (int j = 0; j < HD / 32; j++)
        decode_set_q(
            s, j, [&](int n, int i) { return valid[n] ? load_word(from[n] + j * 32 + i * 2) : 0; });
}

template <int HD, int TILES> __device__ __forceinline__ void warp_clear(decode_state<HD, TILES> &s)
{
#pragma unroll
    for (int n = 0; n < TILES; n++) {
        s.most[n] = -INFINITY;
        s.sum[n] = 0;
#pragma unroll
        for (int m = 0; m < head_shape<HD>::tiles; m++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                s.out[n][m][i] = 0;
    }
}

/* The running softmax: scores of a span become weights, and what was summed is scaled to fit. */
template <int HD, int TILES>
__device__ __forceinline__ void warp_softmax(decode_state<HD, TILES> &s,
                                             float (&score)[KEY_TILES][4], float unit)
{
#pragma unroll
    for (int n = 0; n < TILES; n++) {
        float peak = fmaxf(tile_peak(score, n) * unit, s.most[n]), origin = origin_of(peak);
        float keep = exp2_fast(s.most[n] - origin);
        float2 keeps = of_outputs(keep);
        s.most[n] = peak;
        s.sum[n] = fmaf(s.sum[n], keep, tile_weigh(score, n, unit, origin));
#pragma unroll
        for (int m = 0; m < head_shape<HD>::tiles; m++) {
            s.out[n][m][0] *= keeps.x;
            s.out[n][m][1] *= keeps.y;
            s.out[n][m][2] *= keeps.x;
            s.out[n][m][3] *= keeps.y;
        }
    }
}

/* One split: its spans from the first to the last. */
template <bool CAP, bool EIGHT, int HD, int TILES>
__device__ __forceinline__ void warp_split(const warp_world &world, warp_fetch &fetch,
                                           decode_state<HD, TILES> &s, const attention_item &item,
                                           uint32_t split, ring_cursor &at,
                                           eight_state<EIGHT, TILES> &eight)
{
    const uint32_t part = warp_shape<HD, EIGHT>::part;
    const score_scale scale = score_scale_of<CAP>(world.args->scale, world.args->softcap);
    uint32_t begin = split * ATTENTION_SPLIT, end = begin + ATTENTION_SPLIT - 1;
    uint32_t from = item.row.first > begin ? item.row.first : begin;
    uint32_t to = item.row.last < end ? item.row.last : end;
    warp_clear(s);
    if constexpr (EIGHT)
        eight.v_unit = 0;
    for (uint32_t span = from / SPAN; span <= to / SPAN; span++) {
        float score[KEY_TILES][4];
        ring_wait_full(world.full, at);
        if constexpr (EIGHT)
            eight_scores<CAP>(s, eight, score, item, world.group->window, span * SPAN,
                              world.ring + at.stage * part, scale);
        else
            decode_scores<CAP>(s, score, item, world.group->window, span * SPAN,
                               world.ring + at.stage * part, scale);
        reads_before_copy();
        __syncwarp();
        fetch_part<HD, EIGHT>(world, fetch, true);
        ring_next(at, world.stages);
        warp_softmax<HD, TILES>(s, score, scale.unit);
        ring_wait_full(world.full, at);
        if constexpr (EIGHT)
            eight_values(s, eight, score, item, span * SPAN, world.ring + at.stage * part);
        else
            decode_values(s, score, item, span * SPAN, world.ring + at.stage * part);
        reads_before_copy();
        __syncwarp();
        fetch_part<HD, EIGHT>(world, fetch, true);
        ring_next(at, world.stages);
    }
#pragma unroll
    for (int n = 0; n < TILES; n++)
        s.sum[n] = tile_sum(s.sum[n]);
    if constexpr (EIGHT)
        eight_outputs_scale(s, eight.v_unit);
}

/* A split added to those before it, as combine_kernel does; `all` starts clear. */
template <int HD, int TILES>
__device__ __forceinline__ void warp_fold(decode_state<HD, TILES> &all,
                                          const decode_state<HD, TILES> &s)
{
#pragma unroll
    for (int n = 0; n < TILES; n++) {
        float old, now;
        all.most[n] = fold_most(all.most[n], s.most[n], &old, &now);
        all.sum[n] = fold_value(all.sum[n], old, s.sum[n], now);
        float2 olds = of_outputs(old), nows = of_outputs(now);
#pragma unroll
        for (int m = 0; m < head_shape<HD>::tiles; m++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                all.out[n][m][i] = fold_value(all.out[n][m][i], i % 2 ? olds.y : olds.x,
                                              s.out[n][m][i], i % 2 ? nows.y : nows.x);
    }
}

/* Results of an item: to the output, or to its record for combine_kernel. The first item of a row
 * tells where the row's records are. */
template <int HD, int TILES>
__device__ __forceinline__ void warp_store(const decode_state<HD, TILES> &s,
                                           const attention_args &a, const decode_scratch &scratch,
                                           const attention_item &item, const plan_shape &shape)
{
    const int next = HD == 64 ? 4 : 8; /* row tiles whose dimensions follow each other */
    uint32_t lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
    if (scratch.row_record && lane == 0 && item.head == 0 && item.tile == 0 &&
        item.split == item.row.split_first)
        scratch.row_record[item.index] = item.record;
    bool aligned = a.out_stride % 4 == 0 && reinterpret_cast<uintptr_t>(a.out) % 8 == 0;
#pragma unroll
    for (int n = 0; n < TILES; n++) {
        float2 mosts = of_outputs(s.most[n]), sums = of_outputs(s.sum[n]);
        float2 inverses = of_outputs(attention_inverse(s.sum[n]));
#pragma unroll
        for (int i = 0; i < 2; i++) {
            uint32_t in_tile = n * 8 + 2 * t + i, r = item.tile * shape.tile_rows + in_tile;
            if (in_tile >= shape.tile_rows || r >= item.row.q_len * shape.group)
                continue;
            uint32_t token = item.row.q_len > 1 ? r / shape.group : 0;
            uint32_t head = item.head * shape.group + r - token * shape.group;
            size_t record = item.record +
                            ((size_t)(item.split - item.row.split_first) * item.row.q_len + token) *
                                shape.kv_heads * shape.group +
                            head;
            bool direct = item.record == PLAN_DIRECT;
            float inverse = i ? inverses.y : inverses.x;
            if (direct && a.sinks) {
                float sum = i ? sums.y : sums.x;
                float kept = attention_sink(a, head, i ? mosts.y : mosts.x, &sum);
                inverse = attention_inverse(sum) * kept;
            }
            if (!direct && g == 0)
                scratch.stat[record] = make_float2(i ? mosts.y : mosts.x, i ? sums.y : sums.x);
#pragma unroll
            for (int m = 0; g < head_shape<HD>::lanes && m < head_shape<HD>::tiles; m += next)
#pragma unroll
                for (int half = 0; half < 2; half++)
#pragma unroll
                    for (int four = 0; four < next; four += 4) {
                        uint32_t dimension = dimension_of<HD>(g, m + four, half);
                        float v[4];
#pragma unroll
                        for (int j = 0; j < 4; j++)
                            v[j] = s.out[n][m + four + j][half * 2 + i];
                        if (!direct) {
                            *reinterpret_cast<float4 *>(&scratch.out[record * HD + dimension]) =
                                make_float4(v[0], v[1], v[2], v[3]);
                            continue;
                        }
                        half_t *to = static_cast<half_t *>(a.out) +
                                     (size_t)(item.row.token + token) * a.out_stride + head * HD +
                                     dimension;
#pragma unroll
                        for (int j = 0; j < 4; j++)
                            v[j] *= inverse;
                        if (aligned)
                            *reinterpret_cast<uint2 *>(to) = make_uint2(
                                pack(v[0], v[1], DTYPE_HALF), pack(v[2], v[3], DTYPE_HALF));
                        else
                            for (int j = 0; j < 4; j++)
                                to[j] = half_of(v[j]);
                    }
        }
    }
}

#endif

} // namespace HALF
