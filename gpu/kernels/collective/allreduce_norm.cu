/* A block per row. It puts its own part into all other ranks' inboxes, then waits for theirs: one
 * way over the link, without flags, a meeting or a second kernel. All rows of a block are put
 * before one is waited for, and there are no more blocks than SMs: so a block that waits keeps none
 * from putting. The kernel behind starts early and fetches its weights in the meantime. */
#include "gpu/kernels/common/device_props.cuh"
#include "gpu/kernels/collective/inbox.cuh"
#include "gpu/kernels/norm/norm.cuh"
#include "gpu/kernels/collective/allreduce_norm.h"

/* Eight values as they travel: a chunk of 16 bytes, or two of float32. */
template <bool WIDE> struct parcel {
    uint4 chunk[WIDE + 1];
};

template <bool WIDE>
__device__ __forceinline__ float8 widen(const uint4 (&p)[WIDE + 1], enum dtype dtype)
{
    if (WIDE) {
        uint4 a = p[0], b = p[WIDE];
        return {{__uint_as_float(a.x), __uint_as_float(a.y), __uint_as_float(a.z),
                 __uint_as_float(a.w), __uint_as_float(b.x), __uint_as_float(b.y),
                 __uint_as_float(b.z), __uint_as_float(b.w)}};
    }
    float2 a = unpack(p[0].x, dtype), b = unpack(p[0].y, dtype);
    float2 c = unpack(p[0].z, dtype), d = unpack(p[0].w, dtype);
    return {{a.x, a.y, b.x, b.y, c.x, c.y, d.x, d.y}};
}

/* Values i .. i + 7 of this rank's part of a row. */
template <bool WIDE>
__device__ __forceinline__ parcel<WIDE> own_part(const struct norm_args &a, uint32_t row,
                                                 uint32_t i)
{
    const char *at = static_cast<const char *>(a.delta) +
                     ((size_t)row * a.delta_stride + i) * (WIDE ? 4 : 2);
    parcel<WIDE> out;
#pragma unroll
    for (int c = 0; c <= WIDE; c++)
        out.chunk[c] = inbox_full(reinterpret_cast<const uint4 *>(at)[c]);
    return out;
}

template <bool WIDE>
__device__ __forceinline__ size_t chunk_index(const struct norm_args &a, uint32_t row, uint32_t i)
{
    return ((size_t)row * a.size + i) / (WIDE ? 4 : 8);
}

template <bool WIDE>
__device__ __forceinline__ void put_row(const struct allreduce_norm_args &args, uint32_t row)
{
    const struct norm_args &a = args.norm;
    for (uint32_t i = threadIdx.x * 8; i < a.size; i += blockDim.x * 8) {
        parcel<WIDE> own = own_part<WIDE>(a, row, i);
#pragma unroll
        for (int c = 0; c <= WIDE; c++)
            inbox_put(args.inboxes, chunk_index<WIDE>(a, row, i) + c, own.chunk[c]);
    }
}

/* Waits for the others' parts beside the own; what is taken is left empty. */
template <int RANKS, bool WIDE>
__device__ __forceinline__ void take(const struct inboxes &inboxes, size_t index,
                                     const parcel<WIDE> &own, uint4 (&part)[RANKS][WIDE + 1])
{
    bool there = false;
    for (uint32_t turn = 1; !there; turn++) {
        there = true;
#pragma unroll
        for (uint32_t i = 0; i < RANKS * (WIDE + 1); i++) {
            uint32_t r = i / (WIDE + 1), c = i % (WIDE + 1);
            uint4 got = own.chunk[c];
            if (r < inboxes.ranks && r != inboxes.rank)
                got = inbox_load(inbox_chunk<uint4>(inboxes, inboxes.rank, r, index + c));
            there = there && inbox_there(got);
            part[r][c] = got;
        }
        if (!there && inbox_let_go(inboxes, turn))
            return;
    }
#pragma unroll
    for (uint32_t i = 0; i < RANKS * (WIDE + 1); i++) {
        uint32_t r = i / (WIDE + 1), c = i % (WIDE + 1);
        if (r < inboxes.ranks && r != inboxes.rank)
            inbox_clear(inbox_chunk<uint4>(inboxes, inboxes.rank, r, index + c));
    }
}

/* Values i .. i + 7 of the sum over all ranks, in their order. */
template <int RANKS, bool WIDE>
__device__ __forceinline__ float8 sum_parts(const struct allreduce_norm_args &args, uint32_t row,
                                            uint32_t i)
{
    const struct norm_args &a = args.norm;
    uint4 part[RANKS][WIDE + 1];
    take<RANKS, WIDE>(args.inboxes, chunk_index<WIDE>(a, row, i), own_part<WIDE>(a, row, i), part);
    float8 sum = widen<WIDE>(part[0], a.delta_dtype);
#pragma unroll
    for (uint32_t r = 1; r < RANKS; r++) {
        if (r < args.inboxes.ranks) {
            float8 add = widen<WIDE>(part[r], a.delta_dtype);
#pragma unroll
            for (int j = 0; j < 8; j++)
                sum.v[j] += add.v[j];
        }
    }
    return sum;
}

