/* Attention with mma.sync, for every device since sm_80 and for head dimensions that the kernels
 * for Hopper do not take. A block per 64 queries of a row and query head; of short rows, per KV
 * head, whose queries it has all. Four warps of 16 queries each. Keys and values come in tiles of
 * 64 positions, at multiples of 64, through cp.async into padded rows, so that a query's bits
 * depend on its position alone. One sequence is not split: a few long ones leave most SMs idle.
 *
 * Bound by the latency of its instructions, for registers leave room for three blocks on an SM: of
 * 8,192 tokens, dimension 80, the SM's busiest unit works half of the time (ncu). Short rows have
 * few blocks besides: 32 sequences of 4,096 tokens keep memory busy for 40 % of it. */
#include "gpu/kernels/attention/attention_tile.cuh"
#include "gpu/kernels/attention/attention_tuned.cuh"
#include "gpu/kernels/attention/kv_wide.cuh"
#include "gpu/kernels/common/device_props.cuh"
#include "gpu/kernels/common/mma.cuh"
#include "gpu/kernels/common/softcap.cuh"

namespace HALF
{

#define QUERIES 64
#define KEYS 64
#define PREFILL_WARPS 4
#define PREFILL_THREADS (PREFILL_WARPS * WARP)

template <int HD> struct prefill_shape {
    static const int row = HD * 2 + 16; /* an odd number of 16-byte units: no bank conflicts */
    static const int part = KEYS * row;
    static const int stages = HD > 128 ? 1 : 2;
    static const int bytes = 2 * stages * part;
};

/* K or V of positions tile * 64 and on; zeros where a position is not the row's to read. */
template <int HD>
__device__ __forceinline__ void prefill_fetch(const struct batch_group &group,
                                              const attention_row &row, uint32_t first,
                                              uint32_t last, uint32_t block_shift, uint32_t head,
                                              uint64_t part, uint32_t tile, uint32_t to)
{
    const int chunks = HD / 8;
    for (int i = threadIdx.x; i < KEYS * chunks; i += PREFILL_THREADS) {
        uint32_t key = i / chunks, chunk = i % chunks, position = tile * KEYS + key;
        bool valid = position >= first && position <= last;
        const char *from = attention_place(group, row.table, block_shift, valid ? position : last,
                                           head, part, HD * 2);
        copy_async(to + key * prefill_shape<HD>::row + chunk * 16, from + chunk * 16, valid);
    }
}

/* The same of e4m3, which is made 16 bits on the way, so by the threads themselves: some loads are
 * under way before the first is waited for. */
template <int HD>
__device__ __forceinline__ void prefill_fetch_eight(const struct batch_group &group,
                                                    const attention_row &row, uint32_t first,
                                                    uint32_t last, uint32_t block_shift,
                                                    uint32_t head, uint64_t part, uint32_t tile,
                                                    uint32_t to)
{
    const int chunks = HD / 8, each = KEYS * chunks / PREFILL_THREADS, at_once = 4;
#pragma unroll 1
    for (int begin = 0; begin < each; begin += at_once) {
        uint2 from[at_once];
        float scale[at_once];
#pragma unroll
        for (int j = 0; j < at_once; j++) {
            uint32_t i = (begin + j) * PREFILL_THREADS + threadIdx.x;
            uint32_t position = tile * KEYS + i / chunks, inside = position % KV_PIECE;
            bool valid = begin + j < each && position >= first && position <= last;
            from[j] = make_uint2(0, 0);
            scale[j] = 0;
            if (!valid)
                continue;
            const char *piece = attention_place(group, row.table, block_shift, position - inside,
                                                head, part, HD + sizeof(float));
            from[j] = *reinterpret_cast<const uint2 *>(piece + inside * HD + i % chunks * 8);
            scale[j] = reinterpret_cast<const float *>(piece + KV_PIECE * HD)[inside];
        }
#pragma unroll
        for (int j = 0; j < at_once; j++) {
            uint32_t i = (begin + j) * PREFILL_THREADS + threadIdx.x;
            if (begin + j < each)
                store_shared(to + i / chunks * prefill_shape<HD>::row + i % chunks * 16,
                             eight_widen(from[j], scale[j]));
        }
    }
}

template <int HD> struct prefill_state {
    uint32_t q[HD / 16][4];
    float out[HD / 8][4];
    float most[2], sum[2];
};

template <int HD>
__device__ __forceinline__ void prefill_scores(const prefill_state<HD> &s,
                                               float (&score)[KEYS / 8][4], uint32_t keys)
{
    uint32_t lane = threadIdx.x % WARP;
    uint32_t at = keys + (lane % 8 + lane / 16 * 8) * prefill_shape<HD>::row + lane / 8 % 2 * 16;
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            score[n][i] = 0;
#pragma unroll
    for (int k = 0; k < HD / 16; k++)
#pragma unroll
        for (int n = 0; n < KEYS / 8; n += 2) {
            uint32_t b[4];
            load_matrices(b, at + n * 8 * prefill_shape<HD>::row + k * 32);
            mma_half(score[n], s.q[k][0], s.q[k][1], s.q[k][2], s.q[k][3], b[0], b[1]);
            mma_half(score[n + 1], s.q[k][0], s.q[k][1], s.q[k][2], s.q[k][3], b[2], b[3]);
        }
}

__device__ __forceinline__ void prefill_cap(float (&score)[KEYS / 8][4], const score_scale &scale)
{
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            score[n][i] = score_capped(score[n][i], scale);
}

/* The running softmax of two queries per thread (rows g and g + 8): scores become weights. */
template <int HD>
__device__ __forceinline__ void prefill_softmax(prefill_state<HD> &s, float (&score)[KEYS / 8][4],
                                                float unit)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float peak = s.most[half];
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
            peak = fmaxf(peak, fmaxf(score[n][half * 2], score[n][half * 2 + 1]));
        peak = fmaxf(peak, __shfl_xor_sync(FULL_MASK, peak, 1));
        peak = fmaxf(peak, __shfl_xor_sync(FULL_MASK, peak, 2));
        float origin = peak == -INFINITY ? 0.0f : __fmul_rn(peak, unit);
        /* Rounded like `origin`: exactly 1 where the maximum stays. */
        float keep = exp2_fast(__fmul_rn(s.most[half], unit) - origin);
        s.most[half] = peak;
        s.sum[half] *= keep;
#pragma unroll
        for (int m = 0; m < HD / 8; m++) {
            s.out[m][half * 2] *= keep;
            s.out[m][half * 2 + 1] *= keep;
        }
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
            for (int i = half * 2; i < half * 2 + 2; i++) {
                score[n][i] = exp2_fast(fmaf(score[n][i], unit, -origin));
                s.sum[half] += score[n][i];
            }
    }
}

