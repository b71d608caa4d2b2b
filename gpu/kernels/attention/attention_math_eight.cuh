/* Decode attention over keys and values in e4m3: the arithmetic of one warp, as attention_math.cuh
 * has it for 16 bits, of the same products by lane.
 *
 * Elements are turned into half precision, which holds each of them, by one instruction for two,
 * and multiplied so, whatever the model is computed in; BF16 would take four. What does not fit
 * there is taken out as powers of two. Of a query: its greatest element has an exponent of 14
 * (q_unit takes that back). Scores are then multiplied by their key's scale. Of weights: each is
 * multiplied by its value's scale over the greatest of the split so far (v_unit, an eighth of a
 * power of 2^-10 of it), by which the outputs are multiplied at the split's end. What is small
 * beside those has fewer bits, and matters as little. */
#pragma once

#include "gpu/kernels/attention/attention_math.cuh"
#include "gpu/kernels/attention/kv_eight.cuh"

namespace HALF
{

/* What lanes know of a query, and warps of a split. */
template <bool EIGHT, int TILES> struct eight_state {
    float q_unit[TILES];
    float v_unit; /* 0: nothing has been added up */
};

template <int TILES> struct eight_state<false, TILES> {
};

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

#define EIGHT_UNIT_LEAST 0x1p-100f /* of the greatest scale of values: the rest is for weights */
#define EIGHT_WEIGHT_SCALE 0x1p13f

/* As mma_half() of half precision. */
__device__ __forceinline__ void eight_mma(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                          uint32_t a3, uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

__device__ __forceinline__ uint2 load_shared_two(uint32_t address)
{
    uint2 out;
    asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];"
                 : "=r"(out.x), "=r"(out.y)
                 : "r"(address)
                 : "memory");
    return out;
}

/* The scales of keys (or values) k * 8 + 2t and the one behind, of a span. */
template <int HD>
__device__ __forceinline__ float2 eight_scales(uint32_t stage, int k)
{
    const uint32_t piece = PIECE * (HD + sizeof(float));
    uint32_t inside = k % 2 * 8 + threadIdx.x % 4 * 2;
    uint2 word = load_shared_two(stage + k / 2 * piece + PIECE * HD + inside * 4);
    return make_float2(__uint_as_float(word.x), __uint_as_float(word.y));
}

/* ---- queries --------------------------------------------------------------------------------- */

/* Where the eight dimensions of a lane's chunk j begin: loads bring two chunks at a time, where
 * heads have as many as that needs. */
template <int HD> __device__ __forceinline__ uint32_t eight_chunk(int j)
{
    uint32_t t = threadIdx.x % 4;
    return HD % 64 == 0 ? (j / 2 * 4 + t) * 16 + j % 2 * 8 : (j * 4 + t) * 8;
}

/* Words of a query in half precision; what they are to be multiplied by. All lanes of a query. */
template <int WORDS>
__device__ __forceinline__ float eight_query(uint32_t (&word)[WORDS])
{
    if (DTYPE_HALF == DTYPE_F16)
        return 1;
    uint32_t greatest = 0;
#pragma unroll
    for (int i = 0; i < WORDS; i++) {
        float2 pair = unpack(word[i], DTYPE_HALF);
        greatest = eight_greater(greatest, eight_greater(eight_magnitude(pair.x),
                                                         eight_magnitude(pair.y)));
    }
#pragma unroll
    for (int offset = 1; offset < 4; offset *= 2)
        greatest = eight_greater(greatest, __shfl_xor_sync(FULL_MASK, greatest, offset));
    uint32_t exponent = eight_greater(greatest >> 23, 15); /* with 127; zeros are as good as any */
    float factor = __uint_as_float((127 + 14 + 127 - exponent) << 23);
#pragma unroll
    for (int i = 0; i < WORDS; i++) {
        float2 pair = unpack(word[i], DTYPE_HALF);
        word[i] = pack(pair.x * factor, pair.y * factor, DTYPE_F16);
    }
    return __uint_as_float((exponent - 14) << 23);
}

/* As warp_load_q(). Where a query lies is written out in both: by one function for the two, kernels
 * of two tiles had up to 248 instructions more. */
template <int HD, int TILES>
__device__ __forceinline__ void eight_load_q(decode_state<HD, TILES> &s,
                                             eight_state<true, TILES> &eight,
                                             const attention_args &a, const attention_item &item,
                                             const plan_shape &shape)
{
    const int chunks = HD / 32;
    uint32_t g = threadIdx.x % WARP / 4, words[TILES][4 * chunks];
#pragma unroll
    for (int n = 0; n < TILES; n++) {
        uint32_t r = item.tile * shape.tile_rows + n * 8 + g;
        uint32_t token = item.row.q_len > 1 ? r / shape.group : 0;
        uint32_t head = item.head * shape.group + r - token * shape.group;
        bool valid = n * 8 + g < shape.tile_rows && r < item.row.q_len * shape.group;
        const half_t *from = static_cast<const half_t *>(a.q) +
                             (size_t)(item.row.token + token) * a.q_stride + head * HD;
#pragma unroll
        for (int i = 0; i < 4 * chunks; i++)
            words[n][i] = valid ? load_word(from + eight_chunk<HD>(i / 4) + i % 4 * 2) : 0;
        eight.q_unit[n] = eight_query(words[n]);
    }
#pragma unroll
    for (int j = 0; j < chunks; j++)
        decode_set_q(s, j, [&](int n, int i) { return words[n][j * 4 + i]; });
}

