/* Products of any shape and dtype in float32. A warp per output and eight rows, so that weights are
 * read once for eight rows; bound by instructions. For shapes that nothing faster takes. */
#include "gpu/kernels/matmul/matmul.cuh"

#define ANY_WARPS 8
#define ANY_ROWS 8

__global__ void __launch_bounds__(ANY_WARPS *WARP)
    any_kernel(const __grid_constant__ struct matmul_args a)
{
    grid_wait();
    grid_trigger();
    uint32_t rows = range_rows(a.rows), first = blockIdx.y * ANY_ROWS;
    uint32_t n = blockIdx.x * ANY_WARPS + threadIdx.x / WARP, lane = threadIdx.x % WARP;
    if (n >= a.w.n || first >= rows)
        return;
    uint32_t k_count = a.w.k;
    size_t weights = (size_t)n * k_count;
    float sum[ANY_ROWS] = {};
    for (uint32_t k = lane; k < k_count; k += WARP) {
        float w = load_value(a.w.data, weights + k, (enum dtype)a.w.format);
#pragma unroll
        for (int r = 0; r < ANY_ROWS; r++)
            if (first + r < rows)
                sum[r] += w * load_value(a.x, (size_t)(first + r) * a.x_stride + k, a.x_dtype);
    }
#pragma unroll
    for (int r = 0; r < ANY_ROWS; r++) {
        float y = warp_sum(sum[r]);
        if (lane == 0 && first + r < rows) {
            if (a.bias)
                y += load_value(a.bias, n, a.bias_dtype);
            if (a.adds)
                y += load_value(a.y, (size_t)(first + r) * a.y_stride + n, a.y_dtype);
            store_value(a.y, (size_t)(first + r) * a.y_stride + n, a.y_dtype, y);
        }
    }
}

cudaError_t matmul_any(const struct matmul_args *args, cudaStream_t stream)
{
    return launch(any_kernel,
                  dim3(ceil_div(args->w.n, ANY_WARPS), ceil_div(args->rows.max, ANY_ROWS)),
                  ANY_WARPS * WARP, 0, stream, *args);
}
