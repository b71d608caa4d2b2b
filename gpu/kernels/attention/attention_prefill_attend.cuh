/* The groups of attention_prefill_wgmma.cu that attend, four warps and 64 queries of an item each.
 *
 * A group asks for the scores of a tile and for the values of the tile before, and makes weights of
 * the scores once both are there; groups ask in turns, so that one's softmax is another's products.
 * Where a group sees no more than the first half of a tile's keys, it asks for their scores alone,
 * and for none of what only the groups behind it see; turns and buffers it gives on all the same.
 * A query's bits depend on its position alone: keys that it does not see change nothing. */
#pragma once

#include "gpu/kernels/attention/attention_prefill_load.cuh"
#include "gpu/kernels/attention/attention_tuned.cuh"
#include "gpu/kernels/common/softcap.cuh"
#include "gpu/kernels/common/wgmma.cuh"

namespace HALF
{

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* Whether groups ask for the first half of a tile alone. At dimension 64 there are no registers for
 * it, and ptxas has all products wait for each other (C7511), which costs more than it gains but
 * where keys and values in e4m3 are what is waited for. */
template <int HD, bool EIGHT> constexpr bool HALVES = HD == 128 || EIGHT;

template <int HD> struct wgmma_state {
    float score[KEYS / 2], out[HD / 2];
    uint32_t weight[KEYS / 4]; /* pairs, as the products want them */
    float most[2], sum[2], keep[2];
};

/* The lower word of an operand, of which the compiler is told that it is one for the whole warp: so
 * it stays where products want it. A sixteenth of what the operand's place moves by is added. */
__device__ __forceinline__ uint32_t wgmma_operand_low(uint32_t address, uint32_t lead)
{
    return __shfl_sync(FULL_MASK, (uint32_t)wgmma_operand(address, lead), 0);
}

__device__ __forceinline__ uint64_t wgmma_operand_of(uint32_t low)
{
    return wgmma_operand(0, 0) | low;
}

/* What a thread of a group knows for all items. */
template <int HD, bool EIGHT> struct wgmma_consumer {
    uint32_t window;
    score_scale scale;
    ring_count<K_STAGES<HD, EIGHT>> k_ring;
    ring_count<V_STAGES<HD, EIGHT>> v_ring;
    uint32_t k, v; /* the first buffers, as lower words of operands */
    uint32_t q;    /* the item's queries, likewise */
};

__device__ __forceinline__ uint32_t wgmma_group()
{
    return threadIdx.x / GROUP_THREADS;
}

/* A thread's first query in the item; the other is eight behind it. */
__device__ __forceinline__ uint32_t wgmma_query_first()
{
    return threadIdx.x / WARP * 16 + threadIdx.x % WARP / 4;
}

/* Of the tile's first `PART` keys. */
template <int HD, int PART, bool EIGHT>
__device__ __forceinline__ void wgmma_scores(wgmma_state<HD> &s,
                                             const wgmma_shared<HD, EIGHT> &shared,
                                             const wgmma_consumer<HD, EIGHT> &c)
{
    uint32_t k = c.k + c.k_ring.at().stage * (uint32_t)(sizeof(shared.k[0]) / 16);
    float(&score)[PART / 2] = reinterpret_cast<float(&)[PART / 2]>(s.score);
#pragma unroll
    for (int step = 0; step < HD / 16; step++)
        wgmma_multiply(score, wgmma_operand_of(c.q + step / 4 * (GROUP_QUERIES * 8) + step % 4 * 2),
                       wgmma_operand_of(k + step / 4 * (KEYS * 8) + step % 4 * 2), step > 0);
    wgmma_commit();
}

template <int PART, int HD>
__device__ __forceinline__ void wgmma_cap(wgmma_state<HD> &s, const score_scale &scale)
{
#pragma unroll
    for (int j = 0; j < PART / 2; j++)
        s.score[j] = score_capped(s.score[j], scale);
}

template <int HD, bool EIGHT>
__device__ __forceinline__ void wgmma_values(wgmma_state<HD> &s,
                                             const wgmma_shared<HD, EIGHT> &shared,
                                             const wgmma_consumer<HD, EIGHT> &c)
{
    uint32_t v = c.v + c.v_ring.at().stage * (uint32_t)(sizeof(shared.v[0]) / 16);
#pragma unroll
    for (int step = 0; step < KEYS / 16; step++) {
        const uint32_t *p = &s.weight[step * 4];
        wgmma_values_step(s.out, p[0], p[1], p[2], p[3], wgmma_operand_of(v + step * 16 * 8));
    }
    wgmma_commit();
}

/* Positions of a thread's two queries, and of its group's. */
template <bool PACKED> struct wgmma_seen {
    uint32_t position; /* of the item */

    __device__ __forceinline__ wgmma_seen(const struct attention_args &, const wgmma_work &work)
        : position(work.position)
    {
    }
    __device__ __forceinline__ uint32_t at(int half) const
    {
        return position + wgmma_query_first() + half * 8;
    }
    __device__ __forceinline__ uint32_t lowest() const
    {
        return position + wgmma_group() * GROUP_QUERIES;
    }
    __device__ __forceinline__ uint32_t highest() const
    {
        return lowest() + GROUP_QUERIES - 1;
    }
};

template <> struct wgmma_seen<true> {
    uint32_t of[2], ends[2];

    __device__ __forceinline__ wgmma_seen(const struct attention_args &a, const wgmma_work &work)
    {
        uint32_t query = wgmma_query_first(), group = wgmma_group() * GROUP_QUERIES;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            of[i] = work.position + wgmma_query_of<true>(a, work, query + i * 8).token;
            ends[i] = work.position +
                      wgmma_query_of<true>(a, work, group + i * (GROUP_QUERIES - 1)).token;
        }
    }
    __device__ __forceinline__ uint32_t at(int half) const
    {
        return of[half];
    }
    __device__ __forceinline__ uint32_t lowest() const
    {
        return ends[0];
    }
    __device__ __forceinline__ uint32_t highest() const
    {
        return ends[1];
    }
};