/* ---- scores ---------------------------------------------------------------------------------- */

/* Eight elements of a key, and what they add to its scores. */
template <int HD, int TILES>
__device__ __forceinline__ void eight_multiply(const decode_state<HD, TILES> &s, int j,
                                               float (&score)[4], float (&part)[4], uint32_t low,
                                               uint32_t high)
{
    const uint32_t(&first)[4] = s.q[j][0], (&last)[4] = s.q[j][TILES - 1];
    uint32_t of[4] = {eight_halves(low, 0), eight_halves(low, 1), eight_halves(high, 0),
                      eight_halves(high, 1)};
    eight_mma(score, first[0], first[1], first[2], first[3], of[0], of[1]);
    if (TILES == 1)
        eight_mma(part, first[0], first[1], first[2], first[3], of[2], of[3]);
    else
        eight_mma(score, last[0], last[1], last[2], last[3], of[2], of[3]);
}

/* As decode_scores(). */
template <bool CAP, int HD, int TILES>
__device__ __forceinline__ void
eight_scores(const decode_state<HD, TILES> &s, const eight_state<true, TILES> &eight,
             float (&score)[KEY_TILES][4], const attention_item &item, uint32_t window,
             uint32_t position, uint32_t stage, const score_scale &scale)
{
    const uint32_t piece = PIECE * (HD + sizeof(float));
    uint32_t lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
    float part[KEY_TILES][4] = {}; /* where there is one tile */
    decode_fill(score, 0);
#pragma unroll
    for (int k = 0; k < KEY_TILES; k++) {
        uint32_t from = stage + k / 2 * piece + (k % 2 * 8 + g) * HD;
        if constexpr (HD % 64 == 0) {
#pragma unroll
            for (int j = 0; j < HD / 64; j++) {
                uint4 of = load_shared(from + (4 * j + t) * 16);
                eight_multiply(s, 2 * j, score[k], part[k], of.x, of.y);
                eight_multiply(s, 2 * j + 1, score[k], part[k], of.z, of.w);
            }
        } else {
#pragma unroll
            for (int j = 0; j < HD / 32; j++) {
                uint2 of = load_shared_two(from + (4 * j + t) * 8);
                eight_multiply(s, j, score[k], part[k], of.x, of.y);
            }
        }
    }
#pragma unroll
    for (int k = 0; k < KEY_TILES; k++) {
        float2 scales = eight_scales<HD>(stage, k);
#pragma unroll
        for (int i = 0; i < 2 * TILES; i++) {
            float sum = TILES == 1 ? score[k][i] + part[k][i + 2] : score[k][i];
            score[k][i] = sum * (i % 2 ? scales.y : scales.x) * eight.q_unit[i / 2];
            if (CAP)
                score[k][i] = score_capped(score[k][i], scale);
        }
    }
    decode_hide(s, score, item, window, position);
}

/* ---- values ---------------------------------------------------------------------------------- */

/* As span_clear(), scales too. */
template <int HD>
__device__ __forceinline__ void eight_clear(uint32_t stage, uint32_t begin, uint32_t end)
{
    const uint32_t lanes = HD / 16, piece = PIECE * (HD + sizeof(float)); /* lanes: of a row */
    uint32_t lane = threadIdx.x % WARP;
#pragma unroll 1
    for (uint32_t row = begin + lane / lanes; lane < WARP / lanes * lanes && row < end;
         row += WARP / lanes) {
        uint32_t to = stage + row / PIECE * piece;
        store_shared(to + row % PIECE * HD + lane % lanes * 16, make_uint4(0, 0, 0, 0));
        if (lane % lanes == 0)
            asm volatile("st.shared.u32 [%0], %1;" ::"r"(to + PIECE * HD + row % PIECE * 4), "r"(0)
                         : "memory");
    }
}

