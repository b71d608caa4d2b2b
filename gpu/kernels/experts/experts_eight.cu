/* Products of few pairs with experts in e4m3 of inputs that are rounded to it, on sm_90: bound by
 * reading the weights once.
 *
 * The tensor cores multiply bytes of e4m3 as they lie in shared memory, so nothing is done to a
 * weight on its way. A tile is up to PAIRS pairs of one expert, the right operand, by 64 rows of
 * its matrix, the left one: outputs, or by turns eight rows of gate and the same of up, so that a
 * thread has both of a channel. With more than 32 pairs it is 128 rows, so that x is brought less
 * often. Tensor cores keep some 13 bits of what they have summed: every 128 columns are summed
 * anew, times the scales of blocks where there are some, and added up in float32.
 *
 * A warp fills a ring with stages of 128 columns: weights by boxes, rows of x, which lie where
 * their pairs are, by the threads, and the scales of their groups. It goes on from tile to tile, so
 * that the next one's come while this one is stored; what tile it is stands beside its first stage.
 * The first weights are asked for ahead of the wait, while the kernel before, which makes x, still
 * runs: which experts have pairs was known before that one went on behind its own wait. */
#include "gpu/kernels/common/device_props.cuh"
#include "gpu/kernels/common/ring.cuh"
#include "gpu/kernels/common/tensor_map.cuh"
#include "gpu/kernels/common/wgmma.cuh"
#include "gpu/kernels/experts/experts_find.cuh"
#include "gpu/kernels/experts/experts_packed.cuh"

#define STEP 128          /* columns of a stage: a row of it, swizzled */
#define GROUP_THREADS 128 /* of a warpgroup, which multiplies 64 rows */
#define GROUP_ROWS 64
#define PIECES (STEP / 16)
#define TOGETHER (WARP / PIECES) /* rows of x that a warp copies at a time */
#define STAGES_MAX 16
#define ALIGNMENT 1024 /* of what is swizzled */
#define RESERVED 1024  /* of an SM's shared memory, for each block */
#define BLOCKS_MAX 3   /* of an SM */

