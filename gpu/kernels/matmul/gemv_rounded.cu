/* Products of few rounded rows with weights in e4m3, on sm_90, which round their inputs themselves:
 * bound by reading the weights once, and by what stands between two such products.
 *
 * The tensor cores multiply bytes of e4m3 as they lie in shared memory (matmul_eight.cu), and here
 * x is made there, too: each block rounds what it needs of it while its first weights are on their
 * way, so that no kernel stands before the product. Behind a norm that is owed x is made whole of
 * the residual first, in the order of norm.cu, and rounded as if it had been there.
 *
 * There is at most one block for each SM, and it takes less than half of an SM's shared memory: so
 * a block of the next kernel has room beside it, and its weights begin to come while this one's
 * last ones are multiplied. A block takes tile after tile of 64 outputs (of gate and up 32 channels
 * of each), the left operand; all rows are the right one. Where tiles are few, a cluster of blocks
 * shares the columns of each; every block adds up a part of the outputs, in the order of blocks.
 *
 * Tensor cores keep some 13 bits of what they have summed: every 128 columns are summed anew, by
 * the scales of blocks where there are some, and added up in float32. */
#include "gpu/kernels/activation/activation.cuh"
#include "gpu/kernels/common/cluster_meet.cuh"
#include "gpu/kernels/common/device_props.cuh"
#include "gpu/kernels/common/ring.cuh"
#include "gpu/kernels/common/tensor_map.cuh"
#include "gpu/kernels/common/wgmma.cuh"
#include "gpu/kernels/matmul/e4m3.cuh"
#include "gpu/kernels/matmul/matmul.cuh"
#include "gpu/kernels/norm/norm.cuh"

#define OUTPUTS 64
#define STEP 128          /* columns that are summed by the tensor cores; bytes of a row of a box */
#define ROWS 8            /* of the right operand */
#define GROUP_THREADS 128 /* of a warpgroup */
#define GROUPS 2          /* which take steps in turns */
#define MULTIPLIERS (GROUPS * GROUP_THREADS)
#define WORKERS 512 /* make x, of which these are the first; as many as norm.cu has */
#define WARPS (WORKERS / WARP)
#define THREADS (WORKERS + WARP)
#define PER_PROCESSOR 2 /* blocks: one of this kernel, one of the next */
#define STAGE_BYTES (OUTPUTS * STEP)
#define STAGES_MAX 12
#define STAGES_MIN 4
#define ALIGNMENT 1024 /* of what is swizzled */
#define RESERVED 1024  /* of an SM's shared memory, for each block */
#define X_STEP_BYTES (ROWS * STEP)
#define PITCH (OUTPUTS + 4) /* floats of a row of sums, against bank conflicts */
#define EACH 8              /* values of x that a thread has in a turn */
#define TURN (WORKERS * EACH)
#define TURNS_MAX 4
#define NORM_TURNS 2 /* of a row that is normed */
#define CLUSTER_MAX 8
#define COST_TILE 8 /* of a tile's begin and end, in steps */

static_assert(NORM_TURNS * TURN <= NORM_THREADS * 8, "a row that is normed is one turn of norm.cu");
static_assert(NORM_TURNS * WARPS <= WARP, "a warp adds up all warps' sums");
static_assert(MATMUL_ROUNDS_MAX <= ROWS && MATMUL_ROUNDS_MAX * OUTPUTS <= MULTIPLIERS,
              "rows are the right operand, and each output of a tile has a thread");

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
    float sums[GROUPS][MATMUL_ROUNDS_MAX][PITCH];
    float scales[ROWS];                        /* of whole rows */
    float parts[MATMUL_ROUNDS_MAX][WARP];      /* of rows that are made, by warps */
    float squares[MATMUL_ROUNDS_MAX][OUTPUTS]; /* of what is handed on */
    uint64_t meetings[2];                      /* of all that multiply in a cluster */
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
    uint32_t x, stages, full, empty;
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
    p.height = a.m.gated ? OUTPUTS / 2 : OUTPUTS;
    p.outputs = a.m.gated ? a.m.w.n / 2 : a.m.w.n;
    return p;
}