template <int HD, int TILES>
__device__ __forceinline__ void eight_outputs_scale(decode_state<HD, TILES> &s, float by)
{
#pragma unroll
    for (int n = 0; n < TILES; n++)
#pragma unroll
        for (int m = 0; m < head_shape<HD>::tiles; m++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                s.out[n][m][i] *= by;
}

/* The greatest scale of the span, with those before: outputs are scaled to fit it. */
template <int HD, int TILES>
__device__ __forceinline__ void eight_fit(decode_state<HD, TILES> &s,
                                          eight_state<true, TILES> &eight, uint32_t stage)
{
    const uint32_t piece = PIECE * (HD + sizeof(float));
    uint32_t lane = threadIdx.x % WARP;
    uint32_t bits = load_shared_word(stage + lane / PIECE * piece + PIECE * HD + lane % PIECE * 4);
    bits = __reduce_max_sync(FULL_MASK, bits) & 0x7f800000u;
    float unit = fmaxf(__uint_as_float(bits), EIGHT_UNIT_LEAST) * (1 / EIGHT_WEIGHT_SCALE);
    if (unit > eight.v_unit) { /* rarely but for the first */
        if (eight.v_unit != 0)
            eight_outputs_scale(s, eight.v_unit * __frcp_rn(unit));
        eight.v_unit = unit;
    }
}

/* Weights times scales, as pairs: p[c][n][half] is of keys c * 16 + half * 8 + 2t and the next. */
template <int HD, int TILES>
__device__ __forceinline__ void eight_weights(uint32_t (&p)[2][TILES][2],
                                              const float (&score)[KEY_TILES][4], uint32_t stage,
                                              float v_unit)
{
    float inverse = __frcp_rn(v_unit);
#pragma unroll
    for (int k = 0; k < KEY_TILES; k++) {
        float2 scales = eight_scales<HD>(stage, k);
        float low = scales.x * inverse, high = scales.y * inverse;
#pragma unroll
        for (int n = 0; n < TILES; n++)
            p[k / 2][n][k % 2] = pack(score[k][2 * n] * low, score[k][2 * n + 1] * high, DTYPE_F16);
    }
}

/* Four dimensions of two keys each, as products want them: pair[d] has both keys' dimension d. */
__device__ __forceinline__ void eight_pairs(uint32_t (&pair)[4], uint32_t first, uint32_t second)
{
    uint32_t low = __byte_perm(first, second, 0x5140), high = __byte_perm(first, second, 0x7362);
    pair[0] = eight_halves(low, 0);
    pair[1] = eight_halves(low, 1);
    pair[2] = eight_halves(high, 0);
    pair[3] = eight_halves(high, 1);
}

/* Row tiles m .. m + 3: dimensions word * 4 and on of the lane's two chunks; rows[i] has them of
 * keys 2t, 2t + 1, 2t + 8 and 2t + 9. */
template <int HD, int TILES>
__device__ __forceinline__ void eight_add(decode_state<HD, TILES> &s, int m,
                                          const uint32_t (&one)[4], const uint32_t (&two)[4],
                                          const uint32_t (&p)[TILES][2])
{
    uint32_t a[4], b[4], c[4], d[4];
    eight_pairs(a, one[0], one[1]);
    eight_pairs(b, two[0], two[1]);
    eight_pairs(c, one[2], one[3]);
    eight_pairs(d, two[2], two[3]);
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int n = 0; n < TILES; n++)
            eight_mma(s.out[n][m + i], a[i], b[i], c[i], d[i], p[n][0], p[n][1]);
}

/* As decode_values(). */
template <int HD, int TILES>
__device__ __forceinline__ void
eight_values(decode_state<HD, TILES> &s, eight_state<true, TILES> &eight,
             const float (&score)[KEY_TILES][4], const attention_item &item, uint32_t position,
             uint32_t stage)
{
    const uint32_t piece = PIECE * (HD + sizeof(float));
    const int chunks = head_shape<HD>::chunks, lanes = head_shape<HD>::lanes;
    uint32_t lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4, p[2][TILES][2];
    if (position < item.row.first || position + SPAN - 1 > item.row.last) {
        if (position < item.row.first)
            eight_clear<HD>(stage, 0, item.row.first - position);
        if (position + SPAN - 1 > item.row.last)
            eight_clear<HD>(stage, item.row.last + 1 - position, SPAN);
        __syncwarp();
    }
    eight_fit(s, eight, stage);
    eight_weights<HD, TILES>(p, score, stage, eight.v_unit);
    uint32_t own = (lanes < 8 && g >= lanes ? lanes - 1 : g) * chunks * 8;
#pragma unroll
    for (int c = 0; c < 2; c++) {
        uint32_t from = stage + c * piece + 2 * t * HD + own;
        if constexpr (chunks == 1) { /* the two halves of one chunk */
            uint32_t one[4], two[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                uint2 row = load_shared_two(from + (i % 2 + i / 2 * 8) * HD);
                one[i] = row.x;
                two[i] = row.y;
            }
            eight_add(s, 0, one, two, p[c]);
        } else {
#pragma unroll
            for (int pair = 0; pair < chunks / 2; pair++) {
                uint32_t words[4][4];
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    uint4 row = load_shared(from + (i % 2 + i / 2 * 8) * HD + pair * 16);
                    words[0][i] = row.x;
                    words[1][i] = row.y;
                    words[2][i] = row.z;
                    words[3][i] = row.w;
                }
                eight_add(s, pair * 8, words[0], words[2], p[c]);
                eight_add(s, pair * 8 + 4, words[1], words[3], p[c]);
            }
        }
    }
}

#endif

} // namespace HALF
