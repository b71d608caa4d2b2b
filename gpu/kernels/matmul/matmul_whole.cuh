/* What the kernels of whole numbers share, those of 17 and more rows and that of few: the tile that
 * a block has and how its ring fills; and what those of more do with it: how numbers come out of a
 * stage as left operands, and what becomes of the sums. */
#pragma once

#include "gpu/kernels/activation/activation.cuh"
#include "gpu/kernels/common/device_props.cuh"
#include "gpu/kernels/common/ring.cuh"
#include "gpu/kernels/common/tensor_map.cuh"
#include "gpu/kernels/common/wgmma.cuh"
#include "gpu/kernels/matmul/whole.cuh"
#include "gpu/kernels/matmul/whole_take.cuh"

namespace HALF
{

#define OUTPUTS 128 /* of a tile */
#define SIDE 64     /* of a warpgroup */
#define STEP 128    /* columns of a stage */
#define BLOCKS (STEP / WHOLE_BLOCK)
#define GROUP_THREADS 128 /* of a warpgroup, of which two multiply */
#define WARPS 8           /* that multiply */
#define STAGES_MAX 8
#define STAGE_ALIGNMENT 1024 /* of what is swizzled */
#define FIXED                                                                                      \
    (2 * STAGE_ALIGNMENT)   /* barriers, as far as what is aligned behind them; that itself */
#define RESERVED 1024       /* of an SM's shared memory, for each block */
#define PITCH (OUTPUTS + 4) /* floats of a row of sums, against bank conflicts */
#define CLUSTER_MAX 8
#define COST_BEGIN 4 /* of a block, in stages */
#define TOGETHER 4   /* fours of outputs that a thread has on their way at a time */

struct whole_args {
    CUtensorMap x, w;
    struct matmul_args m;
    uint32_t block_rows, blocks; /* of x: rows of a block of them, the last may have fewer */
    uint32_t steps, cluster;     /* steps: of all columns; blocks that share them */
    uint32_t stages, stage_bytes;
    uint32_t columns; /* groups of a row */
    uint32_t groups;  /* that a stage touches at most, where groups end within stages */
    uint32_t zero_words;
    uint32_t height; /* outputs of a tile, of gated ones those of one side */
    uint32_t second; /* outputs from the tile's first 64 to its others */
    uint32_t fours;  /* of outputs that a block finishes of each row: 2 to this power */
    bool vectors;    /* y and what goes with it may be read and written by fours */
    /* Of few rows. */
    uint32_t group_shift; /* steps of a group: 2 to this power */
    uint32_t zero_bytes;  /* of all */
    uint32_t received;    /* bytes of sums that come from other blocks */
    uint32_t parts;       /* sums of squares of a row, where some are owed */
};

template <enum format FORMAT> __host__ __device__ __forceinline__ constexpr uint32_t whole_step()
{
    return FORMAT == FORMAT_U4 ? STEP / 2 : STEP; /* bytes of an output in a stage */
}

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

struct whole_ring {
    uint32_t full, empty, stages;
};

struct whole_tile {
    uint32_t row, output; /* the first ones */
    uint32_t first, end;  /* steps of this block */
};

__device__ __forceinline__ whole_tile whole_find(const whole_args &a)
{
    whole_tile tile;
    uint32_t rank = a.cluster > 1 ? cluster_rank() : 0, number = blockIdx.x / a.cluster;
    tile.row = number % a.blocks * a.block_rows;
    tile.output = number / a.blocks * a.height;
    tile.first = a.steps * rank / a.cluster;
    tile.end = a.steps * (rank + 1) / a.cluster;
    return tile;
}

/* The output that row `of` of a tile's 128 is; n and more are none. */
__device__ __forceinline__ uint32_t whole_output_of(const whole_args &a, const whole_tile &tile,
                                                    uint32_t of)
{
    return tile.output + (of < SIDE ? of : a.second + of - SIDE);
}

/* Whole block: barriers, and where stages begin. `fills`: arrivals that fill a stage; `warps` give
 * it back. */
template <uint32_t MOST>
__device__ __forceinline__ whole_ring whole_begin(ring_barriers<MOST> &barriers, const char *memory,
                                                  uint32_t fills, uint32_t warps = WARPS)
{
    whole_ring ring;
    ring.full = shared_address(barriers.full);
    ring.empty = shared_address(barriers.empty);
    ring.stages =
        (shared_address(memory) + STAGE_ALIGNMENT - 1) / STAGE_ALIGNMENT * STAGE_ALIGNMENT;
    if (threadIdx.x == 0) {
        ring_init(ring.full, MOST, fills);
        ring_init(ring.empty, MOST, warps);
        barrier_init_done();
    }
    __syncthreads();
    return ring;
}

/* ---- filling the ring ---- */

/* One thread: weights of a tile of HEIGHT outputs, both sides of gated ones together, before the
 * kernel waits for the one before it; x behind that. */
template <int N, enum format FORMAT, int HEIGHT = OUTPUTS>
__device__ __forceinline__ void whole_fill(const whole_args &a, const whole_ring &ring,
                                           const whole_tile &tile)
{
    const uint32_t bytes = whole_step<FORMAT>();
    const uint64_t again = policy_again(), of_weights = a.blocks > 1 ? again : policy_once();
    const uint32_t count = tile.end - tile.first, ahead = min(count, a.stages);
    const uint32_t full = a.block_rows * STEP * 2 + HEIGHT * bytes;
    auto weights = [&](uint32_t stage, uint32_t step) {
        uint32_t to = ring.stages + stage * a.stage_bytes + N * STEP * 2;
        barrier_expect(ring.full + stage * 8, full);
        copy_box(to, &a.w, step * bytes, tile.output, ring.full + stage * 8, of_weights);
        if (HEIGHT > SIDE)
            copy_box(to + SIDE * bytes, &a.w, step * bytes, tile.output + a.second,
                     ring.full + stage * 8, of_weights);
    };
    auto rows = [&](uint32_t stage, uint32_t step) {
        uint32_t to = ring.stages + stage * a.stage_bytes;
        copy_box(to, &a.x, step * STEP, tile.row, ring.full + stage * 8, again);
        copy_box(to + N * STEP, &a.x, step * STEP + STEP / 2, tile.row, ring.full + stage * 8,
                 again);
    };
    for (uint32_t i = 0; i < ahead; i++)
        weights(i, tile.first + i);
    grid_wait();
    grid_trigger();
    for (uint32_t i = 0; i < ahead; i++)
        rows(i, tile.first + i);
    ring_cursor at = {0, 1};
    if (ahead < a.stages)
        return;
    for (uint32_t i = ahead; i < count; i++) {
        ring_wait_empty(ring.empty, at);
        reads_before_copy(); /* for all readers: they have products under way, which it waits for */
        weights(at.stage, tile.first + i);
        rows(at.stage, tile.first + i);
        ring_next(at, a.stages);
    }
}

/* ---- numbers ---- */

/* A lane's outputs are `of` of the tile's and eight behind it. */
struct whole_lane {
    uint32_t of;
    uint32_t words; /* where the weights of the first begin in a stage */
    uint32_t turn;  /* how units of 16 bytes are turned (tensor_map.cuh) */
};

template <int N, enum format FORMAT> __device__ __forceinline__ whole_lane whole_lane_of()
{
    whole_lane out;
    uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    uint32_t side = warp % 4 * 16 + lane / 4;
    out.of = warp / 4 * SIDE + side;
    out.turn = (FORMAT == FORMAT_U4 ? side / 2 % 4 : side % 8) << 4;
    out.words = N * STEP * 2 + out.of * whole_step<FORMAT>() + lane % 4 * 4;
    asm volatile("" : "+r"(out.words), "+r"(out.turn)); /* kept, not made anew in each step */
    return out;
}

/* A block of 32 columns of both outputs, as two left operands. */
template <enum format FORMAT>
__device__ __forceinline__ void whole_take(uint32_t (&out)[2][4], const whole_lane &lane,
                                           uint32_t stage, int block, const uint32_t (&zeros)[2])
{
#pragma unroll
    for (int i = 0; i < 2; i++) {
        uint32_t words[2];
#pragma unroll
        for (int j = 0; j < (FORMAT == FORMAT_U4 ? 1 : 2); j++) {
            uint32_t unit = FORMAT == FORMAT_U4 ? block : 2 * block + j;
            words[j] = load_shared_word(stage + lane.words + (unit << 4 ^ lane.turn) +
                                        i * 8 * whole_step<FORMAT>());
        }
#pragma unroll
        for (int j = 0; j < 4; j++)
            out[j / 2][j % 2 * 2 + i] = FORMAT == FORMAT_U4
                                            ? whole_pair<FORMAT>(words[0], j, zeros[i])
                                            : whole_pair<FORMAT>(words[j / 2], j % 2, zeros[i]);
    }
}

/* A warp has done with a stage. */
__device__ __forceinline__ void whole_give_back(const whole_ring &ring, const ring_cursor &at)
{
    __syncwarp();
    if (threadIdx.x % WARP == 0)
        ring_give_back(ring.empty, at);
}

/* ---- sums ---- */

/* A warp's sums, by rows. */
template <int N>
__device__ __forceinline__ void whole_sums_lay(const float (&total)[N / 2], float *sums)
{
    uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    uint32_t of = warp / 4 * SIDE + warp % 4 * 16 + lane / 4;
#pragma unroll
    for (int i = 0; i < N / 2; i++) {
        uint32_t row = i / 4 * 8 + lane % 4 * 2 + i % 2;
        sums[row * PITCH + of + i / 2 % 2 * 8] = total[i];
    }
}

/* Four outputs of a row, of all blocks of the cluster. */
__device__ __forceinline__ float4 whole_sums_add(const whole_args &a, uint32_t sums, uint32_t row,
                                                 uint32_t of)
{
    const uint32_t at = sums + (row * PITCH + of) * 4;
    float4 out = {};
    if (a.cluster == 1) {
        uint4 words = load_shared(at);
        return make_float4(__uint_as_float(words.x), __uint_as_float(words.y),
                           __uint_as_float(words.z), __uint_as_float(words.w));
    }
    for (uint32_t i = 0; i < a.cluster; i++) {
        float4 part = cluster_load(cluster_address(at, i));
        out.x += part.x;
        out.y += part.y;
        out.z += part.z;
        out.w += part.w;
    }
    return out;
}

template <enum activation KIND>
__device__ __forceinline__ float4 whole_gate(const float4 &gate, const float4 &up)
{
    return make_float4(activated<KIND>(gate.x) * up.x, activated<KIND>(gate.y) * up.y,
                       activated<KIND>(gate.z) * up.z, activated<KIND>(gate.w) * up.w);
}

/* Whole fours of outputs, without a bias. What they are added to is asked for some at a time: it
 * lies far. */
template <uint32_t THREADS>
__device__ __forceinline__ void whole_finish_fours(const whole_args &a, const whole_tile &tile,
                                                   uint32_t sums, uint32_t first_of, uint32_t rows)
{
    const struct matmul_args &m = a.m;
    const uint32_t shift = a.fours, mask = (1u << shift) - 1, count = rows << shift;
    for (uint32_t first = threadIdx.x; first < count; first += THREADS * TOGETHER) {
        float4 y[TOGETHER];
#pragma unroll
        for (uint32_t i = 0; i < TOGETHER; i++) {
            uint32_t number = first + i * THREADS, of = first_of + (number & mask) * 4;
            size_t at = (size_t)(tile.row + (number >> shift)) * m.y_stride + tile.output + of;
            y[i] = make_float4(0, 0, 0, 0);
            if (m.adds && number < count)
                y[i] = *reinterpret_cast<const float4 *>(static_cast<const float *>(m.y) + at);
        }
#pragma unroll
        for (uint32_t i = 0; i < TOGETHER; i++) {
            uint32_t number = first + i * THREADS, row = number >> shift;
            uint32_t of = first_of + (number & mask) * 4;
            size_t at = (size_t)(tile.row + row) * m.y_stride + tile.output + of;
            if (number >= count)
                break;
            float4 sum = whole_sums_add(a, sums, row, of);
            if (m.gated) {
                float4 up = whole_sums_add(a, sums, row, of + SIDE);
                sum = m.activation == ACTIVATE_SILU ? whole_gate<ACTIVATE_SILU>(sum, up)
                                                    : whole_gate<ACTIVATE_GELU_TANH>(sum, up);
            }
            sum = make_float4(y[i].x + sum.x, y[i].y + sum.y, y[i].z + sum.z, y[i].w + sum.w);
            if (m.y_dtype == DTYPE_F32)
                *reinterpret_cast<float4 *>(static_cast<float *>(m.y) + at) = sum;
            else
                *reinterpret_cast<uint2 *>(static_cast<uint16_t *>(m.y) + at) =
                    make_uint2(pack(sum.x, sum.y, m.y_dtype), pack(sum.z, sum.w, m.y_dtype));
        }
    }
}

/* One output, whatever stands behind it. */
__device__ __forceinline__ void whole_finish_one(const struct matmul_args &m, size_t at, uint32_t n,
                                                 float y, float up)
{
    if (m.bias)
        y += load_value(m.bias, n, m.bias_dtype);
    if (m.gated) {
        if (m.bias)
            up += load_value(m.bias, m.w.n / 2 + n, m.bias_dtype);
        y = up * (m.activation == ACTIVATE_SILU ? activated<ACTIVATE_SILU>(y)
                                                : activated<ACTIVATE_GELU_TANH>(y));
    }
    store_value(m.y, at, m.y_dtype, m.adds ? load_value(m.y, at, m.y_dtype) + y : y);
}

/* So many threads of a block, of which `rank` this is: its part of the tile's outputs, of all
 * rows. */
template <uint32_t THREADS>
__device__ __forceinline__ void whole_finish_tile(const whole_args &a, const whole_tile &tile,
                                                  uint32_t sums, uint32_t rank)
{
    const struct matmul_args &m = a.m;
    const uint32_t outputs = m.gated ? m.w.n / 2 : m.w.n, side = m.gated ? SIDE : OUTPUTS;
    const uint32_t rows = min(a.block_rows, m.rows.max - tile.row), first_of = rank * 4 << a.fours;
    if (a.vectors && !m.bias && tile.output + side <= outputs) {
        whole_finish_fours<THREADS>(a, tile, sums, first_of, rows);
        return;
    }
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < rows << a.fours; i += THREADS) {
        uint32_t row = i >> a.fours, of = first_of + (i & ((1u << a.fours) - 1)) * 4;
        float4 low = whole_sums_add(a, sums, row, of), up = {};
        if (m.gated)
            up = whole_sums_add(a, sums, row, of + SIDE);
        const float lows[] = {low.x, low.y, low.z, low.w}, ups[] = {up.x, up.y, up.z, up.w};
#pragma unroll
        for (uint32_t j = 0; j < 4; j++) {
            uint32_t n = tile.output + of + j;
            if (n < outputs)
                whole_finish_one(m, (size_t)(tile.row + row) * m.y_stride + n, n, lows[j], ups[j]);
        }
    }
}

