/* Products that round their inputs themselves (gemv_rounded.cu): what a block is to do, how weights
 * come to shared memory, and how x is made there. */
#pragma once

#include "gpu/kernels/common/cluster_push.cuh"
#include "gpu/kernels/common/device_props.cuh"
#include "gpu/kernels/common/ring.cuh"
#include "gpu/kernels/common/tensor_map.cuh"
#include "gpu/kernels/common/wgmma.cuh"
#include "gpu/kernels/common/e4m3.cuh"
#include "gpu/kernels/matmul/matmul.cuh"
#include "gpu/kernels/matmul/rounded.cuh"
#include "gpu/kernels/norm/norm.cuh"

#define OUTPUTS 64
#define STEP 128          /* columns that are summed by the tensor cores; bytes of a row of a box */
#define ROWS 8            /* of the right operand */
#define GROUP_THREADS 128 /* of a warpgroup */
#define GROUPS 2          /* which take steps in turns */
#define TOGETHER 2        /* steps that a group waits for at once */
#define MULTIPLIERS (GROUPS * GROUP_THREADS)
#define FINISHERS 128 /* behind them: add up, store and hand on while the next tile is multiplied */
#define WORKERS 512   /* make x, of which all these are the first; as many as norm.cu has */
#define WARPS (WORKERS / WARP)
#define THREADS (WORKERS + WARP)
#define STAGE_BYTES (OUTPUTS * STEP)
#define STAGES_MAX 24
#define STAGES_MIN 4
#define ON_THEIR_WAY 6 /* stages, at most */
#define ALIGNMENT 1024 /* of what is swizzled */
#define X_STEP_BYTES (ROWS * STEP)
#define PITCH (OUTPUTS + 4) /* floats of a row of sums, against bank conflicts */
#define EACH 8              /* values of x that a thread has in a turn */
#define TURN (WORKERS * EACH)
#define TURNS_MAX 4
#define NORM_TURNS 2 /* of a row that is normed */
#define CLUSTER_MAX 8
#define TILES_AHEAD 2 /* whose sums may wait for who finishes */
#define COST_TILE 1   /* of a tile's begin and end, in steps */
#define PUSHED (MATMUL_ROUNDS_MAX * OUTPUTS / 2) /* sums that a block gets of another, at most */

static_assert(NORM_TURNS * TURN <= NORM_THREADS * 8, "a row that is normed is one turn of norm.cu");
static_assert(NORM_TURNS * WARPS <= WARP, "a warp adds up all warps' sums");
static_assert(MATMUL_ROUNDS_MAX <= ROWS && MATMUL_ROUNDS_MAX * OUTPUTS <= FINISHERS,
              "rows are the right operand, and each output of a tile has a thread");
static_assert(MULTIPLIERS + FINISHERS <= WORKERS, "who finishes has made x before");

