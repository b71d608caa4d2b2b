/* Products of many pairs, expert by expert, by wgmma, of weights in 16 bits: the tiles of
 * experts_wgmma.cuh; bound by the tensor cores. Each output is summed in the order of k, wherever
 * in a tile its pair stands. */
#include "gpu/kernels/experts/experts_wgmma.cuh"

namespace HALF
{

using shape = wide_shape<sizeof(half_t)>;
using shared_stages = wide_shared<sizeof(half_t)>;

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

template <bool GATED>
__device__ static void wide_multiply(const struct experts_args &a,
                                     const struct expert_range &slice, shared_stages &shared)
{
    const uint32_t columns = wide_columns<sizeof(half_t)>(a);
    const uint32_t group = threadIdx.x / GROUP_THREADS, empty = shared_address(shared.ring.empty);
    const bool tells = threadIdx.x % WARP == 0;
    ring_cursor at = {0, 0}, before;
    tile of;
    tile_cursor from = {slice.first, 0};
    for (uint32_t number = blockIdx.x;
         tile_find_behind<WIDE_PAIRS>(a, slice, from, number / columns, of); number += gridDim.x) {
        float c[128];
        for (uint32_t k = 0; k < a.w.k; k += shape::k) {
            auto &stage = shared.stages[at.stage];
            uint32_t x = shared_address(stage.x) + group * 64 * WIDE_BYTES;
            uint32_t w = shared_address(stage.w);
            ring_wait_full(shared_address(shared.ring.full), at);
            reads_before_copy(); /* threads wrote x; wgmma reads it the way that copies do */
            wgmma_hold(c);
            wgmma_begin();
#pragma unroll
            for (int i = 0; i < WIDE_BYTES / 32; i++)
                wgmma_multiply(c, wgmma_operand(x + i * 32, 16), wgmma_operand(w + i * 32, 16),
                               k + i > 0);
            wgmma_commit();
            wgmma_wait<1>(); /* the stage before is read */
            if (k > 0 && tells)
                ring_give_back(empty, before);
            before = at;
            ring_next(at, shape::stages);
        }
        wgmma_wait<0>();
        wgmma_hold(c);
        if (tells)
            ring_give_back(empty, before);
        wide_store<GATED>(a, DTYPE_HALF, of, number % columns * wide_outputs<sizeof(half_t)>(a), c,
                          [](int, uint32_t) { return 1.0f; });
    }
}

#endif

template <bool GATED>
__global__ void __launch_bounds__(WGMMA_THREADS, 1)
    wide_kernel(const __grid_constant__ struct experts_args a, struct expert_range slice,
                const __grid_constant__ CUtensorMap map)
{
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
    extern __shared__ __align__(1024) char memory[];
    shared_stages &shared = wide_begin<sizeof(half_t)>(memory);
    grid_wait();
    grid_trigger();
    if (threadIdx.x < CONSUMERS * GROUP_THREADS) {
        registers_more<216>();
        wide_multiply<GATED>(a, slice, shared);
    } else {
        registers_less<72>();
        wide_load(a, slice, &map, shared);
    }
#endif
}

bool experts_wgmma_can(const struct experts_args *args)
{
    return args->dtype == DTYPE_HALF && args->w.format == FORMAT_HALF &&
           wide_can(args, sizeof(half_t));
}

template <bool GATED>
static cudaError_t wide_launch(const struct experts_args *args, struct expert_range slice,
                               cudaStream_t stream)
{
    static struct device_once once;
    CUtensorMap map;
    cudaError_t result = device_allow(&once, wide_kernel<GATED>, device_props());
    if (result == cudaSuccess)
        result = tensor_map(&map, args->w.data, DTYPE_HALF, slice.count * args->w.n, args->w.k,
                            args->w.k, shape::rows / 2);
    if (result != cudaSuccess)
        return result;
    return launch(wide_kernel<GATED>, wide_grid<sizeof(half_t)>(args, slice), WGMMA_THREADS,
                  sizeof(shared_stages) + WIDE_SHARED, stream, *args, slice, map);
}

cudaError_t experts_wgmma(const struct experts_args *args, struct expert_range slice,
                          cudaStream_t stream)
{
    return args->gated ? wide_launch<true>(args, slice, stream)
                       : wide_launch<false>(args, slice, stream);
}

} // namespace HALF
