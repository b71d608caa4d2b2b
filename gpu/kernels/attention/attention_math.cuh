/* Decode attention: the arithmetic of one warp, and the merging of eight.
 *
 * Scores are S = Q K^T, so that the eight values that one load brings of a key are operands as they
 * lie; there are fewer queries than the tile has rows, but the tensor cores have nothing else to
 * do. Outputs are O^T = V^T P^T, so that the few queries are the narrow side, and what a lane has
 * of S is what it needs of P^T. Bulk copies cannot swizzle; the operands are taken by 16-byte loads
 * and the order of head dimensions inside the products is permuted to fit: K meets Q in chunks of
 * eight dimensions (lane t has chunks 4j + t), rows of O^T are dealt so that lane g has chunks next
 * to each other. What is left of bank conflicts is two-fold and does not matter at this rate.
 *
 * Lane (g, t) has scores of query g of each tile and of keys 2t and 2t + 1 of each eight; of the
 * output it has queries 2t and 2t + 1. */
#pragma once

#include "gpu/kernels/attention/attention_fetch.cuh"
#include "gpu/kernels/common/softcap.cuh"

namespace HALF
{

struct decode_scratch {   /* of the scratch buffer */
    uint32_t *row_record; /* [rows_max] a row's first record, or PLAN_DIRECT */
    float2 *stat;         /* [capacity] maximum (of scores in powers of two) and sum */
    float *out;           /* [capacity][head_dim] */
    uint32_t capacity;
};

struct decode_scratch attention_decode_scratch(const struct attention_args *args);

/* Behind a kernel that left records: puts each row's splits together, from the first to the last.
 */
cudaError_t attention_combine(const struct attention_args *args,
                              const struct decode_scratch *scratch, cudaStream_t stream);

/* Where exponents of scores below `most` count from. */
__device__ __forceinline__ float origin_of(float most)
{
    return most == -INFINITY ? 0.0f : most;
}

/* What turns a query's values into their mean. Multiplied by, for a division takes ten
 * instructions. */
__device__ __forceinline__ float attention_inverse(float sum)
{
    return __frcp_rn(sum);
}

/* One value of two splits together; written out, so that it rounds alike wherever it is done. */
__device__ __forceinline__ float fold_value(float before, float old, float split, float now)
{
    return __fmaf_rn(before, old, __fmul_rn(split, now));
}

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* The maximum of two splits, and what each split's values are then scaled by. */
__device__ __forceinline__ float fold_most(float before, float split, float *ret_old,
                                           float *ret_now)
{
    float most = fmaxf(before, split), origin = origin_of(most);
    *ret_old = exp2_fast(before - origin);
    *ret_now = exp2_fast(split - origin);
    return most;
}

#define KEY_TILES (SPAN / 8)

/* Of queries: lane (g, t)'s is g, but for `out`. */
template <int HD, int TILES> struct decode_state {
    uint32_t q[HD / 32][TILES][4]; /* operands: decode_set_q() */
    uint32_t position[TILES];
    float out[TILES][head_shape<HD>::tiles][4];
    float most[TILES], sum[TILES];
};

/* The operands of chunk 4j + t: word(n, i) loads word i of the query's of tile n. (By words, so
 * that each goes where it belongs: what came by one load would be moved there anew for each
 * product.) Of one tile, the halves of the chunk are two rows of the same operand; what row g has
 * of the one half's product and row g + 8 of the other's are then the parts of a score. */
template <int HD, int TILES, class Word>
__device__ __forceinline__ void decode_set_q(decode_state<HD, TILES> &s, int j, Word word)
{
    uint32_t(&first)[4] = s.q[j][0], (&last)[4] = s.q[j][TILES - 1];
    first[0] = word(0, 0);
    first[2] = word(0, 1);
    if (TILES == 1) {
        first[1] = word(0, 2);
        first[3] = word(0, 3);
        return;
    }
    first[1] = word(1, 0);
    first[3] = word(1, 1);
    last[0] = word(0, 2);
    last[1] = word(1, 2);
    last[2] = word(0, 3);
    last[3] = word(1, 3);
}

template <int HD, int TILES>
__device__ __forceinline__ void
decode_positions(decode_state<HD, TILES> &s, const attention_item &item, const plan_shape &shape)
{
    uint32_t g = threadIdx.x % WARP / 4;
#pragma unroll
    for (int n = 0; n < TILES; n++) {
        uint32_t r = item.tile * shape.tile_rows + n * 8 + g;
        s.position[n] = item.row.position + (item.row.q_len > 1 ? r / shape.group : 0);
    }
}

/* Rows that the item does not have stay what they were: their results go nowhere. */
template <int HD, int TILES>
__device__ __forceinline__ void decode_load_q(decode_state<HD, TILES> &s,
                                              const half_t (&q)[8 * TILES][HD])
{
    uint32_t lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int j = 0; j < HD / 32; j++)
        decode_set_q(s, j, [&](int n, int i) {
            return load_shared_word(shared_address(&q[n * 8 + g][(4 * j + t) * 8]) + i * 4);
        });
}

