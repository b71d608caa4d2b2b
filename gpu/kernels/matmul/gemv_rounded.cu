/* Products of few rounded rows with weights in e4m3, on sm_90, which round their inputs themselves:
 * bound by reading the weights once, and by what stands between two such products.
 *
 * The tensor cores multiply bytes of e4m3 as they lie in shared memory (matmul_eight.cu), and here
 * x is made there, too: each block rounds what it needs of it while its first weights are on their
 * way, so that no kernel stands before the product. Behind a norm that is owed x is made whole of
 * the residual first, in the order of norm.cu, and rounded as if it had been there.
 *
 * There is at most one block for each SM, and its ring takes nearly all of an SM's shared memory:
 * what has come by the time x is made is what the making does not cost. A block takes tile after
 * tile of 64 outputs (of gate and up 32 channels of each), the left operand; all rows are the right
 * one. Where tiles are few, or do not deal evenly, a cluster of blocks shares the columns of each.
 * Of a tile's sums each block finishes a part of the outputs, to which the others push theirs, in
 * the order of blocks; other warps do that while the next tile is multiplied.
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

/* Where a group is in a tile. */
struct step_cursor {
    uint32_t turn; /* which of the block's steps */
    ring_cursor at;
    int own; /* of the group's */
};

__device__ __forceinline__ void step_next(step_cursor &of, const args &a)
{
    of.turn += GROUPS;
    of.own++;
    of.at.stage += GROUPS;
    if (of.at.stage >= a.stages)
        of.at.stage -= a.stages, of.at.phase ^= 1;
}

/* So many steps one behind the other, whose products are waited for together: what a group waits
 * for between them is what it takes. */
template <int COUNT, bool BLOCKS>
__device__ __forceinline__ void steps_multiply(float (&sum)[4], const args &a, const place &p,
                                               step_cursor &of, float scale)
{
    float part[COUNT][4], by[COUNT][2];
    uint32_t stages[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        const uint32_t stage = p.stages + of.at.stage * STAGE_BYTES;
        ring_wait_full(p.full, of.at);
        wgmma_begin();
#pragma unroll
        for (int k = 0; k < STEP; k += 32)
            wgmma_eight(part[i], wgmma_operand(stage + k, 16),
                        wgmma_operand(p.x + of.turn * X_STEP_BYTES + k, 16), k > 0);
        wgmma_commit();
        if (BLOCKS) {
            const float *groups = p.groups + (p.first + of.turn) * ROWS + threadIdx.x % 4 * 2;
            float of_block = __shfl_sync(FULL_MASK, scale, of.own);
            by[i][0] = of_block * groups[0];
            by[i][1] = of_block * groups[1];
        }
        stages[i] = ring_barrier(p.empty, of.at);
        step_next(of, a);
    }
    wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        wgmma_hold(part[i]);
        if (threadIdx.x % WARP == 0)
            barrier_arrive(stages[i]);
#pragma unroll
        for (int j = 0; j < 4; j++)
            sum[j] += BLOCKS ? part[i][j] * by[i][j % 2] : part[i][j];
    }
}

/* This group's sums of a tile. A thread has those of outputs lane / 4 and 8 behind it, of two
 * rows. */
template <bool BLOCKS>
__device__ __forceinline__ void multiply(float (&sum)[4], const args &a, const place &p, turns &of,
                                         float scale)
{
    const uint32_t count = p.end - p.first;
    step_cursor step = {of.first, of.at, 0};
    while (step.turn + (TOGETHER - 1) * GROUPS < count)
        steps_multiply<TOGETHER, BLOCKS>(sum, a, p, step, scale);
    while (step.turn < count)
        steps_multiply<1, BLOCKS>(sum, a, p, step, scale);
    of.at = step.at;
}

/* A tile's sums of this group, to those who finish. */
__device__ __forceinline__ void sums_leave(const float (&sum)[4], const place &p, fixed &shared,
                                           ring_cursor &tile)
{
    const uint32_t lane = threadIdx.x % WARP, group = threadIdx.x / GROUP_THREADS;
    const uint32_t of = threadIdx.x % GROUP_THREADS / WARP * 16 + lane / 4;
    ring_wait_empty(p.taken, tile);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint32_t row = lane % 4 * 2 + i % 2;
        if (row < MATMUL_ROUNDS_MAX)
            shared.sums[tile.stage][group][row][of + i / 2 * 8] = sum[i];
    }
    __syncwarp();
    if (lane == 0)
        barrier_arrive(ring_barrier(p.made, tile));
    ring_next(tile, TILES_AHEAD);
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

