/* One block: the plan is small, and the order of its effects is kept by the block's own barriers.
 * Where it begins with the model, rows are single tokens, and each has two blocks of its own beside
 * the one for all else. A row's token never comes from what that one writes: a slot that is opened
 * has not sampled. Bound by latency: of a row four loads, each of which needs the one before it. */
#include "gpu/kernels/step/step_begin.h"
#include "gpu/kernels/norm/norm.cuh"
#include "gpu/kernels/attention/rope.cuh"
#include "gpu/kernels/common/clock.cuh"

#define EXPAND_THREADS 1024

template <class T> __device__ static const T *section(const struct pack_head *wire, uint32_t offset)
{
    return reinterpret_cast<const T *>(reinterpret_cast<const char *>(wire) + offset);
}

/* Expand is what writes the arrays that everyone else only reads. */
template <class T> __device__ static T *writable(const T *place)
{
    return const_cast<T *>(place);
}

__device__ static void write_slabs(const struct pack_head *wire, const struct batch &batch)
{
    const struct pack_slab *slabs = section<struct pack_slab>(wire, wire->slabs);
    for (uint32_t i = threadIdx.x; i < wire->slab_count; i += blockDim.x)
        const_cast<void **>(batch.groups[slabs[i].group].slabs)[slabs[i].slab] = slabs[i].base;
}

/* A warp per opened slot. */
__device__ static void write_opens(const struct pack_head *wire, const struct batch &batch)
{
    const struct pack_open *opens = section<struct pack_open>(wire, wire->opens);
    const struct gpu_bias *bias = section<struct gpu_bias>(wire, wire->bias);
    const int32_t *ids = section<int32_t>(wire, wire->ids);
    uint32_t lane = threadIdx.x % WARP;
    for (uint32_t i = threadIdx.x / WARP; i < wire->open_count; i += blockDim.x / WARP) {
        const struct pack_open *open = &opens[i];
        const uint32_t *from = reinterpret_cast<const uint32_t *>(&open->state);
        uint32_t *to = reinterpret_cast<uint32_t *>(&batch.slots[open->slot]);
        for (uint32_t word = lane; word < sizeof open->state / 4; word += WARP)
            to[word] = from[word];
        __syncwarp();
        if (lane == 0)
            batch.slots[open->slot].before = ids + open->seen_first;
        struct gpu_bias *entries = writable(batch.bias) + (size_t)open->slot * GPU_BIAS_MAX;
        for (uint32_t b = lane; b < open->state.bias_count; b += WARP)
            entries[b] = bias[open->bias_first + b];
    }
}

__device__ static void write_appends(const struct pack_head *wire, const struct batch &batch)
{
    const struct gpu_append *appends = section<struct gpu_append>(wire, wire->appends);
    for (uint32_t i = threadIdx.x; i < wire->append_count; i += blockDim.x) {
        const struct batch_group &group = batch.groups[appends[i].group];
        writable(group.tables)[(size_t)appends[i].slot * group.blocks_max + appends[i].index] =
            appends[i].block;
    }
}

__device__ static bool row_fits(const struct batch &batch, const struct pack_row &row)
{
    return row.row.token <= batch.tokens_max && row.row.q_len <= batch.tokens_max - row.row.token &&
           row.row.q_len > 0 && row.row.drafts < row.row.q_len &&
           (row.sample == PACK_NONE ||
            (row.sample < batch.samples_max && row.row.drafts < batch.samples_max - row.sample)) &&
           row.score_first <= batch.scores_max &&
           row.score_count <= batch.scores_max - row.score_first &&
           row.embed_first <= batch.embeds_max &&
           row.embed_count <= batch.embeds_max - row.embed_first;
}

/* What the slot sampled last. */
__device__ static int32_t previous_of(const struct pack_head *wire, const struct batch &batch,
                                      uint32_t slot)
{
    return wire->tokens_in ? wire->tokens_in[slot] : batch.slots[slot].last;
}

/* Token i of the row: an id of the plan, what the slot sampled last, or, behind the first id of a
 * row with GPU_DRAFT and drafts, what the draft model guessed. */
__device__ static int32_t token_of(const struct pack_head *wire, const struct pack_row &row,
                                   const int32_t *ids, int32_t previous, uint32_t i)
{
    if (row.ids == PACK_NONE)
        return previous;
    if (i == 0 || !(row.row.want & GPU_DRAFT) || !row.row.drafts)
        return ids[i];
    return wire->guesses[(size_t)(i - 1) * wire->guess_stride + row.row.slot];
}

