/* Decode attention: the arithmetic of one warp, and the merging of eight.
 *
 * Scores are S^T = K Q^T and outputs O^T = V^T P^T, so that the few queries are the narrow side of
 * the tensor cores' tiles. Bulk copies cannot swizzle; the operands are taken by 16-byte loads and
 * the order of head dimensions inside the products is permuted to fit: K meets Q in chunks of eight
 * dimensions (lane t has chunks 4j + t), rows of O^T are dealt so that lane g has chunks next to
 * each other. What is left of bank conflicts is two-fold and does not matter at this rate. */
#pragma once

#include "gpu/kernels/attend_fetch.cuh"

struct decode_scratch {   /* of the scratch buffer */
    uint32_t *row_record; /* [rows_max] a row's first record, or PLAN_DIRECT */
    float2 *stat;         /* [capacity] maximum (of scores in powers of two) and sum */
    float *out;           /* [capacity][head_dim] */
    uint32_t capacity;
};

namespace NARROW
{

struct decode_scratch attend_decode_scratch(const struct attend_args *args);

/* Behind a kernel that left records: puts each row's splits together, from the first to the last. */
cudaError_t attend_combine(const struct attend_args *args, const struct decode_scratch *scratch,
                           cudaStream_t stream);

} // namespace NARROW

/* Where exponents of scores below `most` count from. */
__device__ __forceinline__ float origin_of(float most)
{
    return most == -INFINITY ? 0.0f : most;
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

template <int HD, int TILES> struct decode_state {
    uint4 q[TILES][HD / 32];
    float out[TILES][HD / 16][4];
    float most[TILES][2], sum[TILES][2];
};

/* Rows that the item does not have stay what they were: their results go nowhere. */
template <int HD, int TILES>
__device__ __forceinline__ void decode_load_q(decode_state<HD, TILES> &s,
                                              const narrow (&q)[8 * TILES][HD])
{
    uint32_t lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int n = 0; n < TILES; n++)
#pragma unroll
        for (int j = 0; j < HD / 32; j++)
            s.q[n][j] = load_shared(shared_address(&q[n * 8 + g][(4 * j + t) * 8]));
}

/* Scores of one piece: rows are keys, columns queries. */
template <int HD, int TILES>
__device__ __forceinline__ void decode_scores(const decode_state<HD, TILES> &s,
                                              float (&score)[TILES][4], const attend_args &a,
                                              const attend_item &item, const plan_shape &shape,
                                              uint32_t window, uint32_t position, uint32_t stage)
{
    uint32_t lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int j = 0; j < HD / 32; j++) {
        uint4 low = load_shared(stage + g * (HD * 2) + (4 * j + t) * 16);
        uint4 high = load_shared(stage + (g + 8) * (HD * 2) + (4 * j + t) * 16);
#pragma unroll
        for (int n = 0; n < TILES; n++) {
            mma_narrow(score[n], low.x, high.x, low.y, high.y, s.q[n][j].x, s.q[n][j].y);
            mma_narrow(score[n], low.z, high.z, low.w, high.w, s.q[n][j].z, s.q[n][j].w);
        }
    }
    float unit = a.scale * ATTEND_LOG2E;
    /* Some key of the piece is unseen by some query. */
    bool edge =
        position + PIECE - 1 > item.row.position || (window && position + window <= item.row.last);
#pragma unroll
    for (int n = 0; n < TILES; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            score[n][i] *= unit;
            if (edge) {
                uint32_t key = position + g + (i / 2) * 8;
                uint32_t r = item.tile * shape.tile_rows + n * 8 + 2 * t + i % 2;
                uint32_t query = item.row.position + r / shape.group;
                if (key > query || (window && key + window <= query))
                    score[n][i] = -INFINITY;
            }
        }
}

/* The greatest score of one query (n, i) in a span's two pieces, over all lanes that have some. */
template <int TILES>
__device__ __forceinline__ float span_peak(const float (&score)[2][TILES][4], int n, int i)
{
    float peak =
        fmaxf(fmaxf(score[0][n][i], score[0][n][i + 2]), fmaxf(score[1][n][i], score[1][n][i + 2]));
#pragma unroll
    for (int offset = 4; offset < WARP; offset *= 2)
        peak = fmaxf(peak, __shfl_xor_sync(FULL_MASK, peak, offset));
    return peak;
}

