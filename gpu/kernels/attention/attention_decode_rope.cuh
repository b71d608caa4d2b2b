/* Rope and decode attention in one: what a warp is to do, and what it brings for that, to shared
 * memory and from there to registers, as mma_half takes it (attention_decode_rope.cu). */
#pragma once

#include "gpu/kernels/attention/attention_decode_throughput.cuh"
#include "gpu/kernels/attention/attention_math_eight.cuh"
#include "gpu/kernels/attention/rope.cuh"
#include "gpu/kernels/attention/rope.h"

namespace HALF
{

#define ROPED_WARPS (DECODE_WARPS + 1)
#define ROPED_QUERIES 8 /* of a block at most */

/* EIGHT: keys and values are e4m3, a piece's scales behind its elements (struct kv_layer). */
template <int HD, bool EIGHT> struct roped_shape {
    static const uint32_t element = EIGHT ? 1 : 2;
    static const uint32_t position = HD * element + (EIGHT ? sizeof(float) : 0);
    static const uint32_t piece = PIECE * position;
};

template <int HD, bool EIGHT> struct roped_shared {
    /* keys, then values, of both pieces */
    char stage[DECODE_WARPS][4][roped_shape<HD, EIGHT>::piece];
    float4 merge[ROPED_WARPS][ROPED_QUERIES][HD / 4];
    float2 stat[ROPED_WARPS][ROPED_QUERIES];
    uint64_t full[DECODE_WARPS];
};

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* What a warp is to do, the same in all its lanes. */
struct roped_task {
    attention_item item; /* tile: which ROPED_QUERIES of the KV head's queries */
    uint32_t head;       /* of its first query */
    uint32_t queries;
    uint32_t position; /* the first of its SPAN */
    uint32_t own;      /* the token's own position, from there */
    bool exists;       /* there is such an item */
    bool real;         /* it is not the warp that goes ahead */
    bool any, owns;    /* some of its positions are seen; the token's own is among them */
};

/* What lane (g, t), g = lane / 4, has of the warp's keys and values; a chunk is eight dimensions.
 * Zeros where a position is unseen, or the token's own. Of e4m3 the elements alone, in half
 * precision, which holds them all: scales are for the scores and the weights. */
template <int HD> struct roped_lane {
    uint4 k[4][HD / 32]; /* chunks 4 j + t of key 8 i + g */
    /* Left operands of O^T = V^T P^T of both pieces: row tile m has of lane g dimension m of chunks
     * g and 8 + g, or, where a value has but eight chunks, dimensions m and 4 + m of chunk g. */
    uint32_t v[2][HD / 16][4];
};

/* Nothing is waited for: all was there before. */
__device__ __forceinline__ roped_task roped_find(const attention_args &a,
                                                 const struct batch_group &group,
                                                 uint32_t splits_max)
{
    uint32_t warp = threadIdx.x / WARP, each = a.heads / a.kv_heads;
    uint32_t tiles = (each + ROPED_QUERIES - 1) / ROPED_QUERIES, number = blockIdx.x / tiles;
    roped_task task = {};
    attention_item &item = task.item;
    item.tile = blockIdx.x % tiles;
    item.head = number % a.kv_heads;
    task.head = item.head * each + item.tile * ROPED_QUERIES;
    task.queries = each - item.tile * ROPED_QUERIES;
    task.queries = task.queries < ROPED_QUERIES ? task.queries : ROPED_QUERIES;
    task.real = warp < DECODE_WARPS;
    task.exists = task.any = task.owns = true;
    if (!task.real)
        return task;
    item.index = number / a.kv_heads;
    item.row = attention_row_at(a.batch, group, item.index);
    item.split = item.row.split_first + blockIdx.y;
    item.record = item.row.splits > 1 ? item.index * splits_max * a.heads : PLAN_DIRECT;
    task.exists = item.index < a.batch.counts->rows && blockIdx.y < item.row.splits;
    task.position = item.split * ATTENTION_SPLIT + warp * SPAN;
    task.own = item.row.last - task.position;
    task.owns = task.own < SPAN;
    task.any = task.position <= item.row.last && task.position + SPAN > item.row.first;
    return task;
}

/* 16 bytes, from the L2, or zeros. */
__device__ __forceinline__ uint4 roped_read(const void *from, bool valid)
{
    uint4 out;
    asm volatile("{\n"
                 ".reg .pred valid;\n"
                 "setp.ne.u32 valid, %5, 0;\n"
                 "mov.u32 %0, 0;\n"
                 "mov.u32 %1, 0;\n"
                 "mov.u32 %2, 0;\n"
                 "mov.u32 %3, 0;\n"
                 "@valid ld.global.cg.v4.u32 {%0,%1,%2,%3}, [%4];\n"
                 "}"
                 : "=&r"(out.x), "=&r"(out.y), "=&r"(out.z), "=&r"(out.w)
                 : "l"(from), "r"(static_cast<uint32_t>(valid))
                 : "memory");
    return out;
}

/* Of a value's chunks g and 8 + g, what is in row g or, `half` 1, g + 8 of tile m: the lower or, if
 * m is odd, the upper 16 bits. */
template <int HD>
__device__ __forceinline__ uint32_t value_word(const uint4 (&chunks)[HD / 64], int m, int half)
{
    return HD == 64 ? word_of(chunks[0], m / 2 + 2 * half)
                    : word_of(chunks[half % (HD / 64)], m / 2);
}

/* Eight elements in half precision. */
__device__ __forceinline__ uint4 roped_halves(const uint2 &words)
{
    return make_uint4(eight_halves(words.x, 0), eight_halves(words.x, 1),
                      eight_halves(words.y, 0), eight_halves(words.y, 1));
}

/* A chunk of a position that is in shared memory: of `from`, the first of two pieces. */
template <int HD, bool EIGHT>
__device__ __forceinline__ uint4 roped_chunk(uint32_t from, uint32_t position, uint32_t chunk)
{
    if constexpr (!EIGHT)
        return load_shared(from + position * (HD * 2) + chunk * 16);
    from += position / PIECE * roped_shape<HD, EIGHT>::piece + position % PIECE * HD;
    return roped_halves(load_shared_two(from + chunk * 8));
}

/* Whole warp: asks for the keys and values of its positions. Lanes 0 and 1 look up where a piece
 * lies, lane 0 issues for all: racecheck takes every bulk copy of a warp for its first lane's.
 * Returns where the token's own key belongs. */
template <int HD, bool EIGHT>
__device__ __forceinline__ char *roped_fetch(roped_shared<HD, EIGHT> &shared,
                                             const roped_task &task, const attention_args &a,
                                             const struct batch_group &group, uint32_t block_shift)
{
    const uint32_t piece = roped_shape<HD, EIGHT>::piece;
    const attention_row &row = task.item.row;
    uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    uint32_t at = task.position + lane * PIECE, full = shared_address(&shared.full[warp]);
    unsigned long long place = 0, keys[2];
    if (lane < 2 && at <= row.last && at + PIECE > row.first)
        place = reinterpret_cast<unsigned long long>(
            attention_place(group, row.table, block_shift, at, task.item.head, a.kv.k,
                            roped_shape<HD, EIGHT>::position));
#pragma unroll
    for (int c = 0; c < 2; c++)
        keys[c] = __shfl_sync(FULL_MASK, place, c);
    bool joined = keys[0] && keys[1] && block_shift > 4; /* next to each other */
    if (lane == 0) {
        barrier_init(full, 1);
        barrier_init_done();
        barrier_expect(full, ((keys[0] != 0) + (keys[1] != 0)) * 2 * piece);
#pragma unroll
        for (int part = 0; part < 2; part++) {
            uint32_t to = shared_address(shared.stage[warp][part * 2]);
            uint64_t offset = part ? a.kv.v - a.kv.k : 0;
            if (keys[0])
                copy_bulk(to, reinterpret_cast<const char *>(keys[0] + offset),
                          joined ? 2 * piece : piece, full);
            if (keys[1] && !joined)
                copy_bulk(to + piece, reinterpret_cast<const char *>(keys[1] + offset), piece,
                          full);
        }
    }
    __syncwarp();
    return reinterpret_cast<char *>(task.own < PIECE ? keys[0] : keys[1]) +
           task.own % PIECE * (HD * roped_shape<HD, EIGHT>::element);
}

/* Keys that have come, to registers. */
template <int HD, bool EIGHT>
__device__ __forceinline__ void roped_keys(roped_lane<HD> &mine,
                                           const roped_shared<HD, EIGHT> &shared,
                                           const roped_task &task)
{
    uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
    uint32_t first = task.item.row.first, last = task.item.row.last;
    uint32_t from = shared_address(shared.stage[warp][0]);
    if (task.real)
        barrier_wait(shared_address(&shared.full[warp]), 0);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint32_t key = i * 8 + g, at = task.position + key;
        bool seen = task.real && at >= first && at < last;
#pragma unroll
        for (int j = 0; j < HD / 32; j++)
            mine.k[i][j] = seen ? roped_chunk<HD, EIGHT>(from, key, 4 * j + t)
                                : make_uint4(0, 0, 0, 0);
    }
}

