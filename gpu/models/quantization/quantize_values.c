/* What the list needs of the checkpoint's values, once it is matched: scales of inputs, groups of
 * columns, and that sizes are those of the config. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/checkpoint/column_groups.h"
#include "gpu/checkpoint/number.h"
#include "gpu/models/quantization/quantization.h"

#define SYNTHETIC_INPUT (16.0f / 448) /* what comes out of a norm of random numbers is below 16 */

int quantization_scale(const struct checkpoint *checkpoint, const struct op_list *list,
                       tensor_id number, float *ret, struct error *error)
{
    char bytes[4] = {0};
    float value;
    if (!checkpoint) {
        *ret = SYNTHETIC_INPUT;
        return 0;
    }
    const struct checkpoint_tensor *tensor = checkpoint_tensor(checkpoint, number);
    int rc = checkpoint_read(checkpoint, tensor, 0, tensor->bytes, bytes, error);
    if (rc)
        return rc;
    number_read(&value, bytes, tensor->dtype, 1);
    if (!(value > 0) || !isfinite(value))
        return error_set(error, ERR_BAD_MODEL, "tensor %s: %g is no scale: it must be above 0",
                         list->tensors[number].name, (double)value);
    *ret = value;
    return 0;
}

static int input_read(const struct checkpoint *checkpoint, const struct op_list *list,
                      const struct list_weight *weight, uint32_t expert, float *ret,
                      struct error *error)
{
    tensor_id first = list_expert_part(weight, 0, expert).input_scale;
    for (uint32_t i = 0; i < weight->part_count; i++) {
        float scale = 0;
        tensor_id number = list_expert_part(weight, i, expert).input_scale;
        int rc = quantization_scale(checkpoint, list, number, &scale, error);
        if (rc)
            return rc;
        if (i > 0 && scale != *ret)
            return error_set(
                error, ERR_BAD_MODEL, "tensor %s: %g is not %g, that of %s: they are one matrix",
                list->tensors[number].name, (double)scale, (double)*ret, list->tensors[first].name);
        *ret = scale;
    }
    return 0;
}

/* Those of experts are read again where they go to (weights/scales.c). */
static int inputs_read(const struct checkpoint *checkpoint, const struct op_list *list,
                       struct list_weight *weight, struct error *error)
{
    int rc = 0;
    for (uint32_t e = 0; !rc && e < list_matrices(weight); e++)
        rc = input_read(checkpoint, list, weight, e, &weight->input_scale, error);
    return rc;
}

/* ---- groups of columns ---- */

/* One order serves a product, so those of its parts are the same. */
static int groups_compare(const struct checkpoint *checkpoint, const struct op_list *list,
                          struct list_weight *weight, uint32_t expert, uint32_t *groups,
                          uint32_t *others, struct error *error)
{
    int rc = 0;
    struct list_part parts[LIST_PARTS_MAX];
    for (uint32_t i = 0; !rc && i < weight->part_count; i++) {
        bool ordered = false;
        parts[i] = list_expert_part(weight, i, expert);
        struct column_groups of = {.columns = weight->columns, .each = weight->scheme.columns};
        if ((parts[i].groups == LIST_NO_TENSOR) != (parts[0].groups == LIST_NO_TENSOR))
            return error_set(error, ERR_BAD_MODEL,
                             "tensor %s: its columns have groups of their own, and those of %s "
                             "have none: they are one matrix",
                             list->tensors[parts[i].tensor].name,
                             list->tensors[parts[0].tensor].name);
        if (parts[i].groups == LIST_NO_TENSOR)
            continue;
        of.name = list->tensors[parts[i].groups].name;
        rc = column_groups_read(checkpoint, parts[i].groups, &of, i ? others : groups, &ordered,
                                error);
        weight->ordered = weight->ordered || ordered;
        if (!rc && i && memcmp(groups, others, weight->columns * sizeof *groups) != 0)
            rc = error_set(error, ERR_BAD_MODEL,
                           "tensor %s: other groups than those of %s: they are one matrix", of.name,
                           list->tensors[parts[0].groups].name);
    }
    return rc;
}

static int groups_read(const struct checkpoint *checkpoint, const struct op_list *list,
                       struct list_weight *weight, struct error *error)
{
    uint32_t *groups = calloc(2 * (size_t)weight->columns, sizeof *groups);
    int rc = groups ? 0 : error_set(error, ERR_NO_MEMORY, "no memory for groups of columns");
    for (uint32_t e = 0; !rc && e < list_matrices(weight); e++)
        rc = groups_compare(checkpoint, list, weight, e, groups, groups + weight->columns, error);
    free(groups);
    if (!rc && weight->ordered && weight->experts && weight->split == SPLIT_COLUMNS &&
        list->ranks > 1)
        return error_set(error, ERR_BAD_CONFIG,
                         "tp is %u: tensor %s: columns of experts that are in no order are not "
                         "shared out: --ep shares out whole experts",
                         list->ranks, list->tensors[weight->parts[0].tensor].name);
    return rc;
}

static int sizes_check(const struct checkpoint *checkpoint, const struct op_list *list,
                       const struct list_part *part, struct error *error)
{
    const struct list_tensor *of = &list->tensors[part->tensor];
    const struct checkpoint_tensor *tensor = checkpoint_tensor(checkpoint, part->sizes);
    int64_t sizes[2] = {0};
    int rc = checkpoint_read(checkpoint, tensor, 0, sizeof sizes, sizes, error);
    if (rc || (sizes[0] == of->rows && sizes[1] == of->columns))
        return rc;
    return error_set(error, ERR_BAD_MODEL,
                     "tensor %s: [%" PRId64 ", %" PRId64 "] is not [%u, %u], as config.json makes "
                     "it",
                     list->tensors[part->sizes].name, sizes[0], sizes[1], of->rows, of->columns);
}

static int sizes_read(const struct checkpoint *checkpoint, const struct op_list *list,
                      const struct list_weight *weight, struct error *error)
{
    int rc = 0;
    for (uint32_t i = 0; !rc && i < weight->part_count * list_matrices(weight); i++) {
        uint32_t number = i % weight->part_count;
        struct list_part part = list_expert_part(weight, number, i / weight->part_count);
        if (!number || part.tensor != list_expert_part(weight, number - 1, 0).tensor)
            rc = sizes_check(checkpoint, list, &part, error);
    }
    return rc;
}

int quantization_values(const struct checkpoint *checkpoint, struct op_list *list,
                        struct error *error)
{
    int rc = 0;
    for (uint32_t i = 0; !rc && i < list->weight_count; i++) {
        struct list_weight *weight = &list->weights[i];
        const struct list_scheme *scheme = &weight->scheme;
        if (scheme->elements == TENSOR_NUMBERS)
            continue;
        if (scheme->input == INPUT_BY_TENSOR)
            rc = inputs_read(checkpoint, list, weight, error);
        if (!rc && checkpoint && scheme->groups)
            rc = groups_read(checkpoint, list, weight, error);
        if (!rc && checkpoint && scheme->sizes)
            rc = sizes_read(checkpoint, list, weight, error);
    }
    return rc;
}