/* What all groups of this block have of an output. */
__device__ __forceinline__ float sum_here(const fixed &shared, uint32_t stage, uint32_t row,
                                          uint32_t of)
{
    return shared.sums[stage][0][row][of] + shared.sums[stage][1][row][of];
}

/* Where another block's sum of the output with this number is. */
__device__ __forceinline__ const float *sum_there(const fixed &shared, uint32_t stage,
                                                  uint32_t block, uint32_t up, uint32_t number)
{
    return &shared.others[stage][block][up][number];
}

/* To all other blocks, what this one has of the outputs that they finish: each thread to those that
 * have its number there. A push overtakes no sum that is still to be read: who pushes a tile has
 * the sums of the tile before, and they were pushed behind the reading of the one before that. */
__device__ __forceinline__ void sums_push(const args &a, const place &p, const fixed &shared,
                                          uint32_t stage, uint32_t number)
{
    const uint32_t part = p.height / a.cluster, row = number / part, of = number % part;
    const uint32_t barrier = shared_address(&shared.pushed[number / WARP][stage]);
#pragma unroll 1
    for (uint32_t block = 0; block < a.cluster; block++) {
        if (block == p.rank)
            continue;
        uint32_t there = cluster_address(barrier, block);
        for (uint32_t up = 0; up <= (a.m.gated ? 1u : 0u); up++) {
            uint32_t at = shared_address(sum_there(shared, stage, p.rank, up, number));
            float sum = sum_here(shared, stage, row, block * part + of + up * p.height);
            cluster_push(cluster_address(at, block), sum, there);
        }
    }
}

/* Of gate and up, or one: the sums of all blocks, in their order. */
__device__ __forceinline__ void sums_add(float (&sum)[2], const args &a, const place &p,
                                         const fixed &shared, uint32_t stage, uint32_t number)
{
    for (uint32_t up = 0; up <= (a.m.gated ? 1u : 0u); up++) {
        float mine = sum[up], out = 0;
#pragma unroll 1
        for (uint32_t block = 0; block < a.cluster; block++)
            out += block == p.rank ? mine : *sum_there(shared, stage, block, up, number);
        sum[up] = out;
    }
}

/* Returns the square of what is handed on. */
__device__ __forceinline__ float output_store(const args &a, const fixed &shared, const output &o,
                                              const float (&sum)[2])
{
    const struct matmul_args &m = a.m;
    const float by_row = m.w.input.rounding == ROUNDING_GROUP ? 1.0f : shared.scales[o.row];
    float y = sum[0] * (by_row * o.scale[0]) + o.bias[0];
    if (m.gated || m.activates)
        y = matmul_activated(m, y);
    if (m.gated)
        y *= sum[1] * (by_row * o.scale[1]) + o.bias[1];
    if (m.adds)
        y += o.before;
    store_value(m.y, (size_t)o.row * m.y_stride + o.n, m.y_dtype, y);
    if (!m.norm_out.weight)
        return 0;
    store_value(m.norm_out.out, (size_t)o.row * m.norm_out.out_stride + o.n, m.x_dtype,
                y * o.weight);
    return y * y;
}

/* All that finish: the sums of squares of all that the block has handed on, and none where there is
 * no block. */
__device__ __forceinline__ void squares_hand(const args &a, const place &p, fixed &shared,
                                             uint32_t number, float squares)
{
    float *to = a.m.norm_out.squares;
    const uint32_t part = p.height / a.cluster, rows = a.m.rows.max;
    if (number < part * rows)
        shared.squares[number / part][number % part] = squares;
    finishers_sync();
    if (number < rows) {
        float sum = 0;
        for (uint32_t i = 0; i < part; i++)
            sum += shared.squares[number][i];
        to[number * MATMUL_PARTS + blockIdx.x] = sum;
    }
    if (blockIdx.x == 0)
        for (uint32_t i = number; i < rows * MATMUL_PARTS; i += FINISHERS)
            if (i % MATMUL_PARTS >= gridDim.x)
                to[i] = 0;
}

