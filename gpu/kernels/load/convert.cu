/* Runs while weights load, beside the copies of bulk_in; bound by the link to the host. */
#include "gpu/kernels/load/convert.h"
#include "gpu/kernels/load/tensor_slice.cuh"

__global__ void convert_kernel(struct convert_args a)
{
    grid_trigger();
    grid_wait();
    const struct tensor_slice &place = a.place;
    for (uint32_t row = blockIdx.x; row < place.rows; row += gridDim.x)
        for (uint32_t i = blockIdx.y * blockDim.x + threadIdx.x; i < place.columns;
             i += gridDim.y * blockDim.x) {
            size_t from = (size_t)row * place.width + place.column + i;
            if (a.bytes)
                static_cast<uint8_t *>(a.to)[place_target(place, row, i)] =
                    static_cast<const uint8_t *>(a.from)[from];
            else
                store_value(a.to, place_target(place, row, i), a.to_dtype,
                            load_value(a.from, from, a.from_dtype));
        }
}

cudaError_t op_convert(const struct convert_args *args, cudaStream_t stream)
{
    return launch(convert_kernel, slice_grid(args->place), SLICE_THREADS, 0, stream, *args);
}
