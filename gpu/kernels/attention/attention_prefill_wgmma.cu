/* Prefill attention with wgmma (sm_90a), for head dimensions 64 and 128; bound by the tensor cores.
 *
 * A block has 128 queries of a row and query head. Two groups of four warps attend to 64 queries
 * each; a third brings keys and values, tiles of 128 positions at multiples of 128, each in two
 * buffers. Its threads copy 16 bytes at a time (cp.async), for the products need their operands
 * swizzled and blocks lie anywhere: rows of a tile are looked up through the table one by one.
 * What is kept in e4m3 (EIGHT) they make 16 bits on the way, and have more registers for it.
 * The scores of a tile are under way while the values of the tile before are added up. A query's
 * bits depend on its position alone: tiles that it does not see change nothing.
 *
 * The tensor cores are busy for half of the time, the rest is the softmax, which the groups do not
 * take turns in. Figures: tests/bench/EXPERIMENTS.md. */
#include "gpu/kernels/attention/attention_tile.cuh"
#include "gpu/kernels/attention/attention_tuned.cuh"
#include "gpu/kernels/attention/kv_wide.cuh"
#include "gpu/kernels/common/device_props.cuh"
#include "gpu/kernels/common/softcap.cuh"
#include "gpu/kernels/common/wgmma.cuh"

