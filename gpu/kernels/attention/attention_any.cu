/* Attention of any head dimension and dtype, for what has no kernel of its own: float32, and odd
 * head dimensions. A block per token and head; all arithmetic in float32. Bound by
 * instructions: it is here to be right, not fast. */
#include "gpu/kernels/attention/attention.cuh"
#include "gpu/kernels/attention/kv_eight.cuh"
#include "gpu/kernels/common/softcap.cuh"

#define ANY_THREADS 128
#define DIMS_PER_THREAD (ATTENTION_HEAD_DIM_MAX / ANY_THREADS)
#define KEYS_PER_THREAD (ATTENTION_SPLIT / ANY_THREADS)

__device__ static float block_max(float value, float *scratch)
{
#pragma unroll
    for (int offset = WARP / 2; offset; offset /= 2)
        value = fmaxf(value, __shfl_xor_sync(FULL_MASK, value, offset));
    __syncthreads();
    if (threadIdx.x % WARP == 0)
        scratch[threadIdx.x / WARP] = value;
    __syncthreads();
    for (int warp = 0; warp < ANY_THREADS / WARP; warp++)
        value = fmaxf(value, scratch[warp]);
    return value;
}

__device__ static float dot(const float *q, const void *key, uint32_t size, enum dtype dtype)
{
    float sum = 0;
    if (reinterpret_cast<uintptr_t>(key) % 16) {
        for (uint32_t i = 0; i < size; i++)
            sum += q[i] * load_value(key, i, dtype);
        return sum;
    }
    for (uint32_t i = 0; i < size; i += 8) {
        float8 k = load_float8(key, i, size, dtype);
#pragma unroll
        for (int j = 0; j < 8; j++)
            sum += i + j < size ? q[i + j] * k.v[j] : 0.0f;
    }
    return sum;
}

/* In e4m3, without the scale; rows begin at multiples of four where their size is one. */
__device__ static float dot_eight(const float *q, const uint8_t *key, uint32_t size)
{
    float sum = 0;
    for (uint32_t i = 0; size % 4 && i < size; i++)
        sum += q[i] * eight_value(key[i]);
    for (uint32_t i = 0; size % 4 == 0 && i < size; i += 4) {
        uint32_t word = *reinterpret_cast<const uint32_t *>(key + i);
#pragma unroll
        for (int j = 0; j < 4; j++)
            sum += q[i + j] * eight_value(static_cast<uint8_t>(word >> 8 * j));
    }
    return sum;
}

/* Where a position of a KV head is; EIGHT: in e4m3. */
template <bool EIGHT>
__device__ static eight_place
any_place(const struct attention_args &a, const struct batch_group &group, const uint32_t *table,
          uint32_t block_shift, uint32_t position, uint32_t head, uint64_t part)
{
    uint32_t bytes = a.head_dim * (a.kv.format == FORMAT_F32 ? 4 : 2);
    if (!EIGHT)
        return {reinterpret_cast<uint8_t *>(const_cast<char *>(
                    attention_place(group, table, block_shift, position, head, part, bytes))),
                NULL};
    uint32_t inside = position & ((1u << block_shift) - 1);
    const char *begin = attention_place(group, table, block_shift, position - inside, head, part,
                                        a.head_dim + sizeof(float));
    return eight_place_in(const_cast<char *>(begin), inside, a.head_dim);
}

