#include "gpu/graph/capture.h"

#include <stdlib.h>
#include <string.h>

static void op_insert(struct op_list *list, uint32_t at, const struct op *op)
{
    memmove(&list->ops[at + 1], &list->ops[at], (list->op_count - at) * sizeof *list->ops);
    list->ops[at] = *op;
    list->op_count++;
}

/* Behind the layer's first product, and what else was put there. */
static uint32_t place_of(const struct op_list *list, uint32_t layer)
{
    uint32_t at = 0;
    while (at < list->op_count &&
           (list->ops[at].layer != (int32_t)layer || list->ops[at].kind != OP_MATMUL))
        at++;
    while (at + 1 < list->op_count && list->ops[at + 1].kind == OP_CAPTURE)
        at++;
    return at + 1;
}

int op_list_capture(struct op_list *list, const uint32_t layers[LIST_FEATURES], struct error *error)
{
    struct op *ops = realloc(list->ops, (list->op_count + LIST_FEATURES + 1) * sizeof *ops);
    uint32_t last = 0;
    if (!ops)
        return error_set(error, ERR_NO_MEMORY, "no memory for a list of %u ops", list->op_count);
    list->ops = ops;
    for (uint32_t i = 0; i < LIST_FEATURES; i++) {
        uint32_t at = place_of(list, layers[i]);
        if (layers[i] >= list->layers || at > list->op_count)
            return error_limit(error, ERR_BAD_CONFIG, list->layers, layers[i],
                               "draft-model: it reads what layer %u begins with, of a model with "
                               "%u layers",
                               layers[i], list->layers);
        struct op op = {.kind = OP_CAPTURE,
                        .rows = ROWS_TOKENS,
                        .layer = (int16_t)layers[i],
                        .in = {list->residual, LIST_NONE, LIST_NONE},
                        .out = LIST_NONE,
                        .weight = LIST_NONE,
                        .bias = LIST_NONE,
                        .capture.part = i};
        op_insert(list, at, &op);
        last = layers[i] > last ? layers[i] : last;
    }
    uint32_t at = place_of(list, last);
    struct op keep = list->ops[at - 1];
    keep.kind = OP_KEEP;
    keep.in[0] = LIST_NONE;
    op_insert(list, at, &keep);
    return 0;
}
