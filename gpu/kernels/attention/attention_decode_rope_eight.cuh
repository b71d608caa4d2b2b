/* Rope and decode attention in one, over keys and values in e4m3 (attention_decode_rope.cu): the
 * token's own rounded as op_rope does it, to the same bits, and the scales. Products are those of
 * attention_math_eight.cuh. */
#pragma once

#include "gpu/kernels/attention/attention_decode_rope.cuh"

namespace HALF
{

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* What a lane knows of scales; of 16 bits nothing is asked. */
struct roped_scales {
    float q;          /* what query g was divided by */
    float key, value; /* the token's own */
};

/* The scale of the token's own key or value, behind its piece's elements. */
template <int HD>
__device__ __forceinline__ float *roped_scale(char *elements, const roped_task &task)
{
    uint32_t inside = task.own % PIECE;
    return reinterpret_cast<float *>(elements + (PIECE - inside) * HD) + inside;
}

/* As roped_turn, but the key's row becomes what the cache will have of it, in half precision, and
 * goes to `cache` (NULL: nowhere). Returns the row's scale as a key. */
template <int HD, bool NORMS>
__device__ __forceinline__ float roped_turn_eight(uint4 (&row)[HD / 32],
                                                  const float4 (&angles)[HD / 64][4],
                                                  const rope_args &rope, const roped_task &task,
                                                  bool is_key, char *cache)
{
    const int half = HD / 64;
    uint32_t t = threadIdx.x % 4, greatest = 0;
    rope_pairs x[half];
#pragma unroll
    for (int j = 0; j < half; j++)
        x[j] = rope_unpack(row[j], row[j + half], DTYPE_HALF);
    if (NORMS)
        roped_norm<HD>(x, rope, is_key ? rope.k_norm : rope.q_norm);
#pragma unroll
    for (int j = 0; j < half; j++) {
        rope_turn(x[j], angles[j], row[j], row[j + half], DTYPE_HALF);
        x[j] = rope_turned(x[j], angles[j]);
        greatest = eight_greater(greatest, rope_greatest(x[j]));
    }
#pragma unroll
    for (int offset = 1; offset < 4; offset *= 2)
        greatest = eight_greater(greatest, __shfl_xor_sync(FULL_MASK, greatest, offset));
    float scale = eight_scale(greatest, DTYPE_HALF, rope.k_scale);
    if (!is_key)
        return scale;
    const eight_divisor by = eight_divide_by(scale);
#pragma unroll
    for (int j = 0; j < half; j++) {
        const float2(&l)[4] = x[j].low, (&h)[4] = x[j].high;
        uint2 low = make_uint2(eight_pack(l[0], l[1], by), eight_pack(l[2], l[3], by));
        uint2 high = make_uint2(eight_pack(h[0], h[1], by), eight_pack(h[2], h[3], by));
        row[j] = roped_halves(low);
        row[j + half] = roped_halves(high);
        if (cache) {
            *reinterpret_cast<uint2 *>(cache + (4 * j + t) * 8) = low;
            *reinterpret_cast<uint2 *>(cache + HD / 2 + (4 * j + t) * 8) = high;
        }
    }
    if (cache && t == 0)
        *roped_scale<HD>(cache, task) = scale;
    return scale;
}

/* The token's own value as the cache will have it, and to the cache; returns its scale. In the
 * lanes that have none it is zeros, and stays so. */
template <int HD>
__device__ __forceinline__ float roped_round(uint4 (&value)[HD / 64], const roped_task &task,
                                             float said, char *cache)
{
    uint32_t g = threadIdx.x % WARP / 4, t = threadIdx.x % 4, greatest = 0;
    bool writes = t == task.own % 8 / 2 && task.real && task.item.tile == 0;
    float2 x[HD / 64][4];
#pragma unroll
    for (int j = 0; j < HD / 64; j++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            x[j][i] = unpack(word_of(value[j], i), DTYPE_HALF);
            greatest = eight_greater(greatest, eight_greater(eight_magnitude(x[j][i].x),
                                                             eight_magnitude(x[j][i].y)));
        }
#pragma unroll
    for (int offset = 4; offset < WARP; offset *= 2)
        greatest = eight_greater(greatest, __shfl_xor_sync(FULL_MASK, greatest, offset));
    float scale = eight_scale(greatest, DTYPE_HALF, said);
    const eight_divisor by = eight_divide_by(scale);
#pragma unroll
    for (int j = 0; j < HD / 64; j++) {
        uint2 kept = make_uint2(eight_pack(x[j][0], x[j][1], by),
                                eight_pack(x[j][2], x[j][3], by));
        value[j] = roped_halves(kept);
        if (writes)
            *reinterpret_cast<uint2 *>(cache + (8 * j + g) * 8) = kept;
    }
    if (writes && g == 0)
        *roped_scale<HD>(cache, task) = scale;
    return __shfl_sync(FULL_MASK, scale, task.own % 8 / 2);
}

/* The scales of keys (part 0) or values (2) k * 8 + 2 t and the one behind, of which the token's
 * own is not in shared memory yet; 0 where nothing is seen. */
template <int HD>
__device__ __forceinline__ float2 roped_scales_at(const roped_shared<HD, true> &shared,
                                                  const roped_task &task, int part, int k,
                                                  float own)
{
    if (!task.real)
        return make_float2(0, 0);
    const attention_row &row = task.item.row;
    uint32_t stage = shared_address(shared.stage[threadIdx.x / WARP][part]);
    uint32_t at = task.position + k * 8 + threadIdx.x % 4 * 2;
    float2 there = eight_scales<HD>(stage, k);
    float first = at >= row.first && at < row.last ? there.x : 0;
    float second = at + 1 >= row.first && at + 1 < row.last ? there.y : 0;
    return make_float2(at == row.last ? own : first, at + 1 == row.last ? own : second);
}

/* Weights times their values' scales over a power of two, which is returned: eight_fit(), of the
 * one span that a warp has. */
template <int HD>
__device__ __forceinline__ float roped_weights(float (&score)[KEY_TILES][4],
                                               const roped_shared<HD, true> &shared,
                                               const roped_task &task, float own)
{
    float2 each[KEY_TILES];
    uint32_t bits = 0;
#pragma unroll
    for (int k = 0; k < KEY_TILES; k++) {
        each[k] = roped_scales_at(shared, task, 2, k, own);
        bits = eight_greater(bits, eight_greater(__float_as_uint(each[k].x),
                                                 __float_as_uint(each[k].y)));
    }
    bits = __reduce_max_sync(FULL_MASK, bits) & 0x7f800000u;
    float unit = fmaxf(__uint_as_float(bits), EIGHT_UNIT_LEAST) * (1 / EIGHT_WEIGHT_SCALE);
    float inverse = __frcp_rn(unit);
#pragma unroll
    for (int k = 0; k < KEY_TILES; k++) {
        score[k][0] *= each[k].x * inverse;
        score[k][1] *= each[k].y * inverse;
    }
    return unit;
}

#endif

} // namespace HALF
