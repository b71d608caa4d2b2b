#include "gpu/graph/op_list.h"

#include <stdlib.h>
#include <string.h>

void op_list_free(struct op_list *list)
{
    free(list->ops);
    free(list->values);
    free(list->weights);
    free(list->tensors);
    *list = (struct op_list){.ops = NULL};
}

const char *op_name(enum op_kind kind)
{
    static const char *const names[] = {
#define OP(NAME, text) text,
#include "gpu/graph/ops.def"
#undef OP
    };
    return names[kind];
}

uint64_t op_list_elements(const struct op_list *list)
{
    uint64_t elements = 0;
    for (uint32_t i = 0; i < list->tensor_count; i++) {
        if (list->tensors[i].elements < TENSOR_SCALES)
            elements += (uint64_t)list->tensors[i].rows * list->tensors[i].columns *
                        (list->tensors[i].experts ? list->tensors[i].experts : 1);
    }
    return elements;
}

bool op_list_has(const struct op_list *list, enum op_kind kind)
{
    uint32_t i = 0;
    while (i < list->op_count && list->ops[i].kind != kind)
        i++;
    return i < list->op_count;
}

weight_id op_list_weight(const struct op_list *list, const char *tensor)
{
    for (uint32_t i = 0; i < list->weight_count; i++) {
        const struct list_weight *weight = &list->weights[i];
        for (uint32_t j = 0; j < weight->part_count; j++) {
            if (!strcmp(list->tensors[weight->parts[j].tensor].name, tensor))
                return (weight_id)i;
        }
    }
    return LIST_NONE;
}

int op_list_tensor_add(struct op_list *list, const struct list_tensor *tensor, tensor_id *ret,
                       struct error *error)
{
    if (list->tensor_count >= LIST_TENSORS_MAX)
        return error_set(error, ERR_BAD_MODEL, "the model is too large for a list of ops");
    struct list_tensor *tensors =
        realloc(list->tensors, (list->tensor_count + 1) * sizeof *list->tensors);
    if (!tensors)
        return error_set(error, ERR_NO_MEMORY, "no memory for a model's tensors");
    list->tensors = tensors;
    tensors[list->tensor_count] = *tensor;
    *ret = list->tensor_count++;
    return 0;
}

tensor_id op_list_first_matrix(const struct op_list *list)
{
    for (uint32_t i = 0; i < list->op_count; i++) {
        if (list->ops[i].kind == OP_MATMUL)
            return list->weights[list->ops[i].weight].parts[0].tensor;
    }
    return LIST_NO_TENSOR;
}

static bool op_is_of(const struct op_list *list, const struct op *op, uint32_t first, uint32_t end)
{
    if (op->layer == LAYER_FIRST)
        return first == 0;
    if (op->layer == LAYER_LAST)
        return end == list->layers;
    return op->layer == LAYER_EVERY || ((uint32_t)op->layer >= first && (uint32_t)op->layer < end);
}

/* Layers of KV are numbered anew: those of the stages before are not here. */
int op_list_stage(const struct op_list *list, uint32_t first, uint32_t end, struct op **ret_ops,
                  uint32_t *ret_count, struct error *error)
{
    uint32_t before[GPU_GROUPS_MAX] = {0}, count = 0;
    struct op *ops = calloc(list->op_count, sizeof *ops);
    if (!ops)
        return error_set(error, ERR_NO_MEMORY, "no memory for a list of %u ops", list->op_count);
    for (uint32_t i = 0; i < list->op_count; i++) {
        const struct op *op = &list->ops[i];
        if (op->kind == OP_ATTENTION && op->layer < (int32_t)first)
            before[op->attention.group]++;
        if (!op_is_of(list, op, first, end))
            continue;
        ops[count] = *op;
        if (op->kind == OP_ATTENTION || op->kind == OP_KV_WRITE)
            ops[count].attention.layer -= (uint16_t)before[op->attention.group];
        count++;
    }
    *ret_ops = ops;
    *ret_count = count;
    return 0;
}
