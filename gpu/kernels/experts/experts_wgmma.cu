/* Products of many pairs, expert by expert, by wgmma (sm_90a), of weights in 16 bits; bound by the
 * tensor cores.
 *
 * A tile is up to 128 pairs of one expert and 256 rows of its matrix: outputs, or gate's rows of
 * 128 channels and up's of the same, so that a thread has both of a channel in its registers. A
 * block goes from tile to tile, those of the same pairs next to each other: blocks that run at a
 * time read the same rows of x, and matrices of few experts, out of the cache. One group of four
 * warps brings stages of 64 values of k, ahead of the two that multiply, also of the next tile
 * while those store: weights by boxes, rows of x, which lie where their pairs are, by the threads.
 * How many tiles there are, only the device knows (experts_find.cuh).
 *
 * Each output is summed in the order of k, wherever in a tile its pair stands. */
#include "gpu/kernels/common/device_props.cuh"
#include "gpu/kernels/common/ring.cuh"
#include "gpu/kernels/common/tensor_map.cuh"
#include "gpu/kernels/common/wgmma.cuh"
#include "gpu/kernels/experts/experts_find.cuh"

namespace HALF
{

#define GROUP_THREADS 128
#define CONSUMERS 2 /* groups that multiply, 64 pairs each */
#define WGMMA_THREADS ((CONSUMERS + 1) * GROUP_THREADS)
#define WIDE_PAIRS (CONSUMERS * 64)
#define WIDE_ROWS 256 /* of w */
#define WIDE_K 64
#define WIDE_PIECES (WIDE_K / 8)
#define STAGES 4
#define LOADER_EACH (WIDE_PAIRS / (GROUP_THREADS / WIDE_PIECES)) /* rows of x, of a thread */

struct wide_stage {
    half_t x[WIDE_PAIRS * WIDE_K]; /* rows of 128 bytes, swizzled */
    half_t w[WIDE_ROWS * WIDE_K];
};

struct wide_shared {
    wide_stage stages[STAGES];
    ring_barriers<STAGES> ring;
};

static __host__ __device__ __forceinline__ uint32_t wide_outputs(const struct experts_args &a)
{
    return a.gated ? WIDE_ROWS / 2 : WIDE_ROWS;
}

static __host__ __device__ __forceinline__ uint32_t wide_columns(const struct experts_args &a)
{
    return (experts_outputs(&a) + wide_outputs(a) - 1) / wide_outputs(a);
}

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* A thread's rows of x, at its piece of a stage, into one. */
struct wide_loader {
    const half_t *x[LOADER_EACH]; /* NULL: zeros */
    ring_cursor at;
};

__device__ __forceinline__ void wide_find_x(const struct experts_args &a, const tile &of,
                                            wide_loader &loader)
{
    uint32_t thread = threadIdx.x % GROUP_THREADS, k = thread % WIDE_PIECES * 8;
    const uint32_t *pairs = a.segments + a.own.count + 1 + of.first;
#pragma unroll
    for (int i = 0; i < LOADER_EACH; i++) {
        uint32_t row = thread / WIDE_PIECES + i * (GROUP_THREADS / WIDE_PIECES);
        loader.x[i] = row < of.count
                          ? static_cast<const half_t *>(a.x) + experts_input(a, pairs[row]) + k
                          : nullptr;
    }
}

/* What is no row, or lies behind the last k, is zeros: the address is one that is there, and is not
 * read. */
__device__ __forceinline__ void wide_copy_x(const struct experts_args &a, const wide_loader &loader,
                                            uint32_t to, uint32_t k)
{
    uint32_t thread = threadIdx.x % GROUP_THREADS, piece = thread % WIDE_PIECES;
    uint32_t row = thread / WIDE_PIECES;
    bool inside = k + piece * 8 < a.w.k;
#pragma unroll
    for (int i = 0; i < LOADER_EACH; i++, row += GROUP_THREADS / WIDE_PIECES) {
        bool valid = inside && loader.x[i];
        copy_async(to + row * (WIDE_K * 2) + (piece ^ row % 8) * 16,
                   valid ? loader.x[i] + k : a.x, valid);
    }
}

__device__ static void wide_load(const struct experts_args &a, const struct expert_range &slice,
                                 const CUtensorMap *map, wide_shared &shared)
{
    const uint32_t columns = wide_columns(a), full = shared_address(shared.ring.full);
    const uint64_t policy = policy_once();
    const bool first = threadIdx.x % GROUP_THREADS == 0;
    wide_loader loader;
    tile of;
    loader.at = {0, 0};
    for (uint32_t number = blockIdx.x; tile_find<WIDE_PAIRS>(a, slice, number / columns, of);
         number += gridDim.x) {
        uint32_t output = number % columns * wide_outputs(a);
        uint32_t row = (of.expert - slice.first) * a.w.n + output;
        uint32_t second = a.gated ? row + a.w.n / 2 : row + WIDE_ROWS / 2;
        wide_find_x(a, of, loader);
        for (uint32_t k = 0; k < a.w.k; k += WIDE_K) {
            wide_stage &stage = shared.stages[loader.at.stage];
            uint32_t barrier = ring_barrier(full, loader.at);
            ring_wait_empty(shared_address(shared.ring.empty), loader.at);
            if (first) {
                barrier_expect(barrier, sizeof stage.w);
                copy_box(shared_address(stage.w), map, k, row, barrier, policy);
                copy_box(shared_address(stage.w) + sizeof stage.w / 2, map, k, second, barrier,
                         policy);
            }
            wide_copy_x(a, loader, shared_address(stage.x), k);
            copies_arrive(barrier);
            ring_next(loader.at, STAGES);
        }
    }
}

/* A row's values of eight columns lie with four threads, two each: of four such groups each gets
 * one whole. */
__device__ __forceinline__ uint4 wide_exchange(uint32_t (&of)[4])
{
    uint32_t lane = threadIdx.x % 4;
#pragma unroll
    for (int step = 1; step < 4; step *= 2)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (i & step)
                continue;
            bool upper = lane & step;
            uint32_t given = upper ? of[i] : of[i + step];
            uint32_t got = __shfl_xor_sync(FULL_MASK, given, step);
            if (upper)
                of[i] = got;
            else
                of[i + step] = got;
        }
    return make_uint4(of[0], of[1], of[2], of[3]);
}

