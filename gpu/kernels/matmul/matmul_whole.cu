/* Products of 17 and more rows with weights in whole numbers, on sm_90: of few of them bound by
 * reading the weights once, of many by the tensor cores. Groups are whole stages here, or all
 * columns are one; others: matmul_whole_fine.cu.
 *
 * A tile is 128 outputs (of gate and up 64 channels of each) and up to 256 rows of x. Two
 * warpgroups have 64 outputs each: they take the numbers out of shared memory, change them to 16
 * bits in registers, and multiply from there, weights the left operand, with x in shared memory the
 * right one. Numbers of half a stage are changed while those of the other half are multiplied.
 *
 * No weight is rounded. Sums are in units of the scale of the group that is added: where another
 * begins they are multiplied by what the old unit is in new ones. So there is one set of sums, and
 * the tensor cores add to it themselves. A unit is never less than 2^-60 of the greatest scale so
 * far, below which a scale adds nothing that would be seen beside what that one stands for, so that
 * sums stay finite.
 *
 * A stage of the ring has 128 columns, in boxes that the copy engine lays out; a third warpgroup,
 * or a ninth warp, has one lane that fills the ring. Scales and zeros go straight to registers, a
 * group ahead. The first weights are under way before the kernel waits for the one before it. Where
 * tiles are fewer than SMs a cluster of blocks shares the columns of one; each adds up a part of
 * the outputs, in the order of blocks, from the sums that all lay in their shared memory. */
#include "gpu/kernels/matmul/matmul_whole.cuh"

namespace HALF
{

#define SOME (BLOCKS / 2) /* blocks of columns that are multiplied at a time */
#define LEAST 0x1p-66f    /* 2^-60 of what counts as the greatest scale is a normal number */
#define ROWS_ONE 128      /* of a block of rows; of u4 also twice as many */

template <int N> __host__ __device__ __forceinline__ constexpr uint32_t whole_per_processor()
{
    return N <= 64 ? 2 : 1;
}

/* Two warpgroups and a warp; where an SM has one block, a third one gives its registers up. */
template <int N> __host__ __device__ __forceinline__ constexpr uint32_t whole_threads()
{
    return N <= 64 ? 2 * GROUP_THREADS + WARP : 3 * GROUP_THREADS;
}

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* ---- scales ---- */

/* Of a lane's two outputs: the scales and zeros of a group, as they lie. */
struct whole_group {
    float scales[2];
    uint32_t zeros[2];
};

/* Where those of the next group are, in both arrays. */
struct whole_groups {
    uint32_t at[2], left; /* left: groups of the row behind it */
};

__device__ __forceinline__ whole_groups whole_groups_of(const whole_args &a, const whole_tile &tile,
                                                        const whole_lane &lane, uint32_t first)
{
    const struct weight &w = a.m.w;
    whole_groups out;
    out.left = a.columns - 1 - first;
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t n = min(whole_output_of(a, tile, lane.of + i * 8), w.n - 1);
        out.at[i] = (w.scales.n ? n : 0) * a.columns + first;
        asm volatile("" : "+r"(out.at[i])); /* kept, not made anew in each step */
    }
    return out;
}

/* Past the last one there is nothing to ask for. */
__device__ __forceinline__ void whole_group_ask(whole_group &out, const whole_args &a,
                                                whole_groups &from)
{
    const struct weight &w = a.m.w;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        out.scales[i] = __ldg(static_cast<const float *>(w.scales.data) + from.at[i]);
        out.zeros[i] = w.zeros ? __ldg(w.zeros + from.at[i]) : 0;
        from.at[i] += from.left > 0;
    }
    from.left -= from.left > 0;
}

/* What an output's sums are in units of. */
struct whole_unit {
    float unit, greatest; /* greatest: of all scales so far */
};

/* The next group's scale is the unit; what the old one is in it. */
__device__ __forceinline__ float whole_unit_next(whole_unit &of, float scale)
{
    of.greatest = fmaxf(of.greatest, fabsf(scale));
    float least = of.greatest * 0x1p-60f, before = of.unit;
    of.unit = fabsf(scale) < least ? copysignf(least, scale) : scale;
    return __fdividef(before, of.unit);
}

/* ---- multiplying ---- */