#endif

/* ---- launching ---- */

/* Blocks that share a tile's columns: what takes least time, in stages that count `each`; larger
 * clusters do not fit on all SMs. */
struct whole_share {
    uint32_t cluster, cost;
};

static inline whole_share whole_cluster(uint32_t tiles, uint32_t steps, uint32_t per_processor,
                                        uint32_t each)
{
    whole_share best = {1, UINT32_MAX};
    uint32_t slots = device_props()->processors * per_processor;
    for (uint32_t cluster = 1; cluster <= CLUSTER_MAX && cluster <= steps; cluster *= 2) {
        uint32_t room = cluster > 2 ? slots * 9 / 10 : slots;
        uint32_t turns = ceil_div(tiles, room / cluster ? room / cluster : 1);
        uint32_t cost = turns * (ceil_div(steps, cluster) * each + COST_BEGIN);
        if (cost < best.cost)
            best = {cluster, cost};
    }
    return best;
}

static inline uint32_t whole_height(const struct matmul_args *m)
{
    return m->gated ? SIDE : OUTPUTS;
}

/* Tiles of so many outputs. */
static inline uint32_t whole_tiles_high(const struct matmul_args *m, uint32_t height)
{
    return ceil_div(m->gated ? m->w.n / 2 : m->w.n, height);
}

