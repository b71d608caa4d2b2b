/* Rows of one adapter together, by tensor cores, in one kernel: a cluster of blocks makes A x of a
 * tile of up to 16 rows, each block of its part of k, adds up what the others have, and then each
 * block has its outputs of B.
 *
 * Few tiles are shared out further: several clusters have the same rows and other outputs, and each
 * makes the A x that its outputs want anew, which is less than meeting again. A x is summed by
 * warp, then over a block's warps, then over the cluster's blocks, always as many and in that
 * order: what a row gets depends on k and rank alone. It is kept in float32, and multiplied with B
 * as the sum of two tf32 numbers, so that nothing of it is rounded that the sum would show. B is in
 * tf32 what it is in 16 bits.
 *
 * Bound by latency where rows share an adapter: lines of A and B are asked for as soon as the tile
 * is known. */
#include "gpu/kernels/activation/activation.cuh"
#include "gpu/kernels/adapt/adapt.cuh"
#include "gpu/kernels/common/device_props.cuh"
#include "gpu/kernels/common/mma.cuh"

namespace HALF
{

#define CLUSTER 4 /* blocks: EXPERIMENTS.md has others */
#define TILED_WARPS 8
#define TILED_THREADS (TILED_WARPS * WARP)
#define TILED_BLOCKS 2 /* of an SM */
#define STEP_K 32      /* values of k that a warp multiplies at a time: a lane has eight of a row */
#define AHEAD 4        /* of these, on their way at a time */
#define STEP_R 16      /* rows of A in one product; and values of A x */
#define UNIT 32        /* outputs that a warp makes at a time */
#define BATCH 4        /* products whose sums over warps are made together */
#define PRODUCT (STEP_R * ADAPT_TILE)
#define SLICES_MAX 8
#define SHARED_OUT 32 /* clusters that tiles are shared out to, where they are less */
#define LINE 128
#define TILED_STATIC 1024 /* bytes of shared memory beside the sums */

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* What a cluster works on. */
struct tiled_item {
    struct adapt_tile tile;
    uint32_t low, high; /* the cluster's units */
    uint32_t needed;    /* parts whose A x it makes, a bit each */
};

struct tiled_shared {
    struct adapt_place place;
    uint32_t rows[ADAPT_TILE];
    float *own, *sums; /* [parts][ADAPT_TILE][stride]: of the block, of the cluster */
    float *warps;      /* [BATCH][TILED_WARPS][PRODUCT] */
    uint32_t stride;
};

__device__ __forceinline__ uint32_t units_of(const struct adapt_args &a, uint32_t p)
{
    return (a.ends[p] - part_begin(a, p) + UNIT - 1) / UNIT;
}

/* Slices of a tile's outputs, for so many tiles. */
__device__ __forceinline__ uint32_t slices_of(uint32_t tiles)
{
    return tiles >= SHARED_OUT ? 1 : min(SHARED_OUT / max(tiles, 1u), SLICES_MAX);
}

__device__ __forceinline__ uint32_t needs(const tiled_shared &s, uint32_t p)
{
    return s.place.parts[p].b ? 1u << s.place.parts[p].from : 0;
}

/* Whole block. */
__device__ __forceinline__ tiled_item item_begin(const struct adapt_args &a, tiled_shared &s,
                                                 uint32_t number, uint32_t slices)
{
    uint32_t slice = number % slices, total = 0, at = 0;
    tiled_item item = {adapt_tile_get(a, number / slices), 0, 0, 0};
    const uint32_t *from = reinterpret_cast<const uint32_t *>(a.places + (item.tile.adapter - 1));
    if (item.tile.adapter && threadIdx.x < sizeof s.place / 4)
        reinterpret_cast<uint32_t *>(&s.place)[threadIdx.x] = from[threadIdx.x];
    if (threadIdx.x < ADAPT_TILE)
        s.rows[threadIdx.x] =
            a.list[1 + item.tile.first + min(threadIdx.x, item.tile.count - 1)];
    __syncthreads();
    for (uint32_t p = 0; p < counted_parts(a); p++)
        total += units_of(a, p);
    item.low = total * slice / slices;
    item.high = total * (slice + 1) / slices;
    for (uint32_t p = 0; p < counted_parts(a) && item.tile.adapter; p++) {
        uint32_t end = at + units_of(a, p);
        if (at < item.high && end > item.low)
            item.needed |= needs(s, p) | (a.gated ? needs(s, 1) : 0);
        at = end;
    }
    return item;
}

/* The block's units. */
__device__ __forceinline__ void block_units(const tiled_item &item, uint32_t &ret_low,
                                            uint32_t &ret_high)
{
    uint32_t count = item.high - item.low, rank = cluster_rank();
    ret_low = item.low + count * rank / CLUSTER;
    ret_high = item.low + count * (rank + 1) / CLUSTER;
}

/* Of the block's threads, a line each. */
__device__ __forceinline__ void ask_for(const void *from, size_t begin, size_t end, uint32_t first,
                                        uint32_t step)
{
    for (size_t at = begin + (size_t)first * LINE; at < end; at += (size_t)step * LINE)
        prefetch_l2(static_cast<const char *>(from) + at);
}

__device__ __forceinline__ void ask_for_b(const struct adapt_args &a, const tiled_shared &s,
                                          uint32_t p, uint32_t low, uint32_t high)
{
    const struct adapt_part &part = s.place.parts[p];
    size_t row = (size_t)s.place.rank * sizeof(half_t), width = a.ends[p] - part_begin(a, p);
    if (part.b)
        ask_for(part.b, low * UNIT * row, min((size_t)high * UNIT, width) * row, threadIdx.x,
                TILED_THREADS);
}

/* What will be read of A, by the cluster, and of B, by the block. */
__device__ __forceinline__ void ask_for_all(const struct adapt_args &a, const tiled_shared &s,
                                            const tiled_item &item)
{
    uint32_t low, high, at = 0;
    if (!item.needed)
        return;
    block_units(item, low, high);
    for (uint32_t p = 0; p < a.part_count; p++)
        if (item.needed >> p & 1)
            ask_for(s.place.parts[p].a, 0, (size_t)s.place.rank * a.k * sizeof(half_t),
                    cluster_rank() * TILED_THREADS + threadIdx.x, CLUSTER * TILED_THREADS);
    for (uint32_t p = 0; p < counted_parts(a); p++) {
        uint32_t units = units_of(a, p), first = max(low, at) - at, end = min(high, at + units);
        if (end > at + first) {
            ask_for_b(a, s, p, first, end - at);
            if (a.gated)
                ask_for_b(a, s, 1, first, end - at);
        }
        at += units;
    }
}

/* ---- A x ---- */

__device__ __forceinline__ uint4 eight(const void *base, size_t row, uint32_t stride, uint32_t k,
                                       bool there)
{
    uint4 none = {0, 0, 0, 0};
    return there ? *reinterpret_cast<const uint4 *>(static_cast<const half_t *>(base) +
                                                    row * stride + k)
                 : none;
}

/* A warp: 16 rows of A from `first` on, times the tile's rows, of the warp's values of k. A lane
 * has eight in a row of them, and takes them for those that the instruction wants of it: of A and x
 * alike, so the sum is the same. c[h]: of rows 8 h and on. */
__device__ __forceinline__ void down_multiply(float (&c)[2][4], const struct adapt_args &a,
                                              const tiled_shared &s, const void *of, uint32_t first,
                                              uint32_t count)
{
    uint32_t lane = threadIdx.x % WARP, g = lane / 4, rank = s.place.rank, k = a.k;
    uint32_t step = CLUSTER * TILED_WARPS * STEP_K;
    uint32_t at = (cluster_rank() * TILED_WARPS + threadIdx.x / WARP) * STEP_K + lane % 4 * 8;
    size_t low = s.rows[g], high = s.rows[g + 8];
    for (uint32_t begin = at - lane % 4 * 8; begin < k; begin += AHEAD * step) {
        uint4 a0[AHEAD], a1[AHEAD], x0[AHEAD], x1[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; i++, at += step) {
            bool in = at < k;
            a0[i] = eight(of, first + g, k, at, in && first + g < rank);
            a1[i] = eight(of, first + g + 8, k, at, in && first + g + 8 < rank);
            x0[i] = eight(a.x, low, a.x_stride, at, in && g < count);
            x1[i] = eight(a.x, high, a.x_stride, at, in && g + 8 < count);
        }
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            mma_half(c[0], a0[i].x, a1[i].x, a0[i].y, a1[i].y, x0[i].x, x0[i].y);
            mma_half(c[0], a0[i].z, a1[i].z, a0[i].w, a1[i].w, x0[i].z, x0[i].w);
            mma_half(c[1], a0[i].x, a1[i].x, a0[i].y, a1[i].y, x1[i].x, x1[i].y);
            mma_half(c[1], a0[i].z, a1[i].z, a0[i].w, a1[i].w, x1[i].z, x1[i].w);
        }
    }
}

