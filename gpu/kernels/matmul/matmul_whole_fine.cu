/* Products of 17 and more rows with weights in whole numbers, on sm_90, whose groups end within
 * stages: as matmul_whole.cu has them, but each block of 32 columns is summed by itself, multiplied
 * by its scale and added up in float32. Tiles have up to 128 rows; one warpgroup changes numbers
 * while the tensor cores work for the other.
 *
 * Scales and zeros come to the stage by copies of four bytes of the ninth warp, which fills the
 * ring. */
#include "gpu/kernels/matmul/matmul_whole_fine.cuh"

namespace HALF
{

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* Where scales and zeros of both outputs of a lane begin in a stage. */
struct fine_lane {
    whole_lane at;
    uint32_t scales[2], zeros[2];
};

template <int N, enum format FORMAT>
__device__ __forceinline__ fine_lane fine_lane_of(const whole_args &a)
{
    fine_lane out = {whole_lane_of<N, FORMAT>(), {}, {}};
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t of = out.at.of + i * 8;
        out.scales[i] = whole_scales_at<N, FORMAT>() + of * a.groups * 4;
        out.zeros[i] = whole_scales_at<N, FORMAT>() + (OUTPUTS * a.groups + of * a.zero_words) * 4;
    }
    return out;
}

/* Of both outputs in a stage, how far their zeros are behind a multiple of four. */
__device__ __forceinline__ uint32_t fine_zero_skip(const whole_args &a, const whole_tile &tile,
                                                   uint32_t of, uint32_t step)
{
    const struct weight &w = a.m.w;
    uint32_t n = whole_output_of(a, tile, of);
    uint32_t first = w.scales.k ? step * STEP / w.scales.k : 0;
    return ((w.scales.n ? n : 0) * a.columns + first) % 4;
}

template <int N>
__device__ __forceinline__ void fine_add(float (&total)[N / 2], const float (&sum)[N / 2],
                                         const float (&scales)[2])
{
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        total[i] = __fmaf_rn(sum[i], scales[i / 2 % 2], total[i]);
}

/* What a warp knows of the stage that it is at. */
struct fine_at {
    uint32_t stage;    /* shared address */
    uint32_t zeros[2]; /* of both outputs' first ones, where there are any */
};

__device__ __forceinline__ fine_at fine_arrive(const whole_args &a, const whole_ring &ring,
                                               const whole_tile &tile, const fine_lane &lane,
                                               const ring_cursor &at, uint32_t step)
{
    fine_at out = {ring.stages + at.stage * a.stage_bytes, {}};
#pragma unroll
    for (uint32_t i = 0; i < 2; i++)
        out.zeros[i] =
            out.stage + lane.zeros[i] + fine_zero_skip(a, tile, lane.at.of + i * 8, step);
    ring_wait_full(ring.full, at);
    return out;
}

template <enum format FORMAT>
__device__ __forceinline__ void fine_zeros_take(uint32_t (&zeros)[2], const whole_args &a,
                                                const fine_at &at, uint32_t group)
{
#pragma unroll
    for (int i = 0; i < 2; i++)
        zeros[i] = whole_zero<FORMAT>(a.zero_words ? load_shared_byte(at.zeros[i] + group) : 0);
}

__device__ __forceinline__ void fine_scales_take(float (&scales)[2], const fine_lane &lane,
                                                 uint32_t stage, uint32_t group)
{
#pragma unroll
    for (int i = 0; i < 2; i++)
        scales[i] = __uint_as_float(load_shared_word(stage + lane.scales[i] + group * 4));
}

/* sum = the products of a block of 32 columns; done behind this. */
template <int N>
__device__ __forceinline__ void fine_block(float (&sum)[N / 2], const uint32_t (&operands)[2][4],
                                           uint32_t stage, int block)
{
    wgmma_begin();
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int k = block * 2 + i;
        wgmma_registers(sum, operands[i], wgmma_operand(stage + k / 4 * N * STEP + k % 4 * 32, 16),
                        i > 0);
    }
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_hold(sum);
}

/* A warpgroup: total = the products of its outputs with all rows. */
template <int N, enum format FORMAT>
__device__ __forceinline__ void fine_multiply(float (&total)[N / 2], const whole_args &a,
                                              const whole_ring &ring, const whole_tile &tile)
{
    const fine_lane lane = fine_lane_of<N, FORMAT>(a);
    const uint32_t last = a.m.w.k - WHOLE_BLOCK; /* blocks behind it are zeros, of its group */
    float sum[N / 2], scales[2];
    ring_cursor at = {0, 0};
    for (uint32_t step = tile.first; step < tile.end; step++) {
        fine_at now = fine_arrive(a, ring, tile, lane, at, step);
        uint32_t first = step * STEP / a.m.w.scales.k;
#pragma unroll
        for (int block = 0; block < BLOCKS; block++) {
            uint32_t group = min(step * STEP + block * WHOLE_BLOCK, last) / a.m.w.scales.k - first;
            uint32_t operands[2][4], zeros[2];
            fine_zeros_take<FORMAT>(zeros, a, now, group);
            fine_scales_take(scales, lane, now.stage, group);
            whole_take<FORMAT>(operands, lane.at, now.stage, block, zeros);
            fine_block<N>(sum, operands, now.stage, block);
            fine_add<N>(total, sum, scales);
        }
        reads_before_copy();
        whole_give_back(ring, at);
        ring_next(at, a.stages);
    }
}