/* The query's scores become weights; their sum in this lane. */
template <int TILES>
__device__ __forceinline__ float span_weigh(float (&score)[2][TILES][4], int n, int i, float origin)
{
    float sum = 0;
#pragma unroll
    for (int c = 0; c < 2; c++)
#pragma unroll
        for (int half = 0; half < 4; half += 2) {
            score[c][n][i + half] = exp2_fast(score[c][n][i + half] - origin);
            sum += score[c][n][i + half];
        }
    return sum;
}

/* A sum that lanes of one query have parts of. */
__device__ __forceinline__ float query_sum(float sum)
{
#pragma unroll
    for (int offset = 4; offset < WARP; offset *= 2)
        sum += __shfl_xor_sync(FULL_MASK, sum, offset);
    return sum;
}

/* The softmax over both pieces of the warp: scores become weights. */
template <int HD, int TILES>
__device__ __forceinline__ void decode_softmax(decode_state<HD, TILES> &s,
                                               float (&score)[2][TILES][4])
{
#pragma unroll
    for (int n = 0; n < TILES; n++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            s.most[n][i] = span_peak(score, n, i);
            s.sum[n][i] = span_weigh(score, n, i, origin_of(s.most[n][i]));
        }
}

/* One piece's weights times its values. */
template <int HD, int TILES>
__device__ __forceinline__ void
decode_values(decode_state<HD, TILES> &s, const float (&score)[TILES][4], const attend_item &item,
              uint32_t position, uint32_t stage)
{
    uint32_t lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
    uint32_t p[TILES][2];
#pragma unroll
    for (int n = 0; n < TILES; n++) {
        p[n][0] = transpose_8x8(pack(score[n][0], score[n][1], DTYPE_NARROW));
        p[n][1] = transpose_8x8(pack(score[n][2], score[n][3], DTYPE_NARROW));
    }
    /* What lies in the cache at unseen positions may be anything, and 0 * NaN is NaN. */
    bool clean = position < item.row.first || position + PIECE - 1 > item.row.last;
    const int chunks = HD / 64; /* chunks of eight dimensions per lane g */
#pragma unroll
    for (int pair = 0; pair < (chunks + 1) / 2; pair++) {
        const int both = chunks > 1 ? 2 : 1;
        uint4 v[4][2];
#pragma unroll
        for (int i = 0; i < 4; i++) { /* keys 2t, 2t + 1, 2t + 8, 2t + 9 */
            uint32_t key = 2 * t + i % 2 + i / 2 * 8;
            uint32_t row = stage + key * (HD * 2) + (chunks * g + 2 * pair) * 16;
            if (both == 2) { /* odd t take the second chunk first: half the bank conflicts */
                uint4 one = load_shared(row + (t & 1) * 16);
                uint4 two = load_shared(row + (~t & 1) * 16);
                v[i][0] = t & 1 ? two : one;
                v[i][1] = t & 1 ? one : two;
            } else {
                v[i][0] = load_shared(row);
            }
            uint32_t at = position + key;
            if (clean && (at < item.row.first || at > item.row.last))
                v[i][0] = v[i][1] = make_uint4(0, 0, 0, 0);
        }
#pragma unroll
        for (int word = 0; word < 4; word++) {
            uint32_t w[4][2];
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int c = 0; c < both; c++)
                    w[i][c] = word == 0   ? v[i][c].x
                              : word == 1 ? v[i][c].y
                              : word == 2 ? v[i][c].z
                                          : v[i][c].w;
#pragma unroll
            for (int odd = 0; odd < 2; odd++) {
                uint32_t select = odd ? 0x7632 : 0x5410;
                uint32_t first[2], second[2];
#pragma unroll
                for (int c = 0; c < both; c++) {
                    first[c] = __byte_perm(w[0][c], w[1][c], select);
                    second[c] = __byte_perm(w[2][c], w[3][c], select);
                }
                /* Row tile m: dimension `word * 2 + odd` of two chunks; where lanes have one
                 * chunk only, of its two halves, so words 0, 1 pair with words 2, 3. */
                if (both == 2) {
                    int m = pair * 8 + word * 2 + odd;
#pragma unroll
                    for (int n = 0; n < TILES; n++)
                        mma_narrow(s.out[n][m], first[0], first[1], second[0], second[1], p[n][0],
                                   p[n][1]);
                } else if (word < 2) {
                    int m = word * 2 + odd;
                    uint32_t a1 = __byte_perm(word ? v[0][0].w : v[0][0].z,
                                              word ? v[1][0].w : v[1][0].z, select);
                    uint32_t a3 = __byte_perm(word ? v[2][0].w : v[2][0].z,
                                              word ? v[3][0].w : v[3][0].z, select);
#pragma unroll
                    for (int n = 0; n < TILES; n++)
                        mma_narrow(s.out[n][m], first[0], a1, second[0], a3, p[n][0], p[n][1]);
                }
            }
        }
    }
}

