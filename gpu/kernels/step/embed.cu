/* A block per token and part of its row; bound by memory. */
#include "gpu/kernels/common/device.cuh"
#include "gpu/kernels/step/embed.h"

__global__ void embed_kernel(struct embed_args a)
{
    grid_trigger();
    grid_wait();
    uint32_t token = blockIdx.x;
    uint32_t i = (blockIdx.y * blockDim.x + threadIdx.x) * 8;
    if (token >= a.batch.counts->tokens || i >= a.table.k)
        return;
    size_t from = (size_t)a.batch.token_id[token] * a.table.k, to = (size_t)token * a.stride;
    float8 value =
        load_float8(a.table.data, from + i, from + a.table.k, (enum dtype)a.table.format);
    if (a.scale != 0) {
#pragma unroll
        for (int j = 0; j < 8; j++)
            value.v[j] *= a.scale;
    }
    store_float8(a.out, to + i, to + a.table.k, a.out_dtype, value);
}

cudaError_t op_embed(const struct embed_args *args, cudaStream_t stream)
{
    unsigned threads = threads_for(args->table.k, 256);
    return launch(embed_kernel, dim3(args->batch.tokens_max, ceil_div(args->table.k, threads * 8)),
                  threads, 0, stream, *args);
}
