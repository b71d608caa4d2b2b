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
                       uint16_t number, float *ret, struct error *error)
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

static int inputs_read(const struct checkpoint *checkpoint, const struct op_list *list,
                       struct list_weight *weight, struct error *error)
{
    for (uint32_t i = 0; i < weight->part_count; i++) {
        float scale = 0;
        uint16_t number = weight->parts[i].input_scale;
        int rc = quantization_scale(checkpoint, list, number, &scale, error);
        if (rc)
            return rc;
        if (i > 0 && scale != weight->input_scale)
            return error_set(error, ERR_BAD_MODEL,
                             "tensor %s: %g is not %g, that of %s: they are one matrix",
                             list->tensors[number].name, (double)scale, (double)weight->input_scale,
                             list->tensors[weight->parts[0].input_scale].name);
        weight->input_scale = scale;
    }
    return 0;
}

/* ---- groups of columns ---- */

/* One order serves a product, so those of its parts are the same. */
static int groups_compare(const struct checkpoint *checkpoint, const struct op_list *list,
                          struct list_weight *weight, uint32_t *groups, uint32_t *others,
                          struct error *error)
{
    int rc = 0;
    const struct list_part *parts = weight->parts;
    for (uint32_t i = 0; !rc && i < weight->part_count; i++) {
        struct column_groups of = {.columns = weight->columns, .each = weight->scheme.columns};
        if ((parts[i].groups == LIST_NONE) != (parts[0].groups == LIST_NONE))
            return error_set(error, ERR_BAD_MODEL,
                             "tensor %s: its columns have groups of their own, and those of %s "
                             "have none: they are one matrix",
                             list->tensors[parts[i].tensor].name,
                             list->tensors[parts[0].tensor].name);
        if (parts[i].groups == LIST_NONE)
            continue;
        of.name = list->tensors[parts[i].groups].name;
        rc = column_groups_read(checkpoint, parts[i].groups, &of, i ? others : groups,
                                &weight->ordered, error);
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
    int rc = groups
                 ? groups_compare(checkpoint, list, weight, groups, groups + weight->columns, error)
                 : error_set(error, ERR_NO_MEMORY, "no memory for groups of columns");
    free(groups);
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
        for (uint32_t j = 0; !rc && checkpoint && scheme->sizes && j < weight->part_count; j++)
            if (j == 0 || weight->parts[j].tensor != weight->parts[j - 1].tensor)
                rc = sizes_check(checkpoint, list, &weight->parts[j], error);
    }
    return rc;
}