/* All that finish: the block's part of every tile. */
__device__ __forceinline__ void finish(const args &a, const place &p, fixed &shared)
{
    const uint32_t number = threadIdx.x - MULTIPLIERS, warp = number / WARP, lane = number % WARP;
    const uint32_t part = p.height / a.cluster, count = part * a.m.rows.max;
    const uint32_t mine = count > warp * WARP ? min(count - warp * WARP, WARP) : 0;
    const uint32_t pushed = (a.cluster - 1) * mine * (a.m.gated ? 2 : 1) * sizeof(float);
    ring_cursor at = {0, 0};
    float squares = 0;
    for (uint32_t tile = p.cluster; tile < a.tiles; tile += p.clusters) {
        const output own = output_ask(a, p, tile, number);
        const uint32_t barrier = shared_address(&shared.pushed[warp][at.stage]);
        float sum[2] = {};
        if (pushed && lane == 0)
            barrier_expect(barrier, pushed);
        ring_wait_full(p.made, at);
        if (number < count) {
            for (uint32_t up = 0; up <= (a.m.gated ? 1u : 0u); up++)
                sum[up] = sum_here(shared, at.stage, own.row, own.of + up * p.height);
            if (pushed)
                sums_push(a, p, shared, at.stage, number);
        }
        __syncwarp();
        if (lane == 0)
            barrier_arrive(ring_barrier(p.taken, at));
        if (pushed) {
            cluster_wait(barrier, at.phase);
            if (number < count)
                sums_add(sum, a, p, shared, at.stage, number);
        }
        if (own.valid)
            squares += output_store(a, shared, own, sum);
        __syncwarp(); /* what others pushed has been read by all lanes */
        ring_next(at, TILES_AHEAD);
    }
    if (a.m.norm_out.weight)
        squares_hand(a, p, shared, number, squares);
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

template <int TURNS, int COUNT, bool BLOCKS>
__global__ void __launch_bounds__(THREADS, 1)
    gemv_rounded_kernel(const __grid_constant__ struct args a)
{
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
    extern __shared__ __align__(ALIGNMENT) char memory[];
    __shared__ fixed shared;
    const place p = place_of(a, memory, shared);
    if (threadIdx.x == 0)
        barriers_begin(p, shared);
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
    x_make<TURNS, COUNT>(a, p, shared);
    if (threadIdx.x >= MULTIPLIERS) {
        if (threadIdx.x < MULTIPLIERS + FINISHERS)
            finish(a, p, shared);
        return;
    }
    ring_cursor at = {0, 0};
    for (uint32_t tile = p.cluster; tile < a.tiles; tile += p.clusters) {
        const float scale_now = scale;
        float sum[4] = {};
        turns next = of;
        turns_next(next, a, p);
        if (BLOCKS)
            scale = scale_ask(a, p, tile + p.clusters, next);
        multiply<BLOCKS>(sum, a, p, of, scale_now);
        of.first = next.first;
        sums_leave(sum, p, shared, at);
    }
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
    return device_props()->shared_max - FIXED - group_bytes_of(w);
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
        uint32_t own = ceil_div(steps, cluster), clusters = device_clusters(device, cluster);
        uint32_t cost = clusters ? ceil_div(tiles, clusters) * (own + COST_TILE) : UINT32_MAX;
        if (own <= GROUPS * WARP &&
            own * X_STEP_BYTES + STAGES_MIN * STAGE_BYTES <= room_of(&m->w) && cost < least) {
            least = cost;
            best = cluster;
        }
    }
    return best;
}

template <int TURNS, int COUNT, bool BLOCKS>
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
    const auto kernel = gemv_rounded_kernel<TURNS, COUNT, BLOCKS>;
    cudaError_t result = device_allow(&once, kernel, device, FIXED);
    if (result == cudaSuccess)
        result = tensor_map_bytes(&a.w, m->w.data, m->w.n, m->w.k, m->w.k, STEP, height);
    if (result != cudaSuccess)
        return result;
    uint32_t clusters = device_clusters(device, a.cluster);
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
    return cudaLaunchKernelEx(&config, kernel, a);
}

template <int COUNT, bool BLOCKS>
static cudaError_t small_turns(const struct matmul_args *m, cudaStream_t stream)
{
    uint32_t turns = ceil_div(m->w.k, TURN);
    return turns <= 1            ? small_launch<1, COUNT, BLOCKS>(m, stream)
           : turns <= NORM_TURNS ? small_launch<NORM_TURNS, COUNT, BLOCKS>(m, stream)
                                 : small_launch<TURNS_MAX, COUNT, BLOCKS>(m, stream);
}

template <bool BLOCKS>
static cudaError_t small_rows(const struct matmul_args *m, cudaStream_t stream)
{
    static_assert(MATMUL_ROUNDS_MAX == 2, "one row, or as many as may be");
    return m->rows.max <= 1 ? small_turns<1, BLOCKS>(m, stream)
                            : small_turns<MATMUL_ROUNDS_MAX, BLOCKS>(m, stream);
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
    return rounding::has_blocks(&args->w) ? rounding::small_rows<true>(args, stream)
                                          : rounding::small_rows<false>(args, stream);
}
