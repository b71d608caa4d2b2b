/* Products of 17 and more rows with weights in whole numbers, on sm_90: of few of them bound by
 * reading the weights once, of many by the tensor cores.
 *
 * A tile is 128 outputs (of gate and up 64 channels of each) and up to 128 rows of x. Two
 * warpgroups have 64 outputs each: they take the numbers out of shared memory, change them to 16
 * bits in registers, and multiply from there, weights the left operand, with x in shared memory the
 * right one. One warpgroup changes numbers while the tensor cores work for the other. A
 * group's sum is multiplied by its scale and added up in float32, so no weight is rounded.
 *
 * A stage of the ring has 128 columns: of x and of the weights in boxes that the copy engine lays
 * out, of scales and zeros by copies of four bytes of the ninth warp, which fills the ring. The
 * first weights are under way before the kernel waits for the one before it. Where tiles are fewer
 * than SMs a cluster of blocks shares the columns of one; each adds up a part of the outputs, in
 * the order of blocks, from the sums that all lay in their shared memory. */
#include "gpu/kernels/activation/activation.cuh"
#include "gpu/kernels/common/device_props.cuh"
#include "gpu/kernels/common/wgmma.cuh"
#include "gpu/kernels/matmul/matmul_whole.cuh"

namespace HALF
{

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* A lane's outputs are `output` and eight behind it, of the warpgroup's 64. */
template <int N, enum format FORMAT>
struct whole_lane {
    uint32_t of;       /* the first one's number among the tile's */
    uint32_t words[2]; /* where rows of the weights begin in a stage */
    uint32_t scales[2], zeros[2];
    uint32_t turn; /* how units of 16 bytes are turned (tensor_map.cuh) */
};

template <int N, enum format FORMAT>
__device__ __forceinline__ whole_lane<N, FORMAT> whole_lane_of(const whole_args &a)
{
    whole_lane<N, FORMAT> out;
    uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    uint32_t side = warp % 4 * 16 + lane / 4;
    out.of = warp / 4 * SIDE + side;
    out.turn = FORMAT == FORMAT_U4 ? side / 2 % 4 : side % 8;
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t of = out.of + i * 8;
        out.words[i] = N * STEP * 2 + of * whole_step_bytes<FORMAT>() + lane % 4 * 4;
        out.scales[i] = whole_scales_at<N, FORMAT>() + of * a.groups * 4;
        out.zeros[i] = whole_scales_at<N, FORMAT>() + (OUTPUTS * a.groups + of * a.zero_words) * 4;
    }
    return out;
}

/* Of both outputs in a stage, how far their zeros are behind a multiple of four. */
__device__ __forceinline__ uint32_t whole_zero_skip(const whole_args &a, const whole_tile &tile,
                                                    uint32_t of, uint32_t step)
{
    const struct weight &w = a.m.w;
    uint32_t n = whole_output_of(a, tile, of);
    uint32_t first = w.scales.k ? step * STEP / w.scales.k : 0;
    return ((w.scales.n ? n : 0) * a.columns + first) % 4;
}

/* A block of 32 columns of both outputs, as two left operands. */
template <int N, enum format FORMAT>
__device__ __forceinline__ void whole_take(uint32_t (&out)[2][4], const whole_lane<N, FORMAT> &lane,
                                           uint32_t stage, int block, const uint32_t (&zeros)[2])
{
#pragma unroll
    for (int i = 0; i < 2; i++) {
        uint32_t words[2];
#pragma unroll
        for (int j = 0; j < (FORMAT == FORMAT_U4 ? 1 : 2); j++) {
            uint32_t unit = FORMAT == FORMAT_U4 ? block : 2 * block + j;
            words[j] = load_shared_word(stage + lane.words[i] + ((unit ^ lane.turn) << 4));
        }
#pragma unroll
        for (int j = 0; j < 4; j++)
            out[j / 2][j % 2 * 2 + i] = FORMAT == FORMAT_U4
                                            ? whole_pair<FORMAT>(words[0], j, zeros[i])
                                            : whole_pair<FORMAT>(words[j / 2], j % 2, zeros[i]);
    }
}

template <int N>
__device__ __forceinline__ void whole_add(float (&total)[N / 2], const float (&sum)[N / 2],
                                          const float (&scales)[2])
{
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        total[i] = __fmaf_rn(sum[i], scales[i / 2 % 2], total[i]);
}

