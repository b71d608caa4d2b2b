/* Which group of scales each column of a matrix is of, where a checkpoint says so ("g_idx"): read,
 * and held to what it may be. Any thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "gpu/checkpoint/checkpoint.h"

struct column_groups {
    const char *name;       /* of the tensor */
    uint32_t columns, each; /* columns of a group, 0: all; the last has what is left */
};

/* The group of each column. *ret_ordered: they are not in groups as they stand. Where all are -1
 * they are as they stand. ERR_BAD_MODEL where one is no group, or a group has more or fewer columns
 * than it has room for. */
int column_groups_read(const struct checkpoint *checkpoint, uint32_t tensor,
                       const struct column_groups *of, uint32_t *to, bool *ret_ordered,
                       struct error *error);

/* The columns group by group, each group's as they stand. ERR_NO_MEMORY. */
int column_groups_order(const struct column_groups *of, const uint32_t *groups, uint32_t *to,
                        struct error *error);