/* Of the needed parts, the one with so many before it. */
__device__ __forceinline__ uint32_t part_at(uint32_t needed, uint32_t number)
{
    for (; number; number--)
        needed &= needed - 1;
    return __ffs(static_cast<int>(needed)) - 1;
}

/* Whole block: its own part of A x. */
__device__ __forceinline__ void down(const struct adapt_args &a, const tiled_shared &s,
                                     const tiled_item &item)
{
    uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    uint32_t steps = (s.place.rank + STEP_R - 1) / STEP_R;
    uint32_t products = steps * __popc(item.needed);
    for (uint32_t first = 0; first < products; first += BATCH) {
        uint32_t count = min(products - first, BATCH);
        for (uint32_t i = 0; i < count; i++) {
            uint32_t p = part_at(item.needed, (first + i) / steps);
            float c[2][4] = {};
            down_multiply(c, a, s, s.place.parts[p].a, (first + i) % steps * STEP_R,
                          item.tile.count);
            float *to = s.warps + (i * TILED_WARPS + warp) * PRODUCT + lane / 4 * ADAPT_TILE +
                        lane % 4 * 2;
#pragma unroll
            for (int h = 0; h < 2; h++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    to[h * 8 + j / 2 * 8 * ADAPT_TILE + j % 2] = c[h][j];
        }
        __syncthreads();
        for (uint32_t i = 0; i < count; i++) {
            uint32_t p = part_at(item.needed, (first + i) / steps);
            uint32_t r = (first + i) % steps * STEP_R + threadIdx.x / ADAPT_TILE;
            const float *from = s.warps + i * TILED_WARPS * PRODUCT + threadIdx.x;
            float sum = 0;
#pragma unroll
            for (int w = 0; w < TILED_WARPS; w++)
                sum += from[w * PRODUCT];
            s.own[(p * ADAPT_TILE + threadIdx.x % ADAPT_TILE) * s.stride + r] = sum;
        }
        __syncthreads();
    }
}
static_assert(PRODUCT == TILED_THREADS, "a thread adds up one value");

/* The first half of cluster_sync(); cluster_all_here() is the other. */
__device__ __forceinline__ void cluster_arrive()
{
    __syncwarp();
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

/* Whole cluster: A x, in every block. The caller waits for the others before it changes its own. */
__device__ __forceinline__ void gather(const struct adapt_args &a, const tiled_shared &s,
                                       const tiled_item &item)
{
    uint32_t quads = (s.place.rank + STEP_R - 1) / STEP_R * (STEP_R / 4);
    cluster_sync();
    for (uint32_t p = 0; p < a.part_count; p++) {
        if (!(item.needed >> p & 1))
            continue;
        for (uint32_t i = threadIdx.x; i < item.tile.count * quads; i += TILED_THREADS) {
            uint32_t at = (p * ADAPT_TILE + i / quads) * s.stride + i % quads * 4;
            uint32_t address = shared_address(s.own + at);
            float4 of[CLUSTER], sum = {};
#pragma unroll
            for (uint32_t block = 0; block < CLUSTER; block++)
                of[block] = cluster_load(cluster_address(address, block));
#pragma unroll
            for (uint32_t block = 0; block < CLUSTER; block++) {
                sum.x += of[block].x;
                sum.y += of[block].y;
                sum.z += of[block].z;
                sum.w += of[block].w;
            }
            *reinterpret_cast<float4 *>(s.sums + at) = sum;
        }
    }
    cluster_arrive(); /* we read nobody's any more */
    __syncthreads();
}

/* ---- B of that ---- */

/* Four of a row of B, from value r on; 0 behind its end. */
__device__ __forceinline__ float4 four(const void *b, uint32_t n, uint32_t end, uint32_t rank,
                                       uint32_t r)
{
    const half_t *row = static_cast<const half_t *>(b) + (size_t)n * rank;
    float v[4] = {};
    if (n >= end)
        return {0, 0, 0, 0};
    if (rank % 4 == 0) {
        if (r >= rank)
            return {0, 0, 0, 0};
        uint2 words = *reinterpret_cast<const uint2 *>(row + r);
        float2 first = unpack(words.x, DTYPE_HALF), second = unpack(words.y, DTYPE_HALF);
        return {first.x, first.y, second.x, second.y};
    }
#pragma unroll
    for (uint32_t i = 0; i < 4; i++)
        if (r + i < rank)
            v[i] = load_value(row, r + i, DTYPE_HALF);
    return {v[0], v[1], v[2], v[3]};
}

/* A warp: the tile's rows times 32 rows of B from n on. Of the j-th product's columns 2 t and
 * 2 t + 1 are outputs n + 8 t + 2 j and the next: a lane has eight in a row. */
__device__ __forceinline__ void up_multiply(float (&c)[4][4], const tiled_shared &s, uint32_t p,
                                            uint32_t n, uint32_t end)
{
    const struct adapt_part &part = s.place.parts[p];
    uint32_t lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4, rank = s.place.rank;
    const float *sums = s.sums + (part.from * ADAPT_TILE + g) * s.stride + t * 4;
    if (!part.b)
        return;
    for (uint32_t r = 0; r < rank; r += STEP_R) {
        float4 b[4];
#pragma unroll
        for (int j = 0; j < 4; j++)
            b[j] = four(part.b, n + g / 2 * 8 + j * 2 + g % 2, end, rank, r + t * 4);
        float4 low = *reinterpret_cast<const float4 *>(sums + r);
        float4 high = *reinterpret_cast<const float4 *>(sums + 8 * s.stride + r);
        const float values[2][4] = {{low.x, high.x, low.y, high.y}, {low.z, high.z, low.w, high.w}};
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint32_t whole[4], rest[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                whole[i] = tf32_of(values[half][i]);
                rest[i] = tf32_of(values[half][i] - __uint_as_float(whole[i]));
            }
#pragma unroll
            for (int j = 0; j < 4; j++) {
                float b0 = half ? b[j].z : b[j].x, b1 = half ? b[j].w : b[j].y;
                mma_tf32(c[j], whole, b0, b1);
                mma_tf32(c[j], rest, b0, b1);
            }
        }
    }
}

/* The lane's eight outputs of a row, of its two. */
__device__ __forceinline__ float8 added(const float8 &y, const float (&c)[4][4], int half,
                                        float scale)
{
    float8 out;
#pragma unroll
    for (int i = 0; i < 8; i++)
        out.v[i] = y.v[i] + scale * c[i / 2][half * 2 + i % 2];
    return out;
}

/* A warp: outputs `n` and on of a part. */
__device__ __forceinline__ void up_add(const struct adapt_args &a, const tiled_shared &s,
                                       const tiled_item &item, uint32_t p, uint32_t n)
{
    uint32_t lane = threadIdx.x % WARP, begin = part_begin(a, p), end = a.ends[p] - begin;
    uint32_t own = n + lane % 4 * 8;
    float8 y[2] = {};
    float c[4][4] = {};
#pragma unroll
    for (int half = 0; half < 2; half++)
        if (own < end && lane / 4 + half * 8 < item.tile.count)
            y[half] = load_whole(a.y,
                                 (size_t)s.rows[lane / 4 + half * 8] * a.y_stride + begin + own,
                                 a.y_dtype);
    up_multiply(c, s, p, n, end);
#pragma unroll
    for (int half = 0; half < 2; half++)
        if (own < end && lane / 4 + half * 8 < item.tile.count)
            store_whole(a.y, (size_t)s.rows[lane / 4 + half * 8] * a.y_stride + begin + own,
                        a.y_dtype, added(y[half], c, half, s.place.scale));
}

/* A warp: channels `n` and on, of gate and up, activated. */
template <enum activation KIND>
__device__ __forceinline__ void up_gate(const struct adapt_args &a, const tiled_shared &s,
                                        const tiled_item &item, uint32_t n)
{
    uint32_t lane = threadIdx.x % WARP, end = a.ends[0], own = n + lane % 4 * 8;
    float8 gate[2] = {}, up[2] = {};
    float c[2][4][4] = {}, scale = item.tile.adapter ? s.place.scale : 0;
#pragma unroll
    for (int half = 0; half < 2; half++)
        if (own < end && lane / 4 + half * 8 < item.tile.count) {
            size_t at = (size_t)s.rows[lane / 4 + half * 8] * a.y_stride + own;
            gate[half] = load_whole(a.y, at, a.y_dtype);
            up[half] = load_whole(a.y, at + end, a.y_dtype);
        }
    if (item.tile.adapter) {
        up_multiply(c[0], s, 0, n, end);
        up_multiply(c[1], s, 1, n, end);
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        if (own >= end || lane / 4 + half * 8 >= item.tile.count)
            continue;
        float8 left = added(gate[half], c[0], half, scale);
        float8 right = added(up[half], c[1], half, scale);
#pragma unroll
        for (int i = 0; i < 8; i++)
            left.v[i] = activated<KIND>(left.v[i]) * right.v[i];
        store_whole(a.out, (size_t)s.rows[lane / 4 + half * 8] * a.out_stride + own, a.y_dtype,
                    left);
    }
}

/* Whole block: its outputs. */
__device__ __forceinline__ void up(const struct adapt_args &a, const tiled_shared &s,
                                   const tiled_item &item)
{
    uint32_t low, high;
    block_units(item, low, high);
    for (uint32_t unit = low + threadIdx.x / WARP; unit < high; unit += TILED_WARPS) {
        uint32_t p = 0, at = unit;
        for (; p + 1 < counted_parts(a) && at >= units_of(a, p); p++)
            at -= units_of(a, p);
        if (a.gated && a.activation == ACTIVATE_SILU)
            up_gate<ACTIVATE_SILU>(a, s, item, at * UNIT);
        else if (a.gated)
            up_gate<ACTIVATE_GELU_TANH>(a, s, item, at * UNIT);
        else if (s.place.parts[p].b)
            up_add(a, s, item, p, at * UNIT);
    }
}

#define TILED_CLUSTER __cluster_dims__(CLUSTER, 1, 1)
#else
#define TILED_CLUSTER
#endif

/* Floats between rows of A x: apart by four banks. */
__host__ __device__ static constexpr uint32_t stride_of(uint32_t rank_max)
{
    return (rank_max + STEP_R - 1) / STEP_R * STEP_R + 4;
}

__global__ void TILED_CLUSTER __launch_bounds__(TILED_THREADS, TILED_BLOCKS)
    adapt_tiled_kernel(const __grid_constant__ struct adapt_args a)
{
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
    extern __shared__ __align__(16) float memory[];
    __shared__ tiled_shared s;
    uint32_t stride = stride_of(a.rank_max), values = a.part_count * ADAPT_TILE * stride;
    if (threadIdx.x == 0) {
        s.own = memory;
        s.sums = memory + values;
        s.warps = memory + 2 * values;
        s.stride = stride;
    }
    if (a.lists) /* else two kernels old at least, as places are */
        grid_wait();
    uint32_t tiles = adapt_tiles(a, a.gated), slices = slices_of(tiles);
    for (uint32_t i = blockIdx.x / CLUSTER; i < tiles * slices; i += gridDim.x / CLUSTER) {
        tiled_item item = item_begin(a, s, i, slices);
        ask_for_all(a, s, item);
        grid_wait();
        grid_trigger();    /* the kernel behind waits for this one by itself */
        if (item.needed) { /* the same for all of the cluster */
            down(a, s, item);
            gather(a, s, item);
        }
        up(a, s, item);
        if (item.needed)
            cluster_all_here();
        __syncthreads();
    }
    grid_wait();
#endif
}

static size_t tiled_bytes(const struct adapt_args *a)
{
    return sizeof(float) * (2 * (size_t)a->part_count * ADAPT_TILE * stride_of(a->rank_max) +
                            BATCH * TILED_WARPS * PRODUCT);
}

bool adapt_tiled_can(const struct adapt_args *a)
{
    bool fits = a->list && a->alike && a->x_dtype == DTYPE_HALF && (a->k | a->x_stride) % 8 == 0 &&
                a->y_stride % 8 == 0 && reinterpret_cast<uintptr_t>(a->x) % 16 == 0 &&
                reinterpret_cast<uintptr_t>(a->y) % 16 == 0;
    for (uint32_t p = 0; p < a->part_count; p++)
        fits = fits && a->ends[p] % 8 == 0;
    if (a->gated)
        fits = fits && a->part_count == 2 && a->ends[1] == 2 * a->ends[0] &&
               a->out_stride % 8 == 0 && reinterpret_cast<uintptr_t>(a->out) % 16 == 0;
    return fits && device_props()->major == 9;
}

cudaError_t adapt_tiled(const struct adapt_args *args, cudaStream_t stream)
{
    static struct device_once once;
    cudaError_t result = device_allow(&once, adapt_tiled_kernel, device_props(), TILED_STATIC);
    if (result != cudaSuccess)
        return result;
    uint32_t clusters = args->rows.max <= SHARED_OUT ? SHARED_OUT : 2 * SHARED_OUT;
    return launch(adapt_tiled_kernel, dim3(clusters * CLUSTER), TILED_THREADS, tiled_bytes(args),
                  stream, *args);
}

} // namespace HALF