/* Scores of a tile's first `PART` keys become weights, those of the others nothing; what was summed
 * so far is to be scaled by `keep`. */
template <int PART, int HD, bool PACKED>
__device__ __forceinline__ void wgmma_softmax(wgmma_state<HD> &s, const wgmma_seen<PACKED> &seen,
                                              uint32_t window, uint32_t tile, float unit)
{
    uint32_t base = tile * KEYS;
    if (PART < KEYS || base + KEYS - 1 > seen.lowest() ||
        (window && base + window <= seen.highest())) {
        uint32_t first = base + threadIdx.x % 4 * 2;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int32_t high = (int32_t)(seen.at(half) - first); /* keys from `first` on that it sees */
            int32_t low = window ? high - (int32_t)window : INT32_MIN;
#pragma unroll
            for (int j = 0; j < PART / 4; j++) {
                float &score = s.score[j / 2 * 4 + half * 2 + j % 2];
                if (j / 2 * 8 + j % 2 > high || j / 2 * 8 + j % 2 <= low)
                    score = -INFINITY;
            }
        }
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float part[4] = {s.most[half], -INFINITY, -INFINITY, -INFINITY};
#pragma unroll
        for (int j = 0; j < PART / 4; j++)
            part[j % 4] = fmaxf(part[j % 4], s.score[j / 2 * 4 + half * 2 + j % 2]);
        float peak = fmaxf(fmaxf(part[0], part[1]), fmaxf(part[2], part[3]));
        peak = fmaxf(peak, __shfl_xor_sync(FULL_MASK, peak, 1));
        peak = fmaxf(peak, __shfl_xor_sync(FULL_MASK, peak, 2));
        float origin = peak == -INFINITY ? 0.0f : __fmul_rn(peak, unit);
        /* Rounded like `origin`: exactly 1 where the maximum stays. */
        s.keep[half] = exp2_fast(__fmul_rn(s.most[half], unit) - origin);
        s.most[half] = peak;
        float sum[2] = {0, 0};
#pragma unroll
        for (int j = 0; j < PART / 4; j++) {
            float &score = s.score[j / 2 * 4 + half * 2 + j % 2];
            score = exp2_fast(fmaf(score, unit, -origin));
            sum[j % 2] += score;
        }
        s.sum[half] = fmaf(s.sum[half], s.keep[half], sum[0] + sum[1]);
    }
}

template <int PART, int HD> __device__ __forceinline__ void wgmma_pack(wgmma_state<HD> &s)
{
#pragma unroll
    for (int i = 0; i < KEYS / 4; i++)
        s.weight[i] = i < PART / 4 ? pack(s.score[2 * i], s.score[2 * i + 1], DTYPE_HALF) : 0;
}

/* What a span of an item's keys gives a query. */
template <int HD>
__device__ __forceinline__ void wgmma_record(const wgmma_state<HD> &s, const prefill_spans &spans,
                                             size_t record, int half, float most, float sum)
{
    uint32_t t = threadIdx.x % 4;
    if (t == 0)
        spans.stat[record] = make_float2(most, sum);
    float2 *to = reinterpret_cast<float2 *>(spans.out + record * HD);
#pragma unroll
    for (int j = 0; j < HD / 8; j++)
        to[j * 4 + t] = make_float2(s.out[j * 4 + half * 2], s.out[j * 4 + half * 2 + 1]);
}

