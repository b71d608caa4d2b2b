/* Runs once per weight, bound by memory and, in 16-bit dtypes, by integer arithmetic. The same rule
 * as fill_cpu.c, step by step: tests compare the bits. */
#include <cuda_fp8.h>

#include "gpu/kernels/load/fill.h"
#include "gpu/kernels/load/tensor_slice.cuh"

#define FILL_SCALE (1.0f / 209.02153f) /* of the sum of eight uniform bytes */

__host__ __device__ static uint64_t fill_mix(uint64_t value)
{
    value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9u;
    value = (value ^ value >> 27) * 0x94d049bb133111ebu;
    return value ^ value >> 31;
}

__device__ static float fill_value(uint64_t key, uint64_t element, float mean, float step)
{
    uint64_t hash = fill_mix(key + (element + 1) * 0x9e3779b97f4a7c15u);
    uint64_t pairs = (hash & 0x00ff00ff00ff00ffu) + (hash >> 8 & 0x00ff00ff00ff00ffu);
    int sum = (int)(pairs * 0x0001000100010001u >> 48);
    return __fadd_rn(mean, __fmul_rn((float)(sum - 1020), step));
}

__device__ static uint8_t fill_whole(float value, float greatest)
{
    return (uint8_t)fminf(fmaxf(rintf(value), 0.0f), greatest);
}

/* The nearest, 6 at most; of two the lesser. */
__device__ static uint8_t fill_e2m1(float value)
{
    const float middles[7] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f};
    uint8_t nearest = 0;
#pragma unroll
    for (int i = 0; i < 7; i++)
        nearest += fabsf(value) > middles[i];
    return nearest | (value < 0 ? 8 : 0);
}

__device__ static uint8_t fill_half(enum format format, float value)
{
    return format == FORMAT_E2M1 ? fill_e2m1(value) : fill_whole(value, 15.0f);
}

/* Eight elements from column i on; rows of a format are bytes and may begin anywhere. */
__device__ static void fill_format(const struct fill_args &a, uint8_t *row, uint32_t i,
                                   const float8 &value)
{
#pragma unroll
    for (int j = 0; j < 8; j++) {
        uint32_t at = i + j;
        if (at >= a.place.columns)
            return;
        if (a.format == FORMAT_E4M3)
            row[at] = __nv_cvt_float_to_fp8(value.v[j], __NV_SATFINITE, __NV_E4M3);
        else if (a.format == FORMAT_U8)
            row[at] = fill_whole(value.v[j], 255);
        else if (j % 2 == 0) {
            uint8_t high = at + 1 < a.place.columns ? fill_half(a.format, value.v[j + 1]) : 0;
            row[at / 2] = (uint8_t)(fill_half(a.format, value.v[j]) | high << 4);
        }
    }
}

__global__ void fill_kernel(struct fill_args a, uint64_t key, float step)
{
    grid_trigger();
    grid_wait();
    const struct tensor_slice &place = a.place;
    uint32_t turn = gridDim.y * blockDim.x;
    for (uint32_t row = blockIdx.x; row < place.rows; row += gridDim.x) {
        uint64_t first = (place.row + row) * place.width + place.column;
        for (uint32_t i = (blockIdx.y * blockDim.x + threadIdx.x) * 8; i < place.columns;
             i += turn * 8) {
            float8 value;
#pragma unroll
            for (int j = 0; j < 8; j++)
                value.v[j] = fill_value(key, first + i + j, a.mean, step);
            size_t to = place_target(place, row, 0);
            if (a.format <= FORMAT_F16)
                store_float8(a.to, to + i, to + place.columns, a.to_dtype, value);
            else
                fill_format(a, static_cast<uint8_t *>(a.to) + to, i, value);
        }
    }
}

cudaError_t op_fill(const struct fill_args *args, cudaStream_t stream)
{
    uint64_t key = fill_mix(args->seed + fill_mix(args->tensor + 1));
    return launch(fill_kernel, slice_grid(args->place), SLICE_THREADS, 0, stream, *args, key,
                  args->deviation * FILL_SCALE);
}
