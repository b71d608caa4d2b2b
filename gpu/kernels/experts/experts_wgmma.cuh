/* Tiles of many pairs of one expert by rows of its matrix, for wgmma (sm_90a): what the kernels of
 * experts_wgmma.cu, of 16 bits, and of experts_wgmma_eight.cu, of e4m3, share.
 *
 * A tile is up to 128 pairs and `rows` rows of the matrix: outputs, or half of them gate's and the
 * others up's of the same channels, so that a thread has both in its registers. A block goes from
 * tile to tile, those of the same pairs next to each other: blocks that run at a time read the same
 * rows of x, and matrices of few experts, out of the cache. One group of four warps brings stages
 * of 128 bytes of k, ahead of the two that multiply, also of the next tile while those store:
 * weights by boxes, rows of x, which lie where their pairs are, by the threads. How many tiles
 * there are, only the device knows (experts_find.cuh). */
#pragma once

#include "gpu/kernels/common/device_props.cuh"
#include "gpu/kernels/common/ring.cuh"
#include "gpu/kernels/common/tensor_map.cuh"
#include "gpu/kernels/common/wgmma.cuh"
#include "gpu/kernels/experts/experts_find.cuh"

#define GROUP_THREADS 128
#define CONSUMERS 2 /* groups that multiply, 64 pairs each */
#define WGMMA_THREADS ((CONSUMERS + 1) * GROUP_THREADS)
#define WIDE_PAIRS (CONSUMERS * 64)
#define WIDE_BYTES 128 /* of k in a stage: a row, swizzled */
#define WIDE_PIECES (WIDE_BYTES / 16)
#define WIDE_EACH (GROUP_THREADS / WIDE_PIECES) /* rows of x at a time */
#define WIDE_SHARED 1024                        /* for the alignment of the stages */

/* By the bytes of an element. */
template <int BYTES> struct wide_shape {
    static constexpr uint32_t k = WIDE_BYTES / BYTES;        /* of a stage */
    static constexpr uint32_t rows = BYTES == 2 ? 256 : 128; /* of w */
    static constexpr uint32_t stages = BYTES == 2 ? 4 : 6;
};

template <int BYTES> struct wide_shared {
    struct {
        uint8_t x[WIDE_PAIRS * WIDE_BYTES];
        uint8_t w[wide_shape<BYTES>::rows * WIDE_BYTES];
    } stages[wide_shape<BYTES>::stages];
    ring_barriers<wide_shape<BYTES>::stages> ring;
};

/* Outputs of a tile, and how many tiles the outputs make. */
template <int BYTES>
static __host__ __device__ __forceinline__ uint32_t wide_outputs(const struct experts_args &a)
{
    return a.gated ? wide_shape<BYTES>::rows / 2 : wide_shape<BYTES>::rows;
}

template <int BYTES>
static __host__ __device__ __forceinline__ uint32_t wide_columns(const struct experts_args &a)
{
    return (experts_outputs(&a) + wide_outputs<BYTES>(a) - 1) / wide_outputs<BYTES>(a);
}

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* A block's, as dynamic shared memory has it. */
template <int BYTES> __device__ __forceinline__ wide_shared<BYTES> &wide_begin(char *memory)
{
    const uint32_t stages = wide_shape<BYTES>::stages;
    wide_shared<BYTES> &shared = *reinterpret_cast<wide_shared<BYTES> *>(
        memory + (WIDE_SHARED - shared_address(memory) % WIDE_SHARED) % WIDE_SHARED);
    if (threadIdx.x == 0) {
        ring_init(shared_address(shared.ring.full), stages, GROUP_THREADS + 1);
        ring_init(shared_address(shared.ring.empty), stages, CONSUMERS * GROUP_THREADS / WARP);
        barrier_init_done();
    }
    __syncthreads();
    return shared;
}

/* A thread's rows of x, at its piece of a stage. */
struct wide_loader {
    const uint8_t *x[WIDE_PAIRS / WIDE_EACH]; /* NULL: zeros */
    ring_cursor at;
};

template <int BYTES>
__device__ __forceinline__ void wide_find_x(const struct experts_args &a, const tile &of,
                                            wide_loader &loader)
{
    uint32_t thread = threadIdx.x % GROUP_THREADS, piece = thread % WIDE_PIECES;
    const uint32_t *pairs = a.segments + a.own.count + 1 + of.first;
#pragma unroll
    for (int i = 0; i < WIDE_PAIRS / WIDE_EACH; i++) {
        uint32_t row = thread / WIDE_PIECES + i * WIDE_EACH;
        loader.x[i] = row < of.count ? static_cast<const uint8_t *>(a.x) +
                                           experts_input(a, pairs[row]) * BYTES + piece * 16
                                     : nullptr;
    }
}

/* What is no row, or lies behind the last k, is zeros: the address is one that is there, and is not
 * read. */
template <int BYTES>
__device__ __forceinline__ void wide_copy_x(const struct experts_args &a, const wide_loader &loader,
                                            uint32_t to, uint32_t k)
{
    uint32_t thread = threadIdx.x % GROUP_THREADS, piece = thread % WIDE_PIECES;
    uint32_t row = thread / WIDE_PIECES;
    bool inside = k + piece * (16 / BYTES) < a.w.k;
#pragma unroll
    for (int i = 0; i < WIDE_PAIRS / WIDE_EACH; i++, row += WIDE_EACH) {
        bool valid = inside && loader.x[i];
        copy_async(to + row * WIDE_BYTES + (piece ^ row % 8) * 16,
                   valid ? loader.x[i] + (size_t)k * BYTES : a.x, valid);
    }
}

