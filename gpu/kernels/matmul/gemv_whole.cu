/* Products of up to 16 rows with weights in whole numbers, on sm_90: bound by what makes numbers of
 * the weights, and by what stands between two such products.
 *
 * The ring and what a stage holds are those of matmul_whole.cu, tiles are those or half as high.
 * Twelve warps multiply a tile by m16n8k16 (weights the left operand, rows of x the columns of the
 * right one), each 32 of the outputs and every third stage, or every sixth of a low tile: what they
 * do with a number takes longer than the number takes to come, and so many fill each other's waits.
 * A group's sum is multiplied by its scale in float32. Scales come to shared memory, some of a
 * warp's steps ahead.
 *
 * A block takes less than half of an SM, so that one of the next kernel has room beside it, whose
 * weights begin to come while this one's last ones are multiplied. A tile is shared by a cluster of
 * blocks where tiles are few: each sends what it has summed to the block that finishes it, in whose
 * shared memory there is room for that. What a row gets depends neither on the other rows nor on
 * their number. */
#include "gpu/kernels/matmul/gemv_whole.cuh"
#include "gpu/kernels/matmul/matmul_norm.cuh"

namespace HALF
{

/* Bytes of shared memory less than half of an SM's; of blocks that are alone on an SM, half of that
 * more: still there is room for one of the others. */
#define APART 8192
#define SQUARES 16   /* outputs whose squares a half of a warp adds up */
#define ITEMS 2      /* outputs that a thread has on their way at a time */
#define NORMS 4      /* of rows, on their way at a time */
#define PARTS_UNIT 8 /* outputs: whoever reads sums of squares counts by this (gemv.cu) */

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* What is not dynamic. */
struct few_fixed {
    ring_barriers<FEW_STAGES_MAX> barriers;
    float scales[GEMV_ROWS_MAX]; /* of rows whose norm is owed */
    float squares[GEMV_ROWS_MAX][OUTPUTS / SQUARES];
};
static_assert(sizeof(few_fixed) <= FIXED - STAGE_ALIGNMENT, "there is room for it");

__device__ __forceinline__ void few_sync()
{
    asm volatile("bar.sync 1, %0;" ::"n"(MULTIPLIERS) : "memory");
}

/* The same, and that the norms' scales are there. */
__device__ __forceinline__ void few_made()
{
    __syncwarp();
    asm volatile("bar.arrive 2, %0;" ::"n"(MULTIPLIERS + WARP) : "memory");
}

__device__ __forceinline__ void few_sync_made()
{
    asm volatile("bar.sync 2, %0;" ::"n"(MULTIPLIERS + WARP) : "memory");
}

/* ---- sums ---- */

/* Floats of a row of sums, against bank conflicts; and of what blocks sum for one of them. */
__device__ __forceinline__ constexpr uint32_t few_pitch(int height)
{
    return height + 4;
}

template <int HEIGHT> __device__ __forceinline__ uint32_t few_received_pitch(const whole_args &a)
{
    return HEIGHT / a.cluster + 4;
}

/* A warp's sums: [part][row][output], outputs as the tile has them. */
template <int N, int HEIGHT>
__device__ __forceinline__ void few_lay(const few_sums<N> &total, float *sums)
{
    const uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    constexpr uint32_t TOGETHER_WARPS = few_together(HEIGHT), ROW = few_pitch(HEIGHT);
    float *to = sums + (warp / TOGETHER_WARPS * N + lane % 4 * 2) * ROW +
                warp % TOGETHER_WARPS * WARP_OUTPUTS + lane / 4;
#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
        for (int i = 0; i < N / 8; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                to[(i * 8 + j % 2) * ROW + m * 16 + j / 2 * 8] = total.of[m][i][j];
}

/* To the blocks of the cluster that finish them, [block][row][output], gate before up. */
template <int N, int HEIGHT>
__device__ __forceinline__ void few_send(const whole_args &a, const float *sums, uint32_t received,
                                         uint32_t rank, uint32_t rows)
{
    const uint32_t pitch = few_received_pitch<HEIGHT>(a);
    const uint32_t shift = a.fours + 2, own = (1u << shift) - 1;
    for (uint32_t i = threadIdx.x; i < rows * (HEIGHT / 4); i += MULTIPLIERS) {
        uint32_t row = i / (HEIGHT / 4), of = i % (HEIGHT / 4) * 4;
        float4 sum = {};
#pragma unroll
        for (uint32_t part = 0; part < few_parts(HEIGHT); part++) {
            float4 some = *reinterpret_cast<const float4 *>(
                sums + (part * N + row) * few_pitch(HEIGHT) + of);
            sum.x += some.x, sum.y += some.y, sum.z += some.z, sum.w += some.w;
        }
        uint32_t channel = a.m.gated ? of % SIDE : of, up = channel != of;
        uint32_t to = received + ((rank * N + row) * pitch + (up << shift) + (channel & own)) * 4;
        cluster_store(cluster_address(to, channel >> shift), sum);
    }
}

/* What a block finishes: sums of so many, each [row][output] with rows of `pitch`. */
struct few_summed {
    const float *sums;
    uint32_t count, pitch;
    uint32_t up; /* from a gate to its up */
};

template <int N>
__device__ __forceinline__ float few_sum(const few_summed &of, uint32_t row, uint32_t at)
{
    float sum = 0;
#pragma unroll 4
    for (uint32_t i = 0; i < of.count; i++)
        sum += of.sums[(i * N + row) * of.pitch + at];
    return sum;
}

/* ---- results ---- */

/* An output, and what it needs beside its sums. */
struct few_output {
    uint32_t row, at, n; /* at: of those that the block finishes */
    bool valid;
    float before, weight, bias[2];
};

__device__ __forceinline__ few_output few_ask(const whole_args &a, const whole_tile &tile,
                                              uint32_t rank, uint32_t rows, uint32_t number)
{
    const struct matmul_args &m = a.m;
    const uint32_t shift = a.fours + 2, outputs = m.gated ? m.w.n / 2 : m.w.n;
    few_output out = {number >> shift, number & ((1u << shift) - 1), 0, false, 0, 0, {0, 0}};
    out.n = tile.output + (rank << shift) + out.at;
    out.valid = out.row < rows && out.n < outputs;
    if (!out.valid)
        return out;
    if (m.adds)
        out.before = static_cast<const float *>(m.y)[(size_t)out.row * m.y_stride + out.n];
    if (m.norm_out.weight)
        out.weight =
            load_value(m.norm_out.weight, out.n, m.norm_out.weight_dtype) + m.norm_out.offset;
    if (m.bias) {
        out.bias[0] = load_value(m.bias, out.n, m.bias_dtype);
        out.bias[1] = m.gated ? load_value(m.bias, outputs + out.n, m.bias_dtype) : 0;
    }
    return out;
}

__device__ __forceinline__ float few_activated(const struct matmul_args &m, float y)
{
    return m.activation == ACTIVATE_SILU ? activated<ACTIVATE_SILU>(y)
                                         : activated<ACTIVATE_GELU_TANH>(y);
}

/* In the order of gemv.cu. */
template <int N>
__device__ __forceinline__ float few_store(const struct matmul_args &m, const few_output &own,
                                           const few_summed &of, const float *scales)
{
    const float scale = m.norm_in.squares ? scales[own.row] : 1.0f;
    float y = few_sum<N>(of, own.row, own.at) * scale + own.bias[0];
    if (m.gated || m.activates)
        y = few_activated(m, y);
    if (m.gated)
        y *= few_sum<N>(of, own.row, own.at + of.up) * scale + own.bias[1];
    if (m.adds)
        y += own.before;
    store_value(m.y, (size_t)own.row * m.y_stride + own.n, m.y_dtype, y);
    return y;
}

/* The sum of squares of each row, of all that the block has handed on; and none where there is no
 * block. */
__device__ __forceinline__ void few_hand_squares(const whole_args &a, uint32_t rows,
                                                 const few_fixed &shared)
{
    float *to = a.m.norm_out.squares;
    few_sync();
    if (threadIdx.x < rows) {
        float sum = 0;
        for (uint32_t i = 0; i < (4u << a.fours) / SQUARES; i++)
            sum += shared.squares[threadIdx.x][i];
        to[threadIdx.x * MATMUL_PARTS + blockIdx.x] = sum;
    }
    if (blockIdx.x == 0)
        for (uint32_t i = threadIdx.x; i < rows * MATMUL_PARTS; i += MULTIPLIERS)
            if (i % MATMUL_PARTS >= gridDim.x)
                to[i] = 0;
}

/* All that multiply: what the block finishes of a tile. */
template <int N, int HEIGHT>
__device__ __forceinline__ void few_finish(const whole_args &a, const whole_tile &tile,
                                           float *sums, float *received, uint32_t rank,
                                           few_fixed &shared)
{
    const struct matmul_args &m = a.m;
    const uint32_t rows = min(range_rows(m.rows), static_cast<uint32_t>(N));
    const uint32_t shift = a.fours + 2, count = rows << shift;
    few_summed of = {sums, few_parts(HEIGHT), few_pitch(HEIGHT), SIDE};
    if (a.cluster > 1) {
        of = {received, a.cluster, few_received_pitch<HEIGHT>(a), 1u << shift};
        cluster_all_here();
        few_send<N, HEIGHT>(a, sums, shared_address(received), rank, rows);
    }
    for (uint32_t turn = 0; turn == 0 || turn < count; turn += ITEMS * MULTIPLIERS) {
        few_output own[ITEMS];
#pragma unroll
        for (int i = 0; i < ITEMS; i++) /* asked for here, needed below */
            own[i] = few_ask(a, tile, rank, rows, turn + i * MULTIPLIERS + threadIdx.x);
        if (a.cluster > 1 && turn == 0)
            cluster_sync();
#pragma unroll
        for (int i = 0; i < ITEMS; i++) {
            float square = 0;
            if (own[i].valid) {
                float y = few_store<N>(m, own[i], of, shared.scales);
                if (m.norm_out.weight)
                    square = norm_hand(m, own[i].row, own[i].n, y, own[i].weight);
            }
            if (!m.norm_out.weight)
                continue;
#pragma unroll
            for (int offset = SQUARES / 2; offset; offset /= 2)
                square += __shfl_xor_sync(FULL_MASK, square, offset);
            if (own[i].row < rows && threadIdx.x % SQUARES == 0)
                shared.squares[own[i].row][own[i].at / SQUARES] = square;
        }
    }
    if (m.norm_out.weight)
        few_hand_squares(a, rows, shared);
}

/* One warp: of each row whose norm is owed, the scale. */
__device__ __forceinline__ void few_norm(const struct matmul_args &m, uint32_t parts,
                                         few_fixed &shared)
{
    for (uint32_t first = 0; first < m.rows.max; first += NORMS) {
        norm_parts some[NORMS];
#pragma unroll
        for (uint32_t i = 0; i < NORMS; i++)
            some[i] = norm_ask(m, first + i, parts);
#pragma unroll
        for (uint32_t i = 0; i < NORMS; i++) {
            float scale = norm_scale_of(m, some[i]);
            if (threadIdx.x % WARP == 0)
                shared.scales[first + i] = scale;
        }
    }
}

#endif

template <int N, int HEIGHT, enum format FORMAT, bool FINE>
__global__ void __launch_bounds__(THREADS, PER_PROCESSOR)
    few_kernel(const __grid_constant__ struct whole_args a)
{
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
    extern __shared__ __align__(STAGE_ALIGNMENT) char memory[];
    __shared__ few_fixed shared;
    const whole_ring ring = whole_begin(shared.barriers, memory, 1, few_together(HEIGHT));
    const whole_tile tile = whole_find(a);
    if (a.cluster > 1)
        cluster_here();
    if (threadIdx.x >= MULTIPLIERS + WARP) {
        if (warp_elect())
            whole_fill<N, FORMAT, HEIGHT>(a, ring, tile);
        return;
    }
    if (threadIdx.x >= MULTIPLIERS) {
        if (a.m.norm_in.squares) {
            grid_wait();
            few_norm(a.m, a.parts, shared);
        }
        few_made();
        return;
    }
    float *sums = reinterpret_cast<float *>(memory + (ring.stages - shared_address(memory)));
    float *received = sums + a.stages * a.stage_bytes / 4;
    const few_ahead ahead =
        few_ahead_of<HEIGHT, FINE>(a, tile, shared_address(received) + a.received);
    few_sums<N> total = {};
    few_multiply<N, HEIGHT, FORMAT, FINE>(total, a, ring, tile, ahead);
    grid_wait();
    few_sync(); /* nothing of the ring is read any more */
    few_lay<N, HEIGHT>(total, sums);
    few_sync_made();
    few_finish<N, HEIGHT>(a, tile, sums, received, a.cluster > 1 ? cluster_rank() : 0, shared);
#endif
}

static uint32_t few_squares(uint32_t outputs)
{
    uint32_t units = ceil_div(outputs, PARTS_UNIT), most = device_props()->processors;
    return units < most ? units : most;
}

/* How high tiles are, and how many blocks share the columns of each; 0: none may. */
struct few_share {
    uint32_t height, cluster;
    bool alone; /* an SM has one block of the kernel */
};

/* Pairs of blocks on low tiles where those take more than two thirds of the SMs, each one of its
 * own: large clusters leave SMs empty. Else what whole_cluster() takes to be fastest. Who hands on
 * sums of squares has no more of a row than blocks. */
static few_share few_share_of(const struct matmul_args *m)
{
    const uint32_t processors = device_props()->processors, steps = ceil_div(m->w.k, STEP);
    const uint32_t most = m->norm_out.weight ? few_squares(m->w.n) : UINT32_MAX;
    const uint32_t paired = 2 * whole_tiles_high(m, SIDE), tiles = whole_tiles(m, 1);
    if (!m->gated && steps > 1 && paired <= processors && 3 * paired > 2 * processors)
        return {SIDE, 2, true};
    uint32_t cluster = whole_cluster(tiles, steps, PER_PROCESSOR, PER_PROCESSOR).cluster;
    while (cluster && tiles * cluster > most)
        cluster /= 2;
    return {whole_height(m), cluster, false};
}

bool gemv_whole_can(const struct matmul_args *a)
{
    bool copied =
        tensor_map_can() && a->x_stride % 8 == 0 && reinterpret_cast<uintptr_t>(a->x) % 16 == 0;
    bool gated = !a->gated || a->w.n % 2 == 0;
    bool alone = !a->activates || (!a->gated && !a->adds);
    bool counted = weight_scale_count(&a->w) <= UINT32_MAX;
    return device_props()->major == 9 && whole_regular(&a->w) && copied && counted && gated &&
           alone && a->rows.max <= GEMV_ROWS_MAX && a->x_dtype == DTYPE_HALF &&
           (!a->adds || a->y_dtype == DTYPE_F32) &&
           matmul_norm_can(a, device_props()->processors) &&
           (!a->norm_out.weight || few_share_of(a).cluster > 0);
}

template <int N, int HEIGHT, enum format FORMAT, bool FINE>
static cudaError_t few_launch(const struct matmul_args *m, const few_share &share,
                              cudaStream_t stream)
{
    const struct device_props *device = device_props();
    static struct device_once once;
    struct whole_args a = {};
    a.blocks = 1;
    a.block_rows = m->rows.max;
    a.cluster = share.cluster;
    a.parts = few_squares(m->w.k);
    a.stage_bytes = N * STEP * 2 + HEIGHT * whole_step<FORMAT>();
    a.received = a.cluster > 1 ? N * (HEIGHT + 4 * a.cluster) * 4 : 0;
    a.group_shift = m->w.scales.k ? 0 : 31;
    while (m->w.scales.k / STEP >> a.group_shift > 1)
        a.group_shift++;
    a.zero_bytes = (m->w.scales.n ? m->w.n : 1) * whole_columns(m->w);
    const uint32_t beside =
        a.received + FEW_WARPS * static_cast<uint32_t>(sizeof(few_slots<FINE>));
    const uint32_t half = (device->shared_max + RESERVED) / PER_PROCESSOR - RESERVED;
    /* A stage is always the same warps': see gemv_rounded.cu. */
    a.stages = ring_stages(half - APART - FIXED - beside, a.stage_bytes, FEW_STAGES_MAX) /
               few_parts(HEIGHT) * few_parts(HEIGHT);
    uint32_t bytes = STAGE_ALIGNMENT + a.stages * a.stage_bytes + beside;
    if (share.alone && bytes < half + APART / 2)
        bytes = half + APART / 2;
    cudaError_t result = whole_describe<FORMAT>(m, share.height, &a);
    if (result == cudaSuccess)
        result = device_allow(&once, few_kernel<N, HEIGHT, FORMAT, FINE>, device, STAGE_ALIGNMENT);
    if (result != cudaSuccess)
        return result;
    return whole_enqueue(few_kernel<N, HEIGHT, FORMAT, FINE>, a, THREADS, bytes, stream);
}

template <enum format FORMAT, bool FINE>
static cudaError_t few_rows(const struct matmul_args *m, cudaStream_t stream)
{
    const few_share share = few_share_of(m);
    const bool low = !m->gated && share.height == SIDE;
    if (m->rows.max <= 8)
        return low ? few_launch<8, SIDE, FORMAT, FINE>(m, share, stream)
                   : few_launch<8, OUTPUTS, FORMAT, FINE>(m, share, stream);
    return low ? few_launch<16, SIDE, FORMAT, FINE>(m, share, stream)
               : few_launch<16, OUTPUTS, FORMAT, FINE>(m, share, stream);
}

/* Groups that are a power of two of whole steps, or all columns. */
static bool few_plain(const struct weight &w)
{
    uint32_t steps = w.scales.k / STEP;
    return w.scales.k % STEP == 0 && (steps & (steps - 1)) == 0;
}

cudaError_t gemv_whole(const struct matmul_args *args, cudaStream_t stream)
{
    bool fine = !few_plain(args->w);
    if (args->w.format == FORMAT_U4)
        return fine ? few_rows<FORMAT_U4, true>(args, stream)
                    : few_rows<FORMAT_U4, false>(args, stream);
    return fine ? few_rows<FORMAT_U8, true>(args, stream)
                : few_rows<FORMAT_U8, false>(args, stream);
}

} // namespace HALF
