/* Prefill attention with wgmma (sm_90a), for head dimensions 64 and 128; bound by the tensor cores.
 *
 * A block has 64 queries of a row and query head for each group of four warps that attends, two or
 * three; one group more brings queries, and keys and values (attention_prefill_load.cuh): tiles of
 * 128 positions at multiples of 128, each in two buffers. The copy engine brings them, as much of a
 * block of the cache at a time as is next to each other, through a map of all memory, for blocks
 * lie anywhere (memory_map.cuh). What the L2 gives is what bounds heads of 128: there two blocks
 * are a cluster, have two query heads of a KV head, and each brings half of a tile for both. What
 * is kept in e4m3 (EIGHT) comes by bulk copies, and the group makes it 16 bits from shared memory
 * to shared memory (attention_prefill_eight.cuh), for which it has more registers. Blocks stay
 * until no item is left.
 *
 * A group asks for the scores of a tile and for the values of the tile before, and makes weights of
 * the scores once both are there; groups ask in turns, so that one's softmax is another's products.
 * A query's bits depend on its position alone: tiles that it does not see change nothing.
 * But where few items have most of a step's keys, or are fewer than processors, keys are shared out
 * (attention_prefill_spans.cuh), and bits depend on how they are cut.
 * Figures: tests/bench/EXPERIMENTS.md. */
#include "gpu/kernels/attention/attention_prefill_eight.cuh"
#include "gpu/kernels/attention/attention_tuned.cuh"
#include "gpu/kernels/common/device_props.cuh"
#include "gpu/kernels/common/softcap.cuh"
#include "gpu/kernels/common/tensor_map.cuh"
#include "gpu/kernels/common/wgmma.cuh"

template <int HD> constexpr uint32_t WGMMA_THREADS = GROUP_THREADS *(CONSUMERS<HD> + 1);

namespace HALF
{

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

template <int HD> struct wgmma_state {
    float score[KEYS / 2], out[HD / 2];
    uint32_t weight[KEYS / 4]; /* pairs, as the products want them */
    float most[2], sum[2], keep[2];
};

/* The lower word of an operand, of which the compiler is told that it is one for the whole warp: so
 * it stays where products want it. A sixteenth of what the operand's place moves by is added. */
__device__ __forceinline__ uint32_t wgmma_operand_low(uint32_t address, uint32_t lead)
{
    return __shfl_sync(FULL_MASK, (uint32_t)wgmma_operand(address, lead), 0);
}

__device__ __forceinline__ uint64_t wgmma_operand_of(uint32_t low)
{
    return wgmma_operand(0, 0) | low;
}

/* What a thread of a group knows for all items. */
struct wgmma_consumer {
    uint32_t group, lane;
    uint32_t query; /* in the item; and eight behind it */
    uint32_t window;
    score_scale scale;
    ring_cursor at;   /* of keys and values */
    ring_cursor turn; /* of queries */
    uint32_t q, k, v; /* the first buffers, as lower words of operands */
};

template <int HD, bool EIGHT>
__device__ __forceinline__ void
wgmma_scores(wgmma_state<HD> &s, const wgmma_shared<HD, EIGHT> &shared, const wgmma_consumer &c)
{
    uint32_t turn = c.turn.stage;
    uint32_t q = c.q + turn * (uint32_t)(sizeof(shared.q[0]) / 16);
    uint32_t k = c.k + c.at.stage * (uint32_t)(sizeof(shared.k[0]) / 16);
#pragma unroll
    for (int step = 0; step < HD / 16; step++)
        wgmma_multiply(s.score, wgmma_operand_of(q + step / 4 * (GROUP_QUERIES * 8) + step % 4 * 2),
                       wgmma_operand_of(k + step / 4 * (KEYS * 8) + step % 4 * 2), step > 0);
    wgmma_commit();
}

template <int HD>
__device__ __forceinline__ void wgmma_cap(wgmma_state<HD> &s, const score_scale &scale)
{
#pragma unroll
    for (int j = 0; j < KEYS / 2; j++)
        s.score[j] = score_capped(s.score[j], scale);
}

template <int HD, bool EIGHT>
__device__ __forceinline__ void wgmma_values(wgmma_state<HD> &s,
                                             const wgmma_shared<HD, EIGHT> &shared,
                                             const wgmma_consumer &c, uint32_t stage)
{
    uint32_t v = c.v + stage * (uint32_t)(sizeof(shared.v[0]) / 16);
#pragma unroll
    for (int step = 0; step < KEYS / 16; step++) {
        const uint32_t *p = &s.weight[step * 4];
        wgmma_values_step(s.out, p[0], p[1], p[2], p[3], wgmma_operand_of(v + step * 16 * 8));
    }
    wgmma_commit();
}

/* Positions of a thread's two queries, and of its group's. */
template <bool PACKED> struct wgmma_seen {
    const wgmma_work &work;
    uint32_t query;

    __device__ __forceinline__ wgmma_seen(const struct attention_args &, const wgmma_work &of,
                                          uint32_t first)
        : work(of), query(first)
    {
    }
    __device__ __forceinline__ uint32_t at(int half) const
    {
        return work.position + query + half * 8;
    }
    __device__ __forceinline__ uint32_t lowest() const
    {
        return work.position + query / 64 * 64;
    }
    __device__ __forceinline__ uint32_t highest() const
    {
        return lowest() + GROUP_QUERIES - 1;
    }
};

template <> struct wgmma_seen<true> {
    uint32_t of[2], ends[2];

    __device__ __forceinline__ wgmma_seen(const struct attention_args &a, const wgmma_work &work,
                                          uint32_t query)
    {
        uint32_t group = query / GROUP_QUERIES * GROUP_QUERIES;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            of[i] = work.position + wgmma_query_of<true>(a, work, query + i * 8).token;
            ends[i] = work.position +
                      wgmma_query_of<true>(a, work, group + i * (GROUP_QUERIES - 1)).token;
        }
    }
    __device__ __forceinline__ uint32_t at(int half) const
    {
        return of[half];
    }
    __device__ __forceinline__ uint32_t lowest() const
    {
        return ends[0];
    }
    __device__ __forceinline__ uint32_t highest() const
    {
        return ends[1];
    }
};