/* And values, behind them. */
template <int HD, bool EIGHT>
__device__ __forceinline__ void roped_values(roped_lane<HD> &mine,
                                             const roped_shared<HD, EIGHT> &shared,
                                             const roped_task &task)
{
    uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
    uint32_t first = task.item.row.first, last = task.item.row.last;
    uint32_t from = shared_address(shared.stage[warp][2]);
#pragma unroll
    for (int c = 0; c < 2; c++) {
        uint4 value[4][HD / 64]; /* of keys 2 t, 2 t + 1, 2 t + 8, 2 t + 9: chunks g and 8 + g */
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t key = c * PIECE + 2 * t + i % 2 + i / 2 * 8, at = task.position + key;
            bool seen = task.real && at >= first && at < last;
#pragma unroll
            for (int j = 0; j < HD / 64; j++)
                value[i][j] = seen ? roped_chunk<HD, EIGHT>(from, key, 8 * j + g)
                                   : make_uint4(0, 0, 0, 0);
        }
#pragma unroll
        for (int m = 0; m < HD / 16; m++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                mine.v[c][m][i] = __byte_perm(value_word<HD>(value[i / 2 * 2], m, i % 2),
                                              value_word<HD>(value[i / 2 * 2 + 1], m, i % 2),
                                              m % 2 ? 0x7632 : 0x5410);
    }
}