namespace HALF
{

#define GROUP_THREADS 128
#define CONSUMERS 2
#define WGMMA_THREADS (GROUP_THREADS * (CONSUMERS + 1))
#define GROUP_QUERIES 64
#define QUERIES (GROUP_QUERIES * CONSUMERS)
#define KEYS 128
/* A tile's number says its buffer and the turn, in loops over tiles that are written out: no cursor
 * of common/ring.cuh is kept. */
#define BUFFERS 2

template <int HD> struct wgmma_shared {
    static const int halves = HD / 64; /* rows of 128 bytes hold 64 dimensions */
    half_t q[CONSUMERS][halves][GROUP_QUERIES][64];
    half_t k[BUFFERS][halves][KEYS][64];
    half_t v[BUFFERS][halves][KEYS][64];
    uint64_t k_full[BUFFERS], k_empty[BUFFERS], v_full[BUFFERS], v_empty[BUFFERS];
};

/* What a block works on. */
struct wgmma_work {
    attention_row row;
    uint32_t query, queries; /* in the row */
    uint32_t position;       /* of the first query */
    uint32_t first, last;    /* keys that some query sees */
    uint32_t tile, tile_end; /* of keys */
    uint32_t head, kv_head;
};

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* The place of 16-byte unit `unit` of row `row`, in rows of 128 bytes. */
__device__ __forceinline__ uint32_t swizzled(uint32_t row, uint32_t unit)
{
    return row * 128 + ((unit ^ (row & 7)) * 16);
}

__device__ __forceinline__ void proxy_fence()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

#define PIECE 16 /* positions that are next to each other in every cache */

/* Where the keys of one tile are: lane i of a warp looks up piece i. */
__device__ __forceinline__ uint64_t wgmma_look_up(const struct attention_args &a,
                                                  const struct batch_group &group,
                                                  const wgmma_work &work, uint32_t block_shift,
                                                  uint32_t tile, uint32_t row_bytes)
{
    uint32_t begin = tile * KEYS + threadIdx.x % (KEYS / PIECE) * PIECE;
    uint32_t position = begin > work.last                ? work.last / PIECE * PIECE
                        : begin + PIECE - 1 < work.first ? work.first / PIECE * PIECE
                                                         : begin;
    return reinterpret_cast<uint64_t>(attention_place(group, work.row.table, block_shift, position,
                                                      work.kv_head, a.kv.k, row_bytes));
}

/* Rows of K or V of one tile, zeros where a position is not the block's to read. */
template <int HD>
__device__ __forceinline__ void wgmma_fetch(const wgmma_work &work, uint64_t pieces, uint32_t tile,
                                            uint32_t to)
{
    const int units = HD / 8, at_once = GROUP_THREADS / units;
    uint32_t unit = threadIdx.x % units, first_row = threadIdx.x % GROUP_THREADS / units;
    uint32_t half = to + unit / 8 * (KEYS * 128);
#pragma unroll
    for (int i = 0; i < KEYS / at_once; i++) {
        uint32_t row = i * at_once + first_row, position = tile * KEYS + row;
        bool valid = position >= work.first && position <= work.last;
        uint64_t piece = __shfl_sync(FULL_MASK, pieces, i * at_once / PIECE);
        const char *from = reinterpret_cast<const char *>(piece) + row % PIECE * (HD * 2);
        copy_async(half + swizzled(row, unit % 8), from + unit * 16, valid);
    }
    copy_async_commit();
}

/* The third group. A tile's arrival is told when the next one has been asked for, or before a wait.
 */
template <int HD>
__device__ static void wgmma_produce(const struct attention_args &a,
                                     const struct batch_group &group, wgmma_shared<HD> &shared,
                                     const wgmma_work &work, uint32_t block_shift)
{
    uint32_t pending = 0;
    uint64_t pieces = wgmma_look_up(a, group, work, block_shift, work.tile, HD * 2), next = pieces;
    for (uint32_t i = 0; i < 2 * (work.tile_end - work.tile); i++) { /* K, V, K, V ... */
        uint32_t buffer = i / 2 % BUFFERS, use = i / 2 / BUFFERS;
        uint32_t full = shared_address(i % 2 ? &shared.v_full[buffer] : &shared.k_full[buffer]);
        uint32_t empty = shared_address(i % 2 ? &shared.v_empty[buffer] : &shared.k_empty[buffer]);
        if (use && !barrier_test(empty, (use - 1) & 1)) {
            if (pending) {
                copy_async_wait<0>();
                proxy_fence();
                barrier_arrive(pending);
                pending = 0;
            }
            barrier_wait(empty, (use - 1) & 1);
        }
        uint32_t tile = work.tile + i / 2;
        if (i % 2) {
            wgmma_fetch<HD>(work, pieces + (a.kv.v - a.kv.k), tile,
                            shared_address(&shared.v[buffer]));
            pieces = next;
        } else {
            wgmma_fetch<HD>(work, pieces, tile, shared_address(&shared.k[buffer]));
            if (tile + 1 < work.tile_end)
                next = wgmma_look_up(a, group, work, block_shift, tile + 1, HD * 2);
        }
        if (pending) {
            copy_async_wait<1>();
            proxy_fence();
            barrier_arrive(pending);
        }
        pending = full;
    }
    copy_async_wait<0>();
    proxy_fence();
    barrier_arrive(pending);
}

/* The third group, of e4m3: what it loads for a part is under way while it waits for the buffer. */
template <int HD>
__device__ static void wgmma_produce_eight(const struct attention_args &a,
                                           const struct batch_group &group,
                                           wgmma_shared<HD> &shared, const wgmma_work &work,
                                           uint32_t block_shift)
{
    const int units = HD / 16, at_once = GROUP_THREADS / units, loads = KEYS / at_once;
    uint32_t unit = threadIdx.x % units, first_row = threadIdx.x % GROUP_THREADS / units;
    uint64_t pieces = 0;
    for (uint32_t i = 0; i < 2 * (work.tile_end - work.tile); i++) { /* K, V, K, V ... */
        uint32_t buffer = i / 2 % BUFFERS, use = i / 2 / BUFFERS, tile = work.tile + i / 2;
        uint32_t full = shared_address(i % 2 ? &shared.v_full[buffer] : &shared.k_full[buffer]);
        uint32_t empty = shared_address(i % 2 ? &shared.v_empty[buffer] : &shared.k_empty[buffer]);
        uint32_t to = i % 2 ? shared_address(&shared.v[buffer]) : shared_address(&shared.k[buffer]);
        if (i % 2 == 0)
            pieces = wgmma_look_up(a, group, work, block_shift, tile, HD + sizeof(float));
        uint64_t offset = i % 2 ? a.kv.v - a.kv.k : 0;
        uint4 from[loads];
        float scale[loads];
#pragma unroll
        for (int j = 0; j < loads; j++) {
            uint32_t row = j * at_once + first_row, position = tile * KEYS + row;
            const char *piece = reinterpret_cast<const char *>(
                __shfl_sync(FULL_MASK, pieces, row / PIECE) + offset);
            bool valid = position >= work.first && position <= work.last;
            from[j] = make_uint4(0, 0, 0, 0);
            scale[j] = 0;
            if (valid) {
                from[j] = *reinterpret_cast<const uint4 *>(piece + row % PIECE * HD + unit * 16);
                scale[j] = reinterpret_cast<const float *>(piece + PIECE * HD)[row % PIECE];
            }
        }
        if (use)
            barrier_wait(empty, (use - 1) & 1);
        uint32_t half = to + unit / 4 * (KEYS * 128), place = unit % 4 * 2;
#pragma unroll
        for (int j = 0; j < loads; j++) {
            uint32_t row = j * at_once + first_row;
            store_shared(half + swizzled(row, place),
                         eight_widen(make_uint2(from[j].x, from[j].y), scale[j]));
            store_shared(half + swizzled(row, place + 1),
                         eight_widen(make_uint2(from[j].z, from[j].w), scale[j]));
        }
        proxy_fence();
        barrier_arrive(full);
    }
}

/* This group's queries into shared memory; those that do not exist as zeros. */
template <int HD>
__device__ __forceinline__ void wgmma_load_q(const struct attention_args &a,
                                             wgmma_shared<HD> &shared, const wgmma_work &work,
                                             uint32_t group)
{
    const int units = HD / 8;
    for (int i = threadIdx.x % GROUP_THREADS; i < GROUP_QUERIES * units; i += GROUP_THREADS) {
        uint32_t row = i / units, unit = i % units, query = group * GROUP_QUERIES + row;
        size_t token = work.row.token + work.query + query;
        const half_t *from =
            static_cast<const half_t *>(a.q) + token * a.q_stride + work.head * HD + unit * 8;
        uint4 value =
            query < work.queries ? *reinterpret_cast<const uint4 *>(from) : make_uint4(0, 0, 0, 0);
        char *to = reinterpret_cast<char *>(shared.q[group][unit / 8]) + swizzled(row, unit % 8);
        *reinterpret_cast<uint4 *>(to) = value;
    }
    proxy_fence();
    asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "n"(GROUP_THREADS) : "memory");
}