template <bool EIGHT>
__global__ void __launch_bounds__(ANY_THREADS)
    any_kernel(struct attention_args a, uint32_t which, uint32_t block_shift)
{
    __shared__ float q[ATTENTION_HEAD_DIM_MAX], weight[ATTENTION_SPLIT], scratch[WARP];
    grid_trigger();
    grid_wait();
    uint32_t token = blockIdx.x, head = blockIdx.y, kv_head = head / (a.heads / a.kv_heads);
    if (token >= a.batch.counts->tokens)
        return;
    const struct batch_group &group = a.batch.groups[a.kv.group];
    attention_row row = attention_row_at(a.batch, group, a.batch.token_row[token]);
    if (!(which & (row.q_len <= ATTENTION_DECODE_MAX ? ATTENTION_DECODE : ATTENTION_PREFILL)))
        return;
    uint32_t last = row.position + (token - row.token);
    uint32_t first = group.window && last >= group.window ? last - group.window + 1 : 0;
    const enum dtype kept = dtype_of(a.kv.format);
    size_t from = (size_t)token * a.q_stride + (size_t)head * a.head_dim;
    for (uint32_t i = threadIdx.x; i < a.head_dim; i += ANY_THREADS)
        q[i] = load_value(a.q, from + i, a.dtype);
    __syncthreads();

    float sum = 0, most = -INFINITY, out[DIMS_PER_THREAD] = {};
    for (uint32_t split = first / ATTENTION_SPLIT; split <= last / ATTENTION_SPLIT; split++) {
        uint32_t base = split * ATTENTION_SPLIT;
        float score[KEYS_PER_THREAD], peak = -INFINITY;
#pragma unroll
        for (int j = 0; j < KEYS_PER_THREAD; j++) {
            uint32_t position = base + threadIdx.x + j * ANY_THREADS;
            score[j] = -INFINITY;
            if (position >= first && position <= last) {
                eight_place key =
                    any_place<EIGHT>(a, group, row.table, block_shift, position, kv_head, a.kv.k);
                score[j] = a.scale * (EIGHT ? dot_eight(q, key.elements, a.head_dim) * *key.scale
                                            : dot(q, key.elements, a.head_dim, kept));
                if (a.softcap != 0)
                    score[j] = softcap_of(score[j], a.softcap);
            }
            peak = fmaxf(peak, score[j]);
        }
        peak = block_max(peak, scratch);
        float mass = 0;
#pragma unroll
        for (int j = 0; j < KEYS_PER_THREAD; j++) {
            float p = expf(score[j] - peak);
            weight[threadIdx.x + j * ANY_THREADS] = p;
            mass += p;
        }
        mass = block_sum(mass, scratch);
        float part[DIMS_PER_THREAD] = {};
        uint32_t begin = first > base ? first : base;
        uint32_t end = last - base < ATTENTION_SPLIT ? last : base + ATTENTION_SPLIT - 1;
        for (uint32_t position = begin; position <= end; position++) {
            eight_place value =
                any_place<EIGHT>(a, group, row.table, block_shift, position, kv_head, a.kv.v);
            float p = weight[position - base] * (EIGHT ? *value.scale : 1.0f);
#pragma unroll
            for (int j = 0; j < DIMS_PER_THREAD; j++) {
                uint32_t i = threadIdx.x + j * ANY_THREADS;
                if (i < a.head_dim)
                    part[j] += p * (EIGHT ? eight_value(value.elements[i])
                                          : load_value(value.elements, i, kept));
            }
        }
        float above = fmaxf(most, peak), old = expf(most - above), now = expf(peak - above);
        sum = sum * old + mass * now;
#pragma unroll
        for (int j = 0; j < DIMS_PER_THREAD; j++)
            out[j] = out[j] * old + part[j] * now;
        most = above;
        __syncthreads(); /* weights are read above and written by the next split */
    }
    float still = 1.0f;
    if (a.sinks) {
        float above = fmaxf(most, a.sinks[head]);
        still = expf(most - above);
        sum = sum * still + expf(a.sinks[head] - above);
    }
    size_t to = (size_t)token * a.out_stride + (size_t)head * a.head_dim;
#pragma unroll
    for (int j = 0; j < DIMS_PER_THREAD; j++) {
        uint32_t i = threadIdx.x + j * ANY_THREADS;
        if (i < a.head_dim)
            store_value(a.out, to + i, a.dtype, out[j] * still / sum);
    }
}

cudaError_t attention_any(const struct attention_args *args, uint32_t which, cudaStream_t stream)
{
    if (args->head_dim > ATTENTION_HEAD_DIM_MAX)
        return cudaErrorInvalidValue;
    dim3 grid(args->batch.tokens_max, args->heads);
    uint32_t block_shift = (uint32_t)__builtin_ctz(args->batch.block_tokens);
    if (args->kv.format == FORMAT_E4M3)
        return launch(any_kernel<true>, grid, ANY_THREADS, 0, stream, *args, which, block_shift);
    return launch(any_kernel<false>, grid, ANY_THREADS, 0, stream, *args, which, block_shift);
}
