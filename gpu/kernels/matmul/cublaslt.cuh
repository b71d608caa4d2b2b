/* A product as cuBLASLt sees it, and the algorithms that were chosen so far. */
#pragma once

#include <cublasLt.h>

#include "gpu/kernels/common/device_props.cuh"
#include "gpu/kernels/matmul/cublaslt_tune.h"
#include "gpu/kernels/matmul/matmul.cuh"
#include "gpu/kernels/matmul/tune_line.h"

/* Beside plain products it makes those of e4m3 by e4m3: w.format is FORMAT_E4M3, x are the bytes,
 * x_stride of them apart, whatever x_dtype says; and w.scales are
 *     none                       sums are not scaled
 *     one for each output        and in `scratch` one for each row
 *     of blocks of 128 x 128     and in `scratch` those of groups of 128, [groups][rows] */
enum lt_scaling lt_scaling_of(const struct matmul_args *args);

/* What matmul_scaled() asks of the library for such args, with x as bytes, and scales of rows
 * behind them where it scales; false: nothing, or more than one product. For those who time it:
 * nothing is read but the args. */
bool matmul_scaled_asks(const struct matmul_args *args, struct matmul_args *ret_inner);

/* The library's descriptors, in place: nothing is allocated. Row-major matrices are its
 * column-major ones transposed, so y^T = w x^T. */
struct lt_problem {
    cublasLtMatmulDescOpaque_t operation;
    cublasLtMatrixLayoutOpaque_t w, x, y;
    size_t workspace_bytes;
    uint32_t align_w, align_x, align_y; /* bytes, a power of two up to 256 */
    struct lt_shape shape;
};

/* The current device's handle, made at the first call; NULL on failure. */
cublasLtHandle_t lt_handle();

bool lt_describe(const struct matmul_args *args, struct lt_problem *ret_problem);

/* The candidates of a problem, best guess first; their number. */
int lt_candidates(cublasLtHandle_t handle, struct lt_problem *problem,
                  cublasLtMatmulHeuristicResult_t *candidates, int max);

cudaError_t lt_run(cublasLtHandle_t handle, struct lt_problem *problem,
                   const struct matmul_args *args, const cublasLtMatmulAlgo_t *algorithm,
                   cudaStream_t stream);

/* The timed choice for the shape (by rows: the nearest from above); false: none. */
bool tune_find(const struct lt_shape *shape, uint32_t *ret_rows, uint32_t *ret_choice);

/* A later tune_find may answer otherwise: forgets what was planned. */
void lt_forget();