/* Scores become weights; what was summed so far is to be scaled by `keep`. */
template <int HD, bool PACKED>
__device__ __forceinline__ void wgmma_softmax(wgmma_state<HD> &s, const wgmma_seen<PACKED> &seen,
                                              uint32_t window, uint32_t tile, float unit)
{
    uint32_t base = tile * KEYS, t = threadIdx.x % 4, position[2] = {seen.at(0), seen.at(1)};
    uint32_t lowest = seen.lowest(), highest = seen.highest();
    if (base + KEYS - 1 > lowest || (window && base + window <= highest)) {
#pragma unroll
        for (int j = 0; j < KEYS / 2; j++) {
            uint32_t key = base + j / 4 * 8 + 2 * t + j % 2, at = position[j / 2 % 2];
            if (key > at || (window && key + window <= at))
                s.score[j] = -INFINITY;
        }
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float part[4] = {s.most[half], -INFINITY, -INFINITY, -INFINITY};
#pragma unroll
        for (int j = 0; j < KEYS / 4; j++)
            part[j % 4] = fmaxf(part[j % 4], s.score[j / 2 * 4 + half * 2 + j % 2]);
        float peak = fmaxf(fmaxf(part[0], part[1]), fmaxf(part[2], part[3]));
        peak = fmaxf(peak, __shfl_xor_sync(FULL_MASK, peak, 1));
        peak = fmaxf(peak, __shfl_xor_sync(FULL_MASK, peak, 2));
        float origin = peak == -INFINITY ? 0.0f : __fmul_rn(peak, unit);
        /* Rounded like `origin`: exactly 1 where the maximum stays. */
        s.keep[half] = exp2_fast(__fmul_rn(s.most[half], unit) - origin);
        s.most[half] = peak;
        float sum[2] = {0, 0};
#pragma unroll
        for (int j = 0; j < KEYS / 4; j++) {
            float &score = s.score[j / 2 * 4 + half * 2 + j % 2];
            score = exp2_fast(fmaf(score, unit, -origin));
            sum[j % 2] += score;
        }
        s.sum[half] = fmaf(s.sum[half], s.keep[half], sum[0] + sum[1]);
    }
}

template <int HD> __device__ __forceinline__ void wgmma_pack(wgmma_state<HD> &s)
{
#pragma unroll
    for (int i = 0; i < KEYS / 4; i++)
        s.weight[i] = pack(s.score[2 * i], s.score[2 * i + 1], DTYPE_HALF);
}