/* What a warp knows of the stage that it is at. */
struct whole_at {
    uint32_t stage;    /* shared address */
    uint32_t zeros[2]; /* of both outputs' first ones, where there are any */
};

template <int N, enum format FORMAT>
__device__ __forceinline__ whole_at whole_arrive(const whole_args &a, const whole_ring &ring,
                                                 const whole_tile &tile,
                                                 const whole_lane<N, FORMAT> &lane,
                                                 const ring_cursor &at, uint32_t step)
{
    whole_at out = {ring.stages + at.stage * a.stage_bytes, {}};
#pragma unroll
    for (uint32_t i = 0; i < 2; i++)
        out.zeros[i] = out.stage + lane.zeros[i] + whole_zero_skip(a, tile, lane.of + i * 8, step);
    ring_wait_full(ring.full, at);
    return out;
}

template <enum format FORMAT>
__device__ __forceinline__ void whole_zeros_take(uint32_t (&zeros)[2], const whole_args &a,
                                                 const whole_at &at, uint32_t group)
{
#pragma unroll
    for (int i = 0; i < 2; i++)
        zeros[i] = whole_zero<FORMAT>(a.zero_words ? load_shared_byte(at.zeros[i] + group) : 0);
}

template <int N, enum format FORMAT>
__device__ __forceinline__ void whole_scales_take(float (&scales)[2],
                                                  const whole_lane<N, FORMAT> &lane, uint32_t stage,
                                                  uint32_t group)
{
#pragma unroll
    for (int i = 0; i < 2; i++)
        scales[i] = __uint_as_float(load_shared_word(stage + lane.scales[i] + group * 4));
}

/* sum = the products of COUNT blocks of 32 columns, + sum where `add`; done behind this. */
template <int N, int COUNT>
__device__ __forceinline__ void whole_blocks(float (&sum)[N / 2],
                                             const uint32_t (&operands)[COUNT][2][4],
                                             uint32_t stage, int first, bool add)
{
    wgmma_begin();
#pragma unroll
    for (int i = 0; i < 2 * COUNT; i++) {
        const int k = first * 2 + i;
        wgmma_registers(sum, operands[i / 2][i % 2],
                        wgmma_operand(stage + k / 4 * N * STEP + k % 4 * 32, 16), add || i > 0);
    }
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_hold(sum);
}

/* A warp has done with a stage. */
__device__ __forceinline__ void whole_give_back(const whole_ring &ring, const ring_cursor &at)
{
    reads_before_copy();
    __syncwarp();
    if (threadIdx.x % WARP == 0)
        ring_give_back(ring.empty, at);
}

/* A warpgroup: total = the products of its outputs with all rows. Groups are one or more stages.
 * One warpgroup changes numbers while the other one's are multiplied. */
template <int N, enum format FORMAT>
__device__ __forceinline__ void whole_multiply(float (&total)[N / 2], const whole_args &a,
                                               const whole_ring &ring, const whole_tile &tile)
{
    const whole_lane<N, FORMAT> lane = whole_lane_of<N, FORMAT>(a);
    const uint32_t per = a.m.w.scales.k / STEP; /* steps of a group; 0: one for all */
    const int some = N == 64 ? 2 : BLOCKS;      /* blocks at a time, as registers allow */
    float sum[N / 2], scales[2] = {};
    ring_cursor at = {0, 0};
    for (uint32_t step = tile.first; step < tile.end;) {
        uint32_t first = step, end = per ? min(tile.end, (step / per + 1) * per) : tile.end;
        for (; step < end; step++) {
            whole_at now = whole_arrive(a, ring, tile, lane, at, step);
            uint32_t operands[some][2][4], zeros[2];
            whole_zeros_take<FORMAT>(zeros, a, now, 0);
            whole_scales_take(scales, lane, now.stage, 0);
#pragma unroll
            for (int block = 0; block < BLOCKS; block += some) {
#pragma unroll
                for (int i = 0; i < some; i++)
                    whole_take(operands[i], lane, now.stage, block + i, zeros);
                whole_blocks<N, some>(sum, operands, now.stage, block, block > 0 || step > first);
            }
            whole_give_back(ring, at);
            ring_next(at, a.stages);
        }
        whole_add<N>(total, sum, scales);
    }
}

