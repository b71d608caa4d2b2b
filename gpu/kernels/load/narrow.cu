/* Runs while weights load, beside the copies of bulk_in; bound by the link to the host. A block has
 * a row, which it reads twice. */
#include <cuda_fp8.h>

#include "gpu/kernels/load/narrow.h"
#include "gpu/kernels/load/tensor_slice.cuh"

#define NARROW_LEAST 0x1p-126f

__global__ void narrow_kernel(struct narrow_args a)
{
    __shared__ float scratch[WARP];
    grid_trigger();
    grid_wait();
    const struct tensor_slice &place = a.place;
    for (uint32_t row = blockIdx.x; row < place.rows; row += gridDim.x) {
        size_t from = (size_t)row * place.width + place.column, to = place_target(place, row, 0);
        float greatest = 0;
        for (uint32_t i = threadIdx.x; i < place.columns; i += blockDim.x)
            greatest = fmaxf(greatest, fabsf(load_value(a.from, from + i, a.from_dtype)));
        greatest = block_reduce(greatest, 0.0f, scratch, [](float value) {
            for (int offset = WARP / 2; offset; offset /= 2)
                value = fmaxf(value, __shfl_xor_sync(FULL_MASK, value, offset));
            return value;
        });
        float scale = greatest > 0 ? fmaxf(__fdiv_rn(greatest, 448.0f), NARROW_LEAST) : 1.0f;
        for (uint32_t i = threadIdx.x; i < place.columns; i += blockDim.x)
            a.to[to + i] =
                __nv_cvt_float_to_fp8(__fdiv_rn(load_value(a.from, from + i, a.from_dtype), scale),
                                      __NV_SATFINITE, __NV_E4M3);
        if (threadIdx.x == 0)
            a.scales[tensor_slice_row(&place, row)] = scale;
    }
}

cudaError_t op_narrow(const struct narrow_args *args, cudaStream_t stream)
{
    dim3 grid(args->place.rows < 65536 ? args->place.rows : 65536);
    return launch(narrow_kernel, grid, SLICE_THREADS, 0, stream, *args);
}