/* Starts sum += the products of SOME blocks of columns, which are the `first` and on of a stage. */
template <int N>
__device__ __forceinline__ void
whole_start(float (&sum)[N / 2], const uint32_t (&operands)[SOME][2][4], uint32_t stage, int first)
{
    const uint64_t x = wgmma_operand(stage, 16);
    const uint32_t low = static_cast<uint32_t>(x); /* the address, in units of 16 bytes */
    wgmma_begin();
#pragma unroll
    for (int i = 0; i < 2 * SOME; i++) {
        const int k = first * 2 + i;
        wgmma_registers(sum, operands[i / 2][i % 2],
                        (x & ~0xffffffffull) | (low + (k / 4 * N * STEP + k % 4 * 32) / 16), 1);
    }
    wgmma_commit();
}

template <enum format FORMAT>
__device__ __forceinline__ void whole_take_some(uint32_t (&operands)[SOME][2][4],
                                                const whole_lane &lane, uint32_t stage, int first,
                                                const uint32_t (&zeros)[2])
{
#pragma unroll
    for (int i = 0; i < SOME; i++)
        whole_take<FORMAT>(operands[i], lane, stage, first + i, zeros);
}

/* A warpgroup: total = the products of its outputs with all rows. */
template <int N, enum format FORMAT>
__device__ __forceinline__ void whole_multiply(float (&sum)[N / 2], const whole_args &a,
                                               const whole_ring &ring, const whole_tile &tile)
{
    const whole_lane lane = whole_lane_of<N, FORMAT>();
    const uint32_t per = a.m.w.scales.k / STEP; /* steps of a group; 0: one for all */
    const uint32_t group = per ? tile.first / per : 0;
    uint32_t left = per ? (group + 1) * per - tile.first : UINT32_MAX; /* steps of it */
    whole_groups groups = whole_groups_of(a, tile, lane, group);
    uint32_t operands[2][SOME][2][4], zeros[2], count = tile.end - tile.first;
    whole_unit units[2] = {{0, LEAST}, {0, LEAST}};
    whole_group next;
    whole_group_ask(next, a, groups);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        whole_unit_next(units[i], next.scales[i]);
        zeros[i] = whole_zero<FORMAT>(next.zeros[i]);
    }
    whole_group_ask(next, a, groups);
    ring_cursor at = {0, 0}, now;
    uint32_t stage = ring.stages;
    ring_wait_full(ring.full, at);
    whole_take_some<FORMAT>(operands[0], lane, stage, 0, zeros);
    while (true) {
        float ratio[2] = {1, 1};
        bool turns = --left == 0, more = --count > 0;
        whole_start<N>(sum, operands[0], stage, 0);
        whole_take_some<FORMAT>(operands[1], lane, stage, SOME, zeros);
        whole_start<N>(sum, operands[1], stage, SOME);
        now = at;
        if (more) {
            if (turns) {
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    ratio[i] = whole_unit_next(units[i], next.scales[i]);
                    zeros[i] = whole_zero<FORMAT>(next.zeros[i]);
                }
                left = per;
                whole_group_ask(next, a, groups);
            }
            ring_next(at, a.stages);
            stage = ring.stages + at.stage * a.stage_bytes;
            ring_wait_full(ring.full, at);
            wgmma_wait<1>();
            whole_take_some<FORMAT>(operands[0], lane, stage, 0, zeros);
        }
        wgmma_wait<0>();
        wgmma_hold(sum);
        whole_give_back(ring, now);
        if (!more)
            break;
        if (turns)
#pragma unroll
            for (int i = 0; i < N / 2; i++)
                sum[i] *= ratio[i / 2 % 2];
    }
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        sum[i] *= units[i / 2 % 2].unit;
}

/* All that multiply. */
__device__ __forceinline__ void whole_sync()
{
    asm volatile("bar.sync 1, %0;" ::"n"(2 * GROUP_THREADS) : "memory");
}

#endif

