/* Routes of what is in 16 bits, by tensor cores: a cluster of blocks has 16 rows, or of many 32,
 * and each of its blocks a part of the experts. A block's warps share k: each has a run of it, of
 * which the first weights are under way before the kernel waits for the one before it. The warps'
 * sums are added in their order, the blocks exchange logits, and each takes for a part of the rows.
 *
 * Up to NORMED_ROWS rows are normed here, by every block of the cluster for itself: a row is short
 * and lies in L2, and a kernel of its own would take longer.
 *
 * Columns stand in lanes as in gemv.cu: which meet is the same for w and x. A row's sums depend
 * neither on its neighbours nor on how many there are. */
#include "gpu/kernels/common/device_props.cuh"
#include "gpu/kernels/common/half.cuh"
#include "gpu/kernels/common/mma.cuh"
#include "gpu/kernels/experts/route.cuh"
#include "gpu/kernels/norm/norm.cuh"

namespace HALF
{

#define ROUTE_WARPS 8
#define ROUTE_THREADS (ROUTE_WARPS * WARP)
#define ROUTE_CLUSTER 8  /* blocks, as many as every device of these lets be a cluster */
#define ROUTE_ROWS 16    /* of a tile */
#define ROUTE_EXPERTS 16 /* at a time: two instructions wide */
#define ROUTE_EACH_MAX ((ROUTE_EXPERTS_MAX / ROUTE_CLUSTER / 8 + 1) * 8)
#define ROUTE_FEW 256 /* rows; of more a cluster has two tiles */
#define NORMED_ROWS 2
#define NORMED_TURNS 4 /* of eight values a thread */
#define NORMED_BYTES (28 * 1024)

struct route_shape {
    uint32_t each; /* experts of a block, a multiple of 8 */
    uint32_t run;  /* k of a warp, a multiple of 32 */
};

template <int TILES> struct __align__(16) route_room
{
    float parts[ROUTE_WARPS][TILES * ROUTE_ROWS][ROUTE_EXPERTS];
    float own[TILES * ROUTE_ROWS][ROUTE_EACH_MAX];
    float logits[TILES * ROUTE_ROWS / ROUTE_CLUSTER][ROUTE_EXPERTS_MAX + 4];
    float sums[WARP];
};

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

__device__ __forceinline__ uint4 route_load(const half_t *from, bool valid)
{
    return valid ? *reinterpret_cast<const uint4 *>(from) : make_uint4(0, 0, 0, 0);
}

/* AHEAD steps of 32 columns, from k on, of 16 experts from `first` on. */
template <int AHEAD>
__device__ __forceinline__ void route_weights(const struct route_args &a, uint32_t first,
                                              uint32_t last, uint32_t k, uint32_t k_end,
                                              uint4 (&w)[AHEAD][2])
{
    uint32_t g = threadIdx.x % WARP / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < AHEAD; i++)
#pragma unroll
        for (int j = 0; j < 2; j++) {
            uint32_t e = first + j * 8 + g, at = k + i * 32 + t * 8;
            w[i][j] = route_load(static_cast<const half_t *>(a.w.data) + (size_t)e * a.w.k + at,
                                 e < last && at < k_end);
        }
}

/* The same columns of TILES tiles of x: `rows` of them are there. */
template <int TILES, int AHEAD>
__device__ __forceinline__ void route_multiply(const half_t *x, uint32_t stride, uint32_t rows,
                                               uint32_t k, uint32_t k_end,
                                               const uint4 (&w)[AHEAD][2], float (&c)[TILES][2][4])
{
    uint32_t g = threadIdx.x % WARP / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < AHEAD; i++)
#pragma unroll
        for (int tile = 0; tile < TILES; tile++) {
            uint32_t row = tile * ROUTE_ROWS + g, at = k + i * 32 + t * 8;
            const half_t *from = x + (size_t)row * stride + at;
            uint4 low = route_load(from, row < rows && at < k_end);
            uint4 high = route_load(from + 8 * (size_t)stride, row + 8 < rows && at < k_end);
#pragma unroll
            for (int j = 0; j < 2; j++) {
                mma_half(c[tile][j], low.x, high.x, low.y, high.y, w[i][j].x, w[i][j].y);
                mma_half(c[tile][j], low.z, high.z, low.w, high.w, w[i][j].z, w[i][j].w);
            }
        }
}

/* The warps' sums, added in their order: a block's logits of 16 experts from `first` on. */
template <int TILES>
__device__ __forceinline__ void route_add(const struct route_args &a, route_room<TILES> &room,
                                          uint32_t begin, uint32_t first,
                                          const float (&c)[TILES][2][4])
{
    uint32_t warp = threadIdx.x / WARP, g = threadIdx.x % WARP / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int tile = 0; tile < TILES; tile++)