#endif

template <int N, enum format FORMAT>
__global__ void __launch_bounds__(THREADS, N <= 64 ? 2 : 1)
    whole_fine_kernel(const __grid_constant__ struct whole_args a)
{
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
    extern __shared__ __align__(STAGE_ALIGNMENT) char memory[];
    __shared__ ring_barriers<STAGES_MAX> barriers;
    /* A stage is filled by who asks, and by each lane's own copies. */
    const whole_ring ring = whole_begin(barriers, memory, 1 + WARP);
    const whole_tile tile = whole_find(a);
    float *sums = reinterpret_cast<float *>(memory + (ring.stages - shared_address(memory)));
    const bool brings = threadIdx.x / WARP == WARPS;
    float total[N / 2] = {};
    if (brings)
        whole_bring<N, FORMAT>(a, ring, tile);
    else
        fine_multiply<N, FORMAT>(total, a, ring, tile);
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
    if (!brings)
        whole_finish_tile<WARPS * WARP>(a, tile, ring.stages, rank);
    if (a.cluster > 1)
        cluster_sync(); /* others may still read this one's sums */
#endif
}

/* The bytes of a stage, and what of scales and zeros is in it. */
template <int N, enum format FORMAT>
static uint32_t fine_stage(const struct matmul_args *m, struct whole_args *a)
{
    uint32_t group = m->w.scales.k;
    a->groups = STEP % group == 0 ? STEP / group : (STEP - 1) / group + 2;
    a->zero_words = m->w.zeros ? (a->groups + 6) / 4 : 0;
    uint32_t bytes =
        N * STEP * 2 + OUTPUTS * (whole_step<FORMAT>() + (a->groups + a->zero_words) * 4);
    return ceil_div(bytes, STAGE_ALIGNMENT) * STAGE_ALIGNMENT;
}

template <int N, enum format FORMAT>
static cudaError_t fine_launch(const struct matmul_args *m, uint32_t blocks, cudaStream_t stream)
{
    const struct device_props *device = device_props();
    const uint32_t per_processor = N <= 64 ? 2 : 1;
    static struct device_once once;
    struct whole_args a = {};
    a.blocks = blocks;
    a.block_rows = ceil_div(m->rows.max, blocks);
    a.blocks = ceil_div(m->rows.max, a.block_rows);
    a.stage_bytes = fine_stage<N, FORMAT>(m, &a);
    uint32_t room = (device->shared_max + RESERVED) / per_processor - RESERVED - FIXED;
    a.stages = ring_stages(room, a.stage_bytes, STAGES_MAX);
    cudaError_t result = whole_describe<FORMAT>(m, whole_height(m), &a);
    if (result == cudaSuccess)
        result = device_allow(&once, whole_fine_kernel<N, FORMAT>, device, STAGE_ALIGNMENT);
    if (result != cudaSuccess)
        return result;
    a.cluster = whole_cluster(whole_tiles(m, a.blocks), a.steps, per_processor, 1).cluster;
    uint32_t bytes = a.stages * a.stage_bytes, sums = N * PITCH * 4;
    return whole_enqueue(whole_fine_kernel<N, FORMAT>, a, THREADS,
                         STAGE_ALIGNMENT + (bytes > sums ? bytes : sums), stream);
}

template <enum format FORMAT>
static cudaError_t fine_rows(const struct matmul_args *m, cudaStream_t stream)
{
    uint32_t blocks = ceil_div(m->rows.max, ROWS_MAX), rows = ceil_div(m->rows.max, blocks);
    return rows <= 32   ? fine_launch<32, FORMAT>(m, blocks, stream)
           : rows <= 64 ? fine_launch<64, FORMAT>(m, blocks, stream)
                        : fine_launch<128, FORMAT>(m, blocks, stream);
}

cudaError_t matmul_whole_fine(const struct matmul_args *m, cudaStream_t stream)
{
    return m->w.format == FORMAT_U4 ? fine_rows<FORMAT_U4>(m, stream)
                                    : fine_rows<FORMAT_U8>(m, stream);
}

} // namespace HALF
