/* A thread for each token of a row; bound by memory. */
#include "gpu/kernels/common/device.cuh"
#include "gpu/kernels/draft/spread.h"

#define THREADS 256

__global__ void spread_kernel(struct spread_args a)
{
    grid_trigger();
    grid_wait();
    uint32_t row = blockIdx.x, i = blockIdx.y * THREADS + threadIdx.x;
    if (row >= range_rows(a.rows) || i >= a.size)
        return;
    int32_t place = a.places ? a.places[i] : i < a.known ? (int32_t)i : SPREAD_NONE;
    a.out[(size_t)row * a.size + i] =
        place == SPREAD_NONE ? -INFINITY : a.in[(size_t)row * a.known + place];
}

cudaError_t op_spread(const struct spread_args *args, cudaStream_t stream)
{
    return launch(spread_kernel, dim3(args->rows.max, ceil_div(args->size, THREADS)), THREADS, 0,
                  stream, *args);
}
