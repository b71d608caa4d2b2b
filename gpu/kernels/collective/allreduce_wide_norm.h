/* The sums over all ranks of their sums of squares, and op_wide_norm with them, in one pass.
 *
 * Sums are added in float32 and in the order of ranks, so all ranks get the same. There is one
 * inbox, and it takes no turns: between two of these calls every rank makes at least one other
 * exchange with all (a layer's sums of what is added to the residual), so who puts again has since
 * taken what each rank put after it had emptied this one. */
#pragma once

#include "gpu/kernels/collective/inbox.h"
#include "gpu/kernels/norm/wide_norm.h"

struct allreduce_wide_norm_args {
    struct wide_norm_args norm; /* squares: room for this rank's sums */
    struct inboxes inboxes;     /* a part holds [max][WIDE_VALUES] float32 */
};

OP_C cudaError_t op_allreduce_wide_norm(const struct allreduce_wide_norm_args *args,
                                        cudaStream_t stream);
