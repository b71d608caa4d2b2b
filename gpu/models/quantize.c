/* From what the config says to the list: which tensors there are, and what they have. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "gpu/checkpoint/number.h"
#include "gpu/models/quantization.h"

#define ENDING ".weight"
#define SYNTHETIC_INPUT (16.0f / 448) /* what comes out of a norm of random numbers is below 16 */

struct quantize {
    const struct quantization *quantization;
    const char *head;
    struct op_list *list;
    struct error *error;
};

/* The module's name; false: the tensor is no module's weight. */
static bool module_of(const char *tensor, char module[LIST_NAME_MAX])
{
    size_t length = strlen(tensor), ending = strlen(ENDING);
    if (length <= ending || strcmp(tensor + length - ending, ENDING) != 0)
        return false;
    snprintf(module, LIST_NAME_MAX, "%.*s", (int)(length - ending), tensor);
    return true;
}

static const struct list_scheme *scheme_of(const struct quantize *q, uint16_t tensor)
{
    char module[LIST_NAME_MAX];
    if (!module_of(q->list->tensors[tensor].name, module) ||
        (!q->quantization->head && !strcmp(module, q->head)))
        return NULL;
    return quantization_scheme(q->quantization, module);
}

static int tensor_add(const struct quantize *q, uint16_t of, const char *ending,
                      const struct list_tensor *like, uint16_t *ret)
{
    struct list_tensor tensor = *like;
    char module[LIST_NAME_MAX];
    (void)module_of(q->list->tensors[of].name, module);
    if (snprintf(tensor.name, sizeof tensor.name, "%s.%s", module, ending) >=
        (int)sizeof tensor.name)
        return error_set(q->error, ERR_BAD_MODEL, "tensor %s: its name is too long", module);
    return op_list_tensor_add(q->list, &tensor, ret, q->error);
}

static uint32_t scales_of(uint32_t size, uint32_t each)
{
    return each ? (size + each - 1) / each : 1;
}

static int scales_add(const struct quantize *q, const struct list_scheme *scheme,
                      struct list_part *part)
{
    struct list_tensor *tensor = &q->list->tensors[part->tensor];
    struct list_tensor scales = {.elements = TENSOR_SCALES,
                                 .rank = 2,
                                 .rows = scales_of(tensor->rows, scheme->rows),
                                 .columns = scales_of(tensor->columns, scheme->columns),
                                 .number = tensor->number};
    struct list_tensor zeros = scales, one = {TENSOR_SCALES, "", 2, 1, 1, 0};
    zeros.elements = TENSOR_ZEROS;
    tensor->elements = scheme->elements;
    int rc = tensor_add(q, part->tensor, scheme->scale, &scales, &part->scale);
    if (rc == 0 && scheme->zeros)
        rc = tensor_add(q, part->tensor, scheme->zeros, &zeros, &part->zeros);
    if (rc == 0 && scheme->input == INPUT_BY_TENSOR)
        rc = tensor_add(q, part->tensor, "input_scale", &one, &part->input_scale);
    return rc;
}

static int weight_quantize(const struct quantize *q, struct list_weight *weight)
{
    const struct list_scheme *scheme = scheme_of(q, weight->parts[0].tensor);
    for (uint32_t i = 1; i < weight->part_count; i++)
        if (scheme_of(q, weight->parts[i].tensor) != scheme)
            return error_set(q->error, ERR_BAD_MODEL,
                             "config.json: quantization_config: %s and %s are one matrix and of "
                             "different schemes",
                             q->list->tensors[weight->parts[0].tensor].name,
                             q->list->tensors[weight->parts[i].tensor].name);
    if (!scheme)
        return 0;
    weight->scheme = *scheme;
    for (uint32_t i = 0; i < weight->part_count; i++) {
        struct list_part *part = &weight->parts[i];
        if (i > 0 && part->tensor == part[-1].tensor) {
            part->scale = part[-1].scale;
            part->zeros = part[-1].zeros;
            part->input_scale = part[-1].input_scale;
            continue;
        }
        int rc = scales_add(q, scheme, part);
        if (rc)
            return rc;
    }
    return 0;
}

static bool is_table(const struct op_list *list, weight_id weight)
{
    for (uint32_t i = 0; i < list->op_count; i++)
        if (list->ops[i].kind == OP_EMBED && list->ops[i].weight == weight)
            return true;
    return false;
}

int quantization_apply(const struct quantization *quantization, const char *head,
                       const struct checkpoint *checkpoint, struct op_list *list,
                       struct error *error)
{
    struct quantize q = {quantization, head, list, error};
    char name[LIST_NAME_MAX];
    int rc = 0;
    if (!quantization->groups)
        return 0;
    for (uint32_t i = 0; !rc && i < list->weight_count; i++)
        if (list->weights[i].kind == WEIGHT_MATRIX && !is_table(list, (weight_id)i))
            rc = weight_quantize(&q, &list->weights[i]);
    snprintf(name, sizeof name, "%s.weight", head);
    bool own = op_list_weight(list, name) != LIST_NONE;
    snprintf(name, sizeof name, "%s.weight_scale", head);
    if (rc == 0 && !own && checkpoint && checkpoint_has(checkpoint, name))
        rc = error_set(error, ERR_BAD_MODEL,
                       "tensor %s: a head that is the embedding cannot be quantized", name);
    return rc;
}

/* ---- scales of inputs ---- */

static int input_read(const struct checkpoint *checkpoint, const struct op_list *list,
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

int quantization_inputs(const struct checkpoint *checkpoint, struct op_list *list,
                        struct error *error)
{
    int rc = 0;
    for (uint32_t i = 0; i < list->weight_count; i++) {
        struct list_weight *weight = &list->weights[i];
        if (weight->scheme.elements == TENSOR_NUMBERS || weight->scheme.input != INPUT_BY_TENSOR)
            continue;
        for (uint32_t j = 0; j < weight->part_count; j++) {
            float scale = 0;
            uint16_t number = weight->parts[j].input_scale;
            rc = input_read(checkpoint, list, number, &scale, error);
            if (rc)
                return rc;
            if (j > 0 && scale != weight->input_scale)
                return error_set(error, ERR_BAD_MODEL,
                                 "tensor %s: %g is not %g, that of %s: they are one matrix",
                                 list->tensors[number].name, (double)scale,
                                 (double)weight->input_scale,
                                 list->tensors[weight->parts[0].input_scale].name);
            weight->input_scale = scale;
        }
    }
    return 0;
}
