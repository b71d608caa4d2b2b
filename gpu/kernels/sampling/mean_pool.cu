/* A thread owns columns and walks over positions: the order of a sum is that of the positions. */
#include "gpu/kernels/common/device.cuh"
#include "gpu/kernels/sampling/mean_pool.h"

#define POOL_THREADS 256

__global__ void pool_add_kernel(struct mean_pool_args a)
{
    grid_trigger();
    grid_wait();
    uint32_t column = blockIdx.y * blockDim.x + threadIdx.x;
    if (blockIdx.x >= a.batch.counts->rows || column >= a.size)
        return;
    struct batch_row row = a.batch.rows[blockIdx.x];
    if (!(row.want & GPU_POOL_ADD))
        return;
    float *place = a.batch.pool + (size_t)row.slot * a.size + column;
    float sum = row.position ? *place : 0.0f;
    for (uint32_t i = 0; i < row.q_len; i++)
        sum += load_value(a.hidden, (size_t)(row.token + i) * a.stride + column, a.dtype);
    *place = sum;
}

__global__ void pool_out_kernel(struct mean_pool_args a)
{
    __shared__ float scratch[WARP];
    grid_trigger();
    grid_wait();
    if (blockIdx.x >= a.batch.counts->embeds)
        return;
    struct batch_embed embed = a.batch.embeds[blockIdx.x];
    struct batch_row row = a.batch.rows[embed.row];
    float *out = a.out + (size_t)blockIdx.x * a.size;
    float squares = 0, count = (float)(row.position + row.q_len);
    for (uint32_t i = threadIdx.x; i < a.size; i += blockDim.x) {
        float value = embed.mean
                          ? a.batch.pool[(size_t)row.slot * a.size + i] / count
                          : load_value(a.hidden, (size_t)embed.token * a.stride + i, a.dtype);
        squares += value * value;
        out[i] = value;
    }
    if (!embed.normalize)
        return;
    float length = sqrtf(block_sum(squares, scratch));
    if (length > 0)
        for (uint32_t i = threadIdx.x; i < a.size; i += blockDim.x)
            out[i] /= length;
}

cudaError_t op_mean_pool_add(const struct mean_pool_args *args, cudaStream_t stream)
{
    return launch(pool_add_kernel, dim3(args->batch.rows_max, ceil_div(args->size, POOL_THREADS)),
                  POOL_THREADS, 0, stream, *args);
}

cudaError_t op_mean_pool_out(const struct mean_pool_args *args, cudaStream_t stream)
{
    return launch(pool_out_kernel, dim3(args->batch.embeds_max), POOL_THREADS, 0, stream, *args);
}