/* What lane (g, t) needs of the token: asked for when q, k and v have come. */
template <int HD> struct roped_token {
    uint4 row[HD / 32];   /* chunks 4 j + t of query g, or, where it has the own key's row, of k */
    uint4 value[HD / 64]; /* chunks g and 8 + g of v, where it has the own value */
    float4 angles[HD / 64][4]; /* for chunks 4 j + t; of the step, so asked for before */
    const half_t *query;       /* g's; NULL: none */
};

template <int HD>
__device__ __forceinline__ void roped_angles(roped_token<HD> &token, const roped_task &task,
                                             const rope_args &rope)
{
    uint32_t t = threadIdx.x % 4;
    const float *angles = rope.angles + (size_t)task.item.row.token * HD;
#pragma unroll
    for (int j = 0; j < HD / 64; j++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint4 two = roped_read(angles + (4 * j + t) * 16 + i * 4, task.real);
            token.angles[j][i] = make_float4(__uint_as_float(two.x), __uint_as_float(two.y),
                                             __uint_as_float(two.z), __uint_as_float(two.w));
        }
}

/* In the warp that has the token's position the key is one more row of the item's queries; where
 * there is no room for it, it comes before them, to all g alike. */
template <int HD>
__device__ __forceinline__ void roped_ask(roped_token<HD> &token, const roped_task &task,
                                          const attention_args &a, const rope_args &rope)
{
    uint32_t lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4, number = task.item.row.token;
    const half_t *qkv = static_cast<const half_t *>(rope.qkv) + (size_t)number * rope.stride;
    const half_t *query = qkv + (task.head + g) * HD;
    const half_t *key = qkv + (a.heads + task.item.head) * HD, *value = key + a.kv_heads * HD;
    bool is_query = g < task.queries;
    bool is_key = task.owns && (g == task.queries || task.queries == ROPED_QUERIES);
    token.query = task.real && is_query ? query : NULL;
#pragma unroll
    for (int j = 0; j < HD / 32; j++)
        token.row[j] =
            roped_read((is_key ? key : query) + (4 * j + t) * 8, task.real && (is_key || is_query));
#pragma unroll
    for (int j = 0; j < HD / 64; j++)
        token.value[j] =
            roped_read(value + (8 * j + g) * 8, task.real && task.owns && t == task.own % 8 / 2);
}

template <int HD>
__device__ __forceinline__ void roped_norm(rope_pairs (&x)[HD / 64], const rope_args &rope,
                                           const void *weight)
{
    uint32_t t = threadIdx.x % 4;
    float squares = 0;
#pragma unroll
    for (int j = 0; j < HD / 64; j++) {
        float part = rope_squares(x[j]);
        part += __shfl_xor_sync(FULL_MASK, part, 1);
        part += __shfl_xor_sync(FULL_MASK, part, 2);
        squares += part;
    }
    float scale = rope_scale(squares, HD, rope.eps);
#pragma unroll
    for (int j = 0; j < HD / 64; j++) {
        uint32_t i = (4 * j + t) * 8; /* whole chunks: no end is near */
        rope_norm(x[j], scale, load_float8(weight, i, SIZE_MAX, rope.norm_dtype),
                  load_float8(weight, HD / 2 + i, SIZE_MAX, rope.norm_dtype), rope.norm_offset);
    }
}

#endif

} // namespace HALF
