/* Walking over a part of a tensor and its place in a fused weight; see tensor_slice.h. */
#pragma once

#include "gpu/kernels/common/device.cuh"
#include "gpu/kernels/load/tensor_slice.h"

__device__ __forceinline__ size_t place_target(const struct tensor_slice &place, uint32_t row,
                                               uint32_t column)
{
    return (size_t)tensor_slice_row(&place, row) * place.to_stride + column;
}

/* A block per row where it stays within the grid's bounds; kernels stride over the rest. */
static inline dim3 slice_grid(const struct tensor_slice &place)
{
    return dim3(place.rows < 65536 ? place.rows : 65536, place.columns > 4096 ? 4 : 1);
}
#define SLICE_THREADS 256
