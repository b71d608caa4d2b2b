/* A block for each value of a row, in turns. As allreduce_norm.cu has it: a block puts all of its
 * sums before it waits for one, and there are no more blocks than SMs; but the kernel behind may
 * read the batch before its own wait, so it starts no earlier than this one's (wide_norm.cu). */
#include "gpu/kernels/collective/allreduce_wide_norm.h"
#include "gpu/kernels/collective/inbox.cuh"
#include "gpu/kernels/common/device_props.cuh"
#include "gpu/kernels/norm/wide_norm.cuh"

/* One word: waits for it, and leaves it empty. 0 where the group has failed. */
__device__ __forceinline__ float take_word(const struct inboxes &inboxes, uint32_t from, size_t at)
{
    uint32_t *place = inbox_chunk<uint32_t>(inboxes, inboxes.rank, from, at);
    uint32_t word = inbox_load(place);
    for (uint32_t turn = 1; !inbox_there(word); turn++) {
        if (inbox_let_go(inboxes, turn))
            return 0;
        word = inbox_load(place);
    }
    inbox_clear(place);
    return __uint_as_float(word);
}

/* Whole block: the sum over all ranks, in their order. A thread for each rank waits. */
__device__ __forceinline__ float sum_over_ranks(const struct inboxes &inboxes, size_t at, float own,
                                                float *parts)
{
    __syncthreads(); /* the sum before has been read */
    if (threadIdx.x < inboxes.ranks)
        parts[threadIdx.x] =
            threadIdx.x == inboxes.rank ? own : take_word(inboxes, threadIdx.x, at);
    __syncthreads();
    float sum = parts[0];
    for (uint32_t r = 1; r < inboxes.ranks; r++)
        sum += parts[r];
    return sum;
}

template <int TURNS>
__global__ void __launch_bounds__(NORM_THREADS, 1)
    reduce_wide_kernel(struct allreduce_wide_norm_args args)
{
    __shared__ float scratch[WARP], parts[INBOX_RANKS_MAX];
    const struct wide_norm_args &a = args.norm;
    float8 value[TURNS], weight[TURNS];
    grid_wait();
    grid_trigger();
    uint32_t items = range_rows(a.rows) * WIDE_VALUES;
    for (uint32_t item = blockIdx.x; item < items; item += gridDim.x) {
        wide_load(value, a, a.value[item % WIDE_VALUES], item / WIDE_VALUES);
        float squares = wide_squares(value, scratch);
        if (threadIdx.x)
            continue;
        a.squares[item] = squares;
        inbox_put(args.inboxes, item, __float_as_uint(squares));
    }
    __syncthreads(); /* the block's own sums can be read */
    for (uint32_t item = blockIdx.x; item < items; item += gridDim.x) {
        const struct wide_value of = a.value[item % WIDE_VALUES];
        uint32_t row = item / WIDE_VALUES;
        wide_weights(weight, a, of);
        wide_load(value, a, of, row);
        float squares = sum_over_ranks(args.inboxes, item, a.squares[item], parts);
        wide_store(value, weight, a, of, row, squares);
    }
}

template <int TURNS>
static cudaError_t reduce_wide_launch(const struct allreduce_wide_norm_args *args,
                                      cudaStream_t stream)
{
    uint32_t items = args->norm.rows.max * WIDE_VALUES, most = device_props()->processors;
    return launch(reduce_wide_kernel<TURNS>, dim3(items < most ? items : most),
                  norm_threads(wide_size(&args->norm)), 0, stream, *args);
}

cudaError_t op_allreduce_wide_norm(const struct allreduce_wide_norm_args *args, cudaStream_t stream)
{
    unsigned threads = norm_threads(wide_size(&args->norm));
    unsigned turns = ceil_div(wide_size(&args->norm), threads * 8);
    if (args->inboxes.ranks > INBOX_RANKS_MAX || turns > 8)
        return cudaErrorInvalidValue;
    if (turns <= 1)
        return reduce_wide_launch<1>(args, stream);
    return turns <= 2 ? reduce_wide_launch<2>(args, stream) : reduce_wide_launch<8>(args, stream);
}
