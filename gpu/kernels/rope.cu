/* A warp per token and head. Bound by latency for few tokens, by memory for many. */
#include "gpu/kernels/device.cuh"
#include "gpu/kernels/rope.h"

#define ROPE_WARPS 8
#define PAIRS_PER_LANE 4 /* head_dim up to 256 */

__global__ void angle_kernel(struct angle_args a)
{
    grid_trigger();
    grid_wait();
    uint32_t token = blockIdx.x;
    if (token >= a.batch.counts->tokens)
        return;
    float position = (float)a.batch.token_position[token];
    for (uint32_t pair = threadIdx.x; pair < a.pairs; pair += blockDim.x) {
        float sine, cosine;
        sincosf(position * a.inverse_frequency[pair], &sine, &cosine);
        reinterpret_cast<float2 *>(a.angles)[(size_t)token * a.pairs + pair] =
            make_float2(cosine * a.attention, sine * a.attention);
    }
}

/* Where position `position` of a slot's sequence starts, of one KV head. */
__device__ static char *kv_place(const struct rope_args &a, uint32_t slot, uint32_t position,
                                 uint32_t head, uint64_t part)
{
    const struct batch_group &group = a.batch.groups[a.kv.group];
    uint32_t size = a.batch.block_tokens;
    uint32_t block = group.tables[(size_t)slot * group.blocks_max + position / size];
    char *base = static_cast<char *>(group.slabs[block / group.slab_blocks]) +
                 (block % group.slab_blocks) * group.block_bytes + part;
    return base + ((size_t)head * size + position % size) * a.head_dim *
                      (a.kv.dtype == DTYPE_F32 ? 4 : 2);
}

__global__ void __launch_bounds__(ROPE_WARPS *WARP) rope_kernel(struct rope_args a)
{
    grid_trigger();
    grid_wait();
    uint32_t token = blockIdx.x, lane = threadIdx.x % WARP;
    uint32_t part = blockIdx.y * ROPE_WARPS + threadIdx.x / WARP; /* q heads, k heads, v heads */
    if (token >= a.batch.counts->tokens || part >= a.heads + 2 * a.kv_heads)
        return;
    uint32_t row = a.batch.token_row[token], slot = a.batch.rows[row].slot;
    uint32_t position = a.batch.token_position[token], pairs = a.head_dim / 2;
    size_t from = (size_t)token * a.stride + (size_t)part * a.head_dim;

    if (part >= a.heads + a.kv_heads) {
        char *to = kv_place(a, slot, position, part - a.heads - a.kv_heads, a.kv.v);
        for (uint32_t i = lane; i < a.head_dim; i += WARP)
            store_value(to, i, a.kv.dtype, load_value(a.qkv, from + i, a.dtype));
        return;
    }
    bool is_q = part < a.heads;
    const void *weight = is_q ? a.q_norm : a.k_norm;
    float low[PAIRS_PER_LANE], high[PAIRS_PER_LANE], squares = 0;
#pragma unroll
    for (int j = 0; j < PAIRS_PER_LANE; j++) {
        uint32_t i = lane + j * WARP;
        low[j] = i < pairs ? load_value(a.qkv, from + i, a.dtype) : 0.0f;
        high[j] = i < pairs ? load_value(a.qkv, from + pairs + i, a.dtype) : 0.0f;
        squares += low[j] * low[j] + high[j] * high[j];
    }
    float scale = weight ? rsqrtf(warp_sum(squares) / (float)a.head_dim + a.eps) : 1.0f;
    char *cache = is_q ? NULL : kv_place(a, slot, position, part - a.heads, a.kv.k);
#pragma unroll
    for (int j = 0; j < PAIRS_PER_LANE; j++) {
        uint32_t i = lane + j * WARP;
        if (i >= pairs)
            break;
        if (weight) {
            low[j] *= scale * load_value(weight, i, a.norm_dtype);
            high[j] *= scale * load_value(weight, pairs + i, a.norm_dtype);
        }
        float2 angle = reinterpret_cast<const float2 *>(a.angles)[(size_t)token * pairs + i];
        float first = low[j] * angle.x - high[j] * angle.y;
        float second = high[j] * angle.x + low[j] * angle.y;
        if (is_q) {
            store_value(a.qkv, from + i, a.dtype, first);
            store_value(a.qkv, from + pairs + i, a.dtype, second);
        } else {
            store_value(cache, i, a.kv.dtype, first);
            store_value(cache, pairs + i, a.kv.dtype, second);
        }
    }
}

cudaError_t op_angle(const struct angle_args *args, cudaStream_t stream)
{
    return launch(angle_kernel, dim3(args->batch.tokens_max), 64, 0, stream, *args);
}

cudaError_t op_rope(const struct rope_args *args, cudaStream_t stream)
{
    unsigned parts = args->heads + 2 * args->kv_heads;
    return launch(rope_kernel, dim3(args->batch.tokens_max, ceil_div(parts, ROPE_WARPS)),
                  ROPE_WARPS * WARP, 0, stream, *args);
}