namespace eight
{

template <int PAIRS> struct shape {
    static constexpr uint32_t groups = PAIRS > 32 ? 2 : 1;
    static constexpr uint32_t rows = groups * GROUP_ROWS; /* of w */
    static constexpr uint32_t threads = groups * GROUP_THREADS + WARP;
    static constexpr uint32_t stage_bytes = (rows + PAIRS) * STEP;
    static constexpr uint32_t blocks = PAIRS > 32 ? 2 : BLOCKS_MAX;
};

struct place {
    tile of; /* of no pairs: there are no more */
    uint32_t output;
};

template <int PAIRS> struct fixed {
    ring_barriers<STAGES_MAX> ring;
    place places[STAGES_MAX];
    float scales[STAGES_MAX][PAIRS]; /* of x's groups */
};

struct args {
    CUtensorMap w;
    struct experts_packed p;
    uint32_t stages;
};

template <int PAIRS>
__host__ __device__ __forceinline__ uint32_t width_of(const struct experts_args &a)
{
    return a.gated ? shape<PAIRS>::rows / 2 : shape<PAIRS>::rows;
}

template <int PAIRS>
__host__ __device__ __forceinline__ uint32_t columns_of(const struct experts_args &a)
{
    return (experts_outputs(&a) + width_of<PAIRS>(a) - 1) / width_of<PAIRS>(a);
}

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* ---- what is brought ---- */

/* One thread: the barrier learns of them. */
template <int PAIRS>
__device__ __forceinline__ void bring_weights(const args &a, const place &at, uint32_t to,
                                              uint32_t k, uint32_t barrier, uint64_t policy)
{
    const struct experts_args &e = a.p.a;
    barrier_expect(barrier, shape<PAIRS>::rows * STEP);
    if (e.gated)
        copy_box_halves(to, &a.w, k, at.output / 8, at.of.expert, barrier, policy);
    else
        copy_box(to, &a.w, k, at.of.expert * e.w.n + at.output, barrier, policy);
}

/* What a lane brings of the tile's pairs. */
template <int PAIRS> struct inputs {
    const uint8_t *x[PAIRS / TOGETHER];              /* at its piece; NULL: there is none */
    const float *scales[(PAIRS + WARP - 1) / WARP]; /* likewise */
};

template <int PAIRS, bool GROUPED>
__device__ __forceinline__ void inputs_find(const args &a, const tile &of, inputs<PAIRS> &to)
{
    const struct experts_args &e = a.p.a;
    const uint32_t lane = threadIdx.x % WARP;
    const uint32_t *pairs = e.segments + e.own.count + 1 + of.first;
#pragma unroll
    for (uint32_t i = 0; i < PAIRS / TOGETHER; i++) {
        uint32_t pair = i * TOGETHER + lane / PIECES;
        to.x[i] = pair < of.count ? static_cast<const uint8_t *>(e.x) +
                                        (size_t)packed_row(e, pairs[pair]) * e.x_stride +
                                        lane % PIECES * 16
                                  : nullptr;
    }
#pragma unroll
    for (uint32_t i = 0; GROUPED && i < (PAIRS + WARP - 1) / WARP; i++) {
        uint32_t pair = i * WARP + lane;
        to.scales[i] = pair < of.count
                           ? a.p.x_scales + (size_t)packed_row(e, pairs[pair]) * a.p.x_groups
                           : nullptr;
    }
}

/* A warp: behind the last column are zeros, and columns of the right operand that are no pair's are
 * left as they are: what comes of them is stored nowhere. */
template <int PAIRS, bool GROUPED>
__device__ __forceinline__ void bring_inputs(const args &a, const inputs<PAIRS> &from, uint32_t to,
                                             float *scales, uint32_t k)
{
    const uint32_t lane = threadIdx.x % WARP, piece = lane % PIECES;
    const bool inside = k + piece * 16 < a.p.a.w.k;
#pragma unroll
    for (uint32_t i = 0; i < PAIRS / TOGETHER; i++) {
        uint32_t row = i * TOGETHER + lane / PIECES;
        if (from.x[i])
            copy_async(to + row * STEP + ((piece ^ row % 8) << 4),
                       inside ? from.x[i] + k : a.p.a.x, inside);
    }
#pragma unroll
    for (uint32_t i = 0; GROUPED && i < (PAIRS + WARP - 1) / WARP; i++)
        if (from.scales[i])
            copy_word(shared_address(scales + i * WARP + lane), from.scales[i] + k / STEP, 4);
}

/* The warp that fills the ring. */
template <int PAIRS, bool GROUPED>
__device__ static void bring(const args &a, fixed<PAIRS> &shared, uint32_t stages)
{
    using shape = shape<PAIRS>;
    const struct experts_args &e = a.p.a;
    const uint32_t columns = columns_of<PAIRS>(e), steps = (e.w.k + STEP - 1) / STEP;
    const uint32_t full = shared_address(shared.ring.full);
    const uint32_t empty = shared_address(shared.ring.empty);
    const uint64_t policy = policy_once();
    const bool first = threadIdx.x % WARP == 0;
    tile_cursor from = {0, 0};
    ring_cursor at = {0, 0};
    place now;
    uint32_t number = blockIdx.x, early = 0;
    auto find = [&]() {
        bool found = tile_find_behind<PAIRS>(e, {0, e.own.count}, from, number / columns, now.of);
        now.output = number % columns * width_of<PAIRS>(e);
        return found;
    };
    bool found = find();
    if (found) {
        early = min(steps, a.stages);
        if (first) {
            shared.places[0] = now;
            for (uint32_t i = 0; i < early; i++)
                bring_weights<PAIRS>(a, now, stages + i * shape::stage_bytes, i * STEP,
                                     full + i * 8, policy);
        }
    }
    grid_wait();
    grid_trigger();
    for (; found; number += gridDim.x, found = find(), early = 0) {
        inputs<PAIRS> x;
        inputs_find<PAIRS, GROUPED>(a, now.of, x);
        for (uint32_t step = 0; step < steps; step++) {
            uint32_t to = stages + at.stage * shape::stage_bytes;
            ring_wait_empty(empty, at);
            if (first && step >= early) {
                if (step == 0)
                    shared.places[at.stage] = now;
                bring_weights<PAIRS>(a, now, to, step * STEP, ring_barrier(full, at), policy);
            }
            bring_inputs<PAIRS, GROUPED>(a, x, to + shape::rows * STEP, shared.scales[at.stage],
                                         step * STEP);
            copies_arrive(ring_barrier(full, at));
            ring_next(at, a.stages);
        }
    }
    ring_wait_empty(empty, at);
    if (first) {
        shared.places[at.stage].of.count = 0;
        barrier_arrive(ring_barrier(full, at));
    }
    copies_arrive(ring_barrier(full, at));
}

/* ---- products ---- */

/* A thread's two rows of a tile, and what their scales are; of columns lane % 4 * 2 and the one
 * behind it of every eight the pairs. */
template <int PAIRS> struct outputs {
    uint32_t n[2]; /* of the matrix */
    const float *w_scales[2];
    uint32_t pairs[PAIRS / 4];
    float x_scales[PAIRS / 4]; /* of whole rows */
};

template <int PAIRS, bool GROUPED>
__device__ __forceinline__ outputs<PAIRS> outputs_find(const args &a, const place &at)
{
    const struct experts_args &e = a.p.a;
    const uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const uint32_t *pairs = e.segments + e.own.count + 1 + at.of.first;
    outputs<PAIRS> out;
    out.n[0] = at.output + warp * (e.gated ? 8 : 16) + lane / 4;
    out.n[1] = out.n[0] + (e.gated ? e.w.n / 2 : 8);
#pragma unroll
    for (int i = 0; i < 2; i++)
        out.w_scales[i] = static_cast<const float *>(e.w.scales.data) +
                          packed_scales_at(e.w, at.of.expert, min(out.n[i], e.w.n - 1));
#pragma unroll
    for (uint32_t i = 0; i < PAIRS / 4; i++) {
        uint32_t column = i / 2 * 8 + lane % 4 * 2 + i % 2;
        out.pairs[i] = pairs[min(column, at.of.count - 1)];
        if (!GROUPED)
            out.x_scales[i] = a.p.x_scales[packed_row(e, out.pairs[i])];
    }
    return out;
}

template <int PAIRS>
__device__ __forceinline__ void outputs_store(const struct experts_args &e, const place &at,
                                              const outputs<PAIRS> &to,
                                              const float (&sum)[PAIRS / 2])
{
    const uint32_t lane = threadIdx.x % WARP, outputs = experts_outputs(&e);
    float bias[2];
#pragma unroll
    for (int i = 0; i < 2; i++)
        bias[i] = to.n[i] < e.w.n ? experts_bias(e, at.of.expert, to.n[i]) : 0.0f;
#pragma unroll
    for (uint32_t i = 0; i < PAIRS / 4; i++) {
        uint32_t column = i / 2 * 8 + lane % 4 * 2 + i % 2;
        if (column >= at.of.count)
            continue;
        size_t y = (size_t)to.pairs[i] * e.y_stride + to.n[0];
        float first = sum[i / 2 * 4 + i % 2] + bias[0];
        float second = sum[i / 2 * 4 + i % 2 + 2] + bias[1];
        if (to.n[0] < outputs)
            store_value(e.y, y, e.dtype, e.gated ? experts_gated(e, first, second) : first);
        if (!e.gated && to.n[1] < outputs)
            store_value(e.y, y + 8, e.dtype, second);
    }
}

/* The groups that multiply. */
template <int PAIRS, bool GROUPED>
__device__ static void multiply(const args &a, fixed<PAIRS> &shared, uint32_t stages)
{
    using shape = shape<PAIRS>;
    const struct experts_args &e = a.p.a;
    const uint32_t full = shared_address(shared.ring.full), lane = threadIdx.x % WARP;
    const uint32_t group = threadIdx.x / GROUP_THREADS;
    ring_cursor at = {0, 0};
    for (;;) {
        ring_wait_full(full, at);
        const place now = shared.places[at.stage];
        if (now.of.count == 0)
            return;
        const outputs<PAIRS> own = outputs_find<PAIRS, GROUPED>(a, now);
        float sum[PAIRS / 2] = {}, scale[2] = {1, 1};
        if (GROUPED) {
            scale[0] = own.w_scales[0][0];
            scale[1] = own.w_scales[1][0];
        }
        for (uint32_t k = 0; k < e.w.k; k += STEP) {
            const uint32_t stage = stages + at.stage * shape::stage_bytes;
            float part[PAIRS / 2], by[PAIRS / 4], next[2];
            if (k)
                ring_wait_full(full, at);
            reads_before_copy(); /* threads wrote x; wgmma reads it the way that copies do */
            wgmma_begin();
#pragma unroll
            for (int i = 0; i < STEP; i += 32)
                wgmma_eight(part, wgmma_operand(stage + group * GROUP_ROWS * STEP + i, 16),
                            wgmma_operand(stage + shape::rows * STEP + i, 16), i > 0);
            wgmma_commit();
            if (GROUPED) {
                uint32_t ahead = min(k + STEP, e.w.k - 1) / STEP;
#pragma unroll
                for (int i = 0; i < 2; i++)
                    next[i] = own.w_scales[i][ahead];
#pragma unroll
                for (uint32_t i = 0; i < PAIRS / 4; i++)
                    by[i] = shared.scales[at.stage][i / 2 * 8 + lane % 4 * 2 + i % 2];
            }
            wgmma_wait<0>();
            wgmma_hold(part);
            if (lane == 0)
                ring_give_back(shared_address(shared.ring.empty), at);
            ring_next(at, a.stages);
#pragma unroll
            for (int i = 0; i < PAIRS / 2; i++)
                sum[i] += GROUPED ? part[i] * (by[i / 4 * 2 + i % 2] * scale[i / 2 % 2]) : part[i];
            if (GROUPED) {
                scale[0] = next[0];
                scale[1] = next[1];
            }
        }
        if (!GROUPED) {
            float w[2] = {*own.w_scales[0], *own.w_scales[1]};
#pragma unroll
            for (int i = 0; i < PAIRS / 2; i++)
                sum[i] *= own.x_scales[i / 4 * 2 + i % 2] * w[i / 2 % 2];
        }
        outputs_store<PAIRS>(e, now, own, sum);
    }
}

#endif

template <int PAIRS, bool GROUPED>
__global__ void __launch_bounds__(shape<PAIRS>::threads, shape<PAIRS>::blocks)
    kernel(const __grid_constant__ args a)
{
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
    extern __shared__ __align__(ALIGNMENT) char memory[];
    __shared__ fixed<PAIRS> shared;
    const uint32_t multipliers = shape<PAIRS>::groups * GROUP_THREADS;
    uint32_t stages = (shared_address(memory) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (threadIdx.x == 0) {
        ring_init(shared_address(shared.ring.full), STAGES_MAX, WARP + 1);
        ring_init(shared_address(shared.ring.empty), STAGES_MAX, multipliers / WARP);
        barrier_init_done();
    }
    __syncthreads();
    if (threadIdx.x >= multipliers) {
        bring<PAIRS, GROUPED>(a, shared, stages);
        return;
    }
    grid_wait();
    grid_trigger();
    multiply<PAIRS, GROUPED>(a, shared, stages);
#endif
}

/* Blocks of an SM are as many as there is work for, and share its memory. */
template <int PAIRS, bool GROUPED>
static cudaError_t launch_shape(const struct experts_packed *p, cudaStream_t stream)
{
    static struct device_once once;
    using shape = shape<PAIRS>;
    const struct device_props *device = device_props();
    const struct experts_args *e = &p->a;
    uint64_t pairs = (uint64_t)e->rows.max * e->top, most = pairs / PAIRS + e->own.count;
    uint64_t tiles = (most < pairs ? most : pairs) * columns_of<PAIRS>(*e);
    uint32_t blocks = ceil_div(tiles, device->processors);
    blocks = blocks < shape::blocks ? blocks : shape::blocks;
    const uint32_t static_bytes = ALIGNMENT + sizeof(struct fixed<PAIRS>);
    uint32_t room = (device->shared_max + RESERVED) / blocks - RESERVED - static_bytes;
    struct args a = {};
    a.p = *p;
    a.stages = ring_stages(room, shape::stage_bytes, STAGES_MAX);
    cudaError_t result = device_allow(&once, kernel<PAIRS, GROUPED>, device, static_bytes);
    if (result == cudaSuccess)
        result = e->gated ? tensor_map_halves(&a.w, e->w.data, e->own.count, e->w.n, e->w.k,
                                              shape::rows)
                          : tensor_map_bytes(&a.w, e->w.data, e->own.count * e->w.n, e->w.k,
                                             e->w.k, STEP, shape::rows);
    if (result != cudaSuccess)
        return result;
    uint64_t slots = (uint64_t)blocks * device->processors;
    dim3 grid(static_cast<unsigned>(tiles < slots ? tiles : slots));
    return launch(kernel<PAIRS, GROUPED>, grid, shape::threads,
                  ALIGNMENT + a.stages * shape::stage_bytes, stream, a);
}

/* An expert with more pairs than a tile has is read more than once. */
template <bool GROUPED>
static cudaError_t launch_pairs(const struct experts_packed *p, cudaStream_t stream)
{
    uint64_t each = (uint64_t)p->a.rows.max * p->a.top / p->a.own.count;
    return each <= 2    ? launch_shape<8, GROUPED>(p, stream)
           : each <= 8  ? launch_shape<16, GROUPED>(p, stream)
           : each <= 18 ? launch_shape<32, GROUPED>(p, stream)
                        : launch_shape<64, GROUPED>(p, stream);
}

} // namespace eight

bool experts_eight_can(const struct experts_args *args)
{
    const struct weight *w = &args->w;
    bool grouped = w->input.rounding == ROUNDING_GROUP;
    bool groups = w->scales.k == STEP && w->input.group == STEP;
    return w->format == FORMAT_E4M3 && w->input.rounding != ROUNDING_NONE &&
           (grouped ? groups : w->scales.k == 0) && !w->order && w->k > 0 && w->k % 16 == 0 &&
           (!args->gated || w->n % 16 == 0) && (uint64_t)args->own.count * w->n <= INT32_MAX &&
           reinterpret_cast<uintptr_t>(w->data) % 16 == 0 && device_props()->major == 9 &&
           tensor_map_can();
}

cudaError_t experts_eight(const struct experts_packed *p, cudaStream_t stream)
{
    return p->a.w.scales.k ? eight::launch_pairs<true>(p, stream)
                           : eight::launch_pairs<false>(p, stream);
}