__device__ __forceinline__ void attend_warps_sync()
{
    asm volatile("bar.sync 1, %0;" ::"n"(DECODE_WARPS * WARP) : "memory");
}

/* Dimension of s.out[.][m][half * 2] for lane g: see the row tiles above. */
template <int HD> __device__ __forceinline__ uint32_t dimension_of(uint32_t g, int m, int half)
{
    const int chunks = HD / 64;
    if (chunks == 1)
        return 8 * g + 4 * half + m;
    return 8 * (chunks * g + 2 * (m / 8) + half) + m % 8;
}

template <int HD, int TILES> struct decode_fold {
    static const int values = MERGE_ROWS * HD / (DECODE_WARPS * WARP); /* per thread and pass */
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
#pragma unroll
    for (int n = 0; n < TILES; n++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float sum = query_sum(s.sum[n][i]);
            if (g == 0)
                shared.stat[warp][n * 8 + 2 * t + i] = make_float2(s.most[n][i], sum);
        }
#pragma unroll
    for (int pass = 0; pass < fold_type::passes; pass++) {
        if (pass * MERGE_ROWS >= rows)
            break;
        const int n = pass * MERGE_ROWS / 8;
        if (t / 2 == pass % 2) {
#pragma unroll
            for (int i = 0; i < 2; i++)
#pragma unroll
                for (int half = 0; half < 2; half++)
#pragma unroll
                    for (int m = 0; m < HD / 16; m += 4) {
                        float *to =
                            &shared.merge[warp][t % 2 * 2 + i][dimension_of<HD>(g, m, half)];
                        *reinterpret_cast<float4 *>(to) = make_float4(
                            s.out[n][m][half * 2 + i], s.out[n][m + 1][half * 2 + i],
                            s.out[n][m + 2][half * 2 + i], s.out[n][m + 3][half * 2 + i]);
                    }
        }
        attend_warps_sync();
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
        attend_warps_sync();
    }
}

template <int HD, int TILES>
__device__ __forceinline__ void decode_store(const decode_fold<HD, TILES> &fold,
                                             const attend_args &a, const decode_scratch &scratch,
                                             const attend_item &item, const plan_shape &shape,
                                             uint32_t rows)
{
    typedef decode_fold<HD, TILES> fold_type;
    uint32_t row_in = threadIdx.x * fold_type::values / HD;
    uint32_t dimension = threadIdx.x * fold_type::values % HD;
#pragma unroll
    for (int pass = 0; pass < fold_type::passes; pass++) {
        uint32_t in_tile = pass * MERGE_ROWS + row_in;
        if (in_tile >= rows)
            break;
        uint32_t r = item.tile * shape.tile_rows + in_tile, token = r / shape.group;
        uint32_t head = item.head * shape.group + r % shape.group;
        if (item.record == PLAN_DIRECT) {
            narrow *to = static_cast<narrow *>(a.out) +
                         (size_t)(item.row.token + token) * a.out_stride + head * HD + dimension;
#pragma unroll
            for (int v = 0; v < fold_type::values; v++)
                to[v] = narrow_of(fold.out[pass][v] / fold.sum[pass]);
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
