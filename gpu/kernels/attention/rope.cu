/* Eight pairs a thread where 16-byte loads can be had; for other shapes a warp per token and head.
 * Bound by latency for few tokens, by memory for many. The next kernel may start when this one has
 * waited for those before it, not earlier: attention then reads what those have written without a
 * wait of its own. */
#include "gpu/kernels/attention/kv_eight.cuh"
#include "gpu/kernels/attention/rope.cuh"
#include "gpu/kernels/attention/rope.h"
#include "gpu/kernels/common/device.cuh"
#include "gpu/kernels/common/device_props.cuh"

#define ROPE_WARPS 8
#define ROPE_THREADS 128
#define PAIRS_PER_LANE 4 /* head_dim up to 256 */

__global__ void angle_kernel(struct angle_args a)
{
    grid_trigger();
    grid_wait();
    uint32_t token = blockIdx.x;
    if (token >= a.batch.counts->tokens)
        return;
    uint32_t position = a.batch.token_position[token];
    for (uint32_t pair = threadIdx.x; pair < a.pairs; pair += blockDim.x)
        reinterpret_cast<float2 *>(a.angles)[(size_t)token * a.pairs + pair] =
            rope_angle(position, a.inverse_frequency[pair], a.attention);
}

/* Where a position of a slot's sequence starts, of one KV head; EIGHT: where the head does. */
template <bool EIGHT, class Args>
__device__ static char *kv_place(const Args &a, uint32_t slot, uint32_t position, uint32_t head,
                                 uint64_t part)
{
    const struct batch_group &group = a.batch.groups[a.kv.group];
    uint32_t size = a.batch.block_tokens;
    uint32_t block = group.tables[(size_t)slot * group.blocks_max + position / size];
    char *base = static_cast<char *>(group.slabs[block / group.slab_blocks]) +
                 (block % group.slab_blocks) * group.block_bytes + part;
    if (EIGHT)
        return base + (size_t)head * size * (a.head_dim + sizeof(float));
    return base + ((size_t)head * size + position % size) * a.head_dim *
                      (a.kv.format == FORMAT_F32 ? 4 : 2);
}

template <class Args>
__device__ static eight_place kv_eight(const Args &a, uint32_t slot, uint32_t position,
                                       uint32_t head, uint64_t part)
{
    return eight_place_in(kv_place<true>(a, slot, position, head, part),
                          position % a.batch.block_tokens, a.head_dim);
}

/* A head that a warp has: value `at(j)` of its lane is element `index(j)`. */
template <int COUNT, class Value, class Index>
__device__ static void eight_store(const eight_place &to, uint32_t head_dim, enum dtype dtype,
                                   float said, Value value, Index index)
{
    uint32_t greatest = 0;
#pragma unroll
    for (int j = 0; j < COUNT; j++)
        if (index(j) < head_dim)
            greatest = eight_greater(greatest, eight_magnitude(value(j)));
#pragma unroll
    for (int offset = WARP / 2; offset; offset /= 2)
        greatest = eight_greater(greatest, __shfl_xor_sync(FULL_MASK, greatest, offset));
    const float scale = eight_scale(greatest, dtype, said);
    const eight_divisor by = eight_divide_by(scale);
#pragma unroll
    for (int j = 0; j < COUNT; j++)
        if (index(j) < head_dim)
            to.elements[index(j)] = eight_of(value(j), by);
    if (threadIdx.x % WARP == 0)
        *to.scale = scale;
}

/* Of a head in a buffer. */
template <class Args>
__device__ static void eight_store_from(const Args &a, const eight_place &to, const void *x,
                                        size_t from, float said)
{
    float value[2 * PAIRS_PER_LANE];
    uint32_t lane = threadIdx.x % WARP;
#pragma unroll
    for (int j = 0; j < 2 * PAIRS_PER_LANE; j++)
        value[j] =
            lane + j * WARP < a.head_dim ? load_value(x, from + lane + j * WARP, a.dtype) : 0;
    eight_store<2 * PAIRS_PER_LANE>(
        to, a.head_dim, a.dtype, said, [&](int j) { return value[j]; },
        [&](int j) { return lane + j * WARP; });
}