static inline uint32_t whole_tiles(const struct matmul_args *m, uint32_t blocks)
{
    return blocks * whole_tiles_high(m, whole_height(m));
}

static inline bool whole_vectors(const struct matmul_args *m)
{
    return m->y_stride % 4 == 0 && reinterpret_cast<uintptr_t>(m->y) % 16 == 0;
}

/* Of args whose blocks of rows are known: what follows from them, but for the ring. */
template <enum format FORMAT>
static cudaError_t whole_describe(const struct matmul_args *m, uint32_t height,
                                  struct whole_args *a)
{
    a->m = *m;
    a->height = height;
    a->steps = ceil_div(m->w.k, STEP);
    a->second = m->gated ? m->w.n / 2 : SIDE;
    a->vectors = whole_vectors(m);
    a->columns = whole_columns(m->w);
    cudaError_t result =
        tensor_map(&a->x, m->x, DTYPE_HALF, m->rows.max, m->w.k, m->x_stride, a->block_rows);
    if (result == cudaSuccess)
        result = tensor_map_bytes(&a->w, m->w.data, m->w.n, whole_bytes(FORMAT, m->w.k),
                                  whole_bytes(FORMAT, m->w.k), whole_step<FORMAT>(), SIDE);
    return result;
}

static inline cudaError_t whole_enqueue(void (*kernel)(struct whole_args), struct whole_args a,
                                        uint32_t threads, uint32_t bytes, cudaStream_t stream)
{
    while (4u * a.cluster << a.fours < a.height)
        a.fours++;
    cudaLaunchAttribute attributes[2];
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = 1;
    attributes[1].id = cudaLaunchAttributeClusterDimension;
    attributes[1].val.clusterDim.x = a.cluster;
    attributes[1].val.clusterDim.y = attributes[1].val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(a.blocks * whole_tiles_high(&a.m, a.height) * a.cluster);
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = bytes;
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = a.cluster > 1 ? 2 : 1;
    return cudaLaunchKernelEx(&config, kernel, a);
}

/* Groups that end within stages (matmul_whole_fine.cu). */
cudaError_t matmul_whole_fine(const struct matmul_args *args, cudaStream_t stream);

} // namespace HALF