/* What a span of an item's keys gives a query. */
template <int HD>
__device__ __forceinline__ void wgmma_record(const wgmma_state<HD> &s, const prefill_spans &spans,
                                             size_t record, int half, float most, float sum)
{
    uint32_t t = threadIdx.x % 4;
    if (t == 0)
        spans.stat[record] = make_float2(most, sum);
    float2 *to = reinterpret_cast<float2 *>(spans.out + record * HD);
#pragma unroll
    for (int j = 0; j < HD / 8; j++)
        to[j * 4 + t] = make_float2(s.out[j * 4 + half * 2], s.out[j * 4 + half * 2 + 1]);
}

template <int HD, bool PACKED>
__device__ __forceinline__ void
wgmma_store(const wgmma_state<HD> &s, const struct attention_args &a, const prefill_spans &spans,
            const wgmma_work &work, uint32_t query, float unit)
{
    uint32_t t = threadIdx.x % 4;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float sum = s.sum[half];
        sum += __shfl_xor_sync(FULL_MASK, sum, 1);
        sum += __shfl_xor_sync(FULL_MASK, sum, 2);
        if (query + half * 8 >= work.queries)
            continue;
        if (PACKED && work.record != SPAN_WHOLE) {
            size_t record = (size_t)work.record * QUERIES<HD> + query + half * 8;
            wgmma_record(s, spans, record, half, __fmul_rn(s.most[half], unit), sum);
            continue;
        }
        wgmma_query at = wgmma_query_of<PACKED>(a, work, query + half * 8);
        size_t token = work.token + at.token;
        uint32_t *to = reinterpret_cast<uint32_t *>(static_cast<half_t *>(a.out) +
                                                    token * a.out_stride + at.head * HD);
        float kept = attention_sink(a, at.head, __fmul_rn(s.most[half], unit), &sum);
        float scale = kept / sum;
#pragma unroll
        for (int j = 0; j < HD / 8; j++)
            to[j * 4 + t] = pack(s.out[j * 4 + half * 2] * scale,
                                 s.out[j * 4 + half * 2 + 1] * scale, DTYPE_HALF);
    }
}

/* A warp has read a stage, which all blocks of the cluster are told. */
template <uint32_t BLOCKS>
__device__ __forceinline__ void wgmma_give_back(const wgmma_consumer &c, uint64_t *empty,
                                                const ring_cursor &at)
{
    uint32_t barrier = ring_barrier(shared_address(empty), at);
    if (BLOCKS == 1 && c.lane == 0)
        barrier_arrive(barrier);
    if (BLOCKS > 1 && c.lane < BLOCKS)
        cluster_arrive_read(cluster_address(barrier, c.lane));
}

/* The first tile's scores, without values to add up. */
template <int HD, bool CAP, bool EIGHT, bool PACKED, uint32_t BLOCKS>
__device__ __forceinline__ void wgmma_first(wgmma_state<HD> &s, wgmma_shared<HD, EIGHT> &shared,
                                            const wgmma_consumer &c, const wgmma_seen<PACKED> &seen,
                                            uint32_t tile)
{
    ring_wait_full(shared_address(shared.k_ring.full), c.at);
    wgmma_begin();
    wgmma_scores(s, shared, c);
    wgmma_wait<0>();
    wgmma_hold(s.score);
    wgmma_give_back<BLOCKS>(c, shared.k_ring.empty, c.at);
    if (CAP)
        wgmma_cap(s, c.scale);
    wgmma_softmax(s, seen, c.window, tile, c.scale.unit);
    wgmma_pack(s);
}

/* A further tile's scores, and the values of the one before. */
template <int HD, bool CAP, bool EIGHT, bool PACKED, uint32_t BLOCKS>
__device__ __forceinline__ void wgmma_next(wgmma_state<HD> &s, wgmma_shared<HD, EIGHT> &shared,
                                           wgmma_consumer &c, const wgmma_seen<PACKED> &seen,
                                           uint32_t tile)
{
    ring_cursor before = c.at;
    ring_next(c.at, STAGES);
    ring_wait_full(shared_address(shared.k_ring.full), c.at);
    named_sync(BARRIER_TURN + c.group, 2 * GROUP_THREADS);
    wgmma_hold(s.out);
    wgmma_begin();
    wgmma_scores(s, shared, c);
    ring_wait_full(shared_address(shared.v_ring.full), before);
    wgmma_begin();
    wgmma_values(s, shared, c, before.stage);
    named_arrive(BARRIER_TURN + (c.group + 1 < CONSUMERS<HD> ? c.group + 1 : 0), 2 * GROUP_THREADS);
    wgmma_wait<1>();
    wgmma_hold(s.score);
    wgmma_give_back<BLOCKS>(c, shared.k_ring.empty, c.at);
    if (CAP)
        wgmma_cap(s, c.scale);
    wgmma_softmax(s, seen, c.window, tile, c.scale.unit);
    wgmma_wait<0>();
    wgmma_hold(s.out);
    wgmma_give_back<BLOCKS>(c, shared.v_ring.empty, before);
#pragma unroll
    for (int j = 0; j < HD / 2; j++)
        s.out[j] *= s.keep[j / 2 % 2];
    wgmma_pack(s);
}