template <int HD>
__device__ __forceinline__ void prefill_values(prefill_state<HD> &s,
                                               const float (&score)[KEYS / 8][4], uint32_t values)
{
    uint32_t lane = threadIdx.x % WARP;
    uint32_t at = values + (lane % 16) * prefill_shape<HD>::row + lane / 16 * 16;
#pragma unroll
    for (int k = 0; k < KEYS / 16; k++) {
        uint32_t a0 = pack(score[2 * k][0], score[2 * k][1], DTYPE_HALF);
        uint32_t a1 = pack(score[2 * k][2], score[2 * k][3], DTYPE_HALF);
        uint32_t a2 = pack(score[2 * k + 1][0], score[2 * k + 1][1], DTYPE_HALF);
        uint32_t a3 = pack(score[2 * k + 1][2], score[2 * k + 1][3], DTYPE_HALF);
#pragma unroll
        for (int m = 0; m < HD / 8; m += 2) {
            uint32_t b[4];
            load_matrices_transposed(b, at + k * 16 * prefill_shape<HD>::row + m * 16);
            mma_half(s.out[m], a0, a1, a2, a3, b[0], b[1]);
            mma_half(s.out[m + 1], a0, a1, a2, a3, b[2], b[3]);
        }
    }
}

/* What a block attends to: queries of consecutive tokens of a row, `per` heads of each. */
struct prefill_block {
    uint32_t token, position; /* of query 0 */
    uint32_t queries, per;
    uint32_t kv_head, head; /* head: of query 0 */
    uint32_t first, last;   /* positions that some query sees */
    uint32_t window;
};

template <bool SHORTS>
__device__ __forceinline__ prefill_block prefill_block_of(const struct attention_args &a,
                                                          const struct batch_group &group,
                                                          const attention_tile &tile, uint32_t size)
{
    const attention_row &row = tile.row;
    const uint32_t heads = a.heads / a.kv_heads;
    uint32_t tokens = row.q_len - tile.query < size ? row.q_len - tile.query : size;
    prefill_block block;
    block.per = SHORTS ? heads : 1;
    block.kv_head = SHORTS ? blockIdx.x : blockIdx.x / heads;
    block.head = SHORTS ? block.kv_head * heads : blockIdx.x;
    block.token = row.token + tile.query;
    block.queries = tokens * block.per;
    block.position = row.position + tile.query;
    block.last = block.position + tokens - 1;
    block.window = group.window;
    block.first =
        block.window && block.position >= block.window ? block.position - block.window + 1 : 0;
    return block;
}

