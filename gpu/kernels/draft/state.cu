/* A block per row and part of it; bound by memory. */
#include "gpu/kernels/common/device.cuh"
#include "gpu/kernels/draft/state.h"

__global__ void state_kernel(struct state_args a)
{
    grid_trigger();
    grid_wait();
    uint32_t token = blockIdx.x, i = (blockIdx.y * blockDim.x + threadIdx.x) * 8;
    if (token >= a.batch.counts->tokens || i >= a.size)
        return;
    size_t to = (size_t)token * a.size, from;
    float8 value;
    if (a.in) {
        from = (size_t)token * a.in_stride;
        value = load_float8(a.in, from + i, from + a.size, a.in_dtype);
    } else {
        from = (size_t)a.batch.rows[a.batch.token_row[token]].slot * a.size;
        value = load_float8(a.carried, from + i, from + a.size, DTYPE_F32);
    }
    store_float8(a.residual, to + i, to + a.size, DTYPE_F32, value);
}

cudaError_t op_state(const struct state_args *args, cudaStream_t stream)
{
    unsigned threads = threads_for(args->size, 256);
    return launch(state_kernel, dim3(args->batch.tokens_max, ceil_div(args->size, threads * 8)),
                  threads, 0, stream, *args);
}

__global__ void carry_kernel(struct state_args a)
{
    grid_trigger();
    grid_wait();
    uint32_t sample = blockIdx.x, i = (blockIdx.y * blockDim.x + threadIdx.x) * 8;
    if (sample >= a.batch.counts->samples || i >= a.size)
        return;
    size_t from = (size_t)a.batch.sample_token[sample] * a.size;
    size_t to = (size_t)a.batch.rows[a.batch.sample_row[sample]].slot * a.size;
    float8 value = load_float8(a.residual, from + i, from + a.size, DTYPE_F32);
    store_float8(a.carried, to + i, to + a.size, DTYPE_F32, value);
}

cudaError_t op_carry(const struct state_args *args, cudaStream_t stream)
{
    unsigned threads = threads_for(args->size, 256);
    return launch(carry_kernel, dim3(args->batch.samples_max, ceil_div(args->size, threads * 8)),
                  threads, 0, stream, *args);
}