/* The last tile's values. */
template <int HD, bool EIGHT, uint32_t BLOCKS>
__device__ __forceinline__ void wgmma_last(wgmma_state<HD> &s, wgmma_shared<HD, EIGHT> &shared,
                                           wgmma_consumer &c)
{
    if (c.lane == 0)
        ring_give_back(shared_address(shared.q_ring.empty), c.turn);
    ring_wait_full(shared_address(shared.v_ring.full), c.at);
    wgmma_hold(s.out);
    wgmma_begin();
    wgmma_values(s, shared, c, c.at.stage);
    wgmma_wait<0>();
    wgmma_hold(s.out);
    wgmma_give_back<BLOCKS>(c, shared.v_ring.empty, c.at);
    ring_next(c.at, STAGES);
}

/* One of the groups that attend. They take turns from the first to the last; the last gives the
 * first its turn before it has had one, and the first waits for the last at the end. */
template <int HD, bool CAP, bool EIGHT, bool PACKED, uint32_t BLOCKS>
__device__ static void wgmma_consume(const struct attention_args &a, uint32_t window,
                                     const prefill_spans &spans, wgmma_shared<HD, EIGHT> &shared)
{
    wgmma_consumer c;
    c.group = threadIdx.x / GROUP_THREADS;
    c.lane = threadIdx.x % WARP;
    c.query = c.group * GROUP_QUERIES + threadIdx.x % GROUP_THREADS / WARP * 16 + c.lane / 4;
    c.window = window;
    c.scale = score_scale_of<CAP>(a.scale, a.softcap);
    c.at = c.turn = {0, 0};
    c.q = wgmma_operand_low(shared_address(shared.q[0][c.group]), 16);
    c.k = wgmma_operand_low(shared_address(&shared.k[0]), 16);
    c.v = wgmma_operand_low(shared_address(&shared.v[0]), KEYS * 128);
    if (c.group + 1 == CONSUMERS<HD>)
        named_arrive(BARRIER_TURN, 2 * GROUP_THREADS);
    for (;; ring_next(c.turn, Q_STAGES)) {
        ring_wait_full(shared_address(shared.q_ring.full), c.turn);
        const wgmma_work work = shared.work[c.turn.stage];
        if (work.queries == 0)
            break;
        wgmma_state<HD> s;
        s.most[0] = s.most[1] = -INFINITY;
        s.sum[0] = s.sum[1] = 0;
#pragma unroll
        for (int i = 0; i < HD / 2; i++)
            s.out[i] = 0;
        const wgmma_seen<PACKED> seen(a, work, c.query);
        wgmma_first<HD, CAP, EIGHT, PACKED, BLOCKS>(s, shared, c, seen, work.tile);
        for (uint32_t tile = work.tile + 1; tile < work.tile_end; tile++)
            wgmma_next<HD, CAP, EIGHT, PACKED, BLOCKS>(s, shared, c, seen, tile);
        wgmma_last<HD, EIGHT, BLOCKS>(s, shared, c);
        wgmma_store<HD, PACKED>(s, a, spans, work, c.query, c.scale.unit);
    }
    if (c.group == 0)
        named_sync(BARRIER_TURN, 2 * GROUP_THREADS);
}

#endif

/* What stands behind spans reads the batch before its wait, and may not start before ours is over.
 */
