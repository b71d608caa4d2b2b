/* y[r][n] = sum over k of x[r][k] * w[n][k], + bias[n]: the products of all layers, and the logits.
 *
 * CPU: every output is one float32 dot product over 16 lanes: lane l sums the products of k = l,
 * l + 16, ... in order, multiply and add rounded apart; the lanes are added in a fixed tree (8
 * apart, 4, 2, 1), then the bias. Bits depend on nothing else. CUDA: up to GEMV_ROWS_MAX rows
 * by a kernel of our own, whose bits do not depend on the row's neighbours; more by cuBLASLt with
 * the workspace given here, or by ours where that was timed to be faster (cublaslt_tune.h), but
 * gate and up that are activated, by two of our own (matmul_gated.cu up to MATMUL_GATED_MAX rows,
 * matmul_tiles.cu above MATMUL_APART_MAX). Weights in e4m3: up to MATMUL_ROUNDS_MAX rows
 * of rounded inputs by one of our own that rounds them, up to 16 by another; inputs as they are up
 * to GEMV_ROWS_MAX by a third; more by cuBLASLt. In whole numbers: up to MATMUL_WHOLE_MAX rows by three of our own.
 *
 * The output is the partial sum of this rank where the weight is sharded along k; bias is then
 * given on one rank only.
 *
 * A step of few rows is as long as its weights take to come, and what its small kernels keep them
 * waiting; in one of many, gate and up would be written and read again. So a product can do what
 * stands behind it, where matmul_fuses() says so: activate its outputs, or the add to the residual
 * (on CUDA of any number of rows: the norm behind it then has half as much to move); and, with the
 * product behind that, the norm between them: W (x * g / rms(x)) = W (x * g) / rms(x) where the one
 * that adds hands on x * g and the sums of squares, and the other scales what it has summed. Where
 * inputs are rounded, what scales the sums of the one makes the norm, or the activation, and rounds
 * for the other: of up to MATMUL_GATED_MAX rows. Of more the norm itself does, or the activation
 * (kernels/hand/hand.h).
 *
 * On CUDA the kernel depends on the number of rows, and so does the order of a sum; with `invariant`
 * it does not: matmul_tiles.cuh, or matmul_any.cu for shapes that it does not take. */
#pragma once

#include "gpu/kernels/activation/activation.h"
#include "gpu/kernels/common/kernel.h"

#define GEMV_ROWS_MAX 16
#define MATMUL_ROUNDS_MAX 2  /* rows whose inputs the product rounds itself: e4m3 */
#define MATMUL_WHOLE_MAX 512 /* rows that are multiplied with whole numbers as they are */
#define MATMUL_GATED_MAX 256
#define MATMUL_APART_MAX 320 /* above that, up to so many rows gate and up are not activated */
#define MATMUL_WORKSPACE_BYTES (32u << 20) /* what launchers want, per stream; less is slower */
#define MATMUL_PARTS 160                   /* sums of squares of a row, at most one per block */

/* With `adds`: of what y then holds, times the norm's weight (offset + weight), in the dtype of w;
 * and the sums of its squares, as the product that owes the rest of the norm reads them. */
struct matmul_norm_out {
    const void *weight; /* [n]; NULL: nothing is handed on */
    void *out;          /* [max][out_stride] */
    float *squares;     /* [max][MATMUL_PARTS] */
    uint32_t out_stride;
    enum dtype weight_dtype;
    float offset, eps; /* eps: of one that is handed on rounded */
};

/* x was handed on: results are scaled by 1 / sqrt(mean of squares + eps), before the bias. Weights
 * whose inputs are rounded need the whole norm first, in the dtype of x: they make it of the
 * residual, of which the squares are, and of the norm's weight (offset + weight), and read no x. */
struct matmul_norm_in {
    const float *squares; /* NULL: x is the input as it is */
    float eps;
    const float *residual; /* [max][residual_stride] */
    const void *weight;    /* [k] */
    uint32_t residual_stride;
    enum dtype weight_dtype;
    float offset;
};

/* Inputs can be handed on rounded, of k that is a multiple of 16. Where 16-bit values would be, max
 * rows of them, are bytes of e4m3, [max][k], and behind them scales in float32: of each row, or of
 * groups [groups][r], of the first r = max / 4 * 4 rows, then so of those left over, as of four. */
#define MATMUL_ROUNDED_SCALES_AT(max, k) ((size_t)(max) * (k))

struct matmul_args {
    struct row_range rows; /* more than *count rows, up to max, may be computed */
    struct weight w;
    const void *bias; /* [w.n]; NULL: none */
    const void *x;    /* [max][x_stride] */
    void *y;          /* [max][y_stride]; logits are F32 */
    uint32_t x_stride, y_stride;
    enum dtype x_dtype, y_dtype, bias_dtype;
    void *workspace; /* scratch, one per concurrent stream, aligned; NULL and 0 on the CPU device */
    size_t workspace_bytes;
    bool gated;     /* w is gate, then up, n / 2 each: y[r][i] = f(gate) * up, i < n / 2, unrounded
                     * in between */
    bool activates; /* y[r][i] = f(sum), unrounded before; not with the others */
    enum activation activation; /* f, of either: activation.h */
    bool adds; /* to what y holds, which is float32: in the order y + (sum + bias) */
    struct matmul_norm_out norm_out;
    struct matmul_norm_in norm_in;
    /* Not ROUNDING_NONE: what is handed on is rounded so. With norm_out that is the whole norm, in
     * norm_out.out, and no squares are; else it is y, activated. */
    struct weight_input hands;
    bool invariant; /* a row's bits depend on the row and the weight alone: kernels that are `steady` */
    bool x_rounded; /* x was handed on so, by whoever had as many rows: a product, or hand.h */
    void *scratch;  /* like `workspace`, of matmul_scratch_bytes: for rounded inputs and the like */
    size_t scratch_bytes;
};

/* What a product of up to so many rows of this weight wants as scratch; without it there may be no
 * way to make it. 0 on the CPU device. */
OP_C size_t matmul_scratch_bytes(const struct weight *w, uint32_t rows);

/* One way to make a product. op_matmul takes the first of its device's table that can; one that
 * says cudaErrorNotSupported all the same leaves it to the next. */
struct matmul_backend {
    const char *name;
    uint32_t formats; /* of w: a bit for each */
    bool scales;      /* also weights that are not plain */
    bool (*can)(const struct matmul_args *args);
    cudaError_t (*run)(const struct matmul_args *args, cudaStream_t stream);
    bool rounded; /* also inputs that come rounded, or are handed on so */
    bool steady;  /* bits of a row depend neither on the number of rows nor on where it stands, and
                     whether it can depends on neither */
};

#define MATMUL_READS(format) (1u << (format))

static inline bool matmul_backend_can(const struct matmul_backend *backend,
                                      const struct matmul_args *args)
{
    bool rounded = args->x_rounded || args->hands.rounding != ROUNDING_NONE;
    return (backend->formats >> args->w.format & 1) &&
           (backend->scales || weight_is_plain(&args->w)) && (backend->rounded || !rounded) &&
           (backend->steady || !args->invariant) && backend->can(args);
}

/* CUDA alone: before a device's context is given back, the library's handle on it. No product of it
 * is under way. */
OP_C void matmul_forget(int device);

/* Whether op_matmul is `gated`, `adds`, hands on or pays what is owed for such arguments; else
 * they are refused. Never on the CPU device, which has nothing to gain. */
OP_C bool matmul_fuses(const struct matmul_args *args);
OP_C cudaError_t op_matmul(const struct matmul_args *args, cudaStream_t stream);