template <int N, enum format FORMAT>
__global__ void __launch_bounds__(whole_threads<N>(), whole_per_processor<N>())
    whole_wide_kernel(const __grid_constant__ struct whole_args a)
{
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
    extern __shared__ __align__(STAGE_ALIGNMENT) char memory[];
    __shared__ ring_barriers<STAGES_MAX> barriers;
    const whole_ring ring = whole_begin(barriers, memory, 1);
    const whole_tile tile = whole_find(a);
    if (threadIdx.x >= 2 * GROUP_THREADS) {
        if constexpr (N > 64)
            registers_less<40>();
        if (threadIdx.x < 2 * GROUP_THREADS + WARP && warp_elect())
            whole_fill<N, FORMAT>(a, ring, tile);
        return;
    }
    if constexpr (N > 64)
        registers_more<232>();
    float *sums = reinterpret_cast<float *>(memory + (ring.stages - shared_address(memory)));
    float sum[N / 2] = {};
    whole_multiply<N, FORMAT>(sum, a, ring, tile);
    whole_sync(); /* nothing of the ring is read any more */
    whole_sums_lay<N>(sum, sums);
    grid_wait();
    uint32_t rank = 0;
    if (a.cluster > 1) {
        rank = cluster_rank();
        cluster_sync();
    } else {
        whole_sync();
    }
    whole_finish_tile<2 * GROUP_THREADS>(a, tile, ring.stages, rank);
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
    bool counted = weight_scale_count(&a->w) <= UINT32_MAX;
    return device_props()->major == 9 && whole_regular(&a->w) && behind && copied && counted &&
           a->rows.max > GEMV_ROWS_MAX && a->rows.max <= MATMUL_WHOLE_MAX &&
           a->x_dtype == DTYPE_HALF && (!a->gated || a->w.n % 2 == 0);
}

/* What stages cost beside those of the least rows. */
template <int N> static constexpr uint32_t whole_cost()
{
    return N <= 64 ? 2 : N / 32;
}

template <int N, enum format FORMAT>
static cudaError_t whole_wide_launch(const struct matmul_args *m, uint32_t blocks,
                                     cudaStream_t stream)
{
    const struct device_props *device = device_props();
    static struct device_once once;
    struct whole_args a = {};
    a.blocks = blocks;
    a.block_rows = ceil_div(m->rows.max, blocks);
    a.blocks = ceil_div(m->rows.max, a.block_rows);
    a.stage_bytes = N * STEP * 2 + OUTPUTS * whole_step<FORMAT>();
    uint32_t room = (device->shared_max + RESERVED) / whole_per_processor<N>() - RESERVED - FIXED;
    a.stages = ring_stages(room, a.stage_bytes, STAGES_MAX);
    cudaError_t result = whole_describe<FORMAT>(m, whole_height(m), &a);
    if (result == cudaSuccess)
        result = device_allow(&once, whole_wide_kernel<N, FORMAT>, device, STAGE_ALIGNMENT);
    if (result != cudaSuccess)
        return result;
    a.cluster =
        whole_cluster(whole_tiles(m, a.blocks), a.steps, whole_per_processor<N>(), whole_cost<N>())
            .cluster;
    uint32_t bytes = a.stages * a.stage_bytes, sums = N * PITCH * 4;
    return whole_enqueue(whole_wide_kernel<N, FORMAT>, a, whole_threads<N>(),
                         STAGE_ALIGNMENT + (bytes > sums ? bytes : sums), stream);
}

/* Whether blocks of 256 rows take less time than those of 128; a ring of three stages of them has
 * room beside numbers of four bits alone. */
static bool whole_doubles(const struct matmul_args *m, uint32_t blocks)
{
    uint32_t steps = ceil_div(m->w.k, STEP), half = ceil_div(blocks, 2);
    return m->w.format == FORMAT_U4 && blocks > 1 &&
           whole_cluster(whole_tiles(m, half), steps, 1, whole_cost<256>()).cost <=
               whole_cluster(whole_tiles(m, blocks), steps, 1, whole_cost<128>() + 1).cost;
}

template <enum format FORMAT>
static cudaError_t whole_wide_rows(const struct matmul_args *m, cudaStream_t stream)
{
    uint32_t blocks = ceil_div(m->rows.max, ROWS_ONE), rows = ceil_div(m->rows.max, blocks);
    if constexpr (FORMAT == FORMAT_U4)
        if (whole_doubles(m, blocks))
            return whole_wide_launch<256, FORMAT>(m, ceil_div(blocks, 2), stream);
    return rows <= 32   ? whole_wide_launch<32, FORMAT>(m, blocks, stream)
           : rows <= 64 ? whole_wide_launch<64, FORMAT>(m, blocks, stream)
                        : whole_wide_launch<128, FORMAT>(m, blocks, stream);
}

cudaError_t matmul_whole(const struct matmul_args *m, cudaStream_t stream)
{
    if (m->w.scales.k % STEP)
        return matmul_whole_fine(m, stream);
    return m->w.format == FORMAT_U4 ? whole_wide_rows<FORMAT_U4>(m, stream)
                                    : whole_wide_rows<FORMAT_U8>(m, stream);
}

} // namespace HALF