template <int HD, bool CAP, bool EIGHT, bool PACKED, uint32_t BLOCKS>
__global__ void __launch_bounds__(WGMMA_THREADS<HD>, 1)
    wgmma_kernel(const __grid_constant__ struct attention_args a, uint32_t block_shift,
                 const __grid_constant__ prefill_spans spans,
                 const __grid_constant__ wgmma_memory kept)
{
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
    extern __shared__ __align__(1024) char memory[];
    wgmma_shared<HD, EIGHT> &shared = *reinterpret_cast<wgmma_shared<HD, EIGHT> *>(
        memory + (1024 - shared_address(memory) % 1024) % 1024);
    const struct batch_group &group = a.batch.groups[a.kv.group];
    if (!PACKED)
        grid_trigger();
    if (threadIdx.x == 0) {
        const uint32_t warps = CONSUMERS<HD> * GROUP_THREADS / WARP;
        ring_init(shared_address(shared.k_ring.full), STAGES, EIGHT ? GROUP_THREADS : 1);
        ring_init(shared_address(shared.v_ring.full), STAGES, EIGHT ? GROUP_THREADS : 1);
        ring_init(shared_address(shared.k_ring.empty), STAGES, warps * BLOCKS);
        ring_init(shared_address(shared.v_ring.empty), STAGES, warps * BLOCKS);
        ring_init(shared_address(shared.q_ring.full), Q_STAGES, Q_THREADS<EIGHT>);
        ring_init(shared_address(shared.q_ring.empty), Q_STAGES, warps);
        ring_init(shared_address(&shared.cut), 1, 1);
        ring_init(shared_address(shared.number_full), NUMBERS, 1);
        if constexpr (EIGHT)
            ring_init(shared_address(shared.kept.full), sizeof(shared.kept.full) / 8, 1);
        barrier_init_done();
    }
    if (BLOCKS > 1)
        cluster_sync();
    else
        __syncthreads();
    grid_wait();
    if (PACKED)
        grid_trigger();
    if (threadIdx.x < CONSUMERS<HD> * GROUP_THREADS) {
        registers_more<CONSUMERS<HD> == 3 ? 160 : EIGHT ? 216 : 224>();
        wgmma_consume<HD, CAP, EIGHT, PACKED, BLOCKS>(a, group.window, spans, shared);
    } else {
        registers_less<CONSUMERS<HD> == 3 ? 32 : EIGHT ? 72 : 56>();
        if constexpr (EIGHT)
            wgmma_load_eight<HD, PACKED>(a, group, spans, shared, block_shift);
        else
            wgmma_load<HD, PACKED, BLOCKS>(a, group, spans, kept, shared, block_shift);
    }
    __syncwarp();
    if (BLOCKS > 1)
        cluster_sync(); /* nobody's memory goes while the other one may write or tell there */
#endif
}

/* Rows of a head stand at multiples of their size, where slabs do. */
static bool wgmma_rows_aligned(const struct attention_args *args)
{
    uint64_t row = args->head_dim * 2;
    return args->kv.format == FORMAT_E4M3 ||
           (args->batch.groups[args->kv.group].block_bytes | args->kv.k | args->kv.v) % row == 0;
}

bool attention_prefill_wgmma_can(const struct attention_args *args)
{
    uint32_t dim = args->head_dim;
    return device_props()->major == 9 && args->dtype == DTYPE_HALF &&
           (args->kv.format == FORMAT_HALF || args->kv.format == FORMAT_E4M3) &&
           ((dim == 64 && args->softcap == 0) || dim == 128) && args->q_stride % 8 == 0 &&
           tensor_map_can() && wgmma_rows_aligned(args) && args->out_stride % 2 == 0 &&
           reinterpret_cast<uintptr_t>(args->q) % 16 == 0 &&
           reinterpret_cast<uintptr_t>(args->out) % 4 == 0;
}

/* What the step's bounds say, with the window of this layer. */
template <int HD> static spans_step wgmma_step(const struct attention_args *args, bool packed)
{
    uint32_t per = packed ? args->heads / args->kv_heads : 1;
    spans_step step =
        spans_step_of(&args->batch, packed ? args->kv_heads : args->heads, per, QUERIES<HD>);
    uint64_t window = args->batch.groups[args->kv.group].window;
    uint64_t seen = (window + QUERIES<HD>) / KEYS + 2;
    if (window && seen < step.tiles)
        step.tiles = (uint32_t)seen;
    if (step.total > (uint64_t)step.items * step.tiles)
        step.total = (uint64_t)step.items * step.tiles;
    return step;
}

