/* Where a step's values lie in its scratch.
 *
 * First what is there all the time, then the blocks over one another (op_list.h). The residual is
 * float32 on every device: it is what roundings add up in, layer after layer. So is what is added
 * to it, which has no bound that F16 would hold; but sums over ranks travel in the compute dtype,
 * half as many bytes, and cuBLASLt has no bias of that dtype for float32 results: there it lies
 * where the normed residual does, which norm reads and writes in place. Offsets follow from the
 * batch's bounds alone. Any thread; owns nothing.
 */
#pragma once

#include "gpu/program/program.h"

struct scratch_layout {
    uint64_t at[LIST_VALUES_MAX]; /* of each value, in bytes */
    uint64_t size[LIST_VALUES_MAX];
    uint64_t workspace; /* of products */
    uint64_t product;   /* of those whose weights want scratch of their own */
    uint64_t product_bytes;
    uint64_t bytes;      /* of all */
    uint32_t logit_rows; /* of one chunk of scored positions */
};

enum dtype scratch_dtype(const struct program *program, value_id value);
void scratch_layout_make(struct scratch_layout *layout, const struct program *program,
                         const struct batch *batch);
