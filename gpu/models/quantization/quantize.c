/* From what the config says to the list: which tensors there are, and what they have. */
#include <stdio.h>
#include <string.h>

#include "gpu/models/quantization/quantization.h"

#define ENDING ".weight"

struct quantize {
    const struct quantization *quantization;
    const char *head;
    const struct checkpoint *checkpoint; /* NULL: a synthetic model */
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

/* Experts of one tensor are in MXFP4, and nothing else is. */
static const struct list_scheme *scheme_of(const struct quantize *q, tensor_id tensor)
{
    const struct list_tensor *of = &q->list->tensors[tensor];
    char module[LIST_NAME_MAX];
    if (of->experts)
        return quantization_scheme(q->quantization, of->name, false);
    if (!module_of(of->name, module))
        return NULL;
    const struct list_scheme *scheme =
        quantization_scheme(q->quantization, module, !strcmp(module, q->head));
    return scheme && scheme->elements != TENSOR_E2M1 ? scheme : NULL;
}

/* One more tensor of the module. */
static int tensor_add(const struct quantize *q, const char *module, const char *ending,
                      const struct list_tensor *like, tensor_id *ret)
{
    struct list_tensor tensor = *like;
    if (snprintf(tensor.name, sizeof tensor.name, "%s.%s", module, ending) >=
        (int)sizeof tensor.name)
        return error_set(q->error, ERR_BAD_MODEL, "tensor %s: its name is too long", module);
    return op_list_tensor_add(q->list, &tensor, ret, q->error);
}

/* Which column is of which group: where it must be there, and where it is. All of a matrix's
 * experts are as the first is, by whose part `part` begins. */
static int groups_add(const struct quantize *q, const struct list_scheme *scheme,
                      const char *module, uint32_t columns, struct list_part *part)
{
    struct list_tensor groups = {.elements = TENSOR_GROUPS, .rank = 1, .rows = columns};
    char name[2 * LIST_NAME_MAX];
    groups.columns = 1;
    part->groups = LIST_NO_TENSOR;
    if (!scheme->groups || !q->checkpoint)
        return 0;
    snprintf(name, sizeof name, "%s.%s", module, scheme->groups);
    if (!scheme->grouped && !checkpoint_has(q->checkpoint, name))
        return 0;
    return tensor_add(q, module, scheme->groups, &groups, &part->groups);
}

/* Words are whole where the checkpoint's tools have no others. */
static int words_check(const struct quantize *q, const struct list_scheme *scheme,
                       const struct list_tensor *tensor)
{
    uint32_t each = scheme->elements == TENSOR_U4 ? 8 : 4;
    bool columns = scheme->packing == PACKING_GPTQ && tensor->columns % each;
    bool rows = scheme->packing != PACKING_COMPRESSED && tensor->rows % each;
    if (scheme->packing == PACKING_NONE || (!columns && !rows))
        return 0;
    return error_set(q->error, ERR_BAD_MODEL,
                     "tensor %s: its %u %s are no whole words of %u, as quantization_config makes "
                     "them",
                     tensor->name, columns ? tensor->columns : tensor->rows,
                     columns ? "columns" : "rows", each);
}

static int tensors_add(const struct quantize *q, const struct list_scheme *scheme,
                       const char *module, struct list_part *part)
{
    const struct list_tensor tensor = q->list->tensors[part->tensor];
    struct list_tensor scales = {.elements = TENSOR_SCALES,
                                 .packing = scheme->packing,
                                 .rank = 2,
                                 .rows = list_scales(tensor.rows, scheme->rows),
                                 .columns = list_scales(tensor.columns, scheme->columns),
                                 .number = tensor.number};
    struct list_tensor zeros = scales, one = {.elements = TENSOR_SCALES, .rank = 2};
    struct list_tensor sizes = {.elements = TENSOR_SIZES, .rank = 1, .rows = 2, .columns = 1};
    zeros.elements = scheme->elements == TENSOR_U4 ? TENSOR_ZEROS_U4 : TENSOR_ZEROS_U8;
    one.rows = one.columns = 1;
    int rc = words_check(q, scheme, &tensor);
    if (rc == 0)
        rc = tensor_add(q, module, scheme->scale, &scales, &part->scale);
    if (rc == 0 && scheme->zeros)
        rc = tensor_add(q, module, scheme->zeros, &zeros, &part->zeros);
    if (rc == 0)
        rc = groups_add(q, scheme, module, tensor.columns, part);
    if (rc == 0 && scheme->sizes)
        rc = tensor_add(q, module, scheme->sizes, &sizes, &part->sizes);
    if (rc == 0 && scheme->input == INPUT_BY_TENSOR)
        rc = tensor_add(q, module, "input_scale", &one, &part->input_scale);
    return rc;
}

/* The part's tensor is one of elements from here on, and others come with it. */
static int part_quantize(const struct quantize *q, const struct list_scheme *scheme,
                         struct list_part *part)
{
    char module[LIST_NAME_MAX];
    (void)module_of(q->list->tensors[part->tensor].name, module);
    int rc = tensors_add(q, scheme, module, part);
    if (rc)
        return rc;
    struct list_tensor *tensor = &q->list->tensors[part->tensor];
    tensor->elements = scheme->elements;
    tensor->packing = scheme->packing;
    if (scheme->weight && snprintf(tensor->name, sizeof tensor->name, "%s.%s", module,
                                   scheme->weight) >= (int)sizeof tensor->name)
        return error_set(q->error, ERR_BAD_MODEL, "tensor %s: its name is too long", module);
    return 0;
}

/* The scheme of all of it; NULL: none. */
static int weight_scheme(const struct quantize *q, const struct list_weight *weight,
                         const struct list_scheme **ret)
{
    const struct list_scheme *scheme = scheme_of(q, weight->parts[0].tensor);
    uint32_t count = weight->part_count * list_matrices(weight);
    for (uint32_t i = 1; i < count; i++) {
        struct list_part part =
            list_expert_part(weight, i % weight->part_count, i / weight->part_count);
        if (scheme_of(q, part.tensor) != scheme)
            return error_set(q->error, ERR_BAD_MODEL,
                             "config.json: quantization_config: %s and %s are one matrix and of "
                             "different schemes",
                             q->list->tensors[weight->parts[0].tensor].name,
                             q->list->tensors[part.tensor].name);
    }
    *ret = scheme;
    return 0;
}

/* A rank's columns of each expert are whole blocks and groups. */
static int columns_check(const struct quantize *q, const struct list_scheme *scheme,
                         const struct list_weight *weight)
{
    uint32_t ranks = q->list->ranks, own = weight->columns / ranks;
    uint32_t each = scheme->columns ? scheme->columns : scheme->group;
    if (weight->split != SPLIT_COLUMNS || ranks == 1 || !each || own % each == 0)
        return 0;
    return error_limit(q->error, ERR_BAD_CONFIG, each, own,
                       "tp is %u: tensor %s: a rank's %u columns of an expert are no whole groups "
                       "of %u: --ep shares out whole experts",
                       ranks, q->list->tensors[weight->parts[0].tensor].name, own, each);
}

/* Each expert's tensors beside its own stand in the order in which those of the first do. */
static int experts_quantize(const struct quantize *q, const struct list_scheme *scheme,
                            struct list_weight *weight)
{
    uint32_t first = q->list->tensor_count;
    int rc = columns_check(q, scheme, weight);
    for (uint32_t e = 0; !rc && e < weight->experts; e++) {
        for (uint32_t i = 0; !rc && i < weight->part_count; i++) {
            struct list_part part = weight->parts[i];
            part.tensor += e * weight->part_count;
            rc = part_quantize(q, scheme, &part);
            if (e == 0)
                weight->parts[i] = part;
        }
        if (e == 0)
            weight->beside = q->list->tensor_count - first;
    }
    return rc;
}

/* Of one tensor: "_blocks" and "_scales" take its place. */
static int stacked_quantize(const struct quantize *q, const struct list_scheme *scheme,
                            struct list_weight *weight)
{
    struct list_part *part = &weight->parts[0];
    struct list_tensor scales = q->list->tensors[part->tensor], *of;
    if (scheme->elements != TENSOR_E2M1 || !scales.transposed)
        return error_set(q->error, ERR_BAD_MODEL,
                         "tensor %s: experts of one tensor are supported as they are and in mxfp4",
                         scales.name);
    if (scales.columns % scheme->columns)
        return error_set(q->error, ERR_BAD_MODEL,
                         "tensor %s: its %u columns are no whole blocks of %u", scales.name,
                         scales.columns, scheme->columns);
    int rc = columns_check(q, scheme, weight);
    scales.elements = TENSOR_EXPONENTS;
    scales.transposed = false;
    scales.columns /= scheme->columns;
    snprintf(scales.name + strlen(scales.name), sizeof scales.name - strlen(scales.name), "%s",
             scheme->scale);
    if (rc == 0)
        rc = op_list_tensor_add(q->list, &scales, &part->scale, q->error);
    if (rc)
        return rc;
    of = &q->list->tensors[part->tensor];
    of->elements = TENSOR_E2M1;
    of->transposed = false;
    part->groups = part->sizes = LIST_NO_TENSOR;
    snprintf(of->name + strlen(of->name), sizeof of->name - strlen(of->name), "%s", scheme->weight);
    return 0;
}

static int weight_quantize(const struct quantize *q, struct list_weight *weight)
{
    const struct list_scheme *scheme = NULL;
    int rc = weight_scheme(q, weight, &scheme);
    if (rc || !scheme)
        return rc;
    weight->scheme = *scheme;
    if (weight->stacked)
        return stacked_quantize(q, scheme, weight);
    if (weight->experts)
        return experts_quantize(q, scheme, weight);
    for (uint32_t i = 0; i < weight->part_count; i++) {
        struct list_part *part = &weight->parts[i];
        if (i > 0 && part->tensor == part[-1].tensor) {
            part->scale = part[-1].scale;
            part->zeros = part[-1].zeros;
            part->groups = part[-1].groups;
            part->input_scale = part[-1].input_scale;
            continue;
        }
        rc = part_quantize(q, scheme, part);
        if (rc)
            return rc;
    }
    return 0;
}

/* A table of embeddings, or a router: choices of experts are made by numbers as they are. */
static bool stays(const struct op_list *list, weight_id weight)
{
    for (uint32_t i = 0; i < list->op_count; i++) {
        bool kind = list->ops[i].kind == OP_EMBED || list->ops[i].kind == OP_ROUTE;
        if (kind && list->ops[i].weight == weight)
            return true;
    }
    return false;
}

void quantization_make(const char *head, struct op_list *list)
{
    char module[LIST_NAME_MAX];
    for (uint32_t i = 0; i < list->weight_count; i++) {
        struct list_weight *weight = &list->weights[i];
        bool named = module_of(list->tensors[weight->parts[0].tensor].name, module);
        if (weight->kind == WEIGHT_MATRIX && !stays(list, (weight_id)i) &&
            (weight->stacked || (named && strcmp(module, head) != 0)))
            weight->scheme = (struct list_scheme){
                .elements = TENSOR_E4M3, .rows = 1, .input = INPUT_BY_TOKEN, .made = true};
    }
}

/* A head of its own, in whatever form. */
static bool head_is_quantized(const struct checkpoint *checkpoint, const char *head,
                              char name[LIST_NAME_MAX])
{
    static const char *const endings[] = {"weight_scale", "weight_scale_inv", "scales"};
    for (size_t i = 0; checkpoint && i < sizeof endings / sizeof *endings; i++) {
        snprintf(name, LIST_NAME_MAX, "%s.%s", head, endings[i]);
        if (checkpoint_has(checkpoint, name))
            return true;
    }
    return false;
}

int quantization_apply(const struct quantization *quantization, const char *head,
                       const struct checkpoint *checkpoint, struct op_list *list,
                       struct error *error)
{
    struct quantize q = {quantization, head, checkpoint, list, error};
    char name[LIST_NAME_MAX];
    int rc = 0;
    if (!quantization->groups)
        return 0;
    snprintf(name, sizeof name, "%s.weight", head);
    bool own = op_list_weight(list, name) != LIST_NONE;
    if (!own && head_is_quantized(checkpoint, head, name))
        return error_set(error, ERR_BAD_MODEL,
                         "tensor %s: a head that is the embedding cannot be quantized", name);
    for (uint32_t i = 0; !rc && i < list->weight_count; i++)
        if (list->weights[i].kind == WEIGHT_MATRIX && !stays(list, (weight_id)i))
            rc = weight_quantize(&q, &list->weights[i]);
    return rc;
}