template <int HD> struct wgmma_state {
    float score[KEYS / 2], out[HD / 2];
    uint32_t weight[KEYS / 4]; /* pairs, as the products want them */
    float most[2], sum[2], keep[2];
};

template <int HD>
__device__ __forceinline__ void wgmma_scores(wgmma_state<HD> &s, uint32_t q, uint32_t k)
{
#pragma unroll
    for (int step = 0; step < HD / 16; step++)
        wgmma_multiply(s.score,
                       wgmma_operand(q + step / 4 * (GROUP_QUERIES * 128) + step % 4 * 32, 16),
                       wgmma_operand(k + step / 4 * (KEYS * 128) + step % 4 * 32, 16), step > 0);
    wgmma_commit();
}

template <int HD>
__device__ __forceinline__ void wgmma_cap(wgmma_state<HD> &s, const score_scale &scale)
{
#pragma unroll
    for (int j = 0; j < KEYS / 2; j++)
        s.score[j] = score_capped(s.score[j], scale);
}

template <int HD> __device__ __forceinline__ void wgmma_values(wgmma_state<HD> &s, uint32_t v)
{
#pragma unroll
    for (int step = 0; step < KEYS / 16; step++) {
        uint64_t b = wgmma_operand(v + step * 16 * 128, KEYS * 128);
        const uint32_t *p = &s.weight[step * 4];
        wgmma_values_step(s.out, p[0], p[1], p[2], p[3], b);
    }
    wgmma_commit();
}

/* Scores become weights; what was summed so far is to be scaled by `keep`. */
template <int HD>
__device__ __forceinline__ void wgmma_softmax(wgmma_state<HD> &s, const wgmma_work &work,
                                              uint32_t window, uint32_t tile, uint32_t query,
                                              float unit)
{
    uint32_t base = tile * KEYS, t = threadIdx.x % 4, position = work.position + query;
    uint32_t lowest = work.position + query / 64 * 64, highest = lowest + GROUP_QUERIES - 1;
    if (base + KEYS - 1 > lowest || (window && base + window <= highest)) {
#pragma unroll
        for (int j = 0; j < KEYS / 2; j++) {
            uint32_t key = base + j / 4 * 8 + 2 * t + j % 2, at = position + j / 2 % 2 * 8;
            if (key > at || (window && key + window <= at))
                s.score[j] = -INFINITY;
        }
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float peak = s.most[half];
#pragma unroll
        for (int j = 0; j < KEYS / 4; j++)
            peak = fmaxf(peak, s.score[j / 2 * 4 + half * 2 + j % 2]);
        peak = fmaxf(peak, __shfl_xor_sync(FULL_MASK, peak, 1));
        peak = fmaxf(peak, __shfl_xor_sync(FULL_MASK, peak, 2));
        float origin = peak == -INFINITY ? 0.0f : __fmul_rn(peak, unit);
        /* Rounded like `origin`: exactly 1 where the maximum stays. */
        s.keep[half] = exp2_fast(__fmul_rn(s.most[half], unit) - origin);
        s.most[half] = peak;
        float sum = 0;
#pragma unroll
        for (int j = 0; j < KEYS / 4; j++) {
            float &score = s.score[j / 2 * 4 + half * 2 + j % 2];
            score = exp2_fast(fmaf(score, unit, -origin));
            sum += score;
        }
        s.sum[half] = fmaf(s.sum[half], s.keep[half], sum);
    }
}