/* A row's sums of what is added, which are normed before. */
template <int TURNS>
__device__ __forceinline__ void norm_sums(float8 (&sum)[TURNS], const struct norm_args &a,
                                          float *scratch)
{
    float squares = 0;
#pragma unroll
    for (int turn = 0; turn < TURNS; turn++)
        squares = norm_squares(squares, sum[turn]);
    float scale = norm_scale(block_sum(squares, scratch), a.size, a.delta_eps);
#pragma unroll
    for (int turn = 0; turn < TURNS; turn++) {
        uint32_t i = (turn * blockDim.x + threadIdx.x) * 8;
        float8 weight =
            norm_weights(a.delta_weight, i, a.size, a.weight_dtype, a.delta_offset);
        sum[turn] = norm_scaled_delta(sum[turn], scale, weight, a);
    }
}

template <int TURNS, int RANKS, bool WIDE, bool BEHIND>
__device__ __forceinline__ void take_row(const struct allreduce_norm_args &args, uint32_t row,
                                         float *scratch)
{
    const struct norm_args &a = args.norm;
    size_t residual = (size_t)row * a.residual_stride, out = (size_t)row * a.out_stride;
    float8 value[TURNS], weight[TURNS], sum[TURNS];
    float squares = 0;
    if (BEHIND) {
#pragma unroll
        for (int turn = 0; turn < TURNS; turn++) {
            uint32_t i = (turn * blockDim.x + threadIdx.x) * 8;
            sum[turn] = {};
            if (i < a.size)
                sum[turn] = sum_parts<RANKS, WIDE>(args, row, i);
        }
        norm_sums(sum, a, scratch);
    }
#pragma unroll
    for (int turn = 0; turn < TURNS; turn++) {
        uint32_t i = (turn * blockDim.x + threadIdx.x) * 8;
        if (i >= a.size)
            break;
        value[turn] = load_float8(a.residual, residual + i, residual + a.size, a.residual_dtype);
        weight[turn] = norm_weights(a.out ? a.weight : NULL, i, a.size, a.weight_dtype, a.offset);
        if (!BEHIND)
            sum[turn] = sum_parts<RANKS, WIDE>(args, row, i);
        norm_add(value[turn], sum[turn], a);
        squares = norm_squares(squares, value[turn]);
        store_float8(a.residual, residual + i, residual + a.size, a.residual_dtype, value[turn]);
    }
    if (!a.out)
        return;
    float scale = 1;
    if (!BEHIND || a.form == NORM_SCALED)
        scale = norm_scale(block_sum(squares, scratch), a.size, a.eps);
#pragma unroll
    for (int turn = 0; turn < TURNS; turn++) {
        uint32_t i = (turn * blockDim.x + threadIdx.x) * 8;
        if (i >= a.size)
            break;
        if (!BEHIND || a.form == NORM_SCALED)
            value[turn] = norm_scaled(value[turn], scale, weight[turn]);
        store_float8(a.out, out + i, out + a.size, a.out_dtype, value[turn]);
    }
}

template <int TURNS, int RANKS, bool WIDE, bool BEHIND>
__global__ void __launch_bounds__(NORM_THREADS, 1) reduce_kernel(struct allreduce_norm_args args)
{
    __shared__ float scratch[WARP];
    grid_trigger();
    grid_wait();
    uint32_t rows = range_rows(args.norm.rows);
    for (uint32_t row = blockIdx.x; row < rows; row += gridDim.x)
        put_row<WIDE>(args, row);
    for (uint32_t row = blockIdx.x; row < rows; row += gridDim.x)
        take_row<TURNS, RANKS, WIDE, BEHIND>(args, row, scratch);
}

template <int TURNS, bool WIDE, bool BEHIND>
static cudaError_t reduce_for(const struct allreduce_norm_args *args, cudaStream_t stream)
{
    uint32_t rows = args->norm.rows.max, most = device_props()->processors;
    dim3 grid(rows < most ? rows : most);
    unsigned threads = norm_threads(args->norm.size);
    if (args->inboxes.ranks <= 2)
        return launch(reduce_kernel<TURNS, 2, WIDE, BEHIND>, grid, threads, 0, stream, *args);
    if (args->inboxes.ranks <= 4)
        return launch(reduce_kernel<TURNS, 4, WIDE, BEHIND>, grid, threads, 0, stream, *args);
    return launch(reduce_kernel<TURNS, INBOX_RANKS_MAX, WIDE, BEHIND>, grid, threads, 0, stream,
                  *args);
}

template <bool BEHIND>
static cudaError_t reduce(const struct allreduce_norm_args *args, cudaStream_t stream)
{
    bool wide = args->norm.delta_dtype == DTYPE_F32, twice = args->norm.size > NORM_THREADS * 8;
    if (wide)
        return twice ? reduce_for<2, true, BEHIND>(args, stream)
                     : reduce_for<1, true, BEHIND>(args, stream);
    return twice ? reduce_for<2, false, BEHIND>(args, stream)
                 : reduce_for<1, false, BEHIND>(args, stream);
}

cudaError_t op_allreduce_norm(const struct allreduce_norm_args *args, cudaStream_t stream)
{
    const struct norm_args *a = &args->norm;
    if (allreduce_norm_refused(args) || a->size > ALLREDUCE_SIZE_MAX ||
        args->inboxes.ranks > INBOX_RANKS_MAX ||
        (a->size | a->delta_stride | a->residual_stride | a->out_stride) % ALLREDUCE_STEP)
        return cudaErrorInvalidValue;
    return a->delta_normed ? reduce<true>(args, stream) : reduce<false>(args, stream);
}
