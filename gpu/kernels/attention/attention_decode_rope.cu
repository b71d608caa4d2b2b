/* Rope, the write of K and V and decode attention in one kernel, on sm_90, for few rows of single
 * tokens: bound by latency.
 *
 * A block per row, KV head, eight of its queries and split; its eight warps attend as
 * attention_decode_latency.cu's do, to the same bits where those are all of the KV head's, warp w
 * to positions 32 w and on. All keys and values but those of the row's own token were there before
 * the step: they are asked for before the kernel waits for the product that gives q, k and v, and
 * before it lets the product behind it start, whose weights they would come after. Then every warp
 * takes its queries into registers and turns them there. The one whose positions the token is among
 * turns its key beside them, as one more row, and what comes of key and value goes to its place
 * among the others'; in the block of the first queries it puts them into the cache, too.
 *
 * A ninth warp goes the same way ahead of the others, over nothing: a kernel that runs once per
 * layer finds none of its instructions in the SM's caches, and behind the wait all would wait for
 * them.
 *
 * Keys and values in e4m3 (EIGHT) are multiplied as attention_math_eight.cuh does it; the token's
 * own are rounded in registers and read there as they will be from the cache. The cache gets
 * op_rope's bits; outputs are added up in another order than attention_decode_eight.cu's, a warp a
 * span rather than one for all. Figures: tests/bench/EXPERIMENTS.md. */
#include "gpu/kernels/attention/attention_decode_rope_eight.cuh"
#include "gpu/kernels/attention/attention_tuned.cuh"
#include "gpu/kernels/attention/rope_attention.cuh"
#include "gpu/kernels/common/device_props.cuh"

