/* Experts' weights in e4m3, u4, u8 and e2m1 on CUDA, as they lie in format.h: what the ways to
 * multiply by them share. Elements less their zeros are exact in 16 bits; products are summed in
 * float32 over columns that have one scale, of the weights and of inputs that are rounded, and the
 * sum is then multiplied by both. Inputs that are rounded are e4m3 in the dtype of x, in scratch,
 * once for all who read them. */
#pragma once

#include "gpu/kernels/experts/experts.cuh"
#include "gpu/kernels/matmul/e2m1.cuh"
#include "gpu/kernels/common/e4m3.cuh"
#include "gpu/kernels/matmul/whole.cuh"

#define PACKED_UNIT 16     /* elements of a row that a thread takes at once */
#define PACKED_EXPONENT 32 /* columns that have one exponent */
#define EXPERTS_E2M1_MOST 1024 /* an expert's pairs, if all have as many, that go in order */

struct experts_packed {
    struct experts_args a; /* x: rounded and in order; w has neither */
    const float *x_scales; /* [rows of x][x_groups]; NULL: it is not rounded */
    uint32_t x_groups;
    uint32_t each; /* columns that have one scale of w and one of x, from a multiple of it on */
};

#define EXPERTS_PACKED_OF_HALF                                                                     \
    bool experts_packed_tiles_can(const struct experts_packed *packed);                            \
    cudaError_t experts_packed_tiles(const struct experts_packed *packed, cudaStream_t stream);
namespace bf16
{
EXPERTS_PACKED_OF_HALF
/* In e2m1, of which numbers times their exponents are none of F16's; and the scratch that inputs
 * have in order. */
bool experts_e2m1_can(const struct experts_args *args);
cudaError_t experts_e2m1(const struct experts_args *args, cudaStream_t stream);
size_t experts_e2m1_bytes(const struct weight *w, uint32_t own, uint64_t pairs, enum dtype dtype);
/* The same without scratch, in one order of sums whatever the number of pairs. */
bool experts_e2m1_any_can(const struct experts_args *args);
cudaError_t experts_e2m1_any(const struct experts_args *args, cudaStream_t stream);
}
namespace f16
{
EXPERTS_PACKED_OF_HALF
}

cudaError_t experts_packed(const struct experts_args *args, cudaStream_t stream);
/* Inputs are bytes of e4m3. */
bool experts_eight_can(const struct experts_args *args);
cudaError_t experts_eight(const struct experts_packed *packed, cudaStream_t stream);
/* Likewise, and so many pairs that wgmma pays. */
bool experts_wgmma_eight_can(const struct experts_packed *packed);
cudaError_t experts_wgmma_eight(const struct experts_packed *packed, cudaStream_t stream);
/* So many pairs that some experts' numbers of 16 bits, made of e2m1 before, take less scratch than
 * inputs in order; and that scratch, 0: they are not made. */
bool experts_widened_can(const struct experts_args *args);
cudaError_t experts_widened(const struct experts_args *args, cudaStream_t stream);
size_t experts_widened_bytes(const struct weight *w, uint32_t own, uint64_t pairs,
                             enum dtype dtype);
/* Of whole units, inputs as they come. */
bool experts_packed_few_can(const struct experts_args *args);
cudaError_t experts_packed_few(const struct experts_args *args, cudaStream_t stream);

/* Rows are whole units, and each of one scale and one zero. */
static inline bool packed_whole_units(const struct experts_packed *p)
{
    return p->a.w.k % PACKED_UNIT == 0 && p->each % PACKED_UNIT == 0 &&
           reinterpret_cast<uintptr_t>(p->a.w.data) % 16 == 0;
}

__device__ __forceinline__ uint32_t packed_columns(const struct weight &w)
{
    return w.scales.k ? (w.k + w.scales.k - 1) / w.scales.k : 1;
}

/* Where the scales, and zeros, of a row of an expert's matrix begin. */
__device__ __forceinline__ size_t packed_scales_at(const struct weight &w, uint32_t expert,
                                                   uint32_t n)
{
    uint32_t rows = w.scales.n ? (w.n + w.scales.n - 1) / w.scales.n : 1;
    uint32_t row = w.scales.n ? n / w.scales.n : 0;
    return ((size_t)expert * rows + row) * packed_columns(w);
}

