/* Rounded inputs in the scratch of a product, and what is behind a product that knows no scales.
 *
 * Where things lie in matmul_args.scratch, of weights whose inputs are rounded:
 *     [rows][stride] bytes   e4m3(x / s), each row followed by zeros up to `stride`
 *     float32 s              by pieces of rows that are one product, in each [groups][rows]; one
 *                            group where a row has one scale, whoever made it
 *     float32                the weights' scales as cuBLASLt wants them, where they lie otherwise:
 *                            one for each output, or rows of blocks a multiple of 4 apart
 *     [raw rows][n] float32  sums that are yet to be scaled or activated
 * and of others the elements of some rows of w in 16 bits (matmul_widened). */
#pragma once

#include "gpu/kernels/activation/activation.cuh"
#include "gpu/kernels/common/e4m3.cuh"
#include "gpu/kernels/matmul/matmul.cuh"

#define RAW_ROWS_MAX MATMUL_GATED_MAX /* of steps that decode: their sums are scaled behind */
#define LT_BLOCK 128                  /* rows, columns of cuBLASLt's blocks */

struct rounded {
    uint8_t *bytes;
    float *scales, *spread, *raw;
    uint32_t stride, groups;
    uint32_t rows;    /* of the arrays: a multiple of 4, as cuBLASLt has it with blocks */
    uint32_t piece;   /* rows of a product; a multiple of 4, or all rows. The last may have fewer */
    uint32_t columns; /* of `spread`; 0: nothing is spread */
    size_t total;     /* bytes */
};

/* `base` may be NULL: the size alone. */
struct rounded rounded_cut(const struct weight *w, uint32_t rows, void *base);
/* Where inputs of k columns lie that are handed on rounded (matmul.h), and no more. */
struct rounded rounded_handed(const struct weight_input *input, uint32_t k, uint32_t rows, void *x);
/* As rounded_cut() where x came rounded: bytes and scales are there. */
struct rounded rounded_of(const struct matmul_args *args);
bool rounded_can(const struct matmul_args *args);
/* Rounds max rows of x unless they came so, and spreads the weights' scales where columns are asked
 * for. */
cudaError_t rounded_make(const struct matmul_args *args, const struct rounded *to,
                         cudaStream_t stream);

/* y becomes what the args say, of sums in raw that are yet to be scaled by row and column, or that
 * have been: `count` rows from `first` on. */
struct rounded_part {
    uint32_t first, count;
    bool scaled;
};
cudaError_t rounded_finish(const struct matmul_args *args, const struct rounded *from,
                           struct rounded_part part, cudaStream_t stream);

/* y of up to EIGHT_ROWS_MAX rounded rows, by a kernel of our own (matmul_eight.cu): of scales of
 * rows or of all, with all that may be behind it but what is handed on; of weights without scales
 * the sums. Rows are whole 16 bytes apart. */
#define EIGHT_ROWS_MAX 16
bool rounded_multiply_can(const struct matmul_args *args);
cudaError_t rounded_multiply(const struct matmul_args *args, const struct rounded *x,
                             cudaStream_t stream);

/* The same of up to RAW_ROWS_MAX whole rows, with what is handed on rounded. */
bool rounded_hand_can(const struct matmul_args *args);
cudaError_t rounded_hand(const struct matmul_args *args, const struct rounded *from,
                         cudaStream_t stream);

/* f of a sum, as the arguments say. */
__device__ __forceinline__ float matmul_activated(const struct matmul_args &m, float x)
{
    return m.activation == ACTIVATE_SILU
               ? x / (1.0f + expf(activation_exponent<ACTIVATE_SILU>(x)))
               : x / (1.0f + expf(activation_exponent<ACTIVATE_GELU_TANH>(x)));
}

/* Where a piece's scales begin, and how many rows it has; host and device. */
__host__ __device__ __forceinline__ uint32_t rounded_piece_rows(const struct rounded &r,
                                                                uint32_t first)
{
    return r.rows - first < r.piece ? r.rows - first : r.piece;
}

__host__ __device__ __forceinline__ size_t rounded_scale_at(const struct rounded &r, uint32_t row,
                                                            uint32_t group)
{
    uint32_t first = row / r.piece * r.piece;
    return (size_t)first * r.groups + (size_t)group * rounded_piece_rows(r, first) + (row - first);
}

/* Whole block: a row's values, eight a thread and turn and 0 past its end, are rounded to where
 * they are handed on. Groups are of up to 8 * WARP columns. */
template <int TURNS>
__device__ __forceinline__ void rounded_row(const float8 (&value)[TURNS],
                                            const struct weight_input &how,
                                            const struct rounded &to, uint32_t row, float *scratch)
{
    float scale = how.scale;
    if (how.rounding == ROUNDING_TOKEN) {
        float greatest = 0;
#pragma unroll
        for (int turn = 0; turn < TURNS; turn++)
            greatest = fmaxf(greatest, e4m3_greatest(value[turn].v));
        greatest =
            block_reduce(greatest, 0.0f, scratch, [](float of) { return warp_greatest(of); });
        scale = e4m3_scale_to(greatest, how.scale);
    }
    if (how.rounding != ROUNDING_GROUP && threadIdx.x == 0)
        to.scales[rounded_scale_at(to, row, 0)] = scale;
    uint32_t threads = how.rounding == ROUNDING_GROUP ? how.group / 8 : 1;
#pragma unroll
    for (int turn = 0; turn < TURNS; turn++) {
        uint32_t k = (turn * blockDim.x + threadIdx.x) * 8;
        if (how.rounding == ROUNDING_GROUP) {
            float greatest = e4m3_greatest(value[turn].v);
            for (uint32_t offset = threads / 2; offset; offset /= 2)
                greatest = fmaxf(greatest, __shfl_xor_sync(FULL_MASK, greatest, offset));
            scale = e4m3_scale(greatest);
            if (threadIdx.x % threads == 0 && k < to.stride)
                to.scales[rounded_scale_at(to, row, k / how.group)] = scale;
        }
        if (k < to.stride)
            *reinterpret_cast<uint2 *>(to.bytes + (size_t)row * to.stride + k) =
                e4m3_round8(value[turn].v, e4m3_divide_by(scale));
    }
}
