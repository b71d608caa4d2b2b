/* From sizes to bytes: of tensors, of items, and of pieces that items are cut into. Everything that a
 * client says comes through here before it is added or multiplied. Pure. Any thread.
 */
#pragma once

#include <stdint.h>

#include "gpu/jobs/program.h"

/* Dimensions that a client says of the tensor: rank and fixed ones are the tensor's, the others are
 * within their size's bounds, and the same wherever they occur. `sizes` holds what is known already,
 * 0 for what is not. Errors name the tensor. */
int shape_match(const struct program *program, const struct program_tensor *tensor, uint32_t rank,
                const uint64_t *dimensions, uint64_t sizes[SLUICE_SIZES_MAX], struct error *error);

/* The sizes that are parameters get their values. */
void shape_values(const struct program *program, const union sluice_value *values,
                  uint64_t sizes[SLUICE_SIZES_MAX]);
/* Asks the program whether it computes an item like this; ERR_BAD_VALUE says why not. */
int shape_check(const struct program *program, const struct sluice_item *item, struct error *error);

/* The tensor's dimensions for these sizes. */
void shape_of(const struct program_tensor *tensor, const uint64_t *sizes,
              uint64_t ret_dimensions[SLUICE_RANK_MAX]);

/* Its bytes; ERR_TOO_LARGE above PROGRAM_SIZE_MAX. */
int shape_bytes(const struct program_tensor *tensor, const uint64_t *sizes, uint64_t *ret_bytes,
                struct error *error);

/* What an item, or a piece with its own sizes, takes in a batch: each tensor rounded up to
 * SLUICE_ALIGN. */
struct shape_room {
    uint64_t in, out, scratch;
};
int shape_room(const struct program *program, const struct sluice_item *item,
               struct shape_room *ret_room, struct error *error);

/* The most rows of size 0 that a piece of the item may have, a multiple of cut_rows, so that neither
 * inputs nor outputs take more than `bytes`, and all together no more than `all`; the whole item's where that goes. 0: not
 * even one piece of the smallest kind does. */
uint64_t shape_rows(const struct program *program, const struct sluice_item *item, uint64_t bytes,
                    uint64_t all);

/* Where a tensor's rows from `first` on begin, in bytes: 0 for one that comes with each piece. */
uint64_t shape_offset(const struct program_tensor *tensor, const uint64_t *sizes, uint64_t first);

static inline uint64_t shape_align(uint64_t bytes)
{
    return (bytes + SLUICE_ALIGN - 1) / SLUICE_ALIGN * SLUICE_ALIGN;
}
