/* Rope, the write of K and V and decode attention in one kernel, on sm_90, for few rows of single
 * tokens: bound by latency.
 *
 * A block per row, KV head and split; its eight warps attend as attend_decode.cu's do, warp w to
 * positions 32 w and on, each of which brings its keys and values itself. All of them but those of
 * the row's own token were there before the step: they are asked for before the kernel waits for
 * the product that gives q, k and v. Then every warp takes the head's queries into registers and
 * turns them there, and the one whose positions the token is among turns its key, and puts key and
 * value into its part of shared memory, and into the cache. */
#include "gpu/kernels/attend_tuned.cuh"
#include "gpu/kernels/attend_warp.cuh"
#include "gpu/kernels/facts.cuh"
#include "gpu/kernels/rope.cuh"
#include "gpu/kernels/rope_attend.cuh"

namespace NARROW
{

#define ROPED_THREADS (DECODE_WARPS * WARP)

template <int HD> struct roped_shared : decode_merged<HD, 1> {
    uint64_t full[DECODE_WARPS][2]; /* keys, values */
    /* then [DECODE_WARPS][keys, values][SPAN][HD], aligned to 128 */
};

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* The item of this block; false: there is none. Nothing is waited for: all was there before. */
__device__ __forceinline__ bool roped_item(const attend_args &a, const struct batch_group &group,
                                           attend_item &item, uint32_t splits_max)
{
    item.index = blockIdx.x / a.kv_heads;
    item.head = blockIdx.x % a.kv_heads;
    item.tile = 0;
    item.row = attend_row_at(a.batch, group, item.index);
    item.split = item.row.split_first + blockIdx.y;
    item.split_end = item.split + 1;
    item.record = item.row.splits > 1 ? item.index * splits_max * a.heads : PLAN_DIRECT;
    return item.index < a.batch.counts->rows && blockIdx.y < item.row.splits;
}

/* Whole warp: asks for the keys and values of its positions. Lane 0 issues for all: racecheck
 * takes every bulk copy of a warp for its first lane's. */
template <int HD>
__device__ __forceinline__ void roped_fetch(const attend_args &a, const struct batch_group &group,
                                            const attend_item &item, uint32_t position,
                                            const bool (&valid)[2], uint32_t block_shift,
                                            uint32_t stage, const uint64_t (&full)[2])
{
    const uint32_t piece = PIECE * HD * 2;
    uint32_t lane = threadIdx.x % WARP, count = valid[0] + valid[1];
    unsigned long long keys = 0;
    if (lane < 2 && (lane ? valid[1] : valid[0]))
        keys = reinterpret_cast<unsigned long long>(attend_place(group, item.row.table, block_shift,
                                                                 position + lane * PIECE, item.head,
                                                                 a.kv.k, HD * 2));
    unsigned long long high = __shfl_sync(FULL_MASK, keys, 1);
    if (lane || !count)
        return;
    bool joined = count == 2 && block_shift > 4; /* next to each other */
#pragma unroll
    for (int part = 0; part < 2; part++) {
        uint32_t barrier = shared_address(&full[part]), to = stage + part * 2 * piece;
        uint64_t offset = part ? a.kv.v - a.kv.k : 0;
        barrier_expect(barrier, count * piece);
        if (valid[0])
            copy_bulk(to, reinterpret_cast<const char *>(keys + offset), joined ? 2 * piece : piece,
                      barrier);
        if (valid[1] && !joined)
            copy_bulk(to + piece, reinterpret_cast<const char *>(high + offset), piece, barrier);
    }
}

__device__ __forceinline__ void roped_angles(float4 (&out)[4], const rope_args &rope,
                                             uint32_t token, uint32_t i)
{
    const float4 *from = reinterpret_cast<const float4 *>(
        rope.angles + ((size_t)token * (rope.head_dim / 2) + i) * 2);
#pragma unroll
    for (int j = 0; j < 4; j++)
        out[j] = from[j];
}

/* Queries of the item, normed and turned: lane (g, t) has of query g chunks 4 j + t of eight
 * dimensions, and so both sides of its pairs. */
template <int HD>
__device__ __forceinline__ void roped_queries(decode_state<HD, 1> &s, const rope_args &rope,
                                              const float4 (&angles)[HD / 64][4],
                                              const narrow *from, bool valid)
{
    const int half = HD / 64; /* chunks of a lane's */
    uint32_t t = threadIdx.x % 4;
    uint4 raw[2 * half];
    rope_pairs x[half];
    float squares = 0;
#pragma unroll
    for (int j = 0; j < 2 * half; j++)
        raw[j] = valid ? *reinterpret_cast<const uint4 *>(from + (4 * j + t) * 8)
                       : make_uint4(0, 0, 0, 0);
#pragma unroll
    for (int j = 0; j < half; j++)
        x[j] = rope_unpack(raw[j], raw[j + half], DTYPE_NARROW);
    if (rope.q_norm) {
#pragma unroll
        for (int j = 0; j < half; j++) {
            float part = rope_squares(x[j]);
            part += __shfl_xor_sync(FULL_MASK, part, 1);
            part += __shfl_xor_sync(FULL_MASK, part, 2);
            squares += part;
        }
        float scale = rope_scale(squares, HD, rope.eps);
#pragma unroll
        for (int j = 0; j < half; j++)
            rope_norm(x[j], scale, rope.q_norm, rope.norm_dtype, (4 * j + t) * 8, HD / 2);
    }
#pragma unroll
    for (int j = 0; j < half; j++)
        rope_turn(x[j], angles[j], s.q[0][j], s.q[0][j + half], DTYPE_NARROW);
}

/* Whole warp: the token's key and value, to the cache and to their place in shared memory, which
 * the copies have left. Lanes below HD / 16 have the key, eight pairs each, the next the value. */
template <int HD>
__device__ __forceinline__ void roped_write(const attend_args &a, const rope_args &rope,
                                            const float4 (&angles)[4], char *stage, char *cache,
                                            const uint4 (&raw)[2])
{
    const uint32_t chunks = HD / 16;
    uint32_t lane = threadIdx.x % WARP, i = lane % chunks * 8;
    bool is_k = lane < chunks;
    uint4 low = raw[0], high = raw[1];
    rope_pairs x = rope_unpack(low, high, DTYPE_NARROW);
    if (rope.k_norm) {
        float squares = rope_squares(x);
#pragma unroll
        for (uint32_t offset = 1; offset < chunks; offset *= 2)
            squares += __shfl_xor_sync(FULL_MASK, squares, offset);
        rope_norm(x, rope_scale(squares, HD, rope.eps), rope.k_norm, rope.norm_dtype, i, HD / 2);
    }
    if (is_k)
        rope_turn(x, angles, low, high, DTYPE_NARROW);
    if (lane >= 2 * chunks)
        return;
    char *places[2] = {stage + (is_k ? 0 : SPAN * HD * 2), cache + (is_k ? 0 : a.kv.v - a.kv.k)};
#pragma unroll
    for (int place = 0; place < 2; place++) {
        *reinterpret_cast<uint4 *>(places[place] + i * 2) = low;
        *reinterpret_cast<uint4 *>(places[place] + (i + HD / 2) * 2) = high;
    }
}

/* Scores, softmax and values of a warp's positions: what it has of the split. */
template <int HD>
__device__ __forceinline__ void roped_attend(decode_state<HD, 1> &s, const attend_args &a,
                                             const attend_item &item, const plan_shape &shape,
                                             uint32_t window, uint32_t position,
                                             const bool (&valid)[2], uint32_t stage)
{
    const uint32_t piece = PIECE * HD * 2;
    float score[2][1][4] = {};
#pragma unroll
    for (int m = 0; m < HD / 16; m++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            s.out[0][m][i] = 0;
#pragma unroll
    for (int c = 0; c < 2; c++)
        if (valid[c])
            decode_scores(s, score[c], a, item, shape, window, position + c * PIECE,
                          stage + c * piece);
        else
            score[c][0][0] = score[c][0][1] = score[c][0][2] = score[c][0][3] = -INFINITY;
    decode_softmax<HD, 1>(s, score);
#pragma unroll
    for (int c = 0; c < 2; c++)
        if (valid[c])
            decode_values(s, score[c], item, position + c * PIECE, stage + (2 + c) * piece);
}

#endif

template <int HD>
__global__ void __launch_bounds__(ROPED_THREADS, 1)
    roped_kernel(const __grid_constant__ struct rope_args rope,
                 const __grid_constant__ struct attend_args a,
                 const __grid_constant__ struct decode_scratch scratch, uint32_t splits_max,
                 uint32_t block_shift)
{
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
    extern __shared__ __align__(128) char memory[];
    roped_shared<HD> &shared = *reinterpret_cast<roped_shared<HD> *>(memory);
    const uint32_t ring = (sizeof(shared) + 127) / 128 * 128, part = SPAN * HD * 2;
    const struct batch_group &group = a.batch.groups[a.kv.group];
    uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, g = lane / 4;
    plan_shape shape = {a.kv_heads, a.heads / a.kv_heads, 8};
    attend_item item;
    grid_trigger();
    bool exists = roped_item(a, group, item, splits_max);
    if (!exists) {
        grid_wait();
        return;
    }
    char *stage = memory + ring + warp * 2 * part;
    uint32_t position = item.split * ATTEND_SPLIT + warp * SPAN, last = item.row.last;
    bool valid[2];
#pragma unroll
    for (int c = 0; c < 2; c++) {
        uint32_t first = position + c * PIECE;
        valid[c] = first <= last && first + PIECE > item.row.first;
    }
    if (lane == 0) {
        barrier_init(shared_address(&shared.full[warp][0]), 1);
        barrier_init(shared_address(&shared.full[warp][1]), 1);
        barrier_init_done();
    }
    __syncwarp();
    roped_fetch<HD>(a, group, item, position, valid, block_shift, shared_address(stage),
                    shared.full[warp]);
    bool any = valid[0] || valid[1], owns = last >= position && last < position + SPAN;
    uint32_t token = item.row.token, chunk = lane % (HD / 16) * 8;
    float4 angles[HD / 64][4], angles_k[4];
    char *cache = NULL;
#pragma unroll
    for (int j = 0; j < HD / 64; j++)
        roped_angles(angles[j], rope, token, (4 * j + lane % 4) * 8);
    if (owns) {
        roped_angles(angles_k, rope, token, chunk);
        cache = const_cast<char *>(
            attend_place(group, item.row.table, block_shift, last, item.head, a.kv.k, HD * 2));
    }
    grid_wait();
    const narrow *qkv = static_cast<const narrow *>(rope.qkv) + (size_t)token * rope.stride;
    uint4 raw[2] = {};
    if (owns) {
        const narrow *from =
            qkv + (a.heads + (lane < HD / 16 ? 0 : a.kv_heads) + item.head) * HD + chunk;
        raw[0] = *reinterpret_cast<const uint4 *>(from);
        raw[1] = *reinterpret_cast<const uint4 *>(from + HD / 2);
    }
    decode_state<HD, 1> s;
    if (any || owns)
        roped_queries(s, rope, angles, qkv + (item.head * shape.group + g) * HD, g < shape.group);
    if (any) {
        barrier_wait(shared_address(&shared.full[warp][0]), 0);
        barrier_wait(shared_address(&shared.full[warp][1]), 0);
    }
    if (owns) {
        roped_write<HD>(a, rope, angles_k, stage + (last - position) * HD * 2, cache, raw);
        __syncwarp();
    }
    roped_attend(s, a, item, shape, group.window, position, valid, shared_address(stage));
    decode_fold<HD, 1> fold;
    decode_merge(fold, s, shared, shape.group, true);
    decode_store(fold, a, scratch, item, shape, shape.group);
    if (scratch.row_record && blockIdx.y == 0 && item.head == 0 && threadIdx.x == 0)
        scratch.row_record[item.index] = item.record;
#endif
}

/* Blocks that the bounds ask for: more than SMs, and splits are better attended in one stream. */
static bool roped_can(const struct rope_args *rope, const struct attend_args *a, uint32_t splits)
{
    const struct batch &batch = a->batch;
    bool single = batch.q_len_max == 1 && batch.decode_len_max == 1;
    bool alike = rope->qkv == a->q && rope->stride == a->q_stride && rope->dtype == a->dtype;
    return single && alike && attend_decode_can(a) && a->head_dim <= 128 &&
           a->heads / a->kv_heads <= 8 && batch.rows_max <= ATTEND_FEW_ROWS &&
           batch.rows_max * a->kv_heads * splits <= device_facts()->processors;
}

template <int HD>
static cudaError_t roped_launch(const struct rope_args *rope, const struct attend_args *args,
                                const struct decode_scratch &scratch, uint32_t splits,
                                cudaStream_t stream)
{
    const struct device_facts *device = device_facts();
    static struct device_once once;
    cudaError_t result = device_allow(&once, roped_kernel<HD>, device);
    if (result != cudaSuccess)
        return result;
    size_t shared = (sizeof(roped_shared<HD>) + 127) / 128 * 128;
    result = launch(roped_kernel<HD>, dim3(args->batch.rows_max * args->kv_heads, splits),
                    ROPED_THREADS, shared + DECODE_WARPS * 2 * SPAN * HD * 2, stream, *rope, *args,
                    scratch, splits, (uint32_t)__builtin_ctz(args->batch.block_tokens));
    return result == cudaSuccess && splits > 1 ? attend_combine(args, &scratch, stream) : result;
}

cudaError_t attend_roped(const struct rope_args *rope, const struct attend_args *attend,
                         bool *ret_done, cudaStream_t stream)
{
    uint32_t splits = ceil_div(attend->batch.context_max, ATTEND_SPLIT);
    struct decode_scratch scratch = attend_decode_scratch(attend);
    bool fits = splits <= 1 || attend->batch.rows_max * splits * attend->heads <= scratch.capacity;
    *ret_done = fits && roped_can(rope, attend, splits);
    if (!*ret_done)
        return cudaSuccess;
    return attend->head_dim == 64 ? roped_launch<64>(rope, attend, scratch, splits, stream)
                                  : roped_launch<128>(rope, attend, scratch, splits, stream);
}

} // namespace NARROW