/* The same where groups may end with any block: each is added up by itself. */
template <int N, enum format FORMAT>
__device__ __forceinline__ void whole_multiply_fine(float (&total)[N / 2], const whole_args &a,
                                                    const whole_ring &ring, const whole_tile &tile)
{
    const whole_lane<N, FORMAT> lane = whole_lane_of<N, FORMAT>(a);
    const uint32_t last = a.m.w.k - WHOLE_BLOCK; /* blocks behind it are zeros, of its group */
    float sum[N / 2], scales[2];
    ring_cursor at = {0, 0};
    for (uint32_t step = tile.first; step < tile.end; step++) {
        whole_at now = whole_arrive(a, ring, tile, lane, at, step);
        uint32_t first = step * STEP / a.m.w.scales.k;
#pragma unroll
        for (int block = 0; block < BLOCKS; block++) {
            uint32_t group = min(step * STEP + block * WHOLE_BLOCK, last) / a.m.w.scales.k - first;
            uint32_t operands[1][2][4], zeros[2];
            whole_zeros_take<FORMAT>(zeros, a, now, group);
            whole_scales_take(scales, lane, now.stage, group);
            whole_take(operands[0], lane, now.stage, block, zeros);
            whole_blocks<N, 1>(sum, operands, now.stage, block, false);
            whole_add<N>(total, sum, scales);
        }
        whole_give_back(ring, at);
        ring_next(at, a.stages);
    }
}

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
    float4 out = {};
    for (uint32_t i = 0; i < a.cluster; i++) {
        uint32_t at = sums + (row * PITCH + of) * 4;
        float4 part = cluster_load(a.cluster > 1 ? cluster_address(at, i) : at);
        out.x += part.x;
        out.y += part.y;
        out.z += part.z;
        out.w += part.w;
    }
    return out;
}

__device__ __forceinline__ float whole_act(const struct matmul_args &m, float x)
{
    return m.activation == ACTIVATE_SILU ? activated<ACTIVATE_SILU>(x)
                                         : activated<ACTIVATE_GELU_TANH>(x);
}

/* What a sum becomes, but for the add. */
__device__ __forceinline__ float whole_become(const struct matmul_args &m, float y, float up,
                                              uint32_t n)
{
    if (m.bias)
        y += load_value(m.bias, n, m.bias_dtype);
    if (!m.gated)
        return y;
    if (m.bias)
        up += load_value(m.bias, m.w.n / 2 + n, m.bias_dtype);
    return whole_act(m, y) * up;
}

__device__ __forceinline__ void whole_put(const whole_args &a, uint32_t row, uint32_t n,
                                          uint32_t outputs, const float (&y)[4])
{
    const struct matmul_args &m = a.m;
    size_t at = (size_t)row * m.y_stride + n;
    if (a.vectors && n + 4 <= outputs && m.y_dtype == DTYPE_F32) {
        float4 *to = reinterpret_cast<float4 *>(static_cast<float *>(m.y) + at);
        float4 old = m.adds ? *to : make_float4(0, 0, 0, 0);
        *to = make_float4(old.x + y[0], old.y + y[1], old.z + y[2], old.w + y[3]);
        return;
    }
    if (a.vectors && n + 4 <= outputs) {
        *reinterpret_cast<uint2 *>(static_cast<uint16_t *>(m.y) + at) =
            make_uint2(pack(y[0], y[1], m.y_dtype), pack(y[2], y[3], m.y_dtype));
        return;
    }
#pragma unroll
    for (uint32_t i = 0; i < 4; i++)
        if (n + i < outputs)
            store_value(m.y, at + i, m.y_dtype,
                        y[i] + (m.adds ? load_value(m.y, at + i, m.y_dtype) : 0.0f));
}

/* Whole block, of which `rank` this is: its part of the tile's outputs, of all rows. */
__device__ __forceinline__ void whole_finish_tile(const whole_args &a, const whole_tile &tile,
                                                  uint32_t sums, uint32_t rank)
{
    const struct matmul_args &m = a.m;
    uint32_t outputs = m.gated ? m.w.n / 2 : m.w.n;
    uint32_t width = (m.gated ? SIDE : OUTPUTS) / a.cluster, fours = width / 4;
    uint32_t rows = min(a.block_rows, m.rows.max - tile.row);
    for (uint32_t i = threadIdx.x; i < rows * fours; i += THREADS) {
        uint32_t row = i / fours, of = rank * width + i % fours * 4, n = tile.output + of;
        if (n >= outputs)
            continue;
        float4 low = whole_sums_add(a, sums, row, of), up = {};
        if (m.gated)
            up = whole_sums_add(a, sums, row, of + SIDE);
        const float lows[] = {low.x, low.y, low.z, low.w}, ups[] = {up.x, up.y, up.z, up.w};
        float y[4];
#pragma unroll
        for (uint32_t j = 0; j < 4; j++)
            y[j] = n + j < outputs ? whole_become(m, lows[j], ups[j], n + j) : 0.0f;
        whole_put(a, tile.row + row, n, outputs, y);
    }
}