#pragma unroll
        for (int j = 0; j < 2; j++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                room.parts[warp][tile * ROUTE_ROWS + g + i / 2 * 8][j * 8 + t * 2 + i % 2] =
                    c[tile][j][i];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < TILES; i++) {
        uint32_t row = i * ROUTE_ROWS + threadIdx.x / ROUTE_EXPERTS;
        uint32_t column = threadIdx.x % ROUTE_EXPERTS, e = first + column;
        float sum = 0.0f;
#pragma unroll
        for (int w = 0; w < ROUTE_WARPS; w++)
            sum += room.parts[w][row][column];
        if (e - begin < ROUTE_EACH_MAX)
            room.own[row][e - begin] = sum + route_added(a, e);
    }
    __syncthreads(); /* parts are written anew for the next experts */
}

/* Whole block: rows of the norm's value into shared memory, and the block's part of them to where
 * others read them. */
__device__ __forceinline__ void route_norm(const struct norm_args &n, uint32_t rows, uint32_t rank,
                                           const float8 (&weight)[NORMED_TURNS], half_t *x,
                                           float *scratch)
{
    for (uint32_t row = 0; row < rows; row++) {
        float8 value[NORMED_TURNS];
        float squares = 0.0f;
#pragma unroll
        for (int turn = 0; turn < NORMED_TURNS; turn++) {
            uint32_t i = (turn * ROUTE_THREADS + threadIdx.x) * 8;
            if (i < n.size)
                value[turn] =
                    load_whole(n.residual, (size_t)row * n.residual_stride + i, n.residual_dtype);
        }
#pragma unroll
        for (int turn = 0; turn < NORMED_TURNS; turn++)
            if ((turn * ROUTE_THREADS + threadIdx.x) * 8 < n.size)
                squares = norm_squares(squares, value[turn]);
        float scale = norm_scale(block_sum(squares, scratch), n.size, n.eps);
#pragma unroll
        for (int turn = 0; turn < NORMED_TURNS; turn++) {
            uint32_t i = (turn * ROUTE_THREADS + threadIdx.x) * 8;
            if (i >= n.size)
                break;
            float8 out = norm_scaled(value[turn], scale, weight[turn]);
            store_whole(x, (size_t)row * n.size + i, DTYPE_HALF, out);
            if (i / 8 % ROUTE_CLUSTER == rank)
                store_whole(n.out, (size_t)row * n.out_stride + i, DTYPE_HALF, out);
        }
    }
    __syncthreads();
}

/* Of the rows that are this block's to take all logits, whichever block has them. */
template <int TILES>
__device__ __forceinline__ void route_gather(const struct route_args &a, route_room<TILES> &room,
                                             uint32_t each, uint32_t first)
{
    constexpr uint32_t TAKES = TILES * ROUTE_ROWS / ROUTE_CLUSTER;
    cluster_sync();
    uint32_t fours = (a.w.n + 3) / 4;
    for (uint32_t i = threadIdx.x; i < TAKES * fours; i += ROUTE_THREADS) {
        uint32_t row = i / fours, e = i % fours * 4, block = e / each;
        uint32_t at = shared_address(&room.own[first + row][e - block * each]);
        float4 four = cluster_load(cluster_address(at, block));
        *reinterpret_cast<float4 *>(&room.logits[row][e]) = four;
    }
    cluster_sync(); /* a block's memory is there until all of the cluster are here */
}