/* The group that brings. */
template <int BYTES>
__device__ static void wide_load(const struct experts_args &a, const struct expert_range &slice,
                                 const CUtensorMap *map, wide_shared<BYTES> &shared)
{
    using shape = wide_shape<BYTES>;
    const uint32_t columns = wide_columns<BYTES>(a), full = shared_address(shared.ring.full);
    const uint64_t policy = policy_once();
    const bool first = threadIdx.x % GROUP_THREADS == 0;
    wide_loader loader;
    tile of;
    tile_cursor from = {slice.first, 0};
    loader.at = {0, 0};
    for (uint32_t number = blockIdx.x;
         tile_find_behind<WIDE_PAIRS>(a, slice, from, number / columns, of); number += gridDim.x) {
        uint32_t output = number % columns * wide_outputs<BYTES>(a);
        uint32_t row = (of.expert - slice.first) * a.w.n + output;
        uint32_t second = a.gated ? row + a.w.n / 2 : row + shape::rows / 2;
        wide_find_x<BYTES>(a, of, loader);
        for (uint32_t k = 0; k < a.w.k; k += shape::k) {
            auto &stage = shared.stages[loader.at.stage];
            uint32_t barrier = ring_barrier(full, loader.at);
            ring_wait_empty(shared_address(shared.ring.empty), loader.at);
            if (first) {
                barrier_expect(barrier, sizeof stage.w);
                copy_box(shared_address(stage.w), map, k, row, barrier, policy);
                copy_box(shared_address(stage.w) + sizeof stage.w / 2, map, k, second, barrier,
                         policy);
            }
            wide_copy_x<BYTES>(a, loader, shared_address(stage.x), k);
            copies_arrive(barrier);
            ring_next(loader.at, shape::stages);
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
__device__ __forceinline__ uint32_t wide_value(const struct experts_args &a, enum dtype dtype,
                                               uint32_t expert, uint32_t n, float first,
                                               float second, float first_up, float second_up)
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
    return pack(first, second, dtype);
}

/* A thread's two rows of the tile: eight apart. */
__device__ __forceinline__ uint32_t wide_row(int half)
{
    return threadIdx.x / WARP * 16 + threadIdx.x % WARP / 4 + half * 8;
}

/* The tile's sums, times what scale(half, row of w) says. */
template <bool GATED, int COUNT, class Scale>
__device__ __forceinline__ void wide_store(const struct experts_args &a, enum dtype dtype,
                                           const tile &of, uint32_t output,
                                           const float (&c)[COUNT], Scale scale)
{
    const int values = GATED ? COUNT / 2 : COUNT; /* of gate, or of all */
    const uint32_t lane = threadIdx.x % WARP, outputs = experts_outputs(&a);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        uint32_t row = wide_row(half);
        bool there = row < of.count;
        uint32_t pair = there ? a.segments[a.own.count + 1 + of.first + row] : 0;
        uint16_t *y = static_cast<uint16_t *>(a.y) + (size_t)pair * a.y_stride;
#pragma unroll
        for (int i = half * 2; i < values; i += 16) { /* four groups of eight columns */
            uint32_t words[4];
#pragma unroll
            for (int j = 0; j < 4; j++) {
                int at = i + j * 4, up = GATED ? at + COUNT / 2 : at;
                uint32_t n = output + at / 4 * 8 + lane % 4 * 2, m = GATED ? outputs + n : n;
                words[j] = wide_value(a, dtype, of.expert, n, c[at] * scale(half, n),
                                      c[at + 1] * scale(half, n + 1), c[up] * scale(half, m),
                                      c[up + 1] * scale(half, m + 1));
            }
            uint4 whole = wide_exchange(words);
            uint32_t n = output + i / 16 * 32 + lane % 4 * 8;
            if (there && n < outputs)
                *reinterpret_cast<uint4 *>(y + n) = whole;
        }
    }
}

#endif

/* What of the arguments does not depend on the format. Rows of a matrix behind those of a tile's
 * outputs may be the next expert's, or none: what they bring is stored nowhere. */
static inline bool wide_can(const struct experts_args *args, uint32_t bytes)
{
    uint64_t pairs = (uint64_t)args->rows.max * args->top;
    uint64_t rows = (uint64_t)args->own.count * args->w.n;
    return device_props()->major == 9 && tensor_map_can() &&
           pairs > EXPERTS_WIDE_LEAST * (uint64_t)args->own.count && args->w.k > 0 &&
           args->w.k * bytes % 16 == 0 && args->x_stride * bytes % 16 == 0 &&
           args->y_stride % 8 == 0 && experts_outputs(args) % 8 == 0 && rows <= INT32_MAX &&
           reinterpret_cast<uintptr_t>(args->x) % 16 == 0 &&
           reinterpret_cast<uintptr_t>(args->w.data) % 16 == 0 &&
           reinterpret_cast<uintptr_t>(args->y) % 16 == 0;
}

template <int BYTES>
static inline dim3 wide_grid(const struct experts_args *args, const struct expert_range &slice)
{
    uint64_t tiles = (uint64_t)args->rows.max * args->top / WIDE_PAIRS + slice.count;
    tiles *= wide_columns<BYTES>(*args);
    uint32_t processors = device_props()->processors;
    return dim3(tiles < processors ? static_cast<unsigned>(tiles) : processors);
}