/* Four lanes each have a word of each of four units of 16 bytes; then each has one unit. */
__device__ __forceinline__ uint4 wgmma_exchange(const uint32_t (&word)[4])
{
    bool odd = threadIdx.x % 2, high = threadIdx.x / 2 % 2;
    uint32_t a = __shfl_xor_sync(FULL_MASK, odd ? word[0] : word[1], 1);
    uint32_t b = __shfl_xor_sync(FULL_MASK, odd ? word[2] : word[3], 1);
    /* Of two lanes each: of the first two units, or of the last two, the one that is odd as we. */
    uint2 front = odd ? make_uint2(a, word[1]) : make_uint2(word[0], a);
    uint2 back = odd ? make_uint2(b, word[3]) : make_uint2(word[2], b);
    uint2 other = high ? front : back;
    other.x = __shfl_xor_sync(FULL_MASK, other.x, 2);
    other.y = __shfl_xor_sync(FULL_MASK, other.y, 2);
    return high ? make_uint4(other.x, other.y, back.x, back.y)
                : make_uint4(front.x, front.y, other.x, other.y);
}

template <int HD, bool PACKED>
__device__ __forceinline__ void
wgmma_store(const wgmma_state<HD> &s, const struct attention_args &a, const prefill_spans &spans,
            const wgmma_work &work, float unit)
{
    uint32_t t = threadIdx.x % 4, query = wgmma_query_first();
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float sum = s.sum[half];
        sum += __shfl_xor_sync(FULL_MASK, sum, 1);
        sum += __shfl_xor_sync(FULL_MASK, sum, 2);
        bool exists = query + half * 8 < work.queries;
        if (PACKED && work.record != SPAN_WHOLE) {
            size_t record = (size_t)work.record * QUERIES<HD> + query + half * 8;
            if (exists)
                wgmma_record(s, spans, record, half, __fmul_rn(s.most[half], unit), sum);
            continue;
        }
        wgmma_query at = wgmma_query_of<PACKED>(a, work, query + half * 8);
        size_t token = work.token + at.token;
        uint4 *to = reinterpret_cast<uint4 *>(static_cast<half_t *>(a.out) + token * a.out_stride +
                                              at.head * HD);
        float kept = attention_sink(a, at.head, __fmul_rn(s.most[half], unit), &sum);
        float scale = kept / sum;
#pragma unroll
        for (int j = 0; j < HD / 8; j += 4) {
            uint32_t word[4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                word[i] = pack(s.out[(j + i) * 4 + half * 2] * scale,
                               s.out[(j + i) * 4 + half * 2 + 1] * scale, DTYPE_HALF);
            uint4 whole = wgmma_exchange(word);
            if (exists)
                to[j + t] = whole;
        }
    }
}

/* A warp has read a stage, which all blocks of the cluster are told. */
template <uint32_t BLOCKS>
__device__ __forceinline__ void wgmma_give_back(uint64_t *empty, const ring_cursor &at)
{
    uint32_t barrier = ring_barrier(shared_address(empty), at), lane = threadIdx.x % WARP;
    if (BLOCKS == 1 && lane == 0)
        barrier_arrive(barrier);
    if (BLOCKS > 1 && lane < BLOCKS)
        cluster_arrive_read(cluster_address(barrier, lane));
}

/* Whose turn it is: groups ask for products one after the other. They take turns from the first to
 * the last; the last gives the first its turn before it has had one, and the first waits for the
 * last at the end. */
__device__ __forceinline__ void wgmma_turn()
{
    named_sync(BARRIER_TURN + wgmma_group(), 2 * GROUP_THREADS);
}

template <int HD> __device__ __forceinline__ void wgmma_turn_over()
{
    uint32_t next = wgmma_group() + 1 < CONSUMERS<HD> ? wgmma_group() + 1 : 0;
    named_arrive(BARRIER_TURN + next, 2 * GROUP_THREADS);
}

/* What is done with keys and values that are there: they are given back. */
template <int HD, bool EIGHT, uint32_t BLOCKS>
__device__ __forceinline__ void wgmma_k_over(wgmma_shared<HD, EIGHT> &shared,
                                             wgmma_consumer<HD, EIGHT> &c)
{
    wgmma_give_back<BLOCKS>(shared.k_ring.empty, c.k_ring.at());
    c.k_ring.next();
}