/* What eight dimensions of a key add to its scores, where there is one tile: decode_set_q(). */
__device__ __forceinline__ void decode_multiply(float (&score)[4], float (&part)[4],
                                                const uint32_t (&q)[4], const uint4 &key)
{
    mma_half(score, q[0], q[1], q[2], q[3], key.x, key.y);
    mma_half(part, q[0], q[1], q[2], q[3], key.z, key.w);
}

/* All scores of a span. */
__device__ __forceinline__ void decode_fill(float (&score)[KEY_TILES][4], float value)
{
#pragma unroll
    for (int k = 0; k < KEY_TILES; k++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            score[k][i] = value;
}

/* Keys that a query does not see count nothing, whatever is there. */
template <int HD, int TILES>
__device__ __forceinline__ void
decode_hide(const decode_state<HD, TILES> &s, float (&score)[KEY_TILES][4],
            const attention_item &item, uint32_t window, uint32_t position)
{
    if (position + SPAN - 1 <= item.row.position && !(window && position + window <= item.row.last))
        return; /* every query sees all of the span */
    uint32_t t = threadIdx.x % 4;
#pragma unroll
    for (int k = 0; k < KEY_TILES; k++)
#pragma unroll
        for (int i = 0; i < 2 * TILES; i++) {
            uint32_t key = position + k * 8 + 2 * t + i % 2, query = s.position[i / 2];
            if (key > query || (window && key + window <= query))
                score[k][i] = -INFINITY;
        }
}

/* Scores of a span: score[k][2n], score[k][2n + 1] are those of the lane's query of tile n and its
 * two keys of eight. */
template <bool CAP, int HD, int TILES>
__device__ __forceinline__ void
decode_scores(const decode_state<HD, TILES> &s, float (&score)[KEY_TILES][4],
              const attention_item &item, uint32_t window, uint32_t position, uint32_t stage,
              const score_scale &scale)
{
    const int most = 4, steps = HD / 32 < most ? HD / 32 : most; /* whose keys are in registers */
    uint32_t lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
    uint32_t from = stage + g * (HD * 2) + t * 16;
    float part[KEY_TILES][4] = {}; /* where there is one tile */
    decode_fill(score, 0);
#pragma unroll
    for (int begin = 0; begin < HD / 32; begin += steps) {
        uint4 key[steps][KEY_TILES];
#pragma unroll
        for (int j = 0; j < steps; j++)
#pragma unroll
            for (int k = 0; k < KEY_TILES; k++)
                key[j][k] = load_shared(from + (begin + j) * 64 + k * (8 * HD * 2));
#pragma unroll
        for (int j = 0; j < steps; j++)
#pragma unroll
            for (int k = 0; k < KEY_TILES; k++) {
                const uint32_t(&first)[4] = s.q[begin + j][0];
                const uint32_t(&last)[4] = s.q[begin + j][TILES - 1];
                const uint4 &of = key[j][k];
                if (TILES == 1) {
                    decode_multiply(score[k], part[k], first, of);
                    continue;
                }
                mma_half(score[k], first[0], first[1], first[2], first[3], of.x, of.y);
                mma_half(score[k], last[0], last[1], last[2], last[3], of.z, of.w);
            }
    }
    if (TILES == 1)
#pragma unroll
        for (int k = 0; k < KEY_TILES; k++)
#pragma unroll
            for (int i = 0; i < 2; i++)
                score[k][i] += part[k][i + 2];
    if (CAP)
#pragma unroll
        for (int k = 0; k < KEY_TILES; k++)
#pragma unroll
            for (int i = 0; i < 2 * TILES; i++)
                score[k][i] = score_capped(score[k][i], scale);
    decode_hide(s, score, item, window, position);
}

/* The greatest score of the lane's query of a tile, over all lanes that have some. */
__device__ __forceinline__ float tile_peak(const float (&score)[KEY_TILES][4], int n)
{
    float peak = fmaxf(score[0][2 * n], score[0][2 * n + 1]);
#pragma unroll
    for (int k = 1; k < KEY_TILES; k++)
        peak = fmaxf(peak, fmaxf(score[k][2 * n], score[k][2 * n + 1]));
#pragma unroll
    for (int offset = 1; offset < 4; offset *= 2)
        peak = fmaxf(peak, __shfl_xor_sync(FULL_MASK, peak, offset));
    return peak;
}

/* The query's scores become weights; their sum in this lane. Times `unit`, scores are the powers of
 * two that weights are; so is `origin`. */
__device__ __forceinline__ float tile_weigh(float (&score)[KEY_TILES][4], int n, float unit,
                                            float origin)
{
    float sum = 0;
#pragma unroll
    for (int k = 0; k < KEY_TILES; k++)
#pragma unroll
        for (int i = 2 * n; i < 2 * n + 2; i++) {
            score[k][i] = exp2_fast(__fmaf_rn(score[k][i], unit, -origin));
            sum += score[k][i];
        }
    return sum;
}

/* A sum that lanes of one query have parts of. */
__device__ __forceinline__ float tile_sum(float sum)
{
#pragma unroll
    for (int offset = 1; offset < 4; offset *= 2)
        sum += __shfl_xor_sync(FULL_MASK, sum, offset);
    return sum;
}

/* What is known of each query by its lanes, for the two whose outputs this lane has. */
__device__ __forceinline__ float2 of_outputs(float value)
{
    uint32_t t = threadIdx.x % 4;
    return make_float2(__shfl_sync(FULL_MASK, value, t * 8),
                       __shfl_sync(FULL_MASK, value, t * 8 + 4));
}

/* The softmax over the warp's span: scores become weights. */
template <int HD, int TILES>
__device__ __forceinline__ void decode_softmax(decode_state<HD, TILES> &s,
                                               float (&score)[KEY_TILES][4], float unit)
{
#pragma unroll
    for (int n = 0; n < TILES; n++) {
        s.most[n] = tile_peak(score, n) * unit;
        s.sum[n] = tile_weigh(score, n, unit, origin_of(s.most[n]));
    }
}

/* What lies in the cache at unseen positions may be anything, and 0 * NaN is NaN: zeros in the
 * rows `begin` .. `end` - 1 of a span. */
template <int HD>
__device__ __forceinline__ void span_clear(uint32_t stage, uint32_t begin, uint32_t end)
{
    const uint32_t lanes = HD / 8; /* of a row */
    uint32_t lane = threadIdx.x % WARP;
#pragma unroll 1
    for (uint32_t row = begin + lane / lanes; row < end; row += WARP / lanes)
        store_shared(stage + row * (HD * 2) + lane % lanes * 16, make_uint4(0, 0, 0, 0));
}

/* A span's weights times its values. */
template <int HD, int TILES>
__device__ __forceinline__ void
decode_values(decode_state<HD, TILES> &s, const float (&score)[KEY_TILES][4],
              const attention_item &item, uint32_t position, uint32_t stage)
{
    uint32_t lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
    uint32_t p[2][TILES][2];
#pragma unroll
    for (int c = 0; c < 2; c++)
#pragma unroll
        for (int n = 0; n < TILES; n++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const float(&weight)[4] = score[c * 2 + half];
                p[c][n][half] = pack(weight[2 * n], weight[2 * n + 1], DTYPE_HALF);
            }
    if (position < item.row.first || position + SPAN - 1 > item.row.last) {
        if (position < item.row.first)
            span_clear<HD>(stage, 0, item.row.first - position);
        span_clear<HD>(stage, item.row.last + 1 - position, SPAN);
        __syncwarp();
    }
    const int chunks = head_shape<HD>::chunks, lanes = head_shape<HD>::lanes;
    const int both = chunks > 1 ? 2 : 1;
    uint32_t first_chunk = chunks * (lanes < 8 && g >= lanes ? lanes - 1 : g);
    /* Odd t take the second chunk first: half the bank conflicts. */
    uint32_t one = stage + 2 * t * (HD * 2) + first_chunk * 16 + (both > 1 ? t % 2 * 16 : 0);
    uint32_t two = stage + 2 * t * (HD * 2) + first_chunk * 16 + (t + 1) % 2 * 16;
#pragma unroll
    for (int pair = 0; pair < (chunks + 1) / 2; pair++) {
        uint4 v[2][4][2]; /* keys 2t, 2t + 1, 2t + 8, 2t + 9 of each piece */
#pragma unroll
        for (int c = 0; c < 2; c++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int key = c * PIECE + i % 2 + i / 2 * 8;
                v[c][i][0] = load_shared(one + key * (HD * 2) + pair * 32);
                if (both > 1)
                    v[c][i][1] = load_shared(two + key * (HD * 2) + pair * 32);
            }
#pragma unroll
        for (int c = 0; c < 2; c++)
#pragma unroll
            for (int word = 0; word < 4; word++) {
                uint32_t w[4][2];
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    w[i][0] = word_of(v[c][i][0], word);
                    if (both > 1) {
                        uint32_t other = word_of(v[c][i][1], word);
                        w[i][1] = t & 1 ? w[i][0] : other;
                        w[i][0] = t & 1 ? other : w[i][0];
                    }
                }
#pragma unroll
                for (int odd = 0; odd < 2; odd++) {
                    uint32_t select = odd ? 0x7632 : 0x5410;
                    uint32_t first[2], second[2];
#pragma unroll
                    for (int i = 0; i < both; i++) {
                        first[i] = __byte_perm(w[0][i], w[1][i], select);
                        second[i] = __byte_perm(w[2][i], w[3][i], select);
                    }
                    /* Row tile m: dimension `word * 2 + odd` of two chunks; where lanes have one
                     * chunk only, of its two halves, so words 0, 1 pair with words 2, 3. */
                    if (both == 2) {
                        int m = pair * 8 + word * 2 + odd;
#pragma unroll
                        for (int n = 0; n < TILES; n++)
                            mma_half(s.out[n][m], first[0], first[1], second[0], second[1],
                                     p[c][n][0], p[c][n][1]);
                    } else if (word < 2) {
                        int m = word * 2 + odd;
                        uint32_t a1 = __byte_perm(word_of(v[c][0][0], word + 2),
                                                  word_of(v[c][1][0], word + 2), select);
                        uint32_t a3 = __byte_perm(word_of(v[c][2][0], word + 2),
                                                  word_of(v[c][3][0], word + 2), select);
#pragma unroll
                        for (int n = 0; n < TILES; n++)
                            mma_half(s.out[n][m], first[0], a1, second[0], a3, p[c][n][0],
                                     p[c][n][1]);
                    }
                }
            }
    }
}

