/* Products of many pairs with experts in e4m3 of inputs that are rounded to it, by wgmma: the tiles
 * of experts_wgmma.cuh. The tensor cores sum what they multiply with fewer bits than float32 has,
 * so the sums of 128 columns, a stage, are added to others in float32; where those have scales of
 * their own, times these. Else the scales are for what is stored. */
#include "gpu/kernels/experts/experts_packed.cuh"
#include "gpu/kernels/experts/experts_wgmma.cuh"

#define EIGHT_GROUP 128 /* columns that have one scale, where a row has several: a stage */
#define EIGHT_ROWS 64   /* of w that have one then, at least: half a tile's */

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* Where the scales are of a thread's two rows of x, and of the tile's two halves of w. */
struct eight_scales {
    const float *x[2], *w[2];
};

template <bool GATED>
__device__ __forceinline__ eight_scales eight_find(const struct experts_packed &p, const tile &of,
                                                   uint32_t output)
{
    const struct experts_args &a = p.a;
    const uint32_t *pairs = a.segments + a.own.count + 1 + of.first;
    eight_scales ret;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        uint32_t pair = pairs[min(wide_row(half), of.count - 1)];
        uint32_t n = output + (half ? GATED ? a.w.n / 2 : EIGHT_ROWS : 0);
        ret.x[half] = p.x_scales + (size_t)packed_row(a, pair) * p.x_groups;
        ret.w[half] = static_cast<const float *>(a.w.scales.data) +
                      packed_scales_at(a.w, of.expert, min(n, a.w.n - 1));
    }
    return ret;
}

template <bool GATED, bool GROUPED>
__device__ static void eight_multiply(const struct experts_packed &p, wide_shared<1> &shared)
{
    using shape = wide_shape<1>;
    const struct experts_args &a = p.a;
    const uint32_t columns = wide_columns<1>(a), group = threadIdx.x / GROUP_THREADS;
    const bool tells = threadIdx.x % WARP == 0;
    ring_cursor at = {0, 0};
    tile of;
    tile_cursor from = {0, 0};
    for (uint32_t number = blockIdx.x;
         tile_find_behind<WIDE_PAIRS>(a, {0, a.own.count}, from, number / columns, of);
         number += gridDim.x) {
        uint32_t output = number % columns * wide_outputs<1>(a);
        eight_scales scales = eight_find<GATED>(p, of, output);
        float sum[64] = {}, part[64];
        for (uint32_t k = 0; k < a.w.k; k += shape::k) {
            auto &stage = shared.stages[at.stage];
            uint32_t x = shared_address(stage.x) + group * 64 * WIDE_BYTES;
            uint32_t w = shared_address(stage.w);
            float by[2][2];
#pragma unroll
            for (int i = 0; i < 4; i++) /* of w's half, of x's row */
                by[i / 2][i % 2] = GROUPED ? scales.w[i / 2][k / EIGHT_GROUP] *
                                                 scales.x[i % 2][k / EIGHT_GROUP]
                                           : 1.0f;
            ring_wait_full(shared_address(shared.ring.full), at);
            reads_before_copy(); /* threads wrote x; wgmma reads it the way that copies do */
            wgmma_hold(part);
            wgmma_begin();
#pragma unroll
            for (int i = 0; i < WIDE_BYTES / 32; i++)
                wgmma_eight(part, wgmma_operand(x + i * 32, 16), wgmma_operand(w + i * 32, 16),
                            i > 0);
            wgmma_commit();
            wgmma_wait<0>();
            wgmma_hold(part);
            if (tells)
                ring_give_back(shared_address(shared.ring.empty), at);
            ring_next(at, shape::stages);
#pragma unroll
            for (int i = 0; i < 64; i++)
                sum[i] = __fmaf_rn(part[i], by[i / 32][i / 2 % 2], sum[i]);
        }
        const float *w = static_cast<const float *>(a.w.scales.data) +
                         packed_scales_at(a.w, of.expert, 0);
        float x[2] = {*scales.x[0], *scales.x[1]};
        wide_store<GATED>(a, a.dtype, of, output, sum, [&](int half, uint32_t n) {
            return GROUPED ? 1.0f : x[half] * w[min(n, a.w.n - 1) * a.w.scales.n];
        });
    }
}

#endif

template <bool GATED, bool GROUPED>
__global__ void __launch_bounds__(WGMMA_THREADS, 1)
    eight_kernel(const __grid_constant__ struct experts_packed p,
                 const __grid_constant__ CUtensorMap map)
{
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
    extern __shared__ __align__(1024) char memory[];
    wide_shared<1> &shared = wide_begin<1>(memory);
    grid_wait();
    grid_trigger();
    if (threadIdx.x < CONSUMERS * GROUP_THREADS) {
        registers_more<216>();
        eight_multiply<GATED, GROUPED>(p, shared);
    } else {
        registers_less<72>();
        wide_load(p.a, {0, p.a.own.count}, &map, shared);
    }
#endif
}

/* Of groups, halves of a tile's rows have one scale each; else each row one, or all. */
static bool scales_can(const struct experts_args *args)
{
    const struct weight *w = &args->w;
    uint32_t half = args->gated ? w->n / 2 : 0;
    bool halves = w->scales.n % EIGHT_ROWS == 0 && half % EIGHT_ROWS == 0;
    return w->scales.n == 0 || (w->scales.k ? halves : w->scales.n == 1);
}

bool experts_wgmma_eight_can(const struct experts_packed *p)
{
    const struct experts_args *args = &p->a;
    return experts_eight_can(args) && p->x_scales && !args->invariant && scales_can(args) &&
           (args->dtype == DTYPE_BF16 || args->dtype == DTYPE_F16) && wide_can(args, 1);
}

template <bool GATED, bool GROUPED>
static cudaError_t eight_launch(const struct experts_packed *p, cudaStream_t stream)
{
    static struct device_once once;
    const struct weight *w = &p->a.w;
    CUtensorMap map;
    cudaError_t result = device_allow(&once, eight_kernel<GATED, GROUPED>, device_props());
    if (result == cudaSuccess)
        result = tensor_map_bytes(&map, w->data, p->a.own.count * w->n, w->k, w->k, WIDE_BYTES,
                                  wide_shape<1>::rows / 2);
    if (result != cudaSuccess)
        return result;
    return launch(eight_kernel<GATED, GROUPED>, wide_grid<1>(&p->a, {0, p->a.own.count}),
                  WGMMA_THREADS, sizeof(wide_shared<1>) + WIDE_SHARED, stream, *p, map);
}

cudaError_t experts_wgmma_eight(const struct experts_packed *p, cudaStream_t stream)
{
    if (p->a.w.scales.k)
        return p->a.gated ? eight_launch<true, true>(p, stream)
                          : eight_launch<false, true>(p, stream);
    return p->a.gated ? eight_launch<true, false>(p, stream)
                      : eight_launch<false, false>(p, stream);
}