/* Two neighbours of one of a thread's two rows. */
__device__ __forceinline__ uint32_t wide_value(const struct experts_args &a, uint32_t expert,
                                               uint32_t n, float first, float second,
                                               float first_up, float second_up)
{
    const uint32_t outputs = experts_outputs(&a);
    if (n >= outputs)
        return 0;
    first += experts_bias(a, expert, n);
    second += experts_bias(a, expert, n + 1);
    if (a.gated) {
        first = experts_gated(a, first, first_up + experts_bias(a, expert, outputs + n));
        second = experts_gated(a, second, second_up + experts_bias(a, expert, outputs + n + 1));
    }
    return pack(first, second, DTYPE_HALF);
}

template <bool GATED>
__device__ __forceinline__ void wide_store(const struct experts_args &a, const tile &of,
                                           uint32_t output, const float (&c)[128])
{
    const int values = GATED ? 64 : 128; /* of gate, or of all */
    uint32_t lane = threadIdx.x % WARP, outputs = experts_outputs(&a);
    uint32_t row = threadIdx.x / WARP * 16 + lane / 4;
#pragma unroll
    for (int half = 0; half < 2; half++, row += 8) {
        bool there = row < of.count;
        uint32_t pair = there ? a.segments[a.own.count + 1 + of.first + row] : 0;
        half_t *y = static_cast<half_t *>(a.y) + (size_t)pair * a.y_stride;
#pragma unroll
        for (int i = half * 2; i < values; i += 16) { /* four groups of eight columns */
            uint32_t words[4];
#pragma unroll
            for (int j = 0; j < 4; j++) {
                int at = i + j * 4, up = GATED ? at + 64 : at;
                words[j] = wide_value(a, of.expert, output + at / 4 * 8 + lane % 4 * 2, c[at],
                                      c[at + 1], c[up], c[up + 1]);
            }
            uint4 whole = wide_exchange(words);
            uint32_t n = output + i / 16 * 32 + lane % 4 * 8;
            if (there && n < outputs)
                *reinterpret_cast<uint4 *>(y + n) = whole;
        }
    }
}