template <int HD> __device__ __forceinline__ void wgmma_pack(wgmma_state<HD> &s)
{
#pragma unroll
    for (int i = 0; i < KEYS / 4; i++)
        s.weight[i] = pack(s.score[2 * i], s.score[2 * i + 1], DTYPE_HALF);
}

template <int HD>
__device__ __forceinline__ void wgmma_store(const wgmma_state<HD> &s,
                                            const struct attention_args &a, const wgmma_work &work,
                                            uint32_t query, float unit)
{
    uint32_t t = threadIdx.x % 4;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float sum = s.sum[half];
        sum += __shfl_xor_sync(FULL_MASK, sum, 1);
        sum += __shfl_xor_sync(FULL_MASK, sum, 2);
        if (query + half * 8 >= work.queries)
            continue;
        size_t token = work.row.token + work.query + query + half * 8;
        uint32_t *to = reinterpret_cast<uint32_t *>(static_cast<half_t *>(a.out) +
                                                    token * a.out_stride + work.head * HD);
        float kept = attention_sink(a, work.head, __fmul_rn(s.most[half], unit), &sum);
        float scale = kept / sum;
#pragma unroll
        for (int j = 0; j < HD / 8; j++)
            to[j * 4 + t] = pack(s.out[j * 4 + half * 2] * scale,
                                 s.out[j * 4 + half * 2 + 1] * scale, DTYPE_HALF);
    }
}

/* One of the first two groups. */
template <int HD, bool CAP>
__device__ static void wgmma_consume(const struct attention_args &a, uint32_t window,
                                     wgmma_shared<HD> &shared, const wgmma_work &work)
{
    uint32_t group = threadIdx.x / GROUP_THREADS, lane = threadIdx.x % WARP;
    uint32_t query = group * GROUP_QUERIES + threadIdx.x % GROUP_THREADS / WARP * 16 + lane / 4;
    uint32_t q = shared_address(shared.q[group]);
    const score_scale scale = score_scale_of<CAP>(a.scale, a.softcap);
    wgmma_state<HD> s;
    s.most[0] = s.most[1] = -INFINITY;
    s.sum[0] = s.sum[1] = 0;
#pragma unroll
    for (int i = 0; i < HD / 2; i++)
        s.out[i] = 0;
    wgmma_load_q(a, shared, work, group);

    barrier_wait(shared_address(&shared.k_full[0]), 0);
    wgmma_begin();
    wgmma_scores(s, q, shared_address(&shared.k[0]));
    wgmma_wait<0>();
    wgmma_hold(s.score);
    if (lane == 0)
        barrier_arrive(shared_address(&shared.k_empty[0]));
    if (CAP)
        wgmma_cap(s, scale);
    wgmma_softmax(s, work, window, work.tile, query, scale.unit);
    wgmma_pack(s);
    uint32_t count = work.tile_end - work.tile;
    for (uint32_t i = 1; i < count; i++) {
        uint32_t buffer = i % BUFFERS, phase = i / BUFFERS & 1;
        uint32_t before = (i - 1) % BUFFERS, before_phase = (i - 1) / BUFFERS & 1;
        barrier_wait(shared_address(&shared.k_full[buffer]), phase);
        wgmma_hold(s.out);
        wgmma_begin();
        wgmma_scores(s, q, shared_address(&shared.k[buffer]));
        barrier_wait(shared_address(&shared.v_full[before]), before_phase);
        wgmma_values(s, shared_address(&shared.v[before]));
        wgmma_wait<1>();
        wgmma_hold(s.score);
        if (lane == 0)
            barrier_arrive(shared_address(&shared.k_empty[buffer]));
        if (CAP)
            wgmma_cap(s, scale);
        wgmma_softmax(s, work, window, work.tile + i, query, scale.unit);
        wgmma_wait<0>();
        wgmma_hold(s.out);
        if (lane == 0)
            barrier_arrive(shared_address(&shared.v_empty[before]));
#pragma unroll
        for (int j = 0; j < HD / 2; j++)
            s.out[j] *= s.keep[j / 2 % 2];
        wgmma_pack(s);
    }
    barrier_wait(shared_address(&shared.v_full[(count - 1) % BUFFERS]), (count - 1) / BUFFERS & 1);
    wgmma_hold(s.out);
    wgmma_begin();
    wgmma_values(s, shared_address(&shared.v[(count - 1) % BUFFERS]));
    wgmma_wait<0>();
    wgmma_hold(s.out);
    wgmma_store(s, a, work, query, scale.unit);
}