__device__ __forceinline__ void attention_warps_sync()
{
    asm volatile("bar.sync 1, %0;" ::"n"(DECODE_WARPS * WARP) : "memory");
}

/* Dimension of s.out[.][m][half * 2] for lane g: see the row tiles above. */
template <int HD> __device__ __forceinline__ uint32_t dimension_of(uint32_t g, int m, int half)
{
    const int chunks = head_shape<HD>::chunks;
    if (chunks == 1)
        return 8 * g + 4 * half + m;
    return 8 * (chunks * g + 2 * (m / 8) + half) + m % 8;
}

template <int HD, int TILES> struct decode_fold {
    /* Per thread and pass; of 96 dimensions the last threads have none. */
    static const int values = (MERGE_ROWS * HD + DECODE_WARPS * WARP - 1) / (DECODE_WARPS * WARP);
    static const int passes = 8 * TILES / MERGE_ROWS;
    float out[passes][values], most[passes], sum[passes];
};

/* The warps' results of one split into one, added to those of the splits before. */
template <int HD, int TILES>
__device__ __forceinline__ void
decode_merge(decode_fold<HD, TILES> &fold, const decode_state<HD, TILES> &s,
             decode_merged<HD, TILES> &shared, uint32_t rows, bool first_split)
{
    typedef decode_fold<HD, TILES> fold_type;
    uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
    uint32_t thread = threadIdx.x, row_in = thread * fold_type::values / HD;
    uint32_t dimension = thread * fold_type::values % HD;
    row_in = row_in < MERGE_ROWS ? row_in : MERGE_ROWS - 1;
#pragma unroll
    for (int n = 0; n < TILES; n++) {
        float sum = tile_sum(s.sum[n]);
        if (t == 0)
            shared.stat[warp][n * 8 + g] = make_float2(s.most[n], sum);
    }
#pragma unroll
    for (int pass = 0; pass < fold_type::passes; pass++) {
        if (pass * MERGE_ROWS >= rows)
            break;
        const int n = pass * MERGE_ROWS / 8;
        if (t / 2 == pass % 2 && g < head_shape<HD>::lanes) {
#pragma unroll
            for (int i = 0; i < 2; i++)
#pragma unroll
                for (int half = 0; half < 2; half++)
#pragma unroll
                    for (int m = 0; m < head_shape<HD>::tiles; m += 4) {
                        float *to =
                            &shared.merge[warp][t % 2 * 2 + i][dimension_of<HD>(g, m, half)];
                        *reinterpret_cast<float4 *>(to) = make_float4(
                            s.out[n][m][half * 2 + i], s.out[n][m + 1][half * 2 + i],
                            s.out[n][m + 2][half * 2 + i], s.out[n][m + 3][half * 2 + i]);
                    }
        }
        attention_warps_sync();
        float most = -INFINITY, sum = 0, out[fold_type::values] = {};
#pragma unroll
        for (int w = 0; w < DECODE_WARPS; w++)
            most = fmaxf(most, shared.stat[w][pass * MERGE_ROWS + row_in].x);
        float origin = origin_of(most);
#pragma unroll
        for (int w = 0; w < DECODE_WARPS; w++) {
            float2 stat = shared.stat[w][pass * MERGE_ROWS + row_in];
            float factor = exp2_fast(stat.x - origin);
            sum += stat.y * factor;
#pragma unroll
            for (int v = 0; v < fold_type::values; v++)
                out[v] += shared.merge[w][row_in][dimension + v] * factor;
        }
        if (first_split) {
            fold.most[pass] = most;
            fold.sum[pass] = sum;
#pragma unroll
            for (int v = 0; v < fold_type::values; v++)
                fold.out[pass][v] = out[v];
        } else {
            float old, now;
            fold.most[pass] = fold_most(fold.most[pass], most, &old, &now);
            fold.sum[pass] = fold_value(fold.sum[pass], old, sum, now);
#pragma unroll
            for (int v = 0; v < fold_type::values; v++)
                fold.out[pass][v] = fold_value(fold.out[pass][v], old, out[v], now);
        }
        attention_warps_sync();
    }
}