/* A warp's lanes share the row's tokens. */
__device__ static void write_row(const struct pack_head *wire, const struct batch &batch,
                                 const struct pack_row &row, uint32_t number, int32_t previous)
{
    uint32_t lane = threadIdx.x % WARP, last = row.row.token + row.row.q_len - 1;
    const int32_t *ids = section<int32_t>(wire, wire->ids) + (row.ids == PACK_NONE ? 0 : row.ids);
    for (uint32_t i = lane; i < row.row.q_len; i += WARP) {
        writable(batch.token_id)[row.row.token + i] = token_of(wire, row, ids, previous, i);
        writable(batch.token_row)[row.row.token + i] = number;
        writable(batch.token_position)[row.row.token + i] = row.row.position + i;
    }
    for (uint32_t i = lane; i < row.score_count; i += WARP) {
        uint32_t token = min(row.row.token + row.score_from + i, last);
        writable(batch.score_token)[row.score_first + i] = token;
        writable(batch.score_target)[row.score_first + i] = ids[row.score_from + i + 1];
    }
    bool all = row.row.want & GPU_EMBED_ALL;
    for (uint32_t i = lane; i < row.embed_count; i += WARP) {
        struct batch_embed embed = {number, all ? row.row.token + i : last,
                                    row.row.want & GPU_POOL_OUT ? 1u : 0u,
                                    row.row.want & GPU_NORMALIZE ? 1u : 0u};
        writable(batch.embeds)[row.embed_first + i] = embed;
    }
    for (uint32_t i = lane; i <= row.row.drafts && row.sample != PACK_NONE; i += WARP) {
        writable(batch.sample_row)[row.sample + i] = number;
        writable(batch.sample_token)[row.sample + i] = last - row.row.drafts + i;
    }
    if (lane)
        return;
    writable(batch.rows)[number] = row.row;
    if (row.row.uncounted)
        batch.slots[row.row.slot].before = ids - row.row.uncounted;
}

/* Whole block: all but the rows. */
__device__ static void write_state(const struct step_begin_args &a)
{
    const struct pack_head *wire = a.wire;
    const struct batch &batch = a.batch;
    struct batch_counts counts = wire->counts;
    counts.rows = min(counts.rows, batch.rows_max);
    counts.tokens = min(counts.tokens, batch.tokens_max);
    counts.samples = min(counts.samples, batch.samples_max);
    counts.scores = min(counts.scores, batch.scores_max);
    counts.embeds = min(counts.embeds, batch.embeds_max);
    counts.moves = min(counts.moves, batch.moves_max);
    if (threadIdx.x == 0) {
        struct step_control control = {wire->step,           clock_now_ns(),    wire->result,
                                       wire->result_samples, wire->result_tops, wire->tokens_out};
        *a.control = control;
        *writable(batch.counts) = counts;
    }
    write_slabs(wire, batch);
    write_opens(wire, batch);
    write_appends(wire, batch);
    const struct gpu_move *moves = section<struct gpu_move>(wire, wire->moves);
    for (uint32_t i = threadIdx.x; i < counts.moves; i += blockDim.x)
        writable(batch.moves)[i] = moves[i];
}

__global__ void __launch_bounds__(EXPAND_THREADS) expand_kernel(struct step_begin_args a)
{
    grid_trigger();
    grid_wait();
    const struct pack_head *wire = a.wire;
    write_state(a);
    __syncthreads();
    const struct pack_row *rows = section<struct pack_row>(wire, wire->rows);
    uint32_t count = min(wire->counts.rows, a.batch.rows_max);
    for (uint32_t i = threadIdx.x / WARP; i < count; i += blockDim.x / WARP)
        if (row_fits(a.batch, rows[i]))
            write_row(wire, a.batch, rows[i], i, previous_of(wire, a.batch, rows[i].row.slot));
}

/* Of a token. */
__device__ static void write_angles(const struct step_begin_first &first,
                                    const struct batch_row &row)
{
    float2 *to = reinterpret_cast<float2 *>(first.angles) + (size_t)row.token * first.pairs;
    for (uint32_t pair = threadIdx.x; pair < first.pairs; pair += blockDim.x)
        to[pair] = rope_angle(row.position, first.inverse_frequency[pair], first.attention);
}