__device__ __forceinline__ uint32_t packed_scale_column(const struct weight &w, uint32_t k)
{
    if (w.scales.exponents)
        return k / PACKED_EXPONENT;
    return w.scales.k ? k / w.scales.k : 0;
}

/* `at` of packed_scales_at. */
__device__ __forceinline__ float packed_scale(const struct weight &w, size_t at, uint32_t k)
{
    at += packed_scale_column(w, k);
    return w.scales.exponents ? e8m0_value(static_cast<const uint8_t *>(w.scales.data)[at])
                              : static_cast<const float *>(w.scales.data)[at];
}

__device__ __forceinline__ float packed_zero(const struct weight &w, size_t at, uint32_t k)
{
    return w.zeros ? whole_number(w.zeros[at + packed_scale_column(w, k)]) : 0.0f;
}

/* The row of x that a pair reads. */
__device__ __forceinline__ uint32_t packed_row(const struct experts_args &a, uint32_t pair)
{
    return a.spread ? pair / a.top : pair;
}

__device__ __forceinline__ float packed_x_scale(const struct experts_packed &p, uint32_t row,
                                                uint32_t k)
{
    if (!p.x_scales)
        return 1.0f;
    return p.x_scales[(size_t)row * p.x_groups + (p.x_groups > 1 ? k / p.a.w.input.group : 0)];
}

/* Two elements a byte. */
__host__ __device__ __forceinline__ constexpr bool format_halves(enum format format)
{
    return format == FORMAT_U4 || format == FORMAT_E2M1;
}

/* Bytes of so many elements of a row. */
__device__ __forceinline__ size_t packed_bytes(enum format format, size_t count)
{
    return format_halves(format) ? (count + 1) / 2 : count;
}

__device__ __forceinline__ const uint8_t *packed_row_at(const struct weight &w, enum format format,
                                                        uint32_t expert, uint32_t n)
{
    return static_cast<const uint8_t *>(w.data) +
           ((size_t)expert * w.n + n) * packed_bytes(format, w.k);
}

/* A unit's bytes as they are; of two elements a byte the first two words. */
template <enum format FORMAT> __device__ __forceinline__ uint4 packed_load(const uint8_t *from)
{
    if (!format_halves(FORMAT))
        return __ldg(reinterpret_cast<const uint4 *>(from));
    uint2 half = __ldg(reinterpret_cast<const uint2 *>(from));
    return make_uint4(half.x, half.y, 0, 0);
}

/* Numbers 2 i and 2 i + 1 of a unit, less their zero. */
template <enum format FORMAT>
__device__ __forceinline__ float2 packed_pair(const uint4 &unit, int i, float zero)
{
    const uint32_t words[] = {unit.x, unit.y, unit.z, unit.w};
    if (FORMAT == FORMAT_E2M1)
        return unpack(e2m1_pair(words[i / 4], i % 4), DTYPE_F16);
    if (FORMAT == FORMAT_U4) {
        uint32_t two = words[i / 4] >> i % 4 * 8;
        return make_float2(whole_number(two & 15) - zero, whole_number(two >> 4 & 15) - zero);
    }
    uint32_t two = words[i / 2] >> i % 2 * 16;
    if (FORMAT == FORMAT_U8)
        return make_float2(whole_number(two & 255) - zero, whole_number(two >> 8 & 255) - zero);
    return unpack(e4m3_widen2(two & 0xffff), DTYPE_F16);
}

/* One number, of any row. */
__device__ __forceinline__ float packed_element(const struct weight &w, const uint8_t *row,
                                                uint32_t k, float zero)
{
    if (w.format == FORMAT_E4M3)
        return e4m3_value(row[k]);
    if (w.format == FORMAT_E2M1)
        return e2m1_value(row[k / 2] >> k % 2 * 4);
    return whole_number(w.format == FORMAT_U8 ? row[k] : row[k / 2] >> k % 2 * 4 & 15) - zero;
}