#endif

template <int HD, bool CAP, bool EIGHT>
__global__ void __launch_bounds__(WGMMA_THREADS, 1)
    wgmma_kernel(const __grid_constant__ struct attention_args a, uint32_t block_shift)
{
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
    extern __shared__ __align__(1024) char memory[];
    wgmma_shared<HD> &shared = *reinterpret_cast<wgmma_shared<HD> *>(
        memory + (1024 - shared_address(memory) % 1024) % 1024);
    const struct batch_group &group = a.batch.groups[a.kv.group];
    grid_trigger();
    if (threadIdx.x == 0) {
        for (int i = 0; i < BUFFERS; i++) {
            barrier_init(shared_address(&shared.k_full[i]), GROUP_THREADS);
            barrier_init(shared_address(&shared.v_full[i]), GROUP_THREADS);
            barrier_init(shared_address(&shared.k_empty[i]), CONSUMERS * GROUP_THREADS / WARP);
            barrier_init(shared_address(&shared.v_empty[i]), CONSUMERS * GROUP_THREADS / WARP);
        }
        barrier_init_done();
    }
    grid_wait();
    attention_tile tile = tile_find(a.batch, group, blockIdx.y, QUERIES, false);
    if (!tile.found)
        return;
    wgmma_work work;
    work.row = tile.row;
    work.query = tile.query;
    work.queries = tile.row.q_len - tile.query < QUERIES ? tile.row.q_len - tile.query : QUERIES;
    work.position = tile.row.position + tile.query;
    work.last = work.position + work.queries - 1;
    work.first =
        group.window && work.position >= group.window ? work.position - group.window + 1 : 0;
    work.tile = work.first / KEYS;
    work.tile_end = work.last / KEYS + 1;
    work.head = blockIdx.x;
    work.kv_head = blockIdx.x / (a.heads / a.kv_heads);
    if (threadIdx.x < CONSUMERS * GROUP_THREADS) {
        registers_more<EIGHT ? 216 : 232>();
        wgmma_consume<HD, CAP>(a, group.window, shared, work);
    } else {
        registers_less<EIGHT ? 72 : 40>();
        if constexpr (EIGHT)
            wgmma_produce_eight<HD>(a, group, shared, work, block_shift);
        else
            wgmma_produce<HD>(a, group, shared, work, block_shift);
    }
#endif
}

bool attention_prefill_wgmma_can(const struct attention_args *args)
{
    uint32_t dim = args->head_dim;
    return device_props()->major == 9 && args->dtype == DTYPE_HALF &&
           (args->kv.format == FORMAT_HALF || args->kv.format == FORMAT_E4M3) &&
           ((dim == 64 && args->softcap == 0) || dim == 128) && args->q_stride % 8 == 0 &&
           args->out_stride % 2 == 0 && reinterpret_cast<uintptr_t>(args->q) % 16 == 0 &&
           reinterpret_cast<uintptr_t>(args->out) % 4 == 0;
}

template <int HD, bool CAP, bool EIGHT>
static cudaError_t wgmma_launch_format(const struct attention_args *args, cudaStream_t stream)
{
    static struct device_once once;
    cudaError_t result = device_allow(&once, wgmma_kernel<HD, CAP, EIGHT>, device_props(), 2048);
    if (result != cudaSuccess)
        return result;
    return launch(wgmma_kernel<HD, CAP, EIGHT>,
                  dim3(args->heads, tile_bound(&args->batch, QUERIES, false)), WGMMA_THREADS,
                  sizeof(wgmma_shared<HD>) + 1024, stream, *args,
                  (uint32_t)__builtin_ctz(args->batch.block_tokens));
}

template <int HD, bool CAP>
static cudaError_t wgmma_launch(const struct attention_args *args, cudaStream_t stream)
{
    return args->kv.format == FORMAT_E4M3 ? wgmma_launch_format<HD, CAP, true>(args, stream)
                                          : wgmma_launch_format<HD, CAP, false>(args, stream);
}

cudaError_t attention_prefill_wgmma(const struct attention_args *args, cudaStream_t stream)
{
    if (args->head_dim == 64)
        return wgmma_launch<64, false>(args, stream);
    return args->softcap != 0 ? wgmma_launch<128, true>(args, stream)
                              : wgmma_launch<128, false>(args, stream);
}

} // namespace HALF