template <int HD, bool EIGHT, uint32_t BLOCKS>
__device__ __forceinline__ void wgmma_v_over(wgmma_shared<HD, EIGHT> &shared,
                                             wgmma_consumer<HD, EIGHT> &c)
{
    wgmma_give_back<BLOCKS>(shared.v_ring.empty, c.v_ring.at());
    c.v_ring.next();
}

/* The first tile's scores, without values to add up. */
template <int HD, int PART, bool CAP, bool EIGHT, bool PACKED, uint32_t BLOCKS>
__device__ __forceinline__ void wgmma_first(wgmma_state<HD> &s, wgmma_shared<HD, EIGHT> &shared,
                                            wgmma_consumer<HD, EIGHT> &c,
                                            const wgmma_seen<PACKED> &seen, uint32_t tile)
{
    ring_wait_full(shared_address(shared.k_ring.full), c.k_ring.at());
    wgmma_begin();
    wgmma_scores<HD, PART>(s, shared, c);
    wgmma_wait<0>();
    wgmma_hold(s.score);
    wgmma_k_over<HD, EIGHT, BLOCKS>(shared, c);
    if (CAP)
        wgmma_cap<PART>(s, c.scale);
    wgmma_softmax<PART>(s, seen, c.window, tile, c.scale.unit);
    wgmma_pack<PART>(s);
}

/* A further tile's scores, and the values of the one before. */
template <int HD, int PART, bool CAP, bool EIGHT, bool PACKED, uint32_t BLOCKS>
__device__ __forceinline__ void wgmma_next(wgmma_state<HD> &s, wgmma_shared<HD, EIGHT> &shared,
                                           wgmma_consumer<HD, EIGHT> &c,
                                           const wgmma_seen<PACKED> &seen, uint32_t tile)
{
    ring_wait_full(shared_address(shared.k_ring.full), c.k_ring.at());
    wgmma_turn();
    wgmma_hold(s.out);
    wgmma_begin();
    wgmma_scores<HD, PART>(s, shared, c);
    ring_wait_full(shared_address(shared.v_ring.full), c.v_ring.at());
    wgmma_begin();
    wgmma_values(s, shared, c);
    wgmma_turn_over<HD>();
    wgmma_wait<1>();
    wgmma_hold(s.score);
    wgmma_k_over<HD, EIGHT, BLOCKS>(shared, c);
    if (CAP)
        wgmma_cap<PART>(s, c.scale);
    wgmma_softmax<PART>(s, seen, c.window, tile, c.scale.unit);
    wgmma_wait<0>();
    wgmma_hold(s.out);
    wgmma_v_over<HD, EIGHT, BLOCKS>(shared, c);
#pragma unroll
    for (int j = 0; j < HD / 2; j++)
        s.out[j] *= s.keep[j / 2 % 2];
    wgmma_pack<PART>(s);
}

/* The last values that the group sees; in its turn where others see more. */
template <int HD, bool EIGHT, uint32_t BLOCKS>
__device__ __forceinline__ void wgmma_last(wgmma_state<HD> &s, wgmma_shared<HD, EIGHT> &shared,
                                           wgmma_consumer<HD, EIGHT> &c, bool turn)
{
    ring_wait_full(shared_address(shared.v_ring.full), c.v_ring.at());
    if (turn)
        wgmma_turn();
    wgmma_hold(s.out);
    wgmma_begin();
    wgmma_values(s, shared, c);
    if (turn)
        wgmma_turn_over<HD>();
    wgmma_wait<0>();
    wgmma_hold(s.out);
    wgmma_v_over<HD, EIGHT, BLOCKS>(shared, c);
}

/* Keys, or values, that the group does not see. They must have come, since what is given back
 * counts for what is there. */
template <int HD, bool EIGHT, uint32_t BLOCKS>
__device__ __forceinline__ void wgmma_k_unseen(wgmma_shared<HD, EIGHT> &shared,
                                               wgmma_consumer<HD, EIGHT> &c)
{
    ring_wait_full(shared_address(shared.k_ring.full), c.k_ring.at());
    __syncwarp();
    wgmma_k_over<HD, EIGHT, BLOCKS>(shared, c);
}

template <int HD, bool EIGHT, uint32_t BLOCKS>
__device__ __forceinline__ void wgmma_v_unseen(wgmma_shared<HD, EIGHT> &shared,
                                               wgmma_consumer<HD, EIGHT> &c)
{
    ring_wait_full(shared_address(shared.v_ring.full), c.v_ring.at());
    __syncwarp();
    wgmma_v_over<HD, EIGHT, BLOCKS>(shared, c);
}