template <int TILES, bool NORMS>
__global__ void __launch_bounds__(ROUTE_THREADS)
    route_tiles_kernel(const __grid_constant__ struct route_args a,
                       const __grid_constant__ struct norm_args n,
                       const __grid_constant__ struct segments_args s, route_shape shape)
{
    constexpr int AHEAD = TILES == 1 ? 8 : 4;
    constexpr uint32_t ROWS = TILES * ROUTE_ROWS, TAKES = ROWS / ROUTE_CLUSTER;
    __shared__ route_room<TILES> room;
    extern __shared__ __align__(16) unsigned char normed[];
    uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, rank = cluster_rank();
    uint32_t begin = rank * shape.each, last = min(begin + shape.each, a.w.n);
    uint32_t k_begin = warp * shape.run, k_end = min(k_begin + shape.run, a.w.k);
    uint32_t row = blockIdx.x / ROUTE_CLUSTER * ROWS;
    uint4 w[AHEAD][2];
    float8 weight[NORMED_TURNS];
    route_weights(a, begin, last, k_begin, k_end, w);
#pragma unroll
    for (int turn = 0; NORMS && turn < NORMED_TURNS; turn++)
        weight[turn] = norm_weights(n.weight, (turn * ROUTE_THREADS + threadIdx.x) * 8, n.size,
                                    n.weight_dtype, n.offset);
    grid_trigger();
    grid_wait();
    uint32_t rows = range_rows(a.rows);
    if (s.segments && rows == 0)
        for (uint32_t e = threadIdx.x; rank == 0 && e <= s.own.count; e += ROUTE_THREADS)
            s.segments[e] = 0;
    if (row >= rows)
        return;
    const half_t *x = static_cast<const half_t *>(a.x) + (size_t)row * a.x_stride;
    uint32_t stride = a.x_stride;
    if (NORMS) {
        half_t *to = reinterpret_cast<half_t *>(normed);
        route_norm(n, rows, rank, weight, to, room.sums);
        x = to;
        stride = n.size;
    }
    for (uint32_t first = begin; first < last; first += ROUTE_EXPERTS) {
        float c[TILES][2][4] = {};
        for (uint32_t k = k_begin; k < k_end; k += AHEAD * 32) {
            if (k != k_begin || first != begin)
                route_weights(a, first, last, k, k_end, w);
            route_multiply<TILES>(x, stride, min(rows - row, ROWS), k, k_end, w, c);
        }
        route_add(a, room, begin, first, c);
    }
    route_gather(a, room, shape.each, rank * TAKES);
    row += rank * TAKES + warp;
    if (warp >= TAKES || row >= rows)
        return;
    uint32_t expert =
        route_take(a, room.logits[warp], a.routes + (size_t)row * (a.top + a.shared), lane);
    if (s.segments)
        route_segments(s, expert, lane);
}

#else

template <int TILES, bool NORMS>
__global__ void route_tiles_kernel(const __grid_constant__ struct route_args a,
                                   const __grid_constant__ struct norm_args n,
                                   const __grid_constant__ struct segments_args s,
                                   route_shape shape)
{
}

#endif

bool route_tiles_can(const struct route_args *args)
{
    return device_props()->major == 9 && args->w.format == FORMAT_HALF &&
           args->x_dtype == DTYPE_HALF && args->w.k % 8 == 0 && args->w.k > 0 &&
           args->x_stride % 8 == 0 && reinterpret_cast<uintptr_t>(args->x) % 16 == 0 &&
           reinterpret_cast<uintptr_t>(args->w.data) % 16 == 0;
}

bool route_tiles_norms(const struct norm_args *norm, const struct route_args *args)
{
    size_t bytes = (size_t)args->rows.max * args->w.k * sizeof(half_t);
    return args->rows.max <= NORMED_ROWS && bytes <= NORMED_BYTES && norm->out == args->x &&
           norm->size == args->w.k && norm->size <= NORMED_TURNS * ROUTE_THREADS * 8 &&
           !norm->delta && norm->form == NORM_SCALED && norm->out_dtype == DTYPE_HALF &&
           norm->out_stride == args->x_stride && norm->residual_stride % 8 == 0 &&
           norm->rows.first == 0 && args->rows.first == 0;
}

template <int TILES, bool NORMS>
static cudaError_t route_launch(const struct norm_args *norm, const struct route_args *args,
                                const struct segments_args *segments, cudaStream_t stream)
{
    struct route_shape shape;
    shape.each = ceil_div(args->w.n, ROUTE_CLUSTER * 8) * 8;
    shape.run = ceil_div(args->w.k, ROUTE_WARPS * 32) * 32;
    cudaLaunchAttribute attributes[2];
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = 1;
    attributes[1].id = cudaLaunchAttributeClusterDimension;
    attributes[1].val.clusterDim.x = ROUTE_CLUSTER;
    attributes[1].val.clusterDim.y = attributes[1].val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(ceil_div(args->rows.max, TILES * ROUTE_ROWS) * ROUTE_CLUSTER);
    config.blockDim = dim3(ROUTE_THREADS);
    config.dynamicSmemBytes = NORMS ? args->rows.max * args->w.k * sizeof(half_t) : 0;
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = 2;
    return cudaLaunchKernelEx(&config, route_tiles_kernel<TILES, NORMS>, *args,
                              norm ? *norm : norm_args{}, segments ? *segments : segments_args{},
                              shape);
}

cudaError_t route_tiles(const struct norm_args *norm, const struct route_args *args,
                        const struct segments_args *segments, cudaStream_t stream)
{
    if (norm)
        return route_launch<1, true>(norm, args, segments, stream);
    return args->rows.max <= ROUTE_FEW ? route_launch<1, false>(norm, args, segments, stream)
                                       : route_launch<2, false>(norm, args, segments, stream);
}

} // namespace HALF
