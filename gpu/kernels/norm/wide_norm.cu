/* A block for each value of a row, as op_norm has one for a row. The kernel behind is rope, or
 * attention with rope, which reads the batch and the cache before its own wait: it may start when
 * this one has waited for those before it, not earlier. */
#include "gpu/kernels/norm/wide_norm.cuh"

template <int TURNS>
__global__ void __launch_bounds__(NORM_THREADS) wide_norm_kernel(struct wide_norm_args a)
{
    __shared__ float scratch[WARP];
    const struct wide_value of = a.value[blockIdx.y];
    uint32_t row = blockIdx.x;
    float8 value[TURNS], weight[TURNS];
    wide_weights(weight, a, of);
    grid_wait();
    grid_trigger();
    wide_load(value, a, of, row); /* rows up to the bound can be read: no wait for the count */
    if (row >= range_rows(a.rows))
        return;
    float squares = a.squares ? a.squares[row * WIDE_VALUES + blockIdx.y]
                              : wide_squares(value, scratch);
    wide_store(value, weight, a, of, row, squares);
}

template <int TURNS>
__global__ void __launch_bounds__(NORM_THREADS) squares_kernel(struct wide_norm_args a)
{
    __shared__ float scratch[WARP];
    uint32_t row = blockIdx.x;
    float8 value[TURNS];
    grid_wait();
    grid_trigger();
    wide_load(value, a, a.value[blockIdx.y], row);
    if (row >= range_rows(a.rows))
        return;
    float squares = wide_squares(value, scratch);
    if (threadIdx.x == 0)
        a.squares[row * WIDE_VALUES + blockIdx.y] = squares;
}

template <int TURNS>
static cudaError_t wide_launch(const struct wide_norm_args *args, bool sums, cudaStream_t stream)
{
    dim3 grid(args->rows.max, WIDE_VALUES);
    return launch(sums ? squares_kernel<TURNS> : wide_norm_kernel<TURNS>, grid,
                  norm_threads(wide_size(args)), 0, stream, *args);
}

static cudaError_t wide_run(const struct wide_norm_args *args, bool sums, cudaStream_t stream)
{
    unsigned turns = ceil_div(wide_size(args), norm_threads(wide_size(args)) * 8);
    if (turns <= 1)
        return wide_launch<1>(args, sums, stream);
    if (turns <= 2)
        return wide_launch<2>(args, sums, stream);
    return turns <= 8 ? wide_launch<8>(args, sums, stream) : cudaErrorInvalidValue;
}

cudaError_t op_squares(const struct wide_norm_args *args, cudaStream_t stream)
{
    return wide_run(args, true, stream);
}

cudaError_t op_wide_norm(const struct wide_norm_args *args, cudaStream_t stream)
{
    return wide_run(args, false, stream);
}
