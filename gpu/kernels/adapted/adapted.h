/* A product and what rows' adapters add to it, as one: op_matmul and behind it op_adapt, but that
 * sums are rounded once, when all is added, and may be activated or added to the residual as a
 * product's are (matmul.h).
 *
 * Two kernels. The first makes A x (adapted_inner.cu), which the second adds, times B, to what it
 * has in registers when most of the weights have gone by (adapted_tiles.cu): B of the outputs that
 * a block has comes as one more piece of what it reads, so that nothing waits for it, y is not read
 * again, and gate and up stay in the kernel that activates them. Weights come, and are multiplied
 * with x, while A x is made. No B has an element that is not finite (gpu/adapters/adapters.h).
 *
 * What a row gets depends neither on the other rows nor on their adapters. */
#pragma once

#include "gpu/kernels/adapt/adapt.h"
#include "gpu/kernels/matmul/matmul.h"

#define ADAPTED_ROWS_MAX 128
#define ADAPTED_ROWS_ANY 64 /* up to which it does not depend on the number of rows */
#define ADAPTED_RANK_MAX 64

/* Whether there is such a way; else it is refused. Never on the CPU device. `adapt` is as for
 * op_adapt, of whose members y, out and what says how they are stored are not read, but `sums` is
 * there whatever the number of adapters, and gate and up are activated where the product is gated.
 */
OP_C bool adapted_fuses(const struct matmul_args *product, const struct adapt_args *adapt);
OP_C cudaError_t op_adapted(const struct matmul_args *product, const struct adapt_args *adapt,
                            cudaStream_t stream);