namespace HALF
{

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* A row's chunks 4 j + t, of which a lane so has both sides of its pairs, normed and turned. */
template <int HD, bool NORMS>
__device__ __forceinline__ void roped_turn(uint4 (&row)[HD / 32],
                                           const float4 (&angles)[HD / 64][4],
                                           const rope_args &rope, bool is_key)
{
    const int half = HD / 64;
    const void *weight = is_key ? rope.k_norm : rope.q_norm;
    rope_pairs x[half];
#pragma unroll
    for (int j = 0; j < half; j++)
        x[j] = rope_unpack(row[j], row[j + half], DTYPE_HALF);
    if (NORMS)
        roped_norm<HD>(x, rope, weight);
#pragma unroll
    for (int j = 0; j < half; j++)
        rope_turn(x[j], angles[j], row[j], row[j + half], DTYPE_HALF);
}

/* The rows turned, and the key written to the cache. */
template <int HD, bool NORMS, bool EIGHT>
__device__ __forceinline__ void roped_rows(uint4 (&q)[HD / 32], uint4 (&key)[HD / 32],
                                           roped_scales &scales, const roped_token<HD> &token,
                                           const roped_task &task, const rope_args &rope,
                                           char *cache)
{
    uint32_t lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
    bool apart = task.owns && task.queries == ROPED_QUERIES;
    bool writes =
        task.real && task.owns && task.item.tile == 0 && g == task.queries % ROPED_QUERIES;
#pragma unroll
    for (int j = 0; j < HD / 32; j++)
        q[j] = token.row[j];
#pragma unroll 1
    for (bool more = apart;; more = false) {
        bool is_key = more || g == task.queries;
        if constexpr (EIGHT) {
            float scale = roped_turn_eight<HD, NORMS>(q, token.angles, rope, task, is_key,
                                                      writes ? cache : NULL);
            if (more || !apart)
                scales.key =
                    __shfl_sync(FULL_MASK, scale, task.queries % ROPED_QUERIES * 4);
        } else {
            roped_turn<HD, NORMS>(q, token.angles, rope, is_key);
        }
        if (more || !apart)
#pragma unroll
            for (int j = 0; j < HD / 32; j++)
                key[j] = q[j];
        if (!more)
            break;
#pragma unroll
        for (int j = 0; j < HD / 32; j++)
            q[j] = roped_read(token.query + (4 * j + t) * 8, token.query);
    }
    if constexpr (EIGHT) {
        uint32_t words[HD / 8];
#pragma unroll
        for (int i = 0; i < HD / 8; i++)
            words[i] = word_of(q[i / 4], i % 4);
        scales.q = eight_query(words);
#pragma unroll
        for (int j = 0; j < HD / 32; j++)
            q[j] = make_uint4(words[4 * j], words[4 * j + 1], words[4 * j + 2], words[4 * j + 3]);
    } else if (writes) {
#pragma unroll
        for (int j = 0; j < HD / 32; j++)
            *reinterpret_cast<uint4 *>(cache + (4 * j + t) * 16) = key[j];
    }
}

/* The token's own value, to its place among the others, which is zero, and to the cache, unless
 * roped_round has put it there. */
template <int HD, bool EIGHT>
__device__ __forceinline__ void roped_own(roped_lane<HD> &mine, const roped_task &task,
                                          const uint4 (&value)[HD / 64], char *cache)
{
    uint32_t g = threadIdx.x % WARP / 4, t = threadIdx.x % 4;
    bool has = t == task.own % 8 / 2;
    uint32_t even = !has ? 0x4444 : task.own % 2 ? 0x1044 : 0x4410; /* 16 bits, and zeros */
    uint32_t odd = !has ? 0x4444 : task.own % 2 ? 0x3244 : 0x4432;
    uint32_t here[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        here[i] = task.own / 8 == i ? UINT32_MAX : 0;
#pragma unroll
    for (int m = 0; m < HD / 16; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint32_t word = __byte_perm(value_word<HD>(value, m, half), 0, m % 2 ? odd : even);
#pragma unroll
            for (int i = 0; i < 4; i++)
                mine.v[i / 2][m][i % 2 * 2 + half] |= word & here[i];
        }
    if (!EIGHT && has && task.real && task.item.tile == 0)
#pragma unroll
        for (int j = 0; j < HD / 64; j++)
            *reinterpret_cast<uint4 *>(cache + (8 * j + g) * 16) = value[j];
}

/* decode_multiply(), of half precision too. */
template <bool EIGHT>
__device__ __forceinline__ void roped_multiply(float (&score)[4], float (&part)[4],
                                               const uint32_t (&q)[4], const uint4 &key)
{
    if constexpr (EIGHT) {
        eight_mma(score, q[0], q[1], q[2], q[3], key.x, key.y);
        eight_mma(part, q[0], q[1], q[2], q[3], key.z, key.w);
    } else {
        decode_multiply(score, part, q, key);
    }
}

/* Scores of the warp's keys, as decode_scores() has them. The own key's come of a product of their
 * own, whose column it has where it was turned, and go to its place. */
template <int HD, bool EIGHT>
__device__ __forceinline__ void
roped_scores(float (&score)[KEY_TILES][4], const roped_shared<HD, EIGHT> &shared,
             const roped_task &task, const roped_lane<HD> &mine, const uint4 (&q)[HD / 32],
             const uint4 (&key)[HD / 32], const roped_scales &scales)
{
    uint32_t lane = threadIdx.x % WARP, t = lane % 4;
    float part[KEY_TILES][4] = {}, own[4] = {}, own_part[4] = {};
#pragma unroll
    for (int j = 0; j < HD / 32; j++) {
        const uint32_t row[4] = {q[j].x, q[j].z, q[j].y, q[j].w}; /* decode_set_q() */
#pragma unroll
        for (int k = 0; k < KEY_TILES; k++)
            roped_multiply<EIGHT>(score[k], part[k], row, mine.k[k][j]);
        roped_multiply<EIGHT>(own, own_part, row, key[j]);
    }
    if (task.owns) {
        uint32_t column = task.queries % ROPED_QUERIES;
        float value = column % 2 ? own[1] + own_part[3] : own[0] + own_part[2];
        value = __shfl_sync(FULL_MASK, value, lane - t + column / 2);
#pragma unroll
        for (int k = 0; k < KEY_TILES; k++)
#pragma unroll
            for (int i = 0; i < 2; i++)
                if (task.own == k * 8 + 2 * t + i) {
                    score[k][i] = value;
                    part[k][i + 2] = 0;
                }
    }
#pragma unroll
    for (int k = 0; k < KEY_TILES; k++) {
        float2 each = make_float2(1, 1);
        if constexpr (EIGHT)
            each = roped_scales_at(shared, task, 0, k, scales.key);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            uint32_t position = task.position + k * 8 + 2 * t + i;
            bool seen = position >= task.item.row.first && position <= task.item.row.last;
            float sum = score[k][i] + part[k][i + 2];
            if (EIGHT)
                sum = sum * (i ? each.y : each.x) * scales.q;
            score[k][i] = seen ? sum : -INFINITY;
        }
    }
}

/* What a warp has of the split. */
template <int HD> struct roped_part {
    float out[HD / 16][4]; /* rows of tile m by queries 2 t and 2 t + 1 */
    float most, sum;       /* of query g */
};

template <int HD, bool NORMS, bool EIGHT>
__device__ __forceinline__ void rope_attention_rows(roped_part<HD> &part, roped_token<HD> &token,
                                                    const roped_shared<HD, EIGHT> &shared,
                                                    const roped_task &task, const attention_args &a,
                                                    const rope_args &rope, char *cache)
{
    /* Nine warps have registers for keys or values beside the rows; for neither beside norms, or
     * what is rounded. */
    const bool late = HD > 64, later = late && (NORMS || EIGHT);
    roped_lane<HD> mine;
    uint4 q[HD / 32], key[HD / 32];
    float score[KEY_TILES][4] = {}, v_unit = 1;
    roped_scales scales = {};
    roped_ask<HD>(token, task, a, rope);
    if (!later)
        roped_keys<HD, EIGHT>(mine, shared, task);
    if (!late)
        roped_values<HD, EIGHT>(mine, shared, task);
    roped_rows<HD, NORMS, EIGHT>(q, key, scales, token, task, rope, cache);
    cache += a.kv.v - a.kv.k;
    if (EIGHT && task.owns)
        scales.value = roped_round<HD>(token.value, task, rope.v_scale, cache);
    if (!late && task.owns)
        roped_own<HD, EIGHT>(mine, task, token.value, cache);
    if (later)
        roped_keys<HD, EIGHT>(mine, shared, task);
    roped_scores<HD, EIGHT>(score, shared, task, mine, q, key, scales);
    if (late)
        roped_values<HD, EIGHT>(mine, shared, task);
    if (late && task.owns)
        roped_own<HD, EIGHT>(mine, task, token.value, cache);
    float unit = a.scale * ATTENTION_LOG2E;
    part.most = tile_peak(score, 0) * unit;
    part.sum = tile_sum(tile_weigh(score, 0, unit, origin_of(part.most)));
    if constexpr (EIGHT)
        v_unit = roped_weights(score, shared, task, scales.value);
    const enum dtype of = EIGHT ? DTYPE_F16 : DTYPE_HALF;
#pragma unroll
    for (int c = 0; c < 2; c++) {
        uint32_t low = pack(score[2 * c][0], score[2 * c][1], of);
        uint32_t high = pack(score[2 * c + 1][0], score[2 * c + 1][1], of);
#pragma unroll
        for (int m = 0; m < HD / 16; m++) {
            const uint32_t(&v)[4] = mine.v[c][m];
            if constexpr (EIGHT)
                eight_mma(part.out[m], v[0], v[1], v[2], v[3], low, high);
            else
                mma_half(part.out[m], v[0], v[1], v[2], v[3], low, high);
        }
    }
    if (EIGHT)
#pragma unroll
        for (int m = 0; m < HD / 16; m++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                part.out[m][i] *= v_unit;
}

/* Four dimensions of a query in shared memory: turned so that lanes of two queries meet in no bank.
 */
__device__ __forceinline__ uint32_t merge_slot(uint32_t four, uint32_t query)
{
    return four ^ (query / 2 % 2);
}

/* The warp's results, to where they are merged. */
template <int HD, bool EIGHT>
__device__ __forceinline__ void roped_leave(roped_shared<HD, EIGHT> &shared, const roped_task &task,
                                            const roped_part<HD> &part)
{
    uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
    if (t == 0 && g < task.queries)
        shared.stat[warp][g] = make_float2(part.most, part.sum);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        uint32_t query = 2 * t + i;
        if (query >= task.queries)
            continue;
#pragma unroll
        for (int half = 0; half < 2; half++)
#pragma unroll
            for (int m = 0; m < HD / 16; m += 4) {
                uint32_t four = HD == 64 ? 2 * g + half : 16 * half + 2 * g + m / 4;
                shared.merge[warp][query][merge_slot(four, query)] =
                    make_float4(part.out[m][half * 2 + i], part.out[m + 1][half * 2 + i],
                                part.out[m + 2][half * 2 + i], part.out[m + 3][half * 2 + i]);
            }
    }
}

/* The warps' results of the split into one, as decode_merge does, and where they belong. */
template <int HD, bool EIGHT>
__device__ __forceinline__ void roped_merge(const roped_shared<HD, EIGHT> &shared,
                                            const roped_task &task, const attention_args &a,
                                            const decode_scratch &scratch)
{
    const int values = HD / 64; /* per thread, of four queries at a time */
    const attention_item &item = task.item;
    uint32_t dimension = threadIdx.x * values % HD;
#pragma unroll 1
    for (uint32_t first = 0; first < task.queries; first += 4) {
        uint32_t query = first + threadIdx.x * values / HD;
        uint32_t head = task.head + query;
        float2 stat[DECODE_WARPS];
        float most = -INFINITY, sum = 0, out[values] = {};
#pragma unroll
        for (int w = 0; w < DECODE_WARPS; w++) {
            stat[w] = task.real ? shared.stat[w][query] : make_float2(0, 0);
            most = fmaxf(most, stat[w].x);
        }
        float origin = origin_of(most);
#pragma unroll
        for (int w = 0; w < DECODE_WARPS; w++) {
            const float *from = reinterpret_cast<const float *>(
                                    &shared.merge[w][query][merge_slot(dimension / 4, query)]) +
                                dimension % 4;
            float factor = exp2_fast(stat[w].x - origin);
            sum += stat[w].y * factor;
#pragma unroll
            for (int v = 0; v < values; v++)
                out[v] += (task.real ? from[v] : 0) * factor;
        }
        if (!task.real || query >= task.queries)
            continue;
        if (item.record == PLAN_DIRECT) {
            half_t *to = static_cast<half_t *>(a.out) + (size_t)item.row.token * a.out_stride +
                         head * HD + dimension;
            float kept = attention_sink(a, head, most, &sum);
            float inverse = attention_inverse(sum) * kept;
#pragma unroll
            for (int v = 0; v < values; v++)
                to[v] = half_of(out[v] * inverse);
            continue;
        }
        size_t record = item.record + (size_t)(item.split - item.row.split_first) * a.heads + head;
        if (dimension == 0)
            scratch.stat[record] = make_float2(most, sum);
#pragma unroll
        for (int v = 0; v < values; v++)
            scratch.out[record * HD + dimension + v] = out[v];
    }
}

#endif

template <int HD, bool NORMS, bool EIGHT>
__global__ void __launch_bounds__(ROPED_WARPS *WARP, 1)
    roped_kernel(const __grid_constant__ struct rope_args rope,
                 const __grid_constant__ struct attention_args a,
                 const __grid_constant__ struct decode_scratch scratch, uint32_t splits_max,
                 uint32_t block_shift)
{
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
    extern __shared__ __align__(128) char memory[];
    roped_shared<HD, EIGHT> &shared = *reinterpret_cast<roped_shared<HD, EIGHT> *>(memory);
    const struct batch_group &group = a.batch.groups[a.kv.group];
    roped_task task = roped_find(a, group, splits_max);
    if (!task.exists) {
        grid_trigger();
        grid_wait();
        return;
    }
    roped_part<HD> part = {};
    part.most = -INFINITY;
    char *cache = NULL;
    if (task.real && task.any) {
        cache = roped_fetch<HD, EIGHT>(shared, task, a, group, block_shift);
        /* Not before: the product behind asks for megabytes at once, and these would wait. */
        grid_trigger();
    }
    roped_token<HD> token;
    if (task.any)
        roped_angles<HD>(token, task, rope);
    if (task.real)
        grid_wait();
    if (task.any)
        rope_attention_rows<HD, NORMS, EIGHT>(part, token, shared, task, a, rope, cache);
    roped_leave<HD, EIGHT>(shared, task, part);
    if (task.real)
        attention_warps_sync();
    roped_merge<HD, EIGHT>(shared, task, a, scratch);
    if (scratch.row_record && blockIdx.y == 0 && task.item.head == 0 && task.item.tile == 0 &&
        threadIdx.x == 0)
        scratch.row_record[task.item.index] = task.item.record;
#endif
}

/* For loads of 16 bytes; norms are of both q and k, or there are none. */
static bool roped_aligned(const struct rope_args *rope)
{
    uintptr_t all = reinterpret_cast<uintptr_t>(rope->angles) |
                    reinterpret_cast<uintptr_t>(rope->q_norm) |
                    reinterpret_cast<uintptr_t>(rope->k_norm);
    return all % 16 == 0 && !rope->q_norm == !rope->k_norm;
}

/* Of a row: for each KV head as many as its queries need. */
static uint32_t roped_tiles(const struct attention_args *a)
{
    return a->kv_heads * ceil_div(a->heads / a->kv_heads, ROPED_QUERIES);
}

/* Blocks that the bounds ask for: more than SMs, and splits are better attended in one stream. */
static bool roped_can(const struct rope_args *rope, const struct attention_args *a, uint32_t splits)
{
    const struct batch &batch = a->batch;
    bool single = batch.q_len_max == 1 && batch.decode_len_max == 1;
    bool alike = rope->qkv == a->q && rope->stride == a->q_stride && rope->dtype == a->dtype;
    return !a->invariant && single && alike && roped_aligned(rope) &&
           (attention_decode_latency_can(a) || attention_decode_eight_can(a)) &&
           (a->head_dim == 64 || a->head_dim == 128) && a->softcap == 0 &&
           batch.rows_max <= ATTENTION_FEW_ROWS &&
           batch.rows_max * roped_tiles(a) * splits <= device_props()->processors;
}

template <int HD, bool NORMS, bool EIGHT>
static cudaError_t roped_launch(const struct rope_args *rope, const struct attention_args *args,
                                const struct decode_scratch &scratch, uint32_t splits,
                                cudaStream_t stream)
{
    static struct device_once once;
    cudaError_t result = device_allow(&once, roped_kernel<HD, NORMS, EIGHT>, device_props());
    if (result != cudaSuccess)
        return result;
    result =
        launch(roped_kernel<HD, NORMS, EIGHT>,
               dim3(args->batch.rows_max * roped_tiles(args), splits), ROPED_WARPS * WARP,
               sizeof(roped_shared<HD, EIGHT>), stream, *rope, *args, scratch, splits,
               (uint32_t)__builtin_ctz(args->batch.block_tokens));
    return result == cudaSuccess && splits > 1 ? attention_combine(args, &scratch, stream) : result;
}

template <bool EIGHT>
static cudaError_t roped_launch_any(const struct rope_args *rope,
                                    const struct attention_args *attend,
                                    const struct decode_scratch &scratch, uint32_t splits,
                                    cudaStream_t stream)
{
    bool norms = rope->q_norm;
    if (attend->head_dim == 64)
        return norms ? roped_launch<64, true, EIGHT>(rope, attend, scratch, splits, stream)
                     : roped_launch<64, false, EIGHT>(rope, attend, scratch, splits, stream);
    return norms ? roped_launch<128, true, EIGHT>(rope, attend, scratch, splits, stream)
                 : roped_launch<128, false, EIGHT>(rope, attend, scratch, splits, stream);
}

cudaError_t attention_decode_rope(const struct rope_args *rope, const struct attention_args *attend,
                                  bool *ret_done, cudaStream_t stream)
{
    uint32_t splits = ceil_div(attend->batch.context_max, ATTENTION_SPLIT);
    struct decode_scratch scratch = attention_decode_scratch(attend);
    bool fits = splits <= 1 || attend->batch.rows_max * splits * attend->heads <= scratch.capacity;
    *ret_done = fits && roped_can(rope, attend, splits);
    if (!*ret_done)
        return cudaSuccess;
    return attend->kv.format == FORMAT_E4M3
               ? roped_launch_any<true>(rope, attend, scratch, splits, stream)
               : roped_launch_any<false>(rope, attend, scratch, splits, stream);
}

} // namespace HALF