namespace rounding
{

struct args {
    CUtensorMap w;
    struct matmul_args m;
    uint32_t tiles, steps, cluster; /* steps: of all columns; blocks that share them */
    uint32_t stages, x_steps;       /* x_steps: of a block, at most */
    uint32_t group_bytes;           /* of the scales of x's groups; 0: rows have one */
};

/* What is not dynamic. */
struct fixed {
    ring_barriers<STAGES_MAX> barriers;
    ring_barriers<TILES_AHEAD> tiles; /* whose sums are made, and taken */
    uint64_t pushed[FINISHERS / WARP][TILES_AHEAD];
    float sums[TILES_AHEAD][GROUPS][MATMUL_ROUNDS_MAX][PITCH];
    float others[TILES_AHEAD][CLUSTER_MAX][2][PUSHED]; /* by block; of gate and up, or one */
    float scales[ROWS];                                /* of whole rows */
    float parts[2][MATMUL_ROUNDS_MAX][WARP]; /* of rows, by warps: sums of squares, greatest */
    float squares[MATMUL_ROUNDS_MAX][OUTPUTS]; /* of what is handed on */
};
#define FIXED ((sizeof(struct fixed) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT + ALIGNMENT)

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

__device__ __forceinline__ void store_shared_half(uint32_t address, const uint2 &value)
{
    asm volatile("st.shared.v2.u32 [%0], {%1,%2};" ::"r"(address), "r"(value.x), "r"(value.y)
                 : "memory");
}

/* Where a block is, and what it has. */
struct place {
    uint32_t cluster, clusters, rank; /* its cluster, of so many; itself in that */
    uint32_t first, end;              /* its steps */
    uint32_t x, stages, full, empty, made, taken; /* made, taken: of tiles */
    float *groups;            /* scales of x's groups: [step][row] */
    uint32_t height, outputs; /* of a tile; of the matrix */
};

__device__ __forceinline__ place place_of(const args &a, char *memory, fixed &shared)
{
    place p;
    p.rank = a.cluster > 1 ? cluster_rank() : 0;
    p.cluster = blockIdx.x / a.cluster;
    p.clusters = gridDim.x / a.cluster;
    p.first = a.steps * p.rank / a.cluster;
    p.end = a.steps * (p.rank + 1) / a.cluster;
    p.x = (shared_address(memory) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    p.stages = p.x + a.x_steps * X_STEP_BYTES;
    p.groups = reinterpret_cast<float *>(
        memory + (p.stages + a.stages * STAGE_BYTES - shared_address(memory)));
    p.full = shared_address(shared.barriers.full);
    p.empty = shared_address(shared.barriers.empty);
    p.made = shared_address(shared.tiles.full);
    p.taken = shared_address(shared.tiles.empty);
    p.height = a.m.gated ? OUTPUTS / 2 : OUTPUTS;
    p.outputs = a.m.gated ? a.m.w.n / 2 : a.m.w.n;
    return p;
}

/* One thread, before anybody waits for one. */
__device__ __forceinline__ void barriers_begin(const place &p, fixed &shared)
{
    ring_init(p.full, STAGES_MAX, 1);
    ring_init(p.empty, STAGES_MAX, GROUP_THREADS / WARP);
    ring_init(p.made, TILES_AHEAD, MULTIPLIERS / WARP);
    ring_init(p.taken, TILES_AHEAD, FINISHERS / WARP);
    ring_init(shared_address(shared.pushed), FINISHERS / WARP * TILES_AHEAD, 1);
    barrier_init_done();
}

/* One thread: weights of all the block's tiles, which wait for no kernel. No more of them are on
 * their way than keep the memory busy: what is asked for meanwhile, as x, waits behind them. */
__device__ __forceinline__ void bring(const args &a, const place &p)
{
    const uint64_t once = policy_once();
    const uint32_t most = min(a.stages, static_cast<uint32_t>(ON_THEIR_WAY));
    ring_cursor at = {0, 0}, come = at;
    uint32_t sent = 0;
    for (uint32_t tile = p.cluster; tile < a.tiles; tile += p.clusters)
        for (uint32_t step = p.first; step < p.end; step++) {
            uint32_t to = p.stages + at.stage * STAGE_BYTES, full = ring_barrier(p.full, at);
            if (sent++ >= most) {
                ring_wait_full(p.full, come);
                ring_next(come, a.stages);
            }
            ring_wait_empty(p.empty, at);
            barrier_expect(full, STAGE_BYTES);
            copy_box(to, &a.w, step * STEP, tile * p.height, full, once);
            if (a.m.gated)
                copy_box(to + STAGE_BYTES / 2, &a.w, step * STEP, p.outputs + tile * p.height, full,
                         once);
            ring_next(at, a.stages);
        }
}

/* All but who brings weights. */
__device__ __forceinline__ void workers_sync()
{
    asm volatile("bar.sync 1, %0;" ::"n"(WORKERS) : "memory");
}

/* All that finish. */
__device__ __forceinline__ void finishers_sync()
{
    asm volatile("bar.sync 2, %0;" ::"n"(FINISHERS) : "memory");
}

/* ---- x ---- */

__device__ __forceinline__ uint32_t column_of(int turn)
{
    return turn * TURN + threadIdx.x * EACH;
}

/* Eight values of 16 bits, as they lie. */
__device__ __forceinline__ float8 widened(const uint4 &words, enum dtype dtype)
{
    float2 a = unpack(words.x, dtype), b = unpack(words.y, dtype);
    float2 c = unpack(words.z, dtype), d = unpack(words.w, dtype);
    return {{a.x, a.y, b.x, b.y, c.x, c.y, d.x, d.y}};
}

/* What a thread has of all rows, in 16 bits; zeros past the end. */
template <int TURNS, int COUNT> struct values {
    uint4 x[COUNT][TURNS];
};

template <int TURNS, int COUNT>
__device__ __forceinline__ void values_load(values<TURNS, COUNT> &to, const struct matmul_args &m)
{
#pragma unroll
    for (uint32_t row = 0; row < COUNT; row++)
#pragma unroll
        for (int turn = 0; turn < TURNS; turn++) {
            const uint16_t *from =
                static_cast<const uint16_t *>(m.x) + (size_t)row * m.x_stride + column_of(turn);
            to.x[row][turn] = column_of(turn) < m.w.k ? *reinterpret_cast<const uint4 *>(from)
                                                      : make_uint4(0, 0, 0, 0);
        }
}

/* A norm's weights, which are asked for before the residual is there. */
template <int TURNS> struct weights {
    float8 of[TURNS];
};

template <int TURNS>
__device__ __forceinline__ void weights_load(weights<TURNS> &to, const struct matmul_args &m)
{
    const struct matmul_norm_in &norm = m.norm_in;
#pragma unroll
    for (int turn = 0; turn < TURNS; turn++)
        if (to.of[turn] = {}, column_of(turn) < m.w.k) {
            to.of[turn] = load_whole(norm.weight, column_of(turn), norm.weight_dtype);
#pragma unroll
            for (int i = 0; i < 8; i++)
                to.of[turn].v[i] += norm.offset;
        }
}

/* What the norm that is owed gives of the residual. Of a row that is one turn of norm.cu's threads,
 * a warp here has what a warp there has, and sums are added in that order: the bits are the same.
 */
template <int TURNS, int COUNT>
__device__ __forceinline__ void
values_norm(values<TURNS, COUNT> &to, const weights<TURNS> &weight, const struct matmul_args &m,
            fixed &shared)
{
    const uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    float8 value[COUNT][TURNS];
#pragma unroll
    for (uint32_t row = 0; row < COUNT; row++)
#pragma unroll
        for (int turn = 0; turn < TURNS; turn++) {
            size_t at = (size_t)row * m.norm_in.residual_stride + column_of(turn);
            value[row][turn] = {};
            if (column_of(turn) < m.w.k)
                value[row][turn] = load_whole(m.norm_in.residual, at, DTYPE_F32);
        }
#pragma unroll
    for (uint32_t row = 0; row < COUNT; row++)
#pragma unroll
        for (int turn = 0; turn < TURNS; turn++) {
            float squares = warp_sum(norm_squares(0, value[row][turn]));
            if (lane == 0)
                shared.parts[0][row][turn * WARPS + warp] = squares;
        }
    workers_sync();
#pragma unroll
    for (uint32_t row = 0; row < COUNT; row++) {
        const uint32_t warps = TURNS * WARPS;
        float squares = warp_sum(lane < warps ? shared.parts[0][row][lane] : 0.0f);
        float scale = norm_scale(squares, m.w.k, m.norm_in.eps);
#pragma unroll
        for (int turn = 0; turn < TURNS; turn++) {
            float8 some = norm_scaled(value[row][turn], scale, weight.of[turn]);
            const float(&v)[8] = some.v;
            to.x[row][turn] = make_uint4(pack(v[0], v[1], m.x_dtype), pack(v[2], v[3], m.x_dtype),
                                         pack(v[4], v[5], m.x_dtype), pack(v[6], v[7], m.x_dtype));
        }
    }
}

/* The scale of each row, where it has one. */
template <int TURNS, int COUNT>
__device__ __forceinline__ void values_scale(const values<TURNS, COUNT> &of, float (&scale)[COUNT],
                                             const struct matmul_args &m, fixed &shared)
{
    const uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
#pragma unroll
    for (uint32_t row = 0; row < COUNT; row++) {
        float greatest = 0;
#pragma unroll
        for (int turn = 0; turn < TURNS; turn++)
            greatest = fmaxf(greatest, e4m3_greatest(widened(of.x[row][turn], m.x_dtype).v));
        greatest = warp_greatest(greatest);
        if (lane == 0)
            shared.parts[1][row][warp] = greatest;
    }
    workers_sync();
#pragma unroll
    for (uint32_t row = 0; row < COUNT; row++) {
        float greatest = warp_greatest(lane < WARPS ? shared.parts[1][row][lane] : 0.0f);
        scale[row] = e4m3_scale_to(greatest, m.w.input.scale);
    }
}

/* Eight values of a row, rounded, where the tensor cores look for them. */
__device__ __forceinline__ void eight_round(const args &a, const place &p, const uint4 &words,
                                            float scale, uint32_t row, uint32_t column)
{
    float8 value = widened(words, a.m.x_dtype);
    const uint32_t step = column / STEP, unit = column % STEP / 16;
    if (a.m.w.input.rounding == ROUNDING_GROUP) { /* of 16 threads */
        float greatest = e4m3_greatest(value.v);
#pragma unroll
        for (int offset = STEP / EACH / 2; offset; offset /= 2)
            greatest = fmaxf(greatest, __shfl_xor_sync(FULL_MASK, greatest, offset));
        scale = e4m3_scale(greatest);
        if (column % STEP == 0 && step < a.steps)
            p.groups[step * ROWS + row] = scale;
    }
    if (step >= p.first && step < p.end)
        store_shared_half(p.x + (step - p.first) * X_STEP_BYTES + row * STEP + ((unit ^ row) << 4) +
                              column % 16,
                          e4m3_round8(value.v, e4m3_divide_by(scale)));
}

/* Whether a warp has values of the block's steps in a turn. */
__device__ __forceinline__ bool is_own(const place &p, int turn)
{
    const uint32_t first = turn * TURN + threadIdx.x / WARP * (WARP * EACH);
    return first < p.end * STEP && first + WARP * EACH > p.first * STEP;
}

/* Of all threads that make x, before anything is there: rows that do not exist are zeros. */
__device__ __forceinline__ void x_clear(const args &a, const place &p)
{
    const uint32_t units = ROWS * STEP / 16;
    for (uint32_t i = threadIdx.x; i < (p.end - p.first) * units; i += WORKERS)
        if (i % units / (STEP / 16) >= a.m.rows.max)
            store_shared(p.x + i * 16, make_uint4(0, 0, 0, 0));
}

/* Of all threads that make x; waits for the kernel before, and lets the one behind start, which
 * finds room where blocks of this one have gone. */
template <int TURNS, int COUNT>
__device__ __forceinline__ void x_make(const args &a, const place &p, fixed &shared)
{
    const struct matmul_args &m = a.m;
    values<TURNS, COUNT> of;
    float scale[COUNT];
    if (TURNS <= NORM_TURNS && m.norm_in.residual) {
        constexpr int NORMED = TURNS <= NORM_TURNS ? TURNS : NORM_TURNS;
        values<NORMED, COUNT> normed;
        weights<NORMED> weight;
        weights_load(weight, m);
        grid_wait();
        grid_trigger();
        values_norm(normed, weight, m, shared);
#pragma unroll
        for (uint32_t row = 0; row < COUNT; row++)
#pragma unroll
            for (int turn = 0; turn < NORMED; turn++)
                of.x[row][turn] = normed.x[row][turn];
    } else {
        grid_wait();
        grid_trigger();
        values_load(of, m);
    }
#pragma unroll
    for (uint32_t row = 0; row < COUNT; row++)
        scale[row] = m.w.input.scale;
    if (m.w.input.rounding == ROUNDING_TOKEN)
        values_scale(of, scale, m, shared);
    if (threadIdx.x == 0)
#pragma unroll
        for (uint32_t row = 0; row < COUNT; row++)
            shared.scales[row] = scale[row];
#pragma unroll
    for (int turn = 0; turn < TURNS; turn++)
        if (is_own(p, turn))
#pragma unroll
            for (uint32_t row = 0; row < COUNT; row++)
                eight_round(a, p, of.x[row][turn], scale[row], row, column_of(turn));
    reads_before_copy(); /* what was written is read the way that copies go */
    workers_sync();
}

#endif

} // namespace rounding
