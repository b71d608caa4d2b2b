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
#include "gpu/kernels/matmul/gemv_rounded.cuh"

namespace rounding
{

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

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

__device__ __forceinline__ void output_store(const args &a, const place &p, fixed &shared,
                                             const output &o)
{
    const struct matmul_args &m = a.m;
    const float by_row = m.w.input.rounding == ROUNDING_GROUP ? 1.0f : shared.scales[o.row];
    float y = sum_of(a, shared, o.row, o.of) * (by_row * o.scale[0]) + o.bias[0];
    if (m.gated || m.activates)
        y = matmul_activated(m, y);
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