/* An item's tiles, all but the first in the group's turn. It sees those before `end`, and of the
 * last of them the first half alone where `halved`. */
template <int HD, bool CAP, bool EIGHT, bool PACKED, uint32_t BLOCKS>
__device__ __forceinline__ void wgmma_attend(wgmma_state<HD> &s, wgmma_shared<HD, EIGHT> &shared,
                                             wgmma_consumer<HD, EIGHT> &c,
                                             const wgmma_seen<PACKED> &seen, const wgmma_work &work)
{
    uint32_t tile = work.tile, top = min(seen.highest(), work.last), end = work.tile_end;
    bool any = wgmma_group() * GROUP_QUERIES < work.queries && top / KEYS >= tile;
    bool halved = HALVES<HD, EIGHT> && any && top / KEYS < end && top % KEYS < KEYS / 2;
    end = any ? min(top / KEYS + 1, end) : tile;
    uint32_t whole = halved ? end - 1 : end;
    if (any && tile < whole)
        wgmma_first<HD, KEYS, CAP, EIGHT, PACKED, BLOCKS>(s, shared, c, seen, tile);
    else if (HALVES<HD, EIGHT> && any)
        wgmma_first<HD, KEYS / 2, CAP, EIGHT, PACKED, BLOCKS>(s, shared, c, seen, tile);
    else
        wgmma_k_unseen<HD, EIGHT, BLOCKS>(shared, c);
    for (tile++; tile < whole; tile++)
        wgmma_next<HD, KEYS, CAP, EIGHT, PACKED, BLOCKS>(s, shared, c, seen, tile);
    if (HALVES<HD, EIGHT> && tile < end) {
        wgmma_next<HD, KEYS / 2, CAP, EIGHT, PACKED, BLOCKS>(s, shared, c, seen, tile);
        tile++;
    }
    bool more = tile < work.tile_end; /* that others see */
    if (any)
        wgmma_last<HD, EIGHT, BLOCKS>(s, shared, c, more);
    for (bool turn = any; tile < work.tile_end; tile++, turn = false) {
        if (!turn) {
            wgmma_turn();
            wgmma_turn_over<HD>();
            wgmma_v_unseen<HD, EIGHT, BLOCKS>(shared, c);
        }
        wgmma_k_unseen<HD, EIGHT, BLOCKS>(shared, c);
    }
    if (!any || more)
        wgmma_v_unseen<HD, EIGHT, BLOCKS>(shared, c);
}

/* One of the groups that attend. */
template <int HD, bool CAP, bool EIGHT, bool PACKED, uint32_t BLOCKS>
__device__ static void wgmma_consume(const struct attention_args &a, uint32_t window,
                                     const prefill_spans &spans, wgmma_shared<HD, EIGHT> &shared)
{
    wgmma_consumer<HD, EIGHT> c;
    c.window = window;
    c.scale = score_scale_of<CAP>(a.scale, a.softcap);
    c.k_ring = {0};
    c.v_ring = {0};
    c.k = wgmma_operand_low(shared_address(&shared.k[0]), 16);
    c.v = wgmma_operand_low(shared_address(&shared.v[0]), KEYS * 128);
    if (wgmma_group() + 1 == CONSUMERS<HD>)
        wgmma_turn_over<HD>();
    for (ring_count<Q_STAGES> ring = {0};; ring.next()) {
        const ring_cursor at = ring.at();
        const wgmma_work &work = shared.work[at.stage];
        ring_wait_full(shared_address(shared.q_ring.full), at);
        if (work.queries == 0)
            break;
        c.q = wgmma_operand_low(shared_address(shared.q[at.stage][wgmma_group()]), 16);
        wgmma_state<HD> s;
        s.most[0] = s.most[1] = -INFINITY;
        s.sum[0] = s.sum[1] = 0;
#pragma unroll
        for (int i = 0; i < HD / 2; i++)
            s.out[i] = 0;
        const wgmma_seen<PACKED> seen(a, work);
        wgmma_attend<HD, CAP, EIGHT, PACKED, BLOCKS>(s, shared, c, seen, work);
        wgmma_store<HD, PACKED>(s, a, spans, work, c.scale.unit);
        __syncwarp();
        if (threadIdx.x % WARP == 0)
            ring_give_back(shared_address(shared.q_ring.empty), ring.at());
    }
    if (wgmma_group() == 0)
        wgmma_turn();
}

#endif

} // namespace HALF