/* Where a query's values are, of q or of the output. */
template <int HD>
__device__ __forceinline__ size_t prefill_query_at(const prefill_block &block, uint32_t query,
                                                   uint32_t stride)
{
    return (size_t)(block.token + query / block.per) * stride +
           (block.head + query % block.per) * HD;
}

template <int HD>
__device__ __forceinline__ void prefill_load_q(prefill_state<HD> &s, const struct attention_args &a,
                                               const prefill_block &block,
                                               const uint32_t (&query)[2])
{
    uint32_t t = threadIdx.x % 4;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const uint32_t *from = reinterpret_cast<const uint32_t *>(
            static_cast<const half_t *>(a.q) +
            prefill_query_at<HD>(block, query[half], a.q_stride));
#pragma unroll
        for (int k = 0; k < HD / 16; k++) {
            s.q[k][half] = query[half] < block.queries ? from[k * 8 + t] : 0;
            s.q[k][half + 2] = query[half] < block.queries ? from[k * 8 + 4 + t] : 0;
        }
    }
}

/* Keys from `base` on that a query does not see count for nothing. */
__device__ __forceinline__ void prefill_mask(float (&score)[KEYS / 8][4],
                                             const prefill_block &block, const uint32_t (&query)[2],
                                             uint32_t base)
{
    uint32_t t = threadIdx.x % 4;
    if (base + KEYS - 1 <= block.position && !(block.window && base + block.window <= block.last))
        return;
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t key = base + n * 8 + 2 * t + i % 2;
            uint32_t at_query = block.position + query[i / 2] / block.per;
            if (key > at_query || (block.window && key + block.window <= at_query))
                score[n][i] = -INFINITY;
        }
}

template <int HD>
__device__ __forceinline__ void
prefill_store(const prefill_state<HD> &s, const struct attention_args &a,
              const prefill_block &block, const uint32_t (&query)[2], float unit)
{
    uint32_t t = threadIdx.x % 4;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float sum = s.sum[half];
        sum += __shfl_xor_sync(FULL_MASK, sum, 1);
        sum += __shfl_xor_sync(FULL_MASK, sum, 2);
        if (query[half] >= block.queries)
            continue;
        uint32_t *to = reinterpret_cast<uint32_t *>(
            static_cast<half_t *>(a.out) + prefill_query_at<HD>(block, query[half], a.out_stride));
        float kept = attention_sink(a, block.head + query[half] % block.per,
                                    __fmul_rn(s.most[half], unit), &sum);
#pragma unroll
        for (int m = 0; m < HD / 8; m++)
            to[m * 4 + t] =
                pack(s.out[m][half * 2] * kept / sum, s.out[m][half * 2 + 1] * kept / sum,
                     DTYPE_HALF);
    }
}

template <int HD, bool SHORTS, bool CAP, bool EIGHT>
__global__ void __launch_bounds__(PREFILL_THREADS)
    prefill_kernel(const __grid_constant__ struct attention_args a, uint32_t block_shift)
{
    extern __shared__ __align__(128) char memory[];
    const int part = prefill_shape<HD>::part, stages = prefill_shape<HD>::stages;
    grid_trigger();
    grid_wait();
    const struct batch_group &group = a.batch.groups[a.kv.group];
    const uint32_t size = QUERIES / (SHORTS ? a.heads / a.kv_heads : 1);
    attention_tile tile = tile_find(a.batch, group, blockIdx.y, size, SHORTS);
    if (!tile.found)
        return;
    prefill_block block = prefill_block_of<SHORTS>(a, group, tile, size);
    uint32_t warp = threadIdx.x / WARP, g = threadIdx.x % WARP / 4;
    uint32_t keys = shared_address(memory), values = keys + stages * part;
    uint32_t begin = block.first / KEYS, end = block.last / KEYS;
    auto fetch = [&](uint64_t which, uint32_t at, uint32_t to) {
        if constexpr (EIGHT)
            prefill_fetch_eight<HD>(group, tile.row, block.first, block.last, block_shift,
                                    block.kv_head, which, at, to);
        else
            prefill_fetch<HD>(group, tile.row, block.first, block.last, block_shift, block.kv_head,
                              which, at, to);
    };
    fetch(a.kv.k, begin, keys);
    copy_async_commit();
    fetch(a.kv.v, begin, values);
    copy_async_commit();

    prefill_state<HD> s = {};
    s.most[0] = s.most[1] = -INFINITY;
    uint32_t query[2] = {warp * 16 + g, warp * 16 + g + 8};
    /* Warps without queries only fetch. In the widest kernel the branch costs long rows 28 %. */
    bool busy = (HD > 128 && !SHORTS) || warp * 16 < block.queries;
    prefill_load_q(s, a, block, query);
    const score_scale scale = score_scale_of<CAP>(a.scale, a.softcap);
    for (uint32_t at = begin; at <= end; at++) {
        uint32_t now = stages == 2 ? (at - begin) % 2 * part : 0;
        if (stages == 2 && at < end)
            fetch(a.kv.k, at + 1, keys + part - now);
        copy_async_commit();
        if (stages == 2 && at < end)
            fetch(a.kv.v, at + 1, values + part - now);
        copy_async_commit();
        copy_async_wait<3>();
        __syncthreads();
        float score[KEYS / 8][4];
        if (busy)
            prefill_scores(s, score, keys + now);
        if (CAP && busy)
            prefill_cap(score, scale);
        prefill_mask(score, block, query, at * KEYS);
        if (busy)
            prefill_softmax(s, score, scale.unit);
        copy_async_wait<2>();
        __syncthreads();
        if (busy)
            prefill_values(s, score, values + now);
        __syncthreads();
        if (stages == 1 && at < end) {
            fetch(a.kv.k, at + 1, keys);
            fetch(a.kv.v, at + 1, values);
            copy_async_commit();
            copy_async_wait<0>();
            __syncthreads();
        }
    }
    prefill_store(s, a, block, query, scale.unit);
}