/* Of the first norm; ones where there is none. */
__device__ __forceinline__ float8 first_weights(const struct step_begin_first &first, uint32_t i)
{
    float8 weight = {{1, 1, 1, 1, 1, 1, 1, 1}};
    if (!first.norm)
        return weight;
    weight = load_whole(first.norm, i, first.norm_dtype);
#pragma unroll
    for (int j = 0; j < 8; j++)
        weight.v[j] += first.offset;
    return weight;
}

/* Rows of single tokens, block x = 0 has none: y = 0 makes the residual and norms it, eight values
 * a thread, y = 1 all else. */
__global__ void __launch_bounds__(NORM_THREADS)
    expand_first_kernel(const __grid_constant__ struct step_begin_args a)
{
    __shared__ float scratch[WARP];
    const struct step_begin_first &first = a.first;
    const struct pack_head *wire = a.wire;
    uint32_t size = first.table.k, i = threadIdx.x * 8, number = blockIdx.x - 1;
    bool embeds = blockIdx.y == 0;
    grid_trigger();
    float8 weight = {};
    if (embeds && i < size) {
        weight = first_weights(first, i);
        prefetch_l2(first.residual + i);
    }
    grid_wait();
    if (blockIdx.x == 0) {
        if (embeds)
            write_state(a);
        return;
    }
    if (number >= min(wire->counts.rows, a.batch.rows_max))
        return;
    struct pack_row row = section<struct pack_row>(wire, wire->rows)[number];
    int32_t previous = previous_of(wire, a.batch, row.row.slot);
    if (!row_fits(a.batch, row))
        return;
    if (!embeds) {
        if (threadIdx.x < WARP)
            write_row(wire, a.batch, row, number, previous);
        write_angles(first, row.row);
        return;
    }
    int32_t id = row.ids == PACK_NONE ? previous : section<int32_t>(wire, wire->ids)[row.ids];
    size_t from = (size_t)id * size, to = (size_t)row.row.token * size;
    float8 value = {};
    if (i < size)
        value = load_whole(first.table.data, from + i, (enum dtype)first.table.format);
    float scale = 1;
    if (first.norm)
        scale = norm_scale(block_sum(norm_squares(0, value), scratch), size, first.eps);
    if (i >= size)
        return;
    store_whole(first.residual, to + i, DTYPE_F32, value);
    store_whole(first.x, to + i, first.x_dtype, norm_scaled(value, scale, weight));
}

bool expand_begins(const struct step_begin_args *args)
{
    return args->first.table.data && args->batch.q_len_max == 1 &&
           args->first.table.k <= NORM_THREADS * 8 && args->first.table.k % 8 == 0;
}

/* How it is launched. */
struct expand_launch {
    void (*kernel)(struct step_begin_args);
    dim3 grid, block;
};

static struct expand_launch launch_of(const struct step_begin_args *args)
{
    if (!args->first.table.data)
        return {expand_kernel, dim3(1), dim3(EXPAND_THREADS)};
    return {expand_first_kernel, dim3(1 + args->batch.rows_max, 2),
            dim3(norm_threads(args->first.table.k))};
}

cudaError_t op_step_begin(const struct step_begin_args *args, cudaStream_t stream)
{
    if (args->first.table.data && !expand_begins(args))
        return cudaErrorInvalidValue;
    struct expand_launch how = launch_of(args);
    return launch(how.kernel, how.grid, how.block.x, 0, stream, *args);
}

bool expand_is(cudaGraphNode_t node)
{
    cudaGraphNodeType type;
    cudaKernelNodeParams params;
    if (cudaGraphNodeGetType(node, &type) != cudaSuccess || type != cudaGraphNodeTypeKernel)
        return false;
    /* Of a kernel that a library launched in another way, the runtime cannot tell the function. */
    if (cudaGraphKernelNodeGetParams(node, &params) != cudaSuccess) {
        (void)cudaGetLastError();
        return false;
    }
    return params.func == reinterpret_cast<void *>(expand_kernel) ||
           params.func == reinterpret_cast<void *>(expand_first_kernel);
}

cudaError_t expand_retarget(cudaGraphExec_t exec, cudaGraphNode_t node,
                            const struct step_begin_args *args)
{
    struct step_begin_args copy = *args;
    void *values[] = {&copy};
    cudaKernelNodeParams params = {};
    struct expand_launch how = launch_of(args);
    params.func = reinterpret_cast<void *>(how.kernel);
    params.gridDim = how.grid;
    params.blockDim = how.block;
    params.kernelParams = values;
    return cudaGraphExecKernelNodeSetParams(exec, node, &params);
}