template <int HD>
static prefill_spans wgmma_spans(const struct attention_args *args, const spans_step &step)
{
    prefill_spans spans = {SPAN_WHOLE, NULL, NULL, NULL};
    size_t header = spans_header_bytes(args->batch.tokens_max);
    bool fits = args->heads / args->kv_heads <= QUERIES<HD>; /* a tile has a token of its own */
    if (!args->scratch || args->scratch_bytes < header || !fits)
        return spans;
    size_t room = (args->scratch_bytes - header) / spans_record_bytes(HD);
    spans.tiles = spans_choose(step, room, device_props()->processors);
    if (spans.tiles == SPAN_WHOLE)
        return spans;
    char *base = static_cast<char *>(args->scratch);
    size_t stats = spans_units(step, spans.tiles) * QUERIES<HD> * sizeof(float2);
    spans.tile_unit = reinterpret_cast<uint32_t *>(base);
    spans.stat = reinterpret_cast<float2 *>(base + header);
    spans.out = reinterpret_cast<float *>(base + header + stats);
    return spans;
}

/* Boxes of as many rows as are next to each other everywhere; two blocks bring some each. */
template <int HD>
static cudaError_t wgmma_memory_of(const struct attention_args *args, uint32_t blocks,
                                   wgmma_memory *out)
{
    const uint32_t most = KEYS / blocks, rows = args->batch.block_tokens;
    out->rows = rows < most ? rows : most;
    return args->kv.format == FORMAT_E4M3 ? cudaSuccess
                                          : tensor_map_memory(&out->map, DTYPE_HALF, HD, out->rows);
}

template <int HD, bool CAP, bool EIGHT, bool PACKED, uint32_t BLOCKS>
static cudaError_t wgmma_launch_items(const struct attention_args *args, const prefill_spans &spans,
                                      uint32_t items, cudaStream_t stream)
{
    static_assert(sizeof(wgmma_shared<HD, EIGHT>) + 1024 <= 227 << 10, "of one block");
    const auto kernel = wgmma_kernel<HD, CAP, EIGHT, PACKED, BLOCKS>;
    const uint32_t room = device_clusters(device_props(), BLOCKS), shift = args->batch.block_tokens;
    static struct device_once once;
    wgmma_memory memory;
    cudaError_t result = device_allow(&once, kernel, device_props());
    if (result == cudaSuccess)
        result = wgmma_memory_of<HD>(args, BLOCKS, &memory);
    if (result != cudaSuccess || !items)
        return result;
    cudaLaunchAttribute attributes[2];
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((items < room ? items : room) * BLOCKS);
    config.blockDim = dim3(WGMMA_THREADS<HD>);
    config.dynamicSmemBytes = sizeof(wgmma_shared<HD, EIGHT>) + 1024;
    config.stream = stream;
    config.attrs = attributes;
    attributes[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[config.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
    if (BLOCKS > 1) {
        attributes[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
        attributes[config.numAttrs++].val.clusterDim = {BLOCKS, 1, 1};
    }
    return cudaLaunchKernelEx(&config, kernel, *args, (uint32_t)__builtin_ctz(shift), spans,
                              memory);
}

/* Packed where that is a fifth fewer turns of the processors, or where spans are cut. */
template <int HD, bool CAP, bool EIGHT>
static cudaError_t wgmma_launch_format(const struct attention_args *args, cudaStream_t stream)
{
    if (!args->batch.next_item)
        return cudaErrorInvalidValue;
    const spans_step step = wgmma_step<HD>(args, false), packed = wgmma_step<HD>(args, true);
    const uint32_t processors = device_props()->processors;
    prefill_spans spans = wgmma_spans<HD>(args, packed);
    if (spans.tiles != SPAN_WHOLE) {
        uint32_t units = (uint32_t)spans_units(packed, spans.tiles);
        cudaError_t result =
            wgmma_launch_items<HD, CAP, EIGHT, true, 1>(args, spans, units, stream);
        return result == cudaSuccess ? attention_prefill_combine(args, &spans, stream) : result;
    }
    if (ceil_div(packed.items, processors) * 5 <= ceil_div(step.items, processors) * 4)
        return wgmma_launch_items<HD, CAP, EIGHT, true, 1>(args, spans, packed.items, stream);
    if constexpr (HD == 128 && !EIGHT) {
        if (args->heads / args->kv_heads % 2 == 0)
            return wgmma_launch_items<HD, CAP, EIGHT, false, 2>(args, spans, step.items / 2,
                                                                stream);
    }
    return wgmma_launch_items<HD, CAP, EIGHT, false, 1>(args, spans, step.items, stream);
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