bool attention_prefill_can(const struct attention_args *args)
{
    const struct device_props *device = device_props();
    uint32_t dim = args->head_dim;
    bool aligned = args->q_stride % 2 == 0 && args->out_stride % 2 == 0 &&
                   reinterpret_cast<uintptr_t>(args->q) % 4 == 0 &&
                   reinterpret_cast<uintptr_t>(args->out) % 4 == 0;
    return device->major >= 8 && args->dtype == DTYPE_HALF && aligned &&
           (args->kv.format == FORMAT_HALF || args->kv.format == FORMAT_E4M3) &&
           args->heads / args->kv_heads <= QUERIES &&
           (dim == 128 || dim == 256 ||
            (args->softcap == 0 && (dim == 64 || dim == 80 || dim == 96)));
}

template <int HD, bool SHORTS, bool CAP, bool EIGHT>
static cudaError_t prefill_launch_kind(const struct attention_args *a, cudaStream_t stream)
{
    static struct device_once once;
    cudaError_t result =
        device_allow(&once, prefill_kernel<HD, SHORTS, CAP, EIGHT>, device_props(), 256 + 64);
    if (result != cudaSuccess)
        return result;
    uint32_t size = SHORTS ? QUERIES / (a->heads / a->kv_heads) : QUERIES;
    return launch(prefill_kernel<HD, SHORTS, CAP, EIGHT>,
                  dim3(SHORTS ? a->kv_heads : a->heads, tile_bound(&a->batch, size, SHORTS)),
                  PREFILL_THREADS, prefill_shape<HD>::bytes, stream, *a,
                  (uint32_t)__builtin_ctz(a->batch.block_tokens));
}

template <int HD, bool CAP, bool EIGHT>
static cudaError_t prefill_launch_cap(const struct attention_args *a, uint32_t which,
                                  cudaStream_t stream)
{
    cudaError_t result = cudaSuccess;
    if (which & ATTENTION_PREFILL)
        result = prefill_launch_kind<HD, false, CAP, EIGHT>(a, stream);
    if (result == cudaSuccess && (which & ATTENTION_DECODE))
        result = prefill_launch_kind<HD, true, CAP, EIGHT>(a, stream);
    return result;
}

template <int HD, bool EIGHT>
static cudaError_t prefill_launch_format(const struct attention_args *a, uint32_t which,
                                  cudaStream_t stream)
{
    return a->softcap != 0
               ? prefill_launch_cap<HD, (HD == 128 || HD == 256), EIGHT>(a, which, stream)
               : prefill_launch_cap<HD, false, EIGHT>(a, which, stream);
}

template <int HD>
static cudaError_t prefill_launch(const struct attention_args *a, uint32_t which,
                                  cudaStream_t stream)
{
    return a->kv.format == FORMAT_E4M3 ? prefill_launch_format<HD, true>(a, which, stream)
                                       : prefill_launch_format<HD, false>(a, which, stream);
}

cudaError_t attention_prefill(const struct attention_args *args, uint32_t which,
                              cudaStream_t stream)
{
    switch (args->head_dim) {
    case 64:
        return prefill_launch<64>(args, which, stream);
    case 80:
        return prefill_launch<80>(args, which, stream);
    case 96:
        return prefill_launch<96>(args, which, stream);
    case 128:
        return prefill_launch<128>(args, which, stream);
    case 256:
        return prefill_launch<256>(args, which, stream);
    default:
        return cudaErrorInvalidValue;
    }
}

} // namespace HALF