#endif

template <int N, enum format FORMAT, bool FINE>
__global__ void __launch_bounds__(THREADS, N <= 64 ? 2 : 1)
    whole_wide_kernel(const __grid_constant__ struct whole_args a)
{
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
    extern __shared__ __align__(STAGE_ALIGNMENT) char memory[];
    __shared__ ring_barriers<STAGES_MAX> barriers;
    whole_ring ring;
    ring.full = shared_address(barriers.full);
    ring.empty = shared_address(barriers.empty);
    ring.stages =
        (shared_address(memory) + STAGE_ALIGNMENT - 1) / STAGE_ALIGNMENT * STAGE_ALIGNMENT;
    if (threadIdx.x == 0) {
        ring_init(ring.full, STAGES_MAX, 1 + WARP); /* who asks, and each lane's own copies */
        ring_init(ring.empty, STAGES_MAX, WARPS);
        barrier_init_done();
    }
    __syncthreads();
    grid_trigger(); /* the kernel behind waits for this one by itself */
    const whole_tile tile = whole_find(a);
    float *sums = reinterpret_cast<float *>(memory + (ring.stages - shared_address(memory)));
    const bool brings = threadIdx.x / WARP == WARPS;
    float total[N / 2] = {};
    if (brings)
        whole_bring<N, FORMAT>(a, ring, tile);
    else if constexpr (FINE)
        whole_multiply_fine<N, FORMAT>(total, a, ring, tile);
    else
        whole_multiply<N, FORMAT>(total, a, ring, tile);
    /* Nothing of the ring is read any more; one place for both roles, as a barrier asks. */
    __syncthreads();
    if (!brings) {
        whole_sums_lay<N>(total, sums);
        grid_wait();
    }
    uint32_t rank = 0;
    if (a.cluster > 1) {
        rank = cluster_rank();
        cluster_sync();
    } else {
        __syncthreads();
    }
    whole_finish_tile(a, tile, ring.stages, rank);
    if (a.cluster > 1)
        cluster_sync(); /* others may still read this one's sums */
#endif
}

bool matmul_whole_can(const struct matmul_args *a)
{
    bool behind = !a->activates && !a->norm_out.weight && !a->norm_in.squares &&
                  (!a->adds || (a->y_dtype == DTYPE_F32 && !a->gated));
    bool copied =
        tensor_map_can() && a->x_stride % 8 == 0 && reinterpret_cast<uintptr_t>(a->x) % 16 == 0;
    return device_props()->major == 9 && whole_regular(&a->w) && behind && copied &&
           a->rows.max > GEMV_ROWS_MAX && a->rows.max <= MATMUL_WHOLE_MAX &&
           a->x_dtype == DTYPE_HALF && (!a->gated || a->w.n % 2 == 0);
}

/* Blocks that share a tile's columns: what takes least time, in stages. Larger clusters do not fit
 * on all SMs. */
static uint32_t whole_cluster(uint32_t tiles, uint32_t steps, uint32_t per_processor)
{
    uint32_t best = 1, least = UINT32_MAX, slots = device_props()->processors * per_processor;
    for (uint32_t cluster = 1; cluster <= CLUSTER_MAX && cluster <= steps; cluster *= 2) {
        uint32_t room = cluster > 2 ? slots * 9 / 10 : slots;
        uint32_t turns = ceil_div(tiles, room / cluster ? room / cluster : 1);
        uint32_t cost = turns * (ceil_div(steps, cluster) + COST_BEGIN);
        if (cost < least) {
            least = cost;
            best = cluster;
        }
    }
    return best;
}

static bool whole_vectors(const struct matmul_args *m)
{
    return m->y_stride % 4 == 0 && reinterpret_cast<uintptr_t>(m->y) % 16 == 0;
}