/* One thread: weights of all the block's tiles, which wait for no kernel. */
__device__ __forceinline__ void bring(const args &a, const place &p)
{
    const uint64_t once = policy_once();
    ring_cursor at = {0, 0};
    for (uint32_t tile = p.cluster; tile < a.tiles; tile += p.clusters)
        for (uint32_t step = p.first; step < p.end; step++) {
            uint32_t to = p.stages + at.stage * STAGE_BYTES, full = ring_barrier(p.full, at);
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

/* All that multiply. */
__device__ __forceinline__ void multipliers_sync()
{
    asm volatile("bar.sync 2, %0;" ::"n"(MULTIPLIERS) : "memory");
}

/* All that multiply in a cluster, at one of its meetings: what they wrote before is seen behind it.
 * Not cluster_sync(), which the thread that brings weights would have to wait for, too. */
__device__ __forceinline__ void cluster_meet(const args &a, const fixed &shared, int meeting,
                                             uint32_t phase)
{
    uint32_t barrier = shared_address(&shared.meetings[meeting]), lane = threadIdx.x % WARP;
    if (a.cluster == 1) {
        multipliers_sync();
        return;
    }
    __syncwarp();
    if (lane < a.cluster)
        cluster_arrive(cluster_address(barrier, lane));
    cluster_wait(barrier, phase);
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

/* What a thread has of all rows, in 16 bits; zeros past the end, and of rows that are not there. */
template <int TURNS> struct values {
    uint4 x[MATMUL_ROUNDS_MAX][TURNS];
};

template <int TURNS>
__device__ __forceinline__ void values_load(values<TURNS> &to, const struct matmul_args &m)
{
#pragma unroll
    for (uint32_t row = 0; row < MATMUL_ROUNDS_MAX; row++)
#pragma unroll
        for (int turn = 0; turn < TURNS; turn++) {
            const uint16_t *from =
                static_cast<const uint16_t *>(m.x) + (size_t)row * m.x_stride + column_of(turn);
            to.x[row][turn] = row < m.rows.max && column_of(turn) < m.w.k
                                  ? *reinterpret_cast<const uint4 *>(from)
                                  : make_uint4(0, 0, 0, 0);
        }
}

/* Of each row, what `of_warp` makes of a warp's values, of all warps; `none` where there is none.
 */
template <class OfWarp>
__device__ __forceinline__ void rows_reduce(float (&value)[MATMUL_ROUNDS_MAX], fixed &shared,
                                            OfWarp of_warp)
{
    const uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
#pragma unroll
    for (uint32_t row = 0; row < MATMUL_ROUNDS_MAX; row++) {
        value[row] = of_warp(value[row]);
        if (lane == 0)
            shared.parts[row][warp] = value[row];
    }
    workers_sync();
#pragma unroll
    for (uint32_t row = 0; row < MATMUL_ROUNDS_MAX; row++)
        value[row] = of_warp(lane < WARPS ? shared.parts[row][lane] : 0.0f);
    workers_sync();
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
template <int TURNS>
__device__ __forceinline__ void values_norm(values<TURNS> &to, const weights<TURNS> &weight,
                                            const struct matmul_args &m, fixed &shared)
{
    const uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    float8 value[MATMUL_ROUNDS_MAX][TURNS];
#pragma unroll
    for (uint32_t row = 0; row < MATMUL_ROUNDS_MAX; row++)
#pragma unroll
        for (int turn = 0; turn < TURNS; turn++) {
            size_t at = (size_t)row * m.norm_in.residual_stride + column_of(turn);
            value[row][turn] = {};
            if (row < m.rows.max && column_of(turn) < m.w.k)
                value[row][turn] = load_whole(m.norm_in.residual, at, DTYPE_F32);
        }
#pragma unroll
    for (uint32_t row = 0; row < MATMUL_ROUNDS_MAX; row++)
#pragma unroll
        for (int turn = 0; turn < TURNS; turn++) {
            float squares = warp_sum(norm_squares(0, value[row][turn]));
            if (lane == 0)
                shared.parts[row][turn * WARPS + warp] = squares;
        }
    workers_sync();
#pragma unroll
    for (uint32_t row = 0; row < MATMUL_ROUNDS_MAX; row++) {
        const uint32_t warps = TURNS * WARPS;
        float squares = warp_sum(lane < warps ? shared.parts[row][lane] : 0.0f);
        float scale = norm_scale(squares, m.w.k, m.norm_in.eps);
#pragma unroll
        for (int turn = 0; turn < TURNS; turn++) {
            float8 some = norm_scaled(value[row][turn], scale, weight.of[turn]);
            const float(&v)[8] = some.v;
            to.x[row][turn] = make_uint4(pack(v[0], v[1], m.x_dtype), pack(v[2], v[3], m.x_dtype),
                                         pack(v[4], v[5], m.x_dtype), pack(v[6], v[7], m.x_dtype));
        }
    }
    workers_sync();
}

/* The scale of each row, where it has one. */
template <int TURNS>
__device__ __forceinline__ void values_scale(const values<TURNS> &of,
                                             float (&scale)[MATMUL_ROUNDS_MAX],
                                             const struct matmul_args &m, fixed &shared)
{
    float greatest[MATMUL_ROUNDS_MAX] = {};
#pragma unroll
    for (uint32_t row = 0; row < MATMUL_ROUNDS_MAX; row++)
#pragma unroll
        for (int turn = 0; turn < TURNS; turn++)
            greatest[row] =
                fmaxf(greatest[row], e4m3_greatest(widened(of.x[row][turn], m.x_dtype).v));
    rows_reduce(greatest, shared, [](float mine) { return warp_greatest(mine); });
#pragma unroll
    for (uint32_t row = 0; row < MATMUL_ROUNDS_MAX; row++)
        scale[row] = e4m3_scale_to(greatest[row], m.w.input.scale);
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

/* Of all threads that make x, before anything is there: rows that do not exist are zeros. */
__device__ __forceinline__ void x_clear(const args &a, const place &p)
{
    const uint32_t units = ROWS * STEP / 16;
    for (uint32_t i = threadIdx.x; i < (p.end - p.first) * units; i += WORKERS)
        if (i % units / (STEP / 16) >= a.m.rows.max)
            store_shared(p.x + i * 16, make_uint4(0, 0, 0, 0));
}

/* Of all threads that make x; waits for the kernel before. */
template <int TURNS>
__device__ __forceinline__ void x_make(const args &a, const place &p, fixed &shared)
{
    const struct matmul_args &m = a.m;
    values<TURNS> of;
    float scale[MATMUL_ROUNDS_MAX];
    if (TURNS <= NORM_TURNS && m.norm_in.residual) {
        constexpr int COUNT = TURNS <= NORM_TURNS ? TURNS : NORM_TURNS;
        values<COUNT> normed;
        weights<COUNT> weight;
        weights_load(weight, m);
        grid_wait();
        values_norm(normed, weight, m, shared);
#pragma unroll
        for (uint32_t row = 0; row < MATMUL_ROUNDS_MAX; row++)
#pragma unroll
            for (int turn = 0; turn < COUNT; turn++)
                of.x[row][turn] = normed.x[row][turn];
    } else {
        grid_wait();
        values_load(of, m);
    }
#pragma unroll
    for (uint32_t row = 0; row < MATMUL_ROUNDS_MAX; row++)
        scale[row] = m.w.input.scale;
    if (m.w.input.rounding == ROUNDING_TOKEN)
        values_scale(of, scale, m, shared);
    if (threadIdx.x == 0)
#pragma unroll
        for (uint32_t row = 0; row < MATMUL_ROUNDS_MAX; row++)
            shared.scales[row] = scale[row];
#pragma unroll
    for (uint32_t row = 0; row < MATMUL_ROUNDS_MAX; row++)
#pragma unroll
        for (int turn = 0; turn < TURNS; turn++)
            if (row < m.rows.max)
                eight_round(a, p, of.x[row][turn], scale[row], row, column_of(turn));
    reads_before_copy(); /* what was written is read the way that copies go */
    workers_sync();
}

/* ---- products ---- */

/* Steps are dealt to the groups in turns, over all tiles: which of a tile's are this thread's. */
struct turns {
    uint32_t first; /* of the tile's steps */
    ring_cursor at;
};

__device__ __forceinline__ void turns_next(turns &of, const args &a, const place &p)
{
    uint32_t count = p.end - p.first;
    of.first = (of.first + GROUPS - count % GROUPS) % GROUPS;
}

/* The scale of blocks of a tile: each lane has that of one of its group's steps. */
__device__ __forceinline__ float scale_ask(const args &a, const place &p, uint32_t tile,
                                           const turns &of)
{
    const uint32_t columns = (a.m.w.k + STEP - 1) / STEP;
    const bool up = a.m.gated && threadIdx.x % GROUP_THREADS >= GROUP_THREADS / 2;
    uint32_t step = p.first + of.first + threadIdx.x % WARP * GROUPS;
    uint32_t n = tile * p.height + (up ? p.outputs : 0);
    return tile < a.tiles && step < p.end
               ? static_cast<const float *>(a.m.w.scales.data)[(size_t)(n / STEP) * columns + step]
               : 0.0f;
}

/* This group's sums of a tile. A thread has those of outputs lane / 4 and 8 behind it, of two
 * rows. */
template <bool BLOCKS>
__device__ __forceinline__ void multiply(float (&sum)[4], const args &a, const place &p, turns &of,
                                         float scale)
{
    const uint32_t row = threadIdx.x % 4 * 2;
    int own = 0;
    for (uint32_t turn = of.first; turn < p.end - p.first; turn += GROUPS, own++) {
        const uint32_t stage = p.stages + of.at.stage * STAGE_BYTES;
        float part[4], by[2] = {1, 1};
        ring_wait_full(p.full, of.at);
        wgmma_begin();
#pragma unroll
        for (int k = 0; k < STEP; k += 32)
            wgmma_eight(part, wgmma_operand(stage + k, 16),
                        wgmma_operand(p.x + turn * X_STEP_BYTES + k, 16), k > 0);
        wgmma_commit();
        if (BLOCKS) {
            const float *groups = p.groups + (p.first + turn) * ROWS + row;
            float of_block = __shfl_sync(FULL_MASK, scale, own);
            by[0] = of_block * groups[0];
            by[1] = of_block * groups[1];
        }
        wgmma_wait<0>();
        wgmma_hold(part);
        if (threadIdx.x % WARP == 0)
            ring_give_back(p.empty, of.at);
        of.at.stage += GROUPS;
        if (of.at.stage >= a.stages)
            of.at.stage -= a.stages, of.at.phase ^= 1;
#pragma unroll
        for (int i = 0; i < 4; i++)
            sum[i] += BLOCKS ? part[i] * by[i % 2] : part[i];
    }
}

/* ---- results ---- */

/* An output of a row that a thread finishes, and what it needs beside the sums. */
struct output {
    uint32_t row, of; /* of the tile */
    uint32_t n;
    bool valid;
    float before, weight, bias[2], scale[2];
};

__device__ __forceinline__ output output_ask(const args &a, const place &p, uint32_t tile,
                                             uint32_t number)
{
    const struct matmul_args &m = a.m;
    const uint32_t part = p.height / a.cluster;
    output out = {number / part, p.rank * part + number % part, 0, false, 0, 0, {0, 0}, {1, 1}};
    out.n = tile * p.height + out.of;
    out.valid = out.row < m.rows.max && out.n < p.outputs;
    if (!out.valid)
        return out;
    if (m.adds)
        out.before = static_cast<const float *>(m.y)[(size_t)out.row * m.y_stride + out.n];
    if (m.norm_out.weight)
        out.weight =
            load_value(m.norm_out.weight, out.n, m.norm_out.weight_dtype) + m.norm_out.offset;
#pragma unroll
    for (int up = 0; up < 2; up++) {
        uint32_t n = out.n + up * p.outputs;
        if (up && !m.gated)
            break;
        if (m.bias)
            out.bias[up] = load_value(m.bias, n, m.bias_dtype);
        if (!m.w.scales.k)
            out.scale[up] = weight_scale(m.w, n, 0);
    }
    return out;
}

/* An output's sum, of all groups of all blocks of the cluster. */
__device__ __forceinline__ float sum_of(const args &a, const fixed &shared, uint32_t row,
                                        uint32_t of)
{
    const uint32_t at = shared_address(&shared.sums[0][row][of]);
    float out = 0;
#pragma unroll 1
    for (uint32_t i = 0; i < a.cluster; i++) {
        uint32_t from = a.cluster > 1 ? cluster_address(at, i) : at;
        float part[GROUPS];
#pragma unroll
        for (uint32_t group = 0; group < GROUPS; group++)
            part[group] = cluster_load_value(from + group * sizeof shared.sums[0]);
        out += part[0] + part[1];
    }
    return out;
}

__device__ __forceinline__ float act(const struct matmul_args &m, float x)
{
    return m.activation == ACTIVATE_SILU
               ? x / (1.0f + expf(activation_exponent<ACTIVATE_SILU>(x)))
               : x / (1.0f + expf(activation_exponent<ACTIVATE_GELU_TANH>(x)));
}

__device__ __forceinline__ void output_store(const args &a, const place &p, fixed &shared,
                                             const output &o)
{
    const struct matmul_args &m = a.m;
    const float by_row = m.w.input.rounding == ROUNDING_GROUP ? 1.0f : shared.scales[o.row];
    float y = sum_of(a, shared, o.row, o.of) * (by_row * o.scale[0]) + o.bias[0];
    if (m.gated || m.activates)
        y = act(m, y);
    if (m.gated)
        y *= sum_of(a, shared, o.row, o.of + p.height) * (by_row * o.scale[1]) + o.bias[1];
    if (m.adds)
        y += o.before;
    store_value(m.y, (size_t)o.row * m.y_stride + o.n, m.y_dtype, y);
    if (!m.norm_out.weight)
        return;
    store_value(m.norm_out.out, (size_t)o.row * m.norm_out.out_stride + o.n, m.x_dtype,
                y * o.weight);
    shared.squares[o.row][o.of] += y * y;
}

/* Whole group: the sums of squares of all that the block has handed on, and none where there is no
 * block. */
__device__ __forceinline__ void squares_hand(const args &a, const place &p, const fixed &shared)
{
    float *to = a.m.norm_out.squares;
    const uint32_t part = p.height / a.cluster, rows = a.m.rows.max;
    multipliers_sync();
    if (threadIdx.x < rows) {
        float sum = 0;
        for (uint32_t i = 0; i < part; i++)
            sum += shared.squares[threadIdx.x][p.rank * part + i];
        to[threadIdx.x * MATMUL_PARTS + blockIdx.x] = sum;
    }
    if (blockIdx.x == 0)
        for (uint32_t i = threadIdx.x; i < rows * MATMUL_PARTS; i += MULTIPLIERS)
            if (i % MATMUL_PARTS >= gridDim.x)
                to[i] = 0;
}

__device__ __forceinline__ void tile_finish(const float (&sum)[4], const args &a, const place &p,
                                            fixed &shared, const output &own, uint32_t phase)
{
    const uint32_t lane = threadIdx.x % WARP, group = threadIdx.x / GROUP_THREADS;
    const uint32_t of = threadIdx.x % GROUP_THREADS / WARP * 16 + lane / 4;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint32_t row = lane % 4 * 2 + i % 2;
        if (row < MATMUL_ROUNDS_MAX)
            shared.sums[group][row][of + i / 2 * 8] = sum[i];
    }
    cluster_meet(a, shared, 0, phase);
    if (own.valid)
        output_store(a, p, shared, own);
    cluster_meet(a, shared, 1, phase); /* others may still read these sums */
}

/* Towards the L2: what a block needs behind all its weights. */
__device__ __forceinline__ void prefetch(const args &a, const place &p)
{
    const struct matmul_args &m = a.m;
    if (threadIdx.x < m.w.k / 64 && m.norm_in.residual)
        prefetch_l2(static_cast<const char *>(m.norm_in.weight) +
                    threadIdx.x * 64 * (m.norm_in.weight_dtype == DTYPE_F32 ? 4 : 2));
    uint32_t tile = p.cluster + threadIdx.x * p.clusters;
    if (tile >= a.tiles)
        return;
    for (uint32_t up = 0; up <= (m.gated ? 1u : 0u); up++) {
        size_t n = tile * p.height + up * p.outputs;
        if (m.bias)
            prefetch_l2(static_cast<const char *>(m.bias) +
                        n * (m.bias_dtype == DTYPE_F32 ? 4 : 2));
        for (uint32_t half = 0; half < 2 && m.w.scales.n == 1; half++)
            prefetch_l2(static_cast<const float *>(m.w.scales.data) + n + half * p.height / 2);
    }
}

#endif

template <int TURNS, bool BLOCKS>
__global__ void __launch_bounds__(THREADS, PER_PROCESSOR)
    gemv_rounded_kernel(const __grid_constant__ struct args a)
{
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
    extern __shared__ __align__(ALIGNMENT) char memory[];
    __shared__ fixed shared;
    const place p = place_of(a, memory, shared);
    if (threadIdx.x == 0) {
        ring_init(p.full, STAGES_MAX, 1);
        ring_init(p.empty, STAGES_MAX, GROUP_THREADS / WARP);
        for (int i = 0; i < 2; i++)
            barrier_init(shared_address(&shared.meetings[i]), a.cluster * (MULTIPLIERS / WARP));
        barrier_init_done();
    }
    if (a.cluster > 1)
        cluster_sync(); /* the others' barriers are there, too */
    else
        __syncthreads();

    /* The kernel behind waits for this one by itself; but its weights would come before the x of
     * more than a row, which takes longer than they save. */
    const bool early = a.m.rows.max == 1;
    if (early)
        grid_trigger();
    if (threadIdx.x >= WORKERS) {
        if (warp_elect())
            bring(a, p);
        return;
    }
    turns of = {threadIdx.x / GROUP_THREADS, {threadIdx.x / GROUP_THREADS, 0}};
    float scale = BLOCKS ? scale_ask(a, p, p.cluster, of) : 0;
    prefetch(a, p);
    x_clear(a, p);
    if (threadIdx.x < MATMUL_ROUNDS_MAX * OUTPUTS)
        shared.squares[threadIdx.x / OUTPUTS][threadIdx.x % OUTPUTS] = 0;
    x_make<TURNS>(a, p, shared);
    if (!early)
        grid_trigger();
    if (threadIdx.x >= MULTIPLIERS)
        return;
    uint32_t phase = 0;
    for (uint32_t tile = p.cluster; tile < a.tiles; tile += p.clusters) {
        const output own = output_ask(a, p, tile, threadIdx.x);
        const float scale_now = scale;
        float sum[4] = {};
        turns next = of;
        turns_next(next, a, p);
        if (BLOCKS)
            scale = scale_ask(a, p, tile + p.clusters, next);
        multiply<BLOCKS>(sum, a, p, of, scale_now);
        of.first = next.first;

        tile_finish(sum, a, p, shared, own, phase);
        phase ^= 1;
    }
    if (a.m.norm_out.weight)
        squares_hand(a, p, shared);

#endif
}

/* ---- launching ---- */

static bool has_blocks(const struct weight *w)
{
    return w->scales.k || w->input.rounding == ROUNDING_GROUP;
}

static uint32_t group_bytes_of(const struct weight *w)
{
    return has_blocks(w) ? ceil_div(w->k, STEP) * ROWS * sizeof(float) : 0;
}

/* Of x and stages. */
static uint32_t room_of(const struct weight *w)
{
    uint32_t block = (device_props()->shared_max + RESERVED) / PER_PROCESSOR - RESERVED;
    return block - FIXED - group_bytes_of(w);
}

/* Blocks that share a tile's columns: what takes least time, in steps, of those whose x leaves room
 * for weights; 0: none. */
static uint32_t cluster_of(const struct matmul_args *m)
{
    const struct device_props *device = device_props();
    const uint32_t steps = ceil_div(m->w.k, STEP), height = m->gated ? OUTPUTS / 2 : OUTPUTS;
    const uint32_t tiles = ceil_div(m->gated ? m->w.n / 2 : m->w.n, height);
    uint32_t best = 0, least = UINT32_MAX;
    for (uint32_t cluster = 1; cluster <= CLUSTER_MAX && cluster <= steps; cluster *= 2) {
        uint32_t own = ceil_div(steps, cluster), clusters = device->processors / cluster;
        uint32_t cost = ceil_div(tiles, clusters) * (own + COST_TILE);
        if (clusters && own <= GROUPS * WARP &&
            own * X_STEP_BYTES + STAGES_MIN * STAGE_BYTES <= room_of(&m->w) && cost < least) {
            least = cost;
            best = cluster;
        }
    }
    return best;
}

template <int TURNS, bool BLOCKS>
static cudaError_t small_launch(const struct matmul_args *m, cudaStream_t stream)
{
    const struct device_props *device = device_props();
    static struct device_once once;
    const uint32_t height = m->gated ? OUTPUTS / 2 : OUTPUTS;
    struct args a = {};
    a.m = *m;
    a.tiles = ceil_div(m->gated ? m->w.n / 2 : m->w.n, height);
    a.steps = ceil_div(m->w.k, STEP);
    a.cluster = cluster_of(m);
    a.x_steps = ceil_div(a.steps, a.cluster);
    a.group_bytes = group_bytes_of(&m->w);
    /* A stage is always the same group's: one that another had before could be waited for too soon,
     * since copies end in any order and a barrier tells two turns of the ring apart, no more. */
    a.stages = ring_stages(room_of(&m->w) - a.x_steps * X_STEP_BYTES, STAGE_BYTES, STAGES_MAX) /
               GROUPS * GROUPS;
    cudaError_t result = device_allow(&once, gemv_rounded_kernel<TURNS, BLOCKS>, device, FIXED);
    if (result == cudaSuccess)
        result = tensor_map_bytes(&a.w, m->w.data, m->w.n, m->w.k, m->w.k, STEP, height);
    if (result != cudaSuccess)
        return result;
    uint32_t clusters = device->processors / a.cluster;
    cudaLaunchAttribute attributes[2];
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = 1;
    attributes[1].id = cudaLaunchAttributeClusterDimension;
    attributes[1].val.clusterDim.x = a.cluster;
    attributes[1].val.clusterDim.y = attributes[1].val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((a.tiles < clusters ? a.tiles : clusters) * a.cluster);
    config.blockDim = dim3(THREADS);
    config.dynamicSmemBytes =
        ALIGNMENT + a.x_steps * X_STEP_BYTES + a.stages * STAGE_BYTES + a.group_bytes;
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = a.cluster > 1 ? 2 : 1;
    return cudaLaunchKernelEx(&config, gemv_rounded_kernel<TURNS, BLOCKS>, a);
}

template <bool BLOCKS>
static cudaError_t small_turns(const struct matmul_args *m, cudaStream_t stream)
{
    uint32_t turns = ceil_div(m->w.k, TURN);
    return turns <= 1            ? small_launch<1, BLOCKS>(m, stream)
           : turns <= NORM_TURNS ? small_launch<NORM_TURNS, BLOCKS>(m, stream)
                                 : small_launch<TURNS_MAX, BLOCKS>(m, stream);
}

static bool scales_can(const struct matmul_args *a)
{
    const struct weight *w = &a->w;
    bool blocks = w->scales.k == STEP && w->scales.n == STEP &&
                  w->input.rounding == ROUNDING_GROUP && w->input.group == STEP;
    bool outer = !w->scales.k && w->scales.n <= 1 && w->input.rounding != ROUNDING_GROUP;
    return !w->zeros && !w->order && w->scales.data && w->scales.dtype == DTYPE_F32 &&
           w->input.rounding != ROUNDING_NONE && (blocks || outer);
}

static bool norms_can(const struct matmul_args *a)
{
    uintptr_t places = reinterpret_cast<uintptr_t>(a->norm_in.residual) |
                       reinterpret_cast<uintptr_t>(a->norm_in.weight);
    bool in = !a->norm_in.squares || (a->norm_in.residual && a->w.k <= NORM_TURNS * TURN &&
                                      a->norm_in.residual_stride % 8 == 0 && places % 16 == 0);
    bool out = !a->norm_out.weight || (a->adds && !a->gated && !a->activates);
    return in && out &&
           ((!a->norm_out.weight && !a->norm_in.squares) ||
            (a->x_dtype == DTYPE_BF16 && device_props()->processors <= MATMUL_PARTS));
}

} // namespace rounding

bool gemv_rounded_can(const struct matmul_args *a)
{
    bool shape = a->w.k % 16 == 0 && a->w.n % (a->gated ? 64 : 16) == 0 && a->w.k > 0 &&
                 a->w.k <= TURNS_MAX * TURN;
    bool lies = reinterpret_cast<uintptr_t>(a->w.data) % 16 == 0 && a->x_stride % 8 == 0 &&
                reinterpret_cast<uintptr_t>(a->x) % 16 == 0;
    return device_props()->major == 9 && tensor_map_can() && shape && lies &&
           a->rows.max <= MATMUL_ROUNDS_MAX && a->x_dtype != DTYPE_F32 &&
           !(a->gated && a->activates) && (!a->adds || a->y_dtype == DTYPE_F32) &&
           rounding::scales_can(a) && rounding::norms_can(a) && rounding::cluster_of(a);
}

cudaError_t gemv_rounded(const struct matmul_args *args, cudaStream_t stream)
{
    return rounding::has_blocks(&args->w) ? rounding::small_turns<true>(args, stream)
                                          : rounding::small_turns<false>(args, stream);
}