template <bool GATED>
__device__ static void wide_multiply(const struct experts_args &a,
                                     const struct expert_range &slice, wide_shared &shared)
{
    const uint32_t columns = wide_columns(a), group = threadIdx.x / GROUP_THREADS;
    const uint32_t empty = shared_address(shared.ring.empty);
    const bool tells = threadIdx.x % WARP == 0;
    ring_cursor at = {0, 0}, before;
    tile of;
    for (uint32_t number = blockIdx.x; tile_find<WIDE_PAIRS>(a, slice, number / columns, of);
         number += gridDim.x) {
        float c[128];
        for (uint32_t k = 0; k < a.w.k; k += WIDE_K) {
            wide_stage &stage = shared.stages[at.stage];
            uint32_t x = shared_address(stage.x) + group * 64 * WIDE_K * 2;
            uint32_t w = shared_address(stage.w);
            ring_wait_full(shared_address(shared.ring.full), at);
            reads_before_copy(); /* threads wrote x; wgmma reads it the way that copies do */
            wgmma_hold(c);
            wgmma_begin();
#pragma unroll
            for (int i = 0; i < WIDE_K / 16; i++)
                wgmma_multiply(c, wgmma_operand(x + i * 32, 16), wgmma_operand(w + i * 32, 16),
                               k + i > 0);
            wgmma_commit();
            wgmma_wait<1>(); /* the stage before is read */
            if (k > 0 && tells)
                ring_give_back(empty, before);
            before = at;
            ring_next(at, STAGES);
        }
        wgmma_wait<0>();
        wgmma_hold(c);
        if (tells)
            ring_give_back(empty, before);
        wide_store<GATED>(a, of, number % columns * wide_outputs(a), c);
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
    wide_shared &shared = *reinterpret_cast<wide_shared *>(
        memory + (1024 - shared_address(memory) % 1024) % 1024);
    if (threadIdx.x == 0) {
        ring_init(shared_address(shared.ring.full), STAGES, GROUP_THREADS + 1);
        ring_init(shared_address(shared.ring.empty), STAGES, CONSUMERS * GROUP_THREADS / WARP);
        barrier_init_done();
    }
    __syncthreads();
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

/* Rows of a matrix behind those of a tile's outputs may be the next expert's, or none: what they
 * bring is stored nowhere. */
bool experts_wgmma_can(const struct experts_args *args)
{
    uint64_t pairs = (uint64_t)args->rows.max * args->top;
    uint64_t rows = (uint64_t)args->own.count * args->w.n;
    return device_props()->major == 9 && tensor_map_can() && args->dtype == DTYPE_HALF &&
           args->w.format == FORMAT_HALF &&
           pairs > EXPERTS_WIDE_LEAST * (uint64_t)args->own.count && args->w.k > 0 &&
           args->w.k % 8 == 0 && args->x_stride % 8 == 0 &&
           args->y_stride % 8 == 0 && experts_outputs(args) % 8 == 0 && rows <= INT32_MAX &&
           reinterpret_cast<uintptr_t>(args->x) % 16 == 0 &&
           reinterpret_cast<uintptr_t>(args->w.data) % 16 == 0 &&
           reinterpret_cast<uintptr_t>(args->y) % 16 == 0;
}

template <bool GATED>
static cudaError_t wide_launch(const struct experts_args *args, struct expert_range slice,
                               cudaStream_t stream)
{
    static struct device_once once;
    const struct device_props *device = device_props();
    CUtensorMap map;
    uint64_t tiles = (uint64_t)args->rows.max * args->top / WIDE_PAIRS + slice.count;
    tiles *= wide_columns(*args);
    cudaError_t result = device_allow(&once, wide_kernel<GATED>, device);
    if (result == cudaSuccess)
        result = tensor_map(&map, args->w.data, DTYPE_HALF, slice.count * args->w.n, args->w.k,
                            args->w.k, WIDE_ROWS / 2);
    if (result != cudaSuccess)
        return result;
    return launch(wide_kernel<GATED>,
                  dim3(static_cast<unsigned>(tiles < device->processors ? tiles
                                                                        : device->processors)),
                  WGMMA_THREADS, sizeof(wide_shared) + 1024, stream, *args, slice, map);
}

cudaError_t experts_wgmma(const struct experts_args *args, struct expert_range slice,
                          cudaStream_t stream)
{
    return args->gated ? wide_launch<true>(args, slice, stream)
                       : wide_launch<false>(args, slice, stream);
}

} // namespace HALF