template <int N, enum format FORMAT, bool FINE>
static cudaError_t whole_wide_enqueue(const struct whole_args &a, uint32_t grid, uint32_t bytes,
                                      cudaStream_t stream)
{
    cudaLaunchAttribute attributes[2];
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = 1;
    attributes[1].id = cudaLaunchAttributeClusterDimension;
    attributes[1].val.clusterDim.x = a.cluster;
    attributes[1].val.clusterDim.y = attributes[1].val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(grid);
    config.blockDim = dim3(THREADS);
    config.dynamicSmemBytes = bytes;
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = a.cluster > 1 ? 2 : 1;
    return cudaLaunchKernelEx(&config, whole_wide_kernel<N, FORMAT, FINE>, a);
}

template <int N, enum format FORMAT>
static uint32_t whole_wide_stage(const struct matmul_args *m, struct whole_args *a)
{
    uint32_t group = m->w.scales.k;
    a->columns = whole_columns(m->w);
    a->groups = !group ? 1 : STEP % group == 0 ? STEP / group : (STEP - 1) / group + 2;
    a->groups = group % STEP == 0 ? 1 : a->groups;
    a->zero_words = m->w.zeros ? (a->groups + 6) / 4 : 0;
    uint32_t step = FORMAT == FORMAT_U4 ? STEP / 2 : STEP;
    uint32_t bytes = N * STEP * 2 + OUTPUTS * (step + (a->groups + a->zero_words) * 4);
    return ceil_div(bytes, STAGE_ALIGNMENT) * STAGE_ALIGNMENT;
}

template <int N, enum format FORMAT, bool FINE>
static cudaError_t whole_wide_launch(const struct matmul_args *m, cudaStream_t stream)
{
    const struct device_props *device = device_props();
    const uint32_t per_processor = N <= 64 ? 2 : 1;
    static struct device_once once;
    struct whole_args a = {};
    a.m = *m;
    a.blocks = ceil_div(m->rows.max, ROWS_MAX);
    a.block_rows = ceil_div(m->rows.max, a.blocks);
    a.blocks = ceil_div(m->rows.max, a.block_rows);
    a.steps = ceil_div(m->w.k, STEP);
    a.second = m->gated ? m->w.n / 2 : SIDE;
    a.vectors = whole_vectors(m);
    a.stage_bytes = whole_wide_stage<N, FORMAT>(m, &a);
    uint32_t room = (device->shared_max + RESERVED) / per_processor - RESERVED - FIXED;
    a.stages = ring_stages(room, a.stage_bytes, STAGES_MAX);
    uint32_t tiles = a.blocks * ceil_div(m->w.n, OUTPUTS);
    if (m->gated)
        tiles = a.blocks * ceil_div(m->w.n / 2, SIDE);
    a.cluster = whole_cluster(tiles, a.steps, per_processor);
    cudaError_t result =
        device_allow(&once, whole_wide_kernel<N, FORMAT, FINE>, device, STAGE_ALIGNMENT);
    if (result == cudaSuccess)
        result = tensor_map(&a.x, m->x, DTYPE_HALF, m->rows.max, m->w.k, m->x_stride, a.block_rows);
    if (result == cudaSuccess)
        result = tensor_map_bytes(&a.w, m->w.data, m->w.n, whole_bytes(FORMAT, m->w.k),
                                  FORMAT == FORMAT_U4 ? STEP / 2 : STEP);
    if (result != cudaSuccess)
        return result;
    uint32_t ring = a.stages * a.stage_bytes, sums = N * PITCH * 4;
    return whole_wide_enqueue<N, FORMAT, FINE>(
        a, tiles * a.cluster, STAGE_ALIGNMENT + (ring > sums ? ring : sums), stream);
}

template <int N, enum format FORMAT>
static cudaError_t whole_wide_groups(const struct matmul_args *m, cudaStream_t stream)
{
    return m->w.scales.k % STEP ? whole_wide_launch<N, FORMAT, true>(m, stream)
                                : whole_wide_launch<N, FORMAT, false>(m, stream);
}

template <int N>
static cudaError_t whole_wide_format(const struct matmul_args *m, cudaStream_t stream)
{
    return m->w.format == FORMAT_U4 ? whole_wide_groups<N, FORMAT_U4>(m, stream)
                                    : whole_wide_groups<N, FORMAT_U8>(m, stream);
}

cudaError_t matmul_whole(const struct matmul_args *m, cudaStream_t stream)
{
    uint32_t rows = ceil_div(m->rows.max, ceil_div(m->rows.max, ROWS_MAX));
    return rows <= 32   ? whole_wide_format<32>(m, stream)
           : rows <= 64 ? whole_wide_format<64>(m, stream)
                        : whole_wide_format<128>(m, stream);
}

} // namespace HALF