template <int HD, int TILES>
__device__ __forceinline__ void decode_store(const decode_fold<HD, TILES> &fold,
                                             const attention_args &a, const decode_scratch &scratch,
                                             const attention_item &item, const plan_shape &shape,
                                             uint32_t rows)
{
    typedef decode_fold<HD, TILES> fold_type;
    uint32_t row_in = threadIdx.x * fold_type::values / HD;
    uint32_t dimension = threadIdx.x * fold_type::values % HD;
#pragma unroll
    for (int pass = 0; pass < fold_type::passes; pass++) {
        uint32_t in_tile = pass * MERGE_ROWS + row_in;
        if (in_tile >= rows || row_in >= MERGE_ROWS)
            break;
        uint32_t r = item.tile * shape.tile_rows + in_tile, token = r / shape.group;
        uint32_t head = item.head * shape.group + r % shape.group;
        if (item.record == PLAN_DIRECT) {
            half_t *to = static_cast<half_t *>(a.out) +
                         (size_t)(item.row.token + token) * a.out_stride + head * HD + dimension;
            float sum = fold.sum[pass];
            float kept = attention_sink(a, head, fold.most[pass], &sum);
            float inverse = attention_inverse(sum) * kept;
#pragma unroll
            for (int v = 0; v < fold_type::values; v++)
                to[v] = half_of(fold.out[pass][v] * inverse);
            continue;
        }
        uint32_t heads = shape.kv_heads * shape.group;
        size_t record =
            item.record +
            ((size_t)(item.split - item.row.split_first) * item.row.q_len + token) * heads + head;
        if (dimension == 0)
            scratch.stat[record] = make_float2(fold.most[pass], fold.sum[pass]);
#pragma unroll
        for (int v = 0; v < fold_type::values; v++)
            scratch.out[record * HD + dimension + v] = fold.out[pass][v];
    }
}

#endif

} // namespace HALF
