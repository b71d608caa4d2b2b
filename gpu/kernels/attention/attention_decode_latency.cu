/* Decode attention on sm_90: rows of few queries, bound by reading keys and values once. Here for
 * steps of few rows, of which there are few items (attention_plan.cuh);
 * attention_decode_throughput.cu is for more.
 *
 * One block per SM, for as long as there are items. Eight warps attend, warp w to
 * positions 32 w and on of a split of 256. Three warps fetch for them: bulk copies of 32 positions
 * of K or V into a warp's own ring, ahead through all items of the block, so that memory never
 * waits for arithmetic; lanes look up two splits at once. A last one brings what
 * else an item is: where it lies, its queries. attention_fetch.cuh has those that bring,
 * attention_math.cuh the arithmetic. Items are dealt evenly, while SMs get unequal shares of the
 * memory. Figures: tests/bench/EXPERIMENTS.md. */
#include "gpu/kernels/attention/attention_decode_throughput.cuh"
#include "gpu/kernels/attention/attention_tuned.cuh"
#include "gpu/kernels/common/device_props.cuh"

namespace HALF
{

struct decode_scratch attention_decode_scratch(const struct attention_args *args)
{
    struct decode_scratch out = {};
    size_t header = header_bytes(args->batch.rows_max);
    size_t record = sizeof(float2) + sizeof(float) * args->head_dim;
    if (!args->scratch || args->scratch_bytes < header + 256 + record)
        return out;
    size_t capacity = (args->scratch_bytes - header - 256) / record;
    out.capacity = capacity < UINT32_MAX / 2 ? (uint32_t)capacity : UINT32_MAX / 2;
    char *base = static_cast<char *>(args->scratch);
    out.row_record = reinterpret_cast<uint32_t *>(base);
    out.stat = reinterpret_cast<float2 *>(base + header);
    size_t stats = ((size_t)out.capacity * sizeof(float2) + 255) / 256 * 256;
    out.out = reinterpret_cast<float *>(base + header + stats);
    return out;
}

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* The warp is done with a stage of its ring, and goes to the next. Every lane says so for itself:
 * that one may speak for all after __syncwarp() is beyond racecheck. */
__device__ __forceinline__ void decode_release(uint32_t empty, uint32_t stages, ring_cursor &at)
{
    reads_before_copy();
    ring_give_back(empty, at);
    ring_next(at, stages);
}

template <int HD, int TILES, bool CAP>
__device__ static void decode_attention(const attention_args &a, const struct batch_group &group,
                                        const decode_scratch &scratch,
                                        decode_shared<HD, TILES> &shared, const plan_shape &shape,
                                        uint32_t ring, uint32_t stages)
{
    const uint32_t part = decode_shared<HD, TILES>::part;
    uint32_t warp = threadIdx.x / WARP;
    uint32_t full = shared_address(shared.barriers[warp].full);
    uint32_t empty = shared_address(shared.barriers[warp].empty);
    ring_cursor at = {0, 0};
    uint32_t total = shared.plan.items[plan_entries(shared.plan)];
    ring += warp * stages * part;
    ring_cursor slot = {0, 0}; /* of the items */
    decode_state<HD, TILES> s;
    decode_fold<HD, TILES> fold;
    const score_scale scale = score_scale_of<CAP>(a.scale, a.softcap);
    for (uint32_t number = blockIdx.x; number < total; number += gridDim.x) {
        items_sync(slot.stage, false);
        ring_wait_full(shared_address(shared.item_full), slot);
        attention_item item = shared.item[slot.stage];
        uint32_t rows = item.row.q_len * shape.group - item.tile * shape.tile_rows;
        if (rows > shape.tile_rows)
            rows = shape.tile_rows;
        decode_load_q(s, shared.q[slot.stage]);
        decode_positions(s, item, shape);
        for (uint32_t split = item.split; split < item.split_end; split++) {
#pragma unroll
            for (int n = 0; n < TILES; n++)
#pragma unroll
                for (int m = 0; m < head_shape<HD>::tiles; m++)
#pragma unroll
                    for (int i = 0; i < 4; i++)
                        s.out[n][m][i] = 0;
            float score[KEY_TILES][4];
            uint32_t position = split * ATTENTION_SPLIT + warp * SPAN;
            bool any = position <= item.row.last && position + SPAN > item.row.first;
            if (any) {
                ring_wait_full(full, at);
                decode_scores<CAP>(s, score, item, group.window, position, ring + at.stage * part,
                                   scale);
                decode_release(empty, stages, at);
            } else {
                decode_fill(score, -INFINITY);
            }
            decode_softmax<HD, TILES>(s, score, scale.unit);
            if (any) {
                ring_wait_full(full, at);
                decode_values(s, score, item, position, ring + at.stage * part);
                decode_release(empty, stages, at);
            }
            decode_merge(fold, s, shared, rows, split == item.split);
        }
        if (number + ITEMS * gridDim.x < total) { /* else nobody waits for it */
            reads_before_copy();
            items_arrive(slot.stage, true);
        }
        ring_next(slot, ITEMS);
        decode_store(fold, a, scratch, item, shape, rows);
    }
}

/* Where the combining kernel finds the records of each row; rows beyond the count have none. */
__device__ static void decode_tell(const attention_args &a, const struct batch_group &group,
                                   const decode_scratch &scratch, const attention_plan &plan,
                                   const plan_shape &shape)
{
    const uint32_t threads = DECODE_WARPS * WARP;
    for (uint32_t i = plan.rows + threadIdx.x; i < a.batch.rows_max; i += threads)
        scratch.row_record[i] = PLAN_DIRECT;
    for (uint32_t entry = threadIdx.x; entry < plan_entries(plan); entry += threads) {
        uint32_t record = plan.records[entry];
        for (uint32_t i = entry * plan.per; i < plan.rows && i < (entry + 1) * plan.per; i++) {
            uint32_t size = plan_row(shape, attention_row_at(a.batch, group, i), plan.whole).y;
            scratch.row_record[i] = size ? record : PLAN_DIRECT;
            record += size;
        }
    }
}

#endif

template <int HD, int TILES, bool CAP>
__global__ void __launch_bounds__(DECODE_THREADS, 1)
    decode_kernel(const __grid_constant__ struct attention_args a,
                  const __grid_constant__ struct decode_scratch scratch, uint32_t stages,
                  uint32_t block_shift)
{
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
    extern __shared__ __align__(128) char memory[];
    decode_shared<HD, TILES> &shared = *reinterpret_cast<decode_shared<HD, TILES> *>(memory);
    uint32_t ring = (shared_address(memory) + sizeof(shared) + 127) / 128 * 128;
    const struct batch_group &group = a.batch.groups[a.kv.group];
    plan_shape shape = {a.kv_heads, a.heads / a.kv_heads, 8 * TILES};
    grid_trigger();
    if (threadIdx.x < DECODE_WARPS) {
        ring_init(shared_address(shared.barriers[threadIdx.x].full), DECODE_STAGES_MAX, 1);
        ring_init(shared_address(shared.barriers[threadIdx.x].empty), DECODE_STAGES_MAX, WARP);
    }
    if (threadIdx.x == 0)
        ring_init(shared_address(shared.item_full), ITEMS, 1);
    barrier_init_done();
    grid_wait();
    plan_count(shared.plan, a.batch, group, shape, false);
    if (shared.plan.records[plan_entries(shared.plan)] > scratch.capacity) {
        __syncthreads();
        plan_count(shared.plan, a.batch, group, shape, true);
    }
    if (threadIdx.x < DECODE_WARPS * WARP) {
        registers_more<224>();
        decode_attention<HD, TILES, CAP>(a, group, scratch, shared, shape, ring, stages);
        if (blockIdx.x == gridDim.x - 1 && scratch.row_record)
            decode_tell(a, group, scratch, shared.plan, shape);
    } else {
        registers_less<56>();
        uint32_t role = threadIdx.x / WARP - DECODE_WARPS;
        if (role < FETCH_WARPS)
            decode_fetch<HD, TILES>(a, group, shared, shape, ring, stages, block_shift, role);
        else
            decode_items<HD, TILES>(a, group, shared, shape);
    }
#endif
}

/* Of few rows there is a thread per dimension, which reads many splits at a time: latency. Of many
 * a warp per query, and registers few enough that blocks stand beside those of the warps' kernel
 * (attention_decode_throughput.cu) and wait there: of 32 rows and 32 heads all of them do. */
template <int HD, bool MANY> struct combine_shape {
    static const int each = MANY ? HD / WARP : 1; /* dimensions of a thread */
    static const int splits = MANY ? 8 : WARP;    /* read at a time */
    static const int threads = MANY ? 4 * WARP : HD;
    static const int heads = threads * each / HD;
};

template <int HD, bool MANY> struct combine_part {
    float out[combine_shape<HD, MANY>::splits][combine_shape<HD, MANY>::each];
    float2 stat; /* lane i: of split i */
};

/* The next splits of a query, of which `count` are left. */
template <int HD, bool MANY>
__device__ __forceinline__ void combine_load(combine_part<HD, MANY> &part,
                                             const decode_scratch &scratch, size_t record,
                                             size_t step, uint32_t count, uint32_t dimension)
{
    typedef combine_shape<HD, MANY> shape;
    uint32_t lane = threadIdx.x % WARP;
    bool mine = lane < shape::splits && lane < count;
    part.stat = mine ? scratch.stat[record + lane * step] : make_float2(-INFINITY, 0);
#pragma unroll
    for (uint32_t i = 0; i < shape::splits; i++) {
        const float *from = &scratch.out[(record + i * step) * HD + dimension];
        float(&to)[shape::each] = part.out[i];
#pragma unroll
        for (int e = 0; e < shape::each; e++)
            to[e] = 0;
        if (i >= count)
            continue;
        if constexpr (shape::each % 2) {
#pragma unroll
            for (int e = 0; e < shape::each; e++)
                to[e] = from[e];
        } else {
#pragma unroll
            for (int e = 0; e < shape::each; e += 2) { /* two loads of two are made one of four */
                float2 two = *reinterpret_cast<const float2 *>(from + e);
                to[e] = two.x;
                to[e + 1] = two.y;
            }
        }
    }
}

/* A query's splits, from the first to the last, by one or more warps, which all find what the
 * splits are scaled by: their lanes do at once, for maxima know no order. The first splits are
 * asked for ahead of the loop, all others at its end: inside of it the compiler would ask for them
 * one after the other. */
template <int HD, bool MANY>
__global__ void __launch_bounds__(combine_shape<HD, MANY>::threads)
    combine_kernel(const __grid_constant__ struct attention_args a,
                   const __grid_constant__ struct decode_scratch scratch)
{
    typedef combine_shape<HD, MANY> shape;
    grid_trigger();
    uint32_t index = blockIdx.x, lane = threadIdx.x % WARP;
    uint32_t head = blockIdx.y * shape::heads + threadIdx.x * shape::each / HD;
    uint32_t dimension = threadIdx.x * shape::each % HD;
    attention_row row = attention_row_at(a.batch, a.batch.groups[a.kv.group], index);
    bool exists =
        index < a.batch.counts->rows && row.q_len <= ATTENTION_DECODE_MAX && head < a.heads;
    grid_wait(); /* what is read above was there before the kernel before started */
    if (!exists)
        return;
    uint32_t base = scratch.row_record[index];
    if (base == PLAN_DIRECT)
        return;
    size_t step = (size_t)row.q_len * a.heads;
    for (uint32_t token = 0; token < row.q_len; token++) {
        float most = -INFINITY, sum = 0, out[shape::each] = {};
        size_t record = base + (size_t)token * a.heads + head;
        uint32_t left = row.splits;
        combine_part<HD, MANY> part;
        combine_load(part, scratch, record, step, left, dimension);
#pragma unroll 1
        for (;;) {
            float above = part.stat.x;
#pragma unroll
            for (int offset = 1; offset < shape::splits; offset *= 2) {
                float other = __shfl_up_sync(FULL_MASK, above, offset);
                above = lane >= offset ? fmaxf(above, other) : above;
            }
            above = fmaxf(above, most);
            float below = __shfl_up_sync(FULL_MASK, above, 1);
            below = lane ? below : most;
            float origin = origin_of(above);
            float old = exp2_fast(below - origin), now = exp2_fast(part.stat.x - origin);
            most = __shfl_sync(FULL_MASK, above, shape::splits - 1);
#pragma unroll
            for (int i = 0; i < shape::splits; i++) {
                float old_i = __shfl_sync(FULL_MASK, old, i),
                      now_i = __shfl_sync(FULL_MASK, now, i);
                sum = fold_value(sum, old_i, __shfl_sync(FULL_MASK, part.stat.y, i), now_i);
#pragma unroll
                for (int e = 0; e < shape::each; e++)
                    out[e] = fold_value(out[e], old_i, part.out[i][e], now_i);
            }
            if (left <= shape::splits)
                break;
            left -= shape::splits;
            record += shape::splits * step;
            combine_load(part, scratch, record, step, left, dimension);
        }
        half_t *to = static_cast<half_t *>(a.out) + (size_t)(row.token + token) * a.out_stride +
                     head * HD + dimension;
        float kept = attention_sink(a, head, most, &sum);
        float inverse = attention_inverse(sum) * kept;
#pragma unroll
        for (int e = 0; e < shape::each; e++)
            to[e] = half_of(out[e] * inverse);
    }
}

template <int HD, bool MANY>
static cudaError_t combine_launch(const struct attention_args *args,
                                  const struct decode_scratch *scratch, cudaStream_t stream)
{
    typedef combine_shape<HD, MANY> shape;
    dim3 grid(args->batch.rows_max, ceil_div(args->heads, shape::heads));
    return launch(combine_kernel<HD, MANY>, grid, shape::threads, 0, stream, *args, *scratch);
}

template <int HD>
static cudaError_t combine_launch_dim(const struct attention_args *args,
                                      const struct decode_scratch *scratch, cudaStream_t stream)
{
    return args->batch.rows_max > ATTENTION_FEW_ROWS
               ? combine_launch<HD, true>(args, scratch, stream)
               : combine_launch<HD, false>(args, scratch, stream);
}

cudaError_t attention_combine(const struct attention_args *args,
                              const struct decode_scratch *scratch, cudaStream_t stream)
{
    if (args->head_dim == 64)
        return combine_launch_dim<64>(args, scratch, stream);
    if (args->head_dim == 96)
        return combine_launch_dim<96>(args, scratch, stream);
    if (args->head_dim == 128)
        return combine_launch_dim<128>(args, scratch, stream);
    return combine_launch_dim<256>(args, scratch, stream);
}

bool attention_decode_latency_can(const struct attention_args *args)
{
    const struct device_props *device = device_props();
    uint32_t dim = args->head_dim;
    return device->major == 9 && args->dtype == DTYPE_HALF && args->kv.format == FORMAT_HALF &&
           (dim == 64 || dim == 96 || dim == 128 || dim == 256) &&
           (args->softcap == 0 || dim > 64) && args->q_stride % 8 == 0 &&
           reinterpret_cast<uintptr_t>(args->q) % 16 == 0;
}

template <int HD, int TILES, bool CAP>
static cudaError_t decode_launch_kind(const struct attention_args *args,
                                      const struct decode_scratch &scratch, cudaStream_t stream)
{
    const struct device_props *device = device_props();
    uint32_t fixed = sizeof(decode_shared<HD, TILES>) + 128, left = device->shared_max - fixed;
    uint32_t stage = DECODE_WARPS * decode_shared<HD, TILES>::part;
    uint32_t stages =
        ring_stages(left < RING_BYTES_MAX ? left : RING_BYTES_MAX, stage, DECODE_STAGES_MAX);
    static struct device_once once;
    cudaError_t result = device_allow(&once, decode_kernel<HD, TILES, CAP>, device);
    if (result != cudaSuccess)
        return result;
    return launch(decode_kernel<HD, TILES, CAP>, dim3(device->processors), DECODE_THREADS,
                  fixed + stage * stages, stream, *args, scratch, stages,
                  (uint32_t)__builtin_ctz(args->batch.block_tokens));
}

template <int HD, int TILES>
static cudaError_t decode_launch(const struct attention_args *args,
                                 const struct decode_scratch &scratch, cudaStream_t stream)
{
    return args->softcap != 0 ? decode_launch_kind<HD, TILES, (HD > 64)>(args, scratch, stream)
                              : decode_launch_kind<HD, TILES, false>(args, scratch, stream);
}

template <int HD>
static cudaError_t decode_launch_dim(const struct attention_args *args, cudaStream_t stream)
{
    const struct batch &batch = args->batch;
    struct decode_scratch scratch = attention_decode_scratch(args);
    size_t record = sizeof(float2) + sizeof(float) * HD;
    bool splits = batch.context_max > ATTENTION_SPLIT;
    bool whole = splits && record_bytes(&batch, args->heads, HD) > scratch.capacity * record;
    bool half_tile = HD > 128 || batch.decode_len_max * (args->heads / args->kv_heads) <= 8;
    cudaError_t result = batch.rows_max > ATTENTION_FEW_ROWS
                             ? attention_warps(args, &scratch, whole, stream)
                         : half_tile ? decode_launch<HD, 1>(args, scratch, stream)
                                     : decode_launch<HD, (HD > 128 ? 1 : 2)>(args, scratch, stream);
    if (result != cudaSuccess || !splits || !scratch.row_record)
        return result;
    return attention_combine(args, &scratch, stream);
}

cudaError_t attention_decode_latency(const struct attention_args *args, cudaStream_t stream)
{
    if (args->head_dim == 64)
        return decode_launch_dim<64>(args, stream);
    if (args->head_dim == 96)
        return decode_launch_dim<96>(args, stream);
    if (args->head_dim == 128)
        return decode_launch_dim<128>(args, stream);
    return decode_launch_dim<256>(args, stream);
}

} // namespace HALF
