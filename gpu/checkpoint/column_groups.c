#include "gpu/checkpoint/column_groups.h"

#include <stdlib.h>

static uint32_t count_of(const struct column_groups *of)
{
    return of->each ? (of->columns + of->each - 1) / of->each : 1;
}

static uint32_t first_of(const struct column_groups *of, uint32_t group)
{
    return group * of->each;
}

static uint32_t size_of(const struct column_groups *of, uint32_t group)
{
    uint32_t left = of->columns - first_of(of, group);
    return of->each && of->each < left ? of->each : left;
}

/* Groups have as many columns as there are to a scale. */
static int sizes_check(const struct column_groups *of, const uint32_t *groups, struct error *error)
{
    uint32_t count = count_of(of);
    uint32_t *sizes = calloc(count, sizeof *sizes);
    if (!sizes)
        return error_set(error, ERR_NO_MEMORY, "no memory for groups of columns");
    int rc = 0;
    for (uint32_t i = 0; i < of->columns; i++)
        sizes[groups[i]]++;
    for (uint32_t i = 0; !rc && i < count; i++)
        if (sizes[i] != size_of(of, i))
            rc = error_set(error, ERR_BAD_MODEL,
                           "tensor %s: group %u has %u columns: it must have %u", of->name, i,
                           sizes[i], size_of(of, i));
    free(sizes);
    return rc;
}

static int values_check(const struct column_groups *of, uint32_t *groups, bool *ret_ordered,
                        struct error *error)
{
    uint32_t count = count_of(of);
    bool none = groups[0] == UINT32_MAX, ordered = false;
    for (uint32_t i = 0; i < of->columns; i++) {
        uint32_t own = of->each ? i / of->each : 0;
        if (none && groups[i] == UINT32_MAX)
            groups[i] = own;
        else if (none || groups[i] >= count)
            return error_set(error, ERR_BAD_MODEL,
                             "tensor %s: value %u is %d: it must be a group, below %u", of->name, i,
                             (int32_t)groups[i], count);
        ordered = ordered || groups[i] != own;
    }
    *ret_ordered = ordered;
    return 0;
}

int column_groups_read(const struct checkpoint *checkpoint, uint32_t tensor,
                       const struct column_groups *of, uint32_t *to, bool *ret_ordered,
                       struct error *error)
{
    bool ordered = false;
    int rc = checkpoint_read(checkpoint, checkpoint_tensor(checkpoint, tensor), 0,
                             of->columns * sizeof *to, to, error);
    if (rc == 0)
        rc = values_check(of, to, &ordered, error);
    if (rc == 0)
        rc = sizes_check(of, to, error);
    if (rc == 0)
        *ret_ordered = ordered;
    return rc;
}

int column_groups_order(const struct column_groups *of, const uint32_t *groups, uint32_t *to,
                        struct error *error)
{
    uint32_t count = count_of(of);
    uint32_t *next = calloc(count, sizeof *next);
    if (!next)
        return error_set(error, ERR_NO_MEMORY, "no memory for groups of columns");
    for (uint32_t i = 0; i < count; i++)
        next[i] = first_of(of, i);
    for (uint32_t i = 0; i < of->columns; i++)
        to[next[groups[i]]++] = i;
    free(next);
    return 0;
}