template <bool EIGHT>
__global__ void __launch_bounds__(ROPE_WARPS *WARP) rope_kernel(struct rope_args a)
{
    grid_wait();
    grid_trigger();
    uint32_t token = blockIdx.x, lane = threadIdx.x % WARP;
    uint32_t part = blockIdx.y * ROPE_WARPS + threadIdx.x / WARP; /* q heads, k heads, v heads */
    if (token >= a.batch.counts->tokens || part >= a.heads + 2 * a.kv_heads)
        return;
    uint32_t row = a.batch.token_row[token], slot = a.batch.rows[row].slot;
    uint32_t position = a.batch.token_position[token], pairs = a.head_dim / 2;
    size_t from = (size_t)token * a.stride + (size_t)part * a.head_dim;

    const enum dtype kept = dtype_of(a.kv.format);
    if (part >= a.heads + a.kv_heads) {
        uint32_t head = part - a.heads - a.kv_heads;
        if (EIGHT) {
            eight_store_from(a, kv_eight(a, slot, position, head, a.kv.v), a.qkv, from,
                             a.v_scale);
            return;
        }
        char *to = kv_place<false>(a, slot, position, head, a.kv.v);
        for (uint32_t i = lane; i < a.head_dim; i += WARP)
            store_value(to, i, kept, load_value(a.qkv, from + i, a.dtype));
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
    char *cache =
        is_q || EIGHT ? NULL : kv_place<false>(a, slot, position, part - a.heads, a.kv.k);
#pragma unroll
    for (int j = 0; j < PAIRS_PER_LANE; j++) {
        uint32_t i = lane + j * WARP;
        if (i >= pairs)
            break;
        if (weight) {
            low[j] *= scale * (load_value(weight, i, a.norm_dtype) + a.norm_offset);
            high[j] *= scale * (load_value(weight, pairs + i, a.norm_dtype) + a.norm_offset);
        }
        float2 angle = reinterpret_cast<const float2 *>(a.angles)[(size_t)token * pairs + i];
        float first = low[j] * angle.x - high[j] * angle.y;
        float second = high[j] * angle.x + low[j] * angle.y;
        if (is_q) {
            store_value(a.qkv, from + i, a.dtype, first);
            store_value(a.qkv, from + pairs + i, a.dtype, second);
        } else if (EIGHT) {
            low[j] = first;
            high[j] = second;
        } else {
            store_value(cache, i, kept, unless_infinite(first, kept));
            store_value(cache, pairs + i, kept, unless_infinite(second, kept));
        }
    }
    if (!EIGHT || is_q)
        return;
    eight_store<2 * PAIRS_PER_LANE>(
        kv_eight(a, slot, position, part - a.heads, a.kv.k), a.head_dim, a.dtype, a.k_scale,
        [&](int j) { return j % 2 ? high[j / 2] : low[j / 2]; },
        [&](int j) {
            uint32_t i = lane + j / 2 * WARP;
            return i < pairs ? i + j % 2 * pairs : a.head_dim;
        });
}

/* Of a warp, those that have the head that this one has a chunk of. */
__device__ __forceinline__ uint32_t head_lanes(uint32_t chunks)
{
    return ((1u << chunks) - 1) << threadIdx.x % WARP / chunks * chunks;
}

/* A head's chunks to the cache, in e4m3, each by its thread. */
template <class Args>
__device__ __forceinline__ void eight_store_pairs(const rope_pairs &x, const eight_place &to,
                                                  const Args &a, uint32_t i, uint32_t chunks,
                                                  float said)
{
    uint32_t greatest = rope_greatest(x);
    for (uint32_t offset = 1; offset < chunks; offset *= 2)
        greatest = eight_greater(greatest,
                                 __shfl_xor_sync(head_lanes(chunks), greatest, offset));
    const float scale = eight_scale(greatest, a.dtype, said);
    const eight_divisor by = eight_divide_by(scale);
    uint8_t *low = to.elements + i, *high = low + a.head_dim / 2;
    *reinterpret_cast<uint2 *>(low) = make_uint2(eight_pack(x.low[0], x.low[1], by),
                                                 eight_pack(x.low[2], x.low[3], by));
    *reinterpret_cast<uint2 *>(high) = make_uint2(eight_pack(x.high[0], x.high[1], by),
                                                  eight_pack(x.high[2], x.high[3], by));
    if (i == 0)
        *to.scale = scale;
}

/* Wherever they lie. */
__device__ __forceinline__ float8 norm_weights(const void *weight, uint32_t i, enum dtype dtype)
{
    float8 out;
#pragma unroll
    for (int j = 0; j < 8; j++)
        out.v[j] = load_value(weight, i + j, dtype);
    return out;
}

/* 16-bit values everywhere but, EIGHT, in the cache. `chunks`, of eight pairs each per head, are up
 * to 16, and, where something is known of heads as a whole (their norm, or EIGHT's scale), a power
 * of two, so that a head's threads are neighbours in a warp. */
template <bool EIGHT>
__global__ void __launch_bounds__(ROPE_THREADS)
    rope_wide_kernel(struct rope_args a, uint32_t chunks)
{
    grid_wait();
    grid_trigger();
    uint32_t token = blockIdx.x, item = blockIdx.y * ROPE_THREADS + threadIdx.x;
    uint32_t part = item / chunks, pairs = a.head_dim / 2, i = item % chunks * 8;
    if (part >= a.heads + 2 * a.kv_heads)
        return;
    /* Tokens up to the bound can be read, whether they exist or not: no wait for the count. */
    char *at = static_cast<char *>(a.qkv) + ((size_t)token * a.stride + part * a.head_dim + i) * 2;
    uint4 low = *reinterpret_cast<const uint4 *>(at);
    uint4 high = *reinterpret_cast<const uint4 *>(at + pairs * 2);
    if (token >= a.batch.counts->tokens)
        return;
    char *to = at;
    eight_place eight = {};
    if (part >= a.heads) {
        bool is_k = part < a.heads + a.kv_heads;
        uint32_t head = part - a.heads - (is_k ? 0 : a.kv_heads);
        /* Where all rows have one token, one look-up less, of four that wait for each other. */
        uint32_t row = a.batch.q_len_max == 1 ? token : a.batch.token_row[token];
        uint32_t slot = a.batch.rows[row].slot, position = a.batch.token_position[token];
        if (EIGHT)
            eight = kv_eight(a, slot, position, head, is_k ? a.kv.k : a.kv.v);
        else
            to = kv_place<false>(a, slot, position, head, is_k ? a.kv.k : a.kv.v) + i * 2;
        if (EIGHT && !is_k) {
            eight_store_pairs(rope_unpack(low, high, a.dtype), eight, a, i, chunks, a.v_scale);
            return;
        }
        if (!is_k) {
            *reinterpret_cast<uint4 *>(to) = low;
            *reinterpret_cast<uint4 *>(to + pairs * 2) = high;
            return;
        }
    }
    rope_pairs x = rope_unpack(low, high, a.dtype);
    const void *weight = part < a.heads ? a.q_norm : a.k_norm;
    if (weight) {
        float squares = rope_squares(x);
        uint32_t lanes = head_lanes(chunks);
        for (uint32_t offset = 1; offset < chunks; offset *= 2)
            squares += __shfl_xor_sync(lanes, squares, offset);
        rope_norm(x, rope_scale(squares, a.head_dim, a.eps), norm_weights(weight, i, a.norm_dtype),
                  norm_weights(weight, pairs + i, a.norm_dtype), a.norm_offset);
    }
    const float4 *from =
        reinterpret_cast<const float4 *>(a.angles + ((size_t)token * pairs + i) * 2);
    const float4 angles[4] = {from[0], from[1], from[2], from[3]};
    if (EIGHT && part >= a.heads) {
        eight_store_pairs(rope_turned(x, angles), eight, a, i, chunks, a.k_scale);
        return;
    }
    rope_turn(x, angles, low, high, a.dtype);
    *reinterpret_cast<uint4 *>(to) = low;
    *reinterpret_cast<uint4 *>(to + pairs * 2) = high;
}

static bool rope_is_wide(const struct rope_args *a)
{
    uint32_t chunks = a->head_dim / 16;
    bool eight = a->kv.format == FORMAT_E4M3, whole = eight || a->q_norm || a->k_norm;
    return a->dtype != DTYPE_F32 && (eight || a->kv.format == format_plain(a->dtype)) &&
           a->head_dim % 16 == 0 && chunks > 0 && chunks <= 16 &&
           (!whole || (chunks & (chunks - 1)) == 0) && a->stride % 8 == 0 &&
           reinterpret_cast<uintptr_t>(a->qkv) % 16 == 0 &&
           reinterpret_cast<uintptr_t>(a->angles) % 16 == 0;
}

cudaError_t op_angle(const struct angle_args *args, cudaStream_t stream)
{
    return launch(angle_kernel, dim3(args->batch.tokens_max), 64, 0, stream, *args);
}

template <bool EIGHT>
static cudaError_t rope_launch(const struct rope_args *args, cudaStream_t stream)
{
    unsigned parts = args->heads + 2 * args->kv_heads;
    if (rope_is_wide(args)) {
        /* As attention needs it: an SM that must divide its memory anew has to be idle first. */
        static struct device_once once;
        int device = device_props()->ordinal;
        uint32_t context = device_context(device);
        if (once.done[device % DEVICE_PROPS_MAX].exchange(context, std::memory_order_relaxed) !=
            context)
            (void)cudaFuncSetAttribute(rope_wide_kernel<EIGHT>,
                                       cudaFuncAttributePreferredSharedMemoryCarveout,
                                       cudaSharedmemCarveoutMaxShared);
        return launch(
            rope_wide_kernel<EIGHT>,
            dim3(args->batch.tokens_max, ceil_div(parts * (args->head_dim / 16), ROPE_THREADS)),
            ROPE_THREADS, 0, stream, *args, args->head_dim / 16);
    }
    return launch(rope_kernel<EIGHT>, dim3(args->batch.tokens_max, ceil_div(parts, ROPE_WARPS)),
                  ROPE_WARPS * WARP, 0, stream, *args);
}

cudaError_t op_rope(const struct rope_args *args, cudaStream_t stream)
{
    return args->kv.format == FORMAT_E4M3 ? rope_launch<true>(args, stream)
                                          : rope_launch<false>(args, stream);
}

/* ---- each part alone: a warp per row and head -------------------------------------------------
 * The next kernel may start when this one has waited, as behind op_rope: attention asks for the
 * batch and for old keys before its own wait. */

#define VALUES_PER_LANE (2 * PAIRS_PER_LANE)

__global__ void __launch_bounds__(ROPE_WARPS *WARP) head_norm_kernel(struct head_norm_args a)
{
    grid_wait();
    grid_trigger();
    uint32_t row = blockIdx.x, lane = threadIdx.x % WARP;
    uint32_t head = blockIdx.y * ROPE_WARPS + threadIdx.x / WARP;
    if (row >= range_rows(a.rows) || head >= a.heads)
        return;
    size_t from = (size_t)row * a.stride + (size_t)head * a.head_dim;
    float value[VALUES_PER_LANE], squares = 0;
#pragma unroll
    for (int j = 0; j < VALUES_PER_LANE; j++) {
        uint32_t i = lane + j * WARP;
        value[j] = i < a.head_dim ? load_value(a.x, from + i, a.dtype) : 0.0f;
        squares += value[j] * value[j];
    }
    float scale = rsqrtf(warp_sum(squares) / (float)a.head_dim + a.eps);
#pragma unroll
    for (int j = 0; j < VALUES_PER_LANE; j++) {
        uint32_t i = lane + j * WARP;
        if (i < a.head_dim)
            store_value(a.x, from + i, a.dtype,
                        value[j] * (scale * (load_value(a.weight, i, a.weight_dtype) + a.offset)));
    }
}

__global__ void __launch_bounds__(ROPE_WARPS *WARP) rotate_kernel(struct rotate_args a)
{
    grid_wait();
    grid_trigger();
    uint32_t row = blockIdx.x, lane = threadIdx.x % WARP;
    uint32_t part = blockIdx.y * ROPE_WARPS + threadIdx.x / WARP, pairs = a.head_dim / 2;
    if (row >= range_rows(a.rows) || part >= a.heads + a.kv_heads)
        return;
    bool is_q = part < a.heads;
    void *x = is_q ? a.q : a.k;
    size_t from = (size_t)row * (is_q ? a.q_stride : a.k_stride) +
                  (size_t)(is_q ? part : part - a.heads) * a.head_dim;
    for (uint32_t i = lane; i < pairs; i += WARP) {
        float low = load_value(x, from + i, a.dtype);
        float high = load_value(x, from + pairs + i, a.dtype);
        float2 angle = reinterpret_cast<const float2 *>(a.angles)[(size_t)row * pairs + i];
        store_value(x, from + i, a.dtype, low * angle.x - high * angle.y);
        store_value(x, from + pairs + i, a.dtype, high * angle.x + low * angle.y);
    }
}

template <bool EIGHT>
__global__ void __launch_bounds__(ROPE_WARPS *WARP) kv_write_kernel(struct kv_write_args a)
{
    grid_wait();
    grid_trigger();
    uint32_t token = blockIdx.x, lane = threadIdx.x % WARP;
    uint32_t part = blockIdx.y * ROPE_WARPS + threadIdx.x / WARP;
    if (token >= a.batch.counts->tokens || part >= 2 * a.kv_heads)
        return;
    bool is_k = part < a.kv_heads;
    uint32_t head = is_k ? part : part - a.kv_heads;
    const void *x = is_k ? a.k : a.v;
    size_t from = (size_t)token * (is_k ? a.k_stride : a.v_stride) + (size_t)head * a.head_dim;
    uint32_t slot = a.batch.rows[a.batch.token_row[token]].slot;
    uint32_t position = a.batch.token_position[token];
    uint64_t offset = is_k ? a.kv.k : a.kv.v;
    if (EIGHT) {
        eight_store_from(a, kv_eight(a, slot, position, head, offset), x, from,
                         is_k ? a.k_scale : a.v_scale);
        return;
    }
    char *to = kv_place<false>(a, slot, position, head, offset);
    const enum dtype kept = dtype_of(a.kv.format);
    for (uint32_t i = lane; i < a.head_dim; i += WARP) {
        float value = load_value(x, from + i, a.dtype);
        store_value(to, i, kept, is_k ? unless_infinite(value, kept) : value);
    }
}

cudaError_t op_head_norm(const struct head_norm_args *args, cudaStream_t stream)
{
    if (args->head_dim > VALUES_PER_LANE * WARP)
        return cudaErrorInvalidValue;
    return launch(head_norm_kernel, dim3(args->rows.max, ceil_div(args->heads, ROPE_WARPS)),
                  ROPE_WARPS * WARP, 0, stream, *args);
}

cudaError_t op_rotate(const struct rotate_args *args, cudaStream_t stream)
{
    unsigned parts = args->heads + args->kv_heads;
    return launch(rotate_kernel, dim3(args->rows.max, ceil_div(parts, ROPE_WARPS)),
                  ROPE_WARPS * WARP, 0, stream, *args);
}

cudaError_t op_kv_write(const struct kv_write_args *args, cudaStream_t stream)
{
    dim3 grid(args->batch.tokens_max, ceil_div(2 * args->kv_heads, ROPE_WARPS));
    if (args->head_dim > VALUES_PER_LANE * WARP)
        return cudaErrorInvalidValue;
    if (args->kv.format == FORMAT_E4M3)
        return launch(kv_write_kernel<true>, grid, ROPE_WARPS * WARP, 0, stream, *args);
    return launch(kv_write_kernel<false>, grid, ROPE_WARPS * WARP, 0, stream, *args);
}
