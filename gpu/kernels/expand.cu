/* One block: the plan is small, and the order of its effects is kept by the block's own barriers.
 * Bound by latency. */
#include "gpu/kernels/device.cuh"
#include "gpu/kernels/expand.h"
#include "gpu/kernels/stamp.cuh"

#define EXPAND_THREADS 1024
#define EXPAND_WARPS (EXPAND_THREADS / WARP)

template <class T> __device__ static const T *section(const struct wire_head *wire, uint32_t offset)
{
    return reinterpret_cast<const T *>(reinterpret_cast<const char *>(wire) + offset);
}

/* Expand is what writes the arrays that everyone else only reads. */
template <class T> __device__ static T *writable(const T *place)
{
    return const_cast<T *>(place);
}

__device__ static void write_slabs(const struct wire_head *wire, const struct batch &batch)
{
    const struct wire_slab *slabs = section<struct wire_slab>(wire, wire->slabs);
    for (uint32_t i = threadIdx.x; i < wire->slab_count; i += EXPAND_THREADS)
        const_cast<void **>(batch.groups[slabs[i].group].slabs)[slabs[i].slab] = slabs[i].base;
}

/* A warp per opened slot. */
__device__ static void write_opens(const struct wire_head *wire, const struct batch &batch)
{
    const struct wire_open *opens = section<struct wire_open>(wire, wire->opens);
    const struct gpu_bias *bias = section<struct gpu_bias>(wire, wire->bias);
    uint32_t lane = threadIdx.x % WARP;
    for (uint32_t i = threadIdx.x / WARP; i < wire->open_count; i += EXPAND_WARPS) {
        const struct wire_open *open = &opens[i];
        const uint32_t *from = reinterpret_cast<const uint32_t *>(&open->state);
        uint32_t *to = reinterpret_cast<uint32_t *>(&batch.slots[open->slot]);
        for (uint32_t word = lane; word < sizeof open->state / 4; word += WARP)
            to[word] = from[word];
        struct gpu_bias *entries = writable(batch.bias) + (size_t)open->slot * GPU_BIAS_MAX;
        for (uint32_t b = lane; b < open->state.bias_count; b += WARP)
            entries[b] = bias[open->bias_first + b];
    }
}

__device__ static void write_appends(const struct wire_head *wire, const struct batch &batch)
{
    const struct gpu_append *appends = section<struct gpu_append>(wire, wire->appends);
    for (uint32_t i = threadIdx.x; i < wire->append_count; i += EXPAND_THREADS) {
        const struct batch_group &group = batch.groups[appends[i].group];
        writable(group.tables)[(size_t)appends[i].slot * group.blocks_max + appends[i].index] =
            appends[i].block;
    }
}

__device__ static bool row_fits(const struct batch &batch, const struct wire_row &row)
{
    return row.row.token <= batch.tokens_max &&
           row.row.q_len <= batch.tokens_max - row.row.token && row.row.q_len > 0 &&
           (row.sample == WIRE_NONE || row.sample < batch.samples_max) &&
           row.score_first <= batch.scores_max &&
           row.score_count <= batch.scores_max - row.score_first &&
           row.embed_first <= batch.embeds_max &&
           row.embed_count <= batch.embeds_max - row.embed_first;
}

/* A warp's lanes share the row's tokens. */
__device__ static void write_row(const struct wire_head *wire, const struct batch &batch,
                                 const struct wire_row &row, uint32_t number)
{
    uint32_t lane = threadIdx.x % WARP, last = row.row.token + row.row.q_len - 1;
    const int32_t *ids = section<int32_t>(wire, wire->ids) + (row.ids == WIRE_NONE ? 0 : row.ids);
    int32_t previous =
        wire->tokens_in ? wire->tokens_in[row.row.slot] : batch.slots[row.row.slot].last;
    for (uint32_t i = lane; i < row.row.q_len; i += WARP) {
        writable(batch.token_id)[row.row.token + i] = row.ids == WIRE_NONE ? previous : ids[i];
        writable(batch.token_row)[row.row.token + i] = number;
        writable(batch.token_position)[row.row.token + i] = row.row.position + i;
    }
    for (uint32_t i = lane; i < row.score_count; i += WARP) {
        writable(batch.score_token)[row.score_first + i] = row.row.token + i;
        writable(batch.score_target)[row.score_first + i] = ids[i + 1];
    }
    bool all = row.row.want & GPU_EMBED_ALL;
    for (uint32_t i = lane; i < row.embed_count; i += WARP) {
        struct batch_embed embed = {number, all ? row.row.token + i : last,
                                    row.row.want & GPU_POOL_OUT ? 1u : 0u,
                                    row.row.want & GPU_NORMALIZE ? 1u : 0u};
        writable(batch.embeds)[row.embed_first + i] = embed;
    }
    if (lane)
        return;
    writable(batch.rows)[number] = row.row;
    if (row.sample != WIRE_NONE) {
        writable(batch.sample_row)[row.sample] = number;
        writable(batch.sample_token)[row.sample] = last;
    }
}

__global__ void __launch_bounds__(EXPAND_THREADS) expand_kernel(struct expand_args a)
{
    grid_trigger();
    grid_wait();
    const struct wire_head *wire = a.wire;
    const struct batch &batch = a.batch;
    struct batch_counts counts = wire->counts;
    counts.rows = min(counts.rows, batch.rows_max);
    counts.tokens = min(counts.tokens, batch.tokens_max);
    counts.samples = min(counts.samples, batch.samples_max);
    counts.scores = min(counts.scores, batch.scores_max);
    counts.embeds = min(counts.embeds, batch.embeds_max);
    counts.moves = min(counts.moves, batch.moves_max);
    if (threadIdx.x == 0) {
        struct step_control control = {wire->step,           stamp_now_ns(),    wire->result,
                                       wire->result_samples, wire->result_tops, wire->tokens_out};
        *a.control = control;
        *writable(batch.counts) = counts;
    }
    write_slabs(wire, batch);
    write_opens(wire, batch);
    write_appends(wire, batch);
    const struct gpu_move *moves = section<struct gpu_move>(wire, wire->moves);
    for (uint32_t i = threadIdx.x; i < counts.moves; i += EXPAND_THREADS)
        writable(batch.moves)[i] = moves[i];
    __syncthreads();
    const struct wire_row *rows = section<struct wire_row>(wire, wire->rows);
    for (uint32_t i = threadIdx.x / WARP; i < counts.rows; i += EXPAND_WARPS)
        if (row_fits(batch, rows[i]))
            write_row(wire, batch, rows[i], i);
}

cudaError_t op_expand(const struct expand_args *args, cudaStream_t stream)
{
    return launch(expand_kernel, dim3(1), EXPAND_THREADS, 0, stream, *args);
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
    return params.func == reinterpret_cast<void *>(expand_kernel);
}

cudaError_t expand_retarget(cudaGraphExec_t exec, cudaGraphNode_t node,
                            const struct expand_args *args)
{
    struct expand_args copy = *args;
    void *values[] = {&copy};
    cudaKernelNodeParams params = {};
    params.func = reinterpret_cast<void *>(expand_kernel);
    params.gridDim = dim3(1);
    params.blockDim = dim3(EXPAND_THREADS);
    params.kernelParams = values;
    return cudaGraphExecKernelNodeSetParams(exec, node, &params);
}
