/* Scales of keys and values that a checkpoint has: one for K and one for V of a layer. They are
 * tensors of the attention ("model.layers.0.self_attn.k_scale") or of the products that give K and
 * V
 * ("model.layers.0.self_attn.k_proj.k_scale", ".output_scale" in older files). */
#include <stdio.h>
#include <string.h>

#include "gpu/models/quantization/quantization.h"

/* The tensor of which the rows gave a value. */
static const char *tensor_of(const struct op_list *list, uint32_t op, value_id value)
{
    const struct list_value *part = &list->values[value];
    value_id whole = part->of == LIST_NONE ? value : part->of;
    while (op > 0 && (list->ops[op].kind != OP_MATMUL || list->ops[op].out != whole))
        op--;
    if (list->ops[op].kind != OP_MATMUL)
        return NULL;
    const struct list_weight *weight = &list->weights[list->ops[op].weight];
    uint32_t first = 0, i = 0, ranks = weight->split == SPLIT_ROWS ? list->ranks : 1;
    while (i + 1 < weight->part_count && (first += weight->parts[i].rows / ranks) <= part->first)
        i++;
    return list->tensors[weight->parts[i].tensor].name;
}

/* The name without its last `parts` parts, and an ending; false: it is too long. */
static bool name_put(const char *tensor, uint32_t parts, const char *ending,
                     char name[LIST_NAME_MAX])
{
    size_t length = strlen(tensor);
    for (; parts > 0; parts--)
        do
            length--;
        while (length > 0 && tensor[length] != '.');
    return snprintf(name, LIST_NAME_MAX, "%.*s.%s", (int)length, tensor, ending) < LIST_NAME_MAX;
}

/* As the checkpoint has it, else as it would be on the attention. */
static bool name_find(const struct checkpoint *checkpoint, const char *tensor, const char *ending,
                      char name[LIST_NAME_MAX])
{
    char inside[16];
    snprintf(inside, sizeof inside, "attn.%s", ending);
    const struct {
        uint32_t parts;
        const char *ending;
    } places[] = {{2, ending}, {2, inside}, {1, ending}, {1, "output_scale"}};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (name_put(tensor, places[i].parts, places[i].ending, name) &&
            checkpoint_has(checkpoint, name))
            return true;
    (void)name_put(tensor, 2, ending, name);
    return false;
}

static int layer_add(enum kv_scheme scheme, const struct checkpoint *checkpoint,
                     struct op_list *list, uint32_t at, struct error *error)
{
    static const char *const endings[] = {"k_scale", "v_scale"};
    struct list_tensor tensors[2];
    tensor_id numbers[2];
    uint32_t found = 0;
    for (int i = 0; i < 2; i++) {
        const char *tensor = tensor_of(list, at, list->ops[at].in[i]);
        tensors[i] =
            (struct list_tensor){.elements = TENSOR_SCALES, .rank = 1, .rows = 1, .columns = 1};
        if (!tensor)
            return 0;
        found += name_find(checkpoint, tensor, endings[i], tensors[i].name);
    }
    if (!found && scheme == KV_SCHEME_UNSAID)
        return 0;
    for (int i = 0; i < 2; i++) { /* what is missing, the match tells */
        int rc = op_list_tensor_add(list, &tensors[i], &numbers[i], error);
        if (rc)
            return rc;
    }
    struct op *op = &list->ops[at];
    op->attention.k_tensor = numbers[0];
    op->attention.v_tensor = numbers[1];
    return 0;
}

int kv_scales_add(enum kv_scheme scheme, const struct checkpoint *checkpoint, struct op_list *list,
                  struct error *error)
{
    int rc = 0;
    if (scheme == KV_SCHEME_OTHER || scheme == KV_SCHEME_DYNAMIC)
        return 0;
    for (uint32_t i = 0; !rc && i < list->op_count; i++)
        if (list->ops[i].kind == OP_KV_WRITE)
            rc = layer_add(scheme, checkpoint, list, i, error);
    return rc;
}

int kv_scales_read(const struct checkpoint *checkpoint, struct op_list *list, struct error *error)
{
    int rc = 0;
    for (uint32_t i = 0; !rc && i < list->op_count; i++) {
        struct op *op = &list->ops[i];
        if (op->kind != OP_KV_WRITE || op->attention.k_tensor == LIST_NO_TENSOR)
            continue;
        rc = quantization_scale(checkpoint, list, op->attention.k_tensor, &op->attention.k_scale,
                                error);
        if (rc == 0)
            rc = quantization_scale(checkpoint, list, op->attention.v_tensor,
                                    &op->attention.v_scale, error);
    }
    return rc;
}
