#include "gpu/graph/stages.h"

/* Of the layers `first` up to `end`; with the last one, of what is behind it. Of logits that are
 * computed for several ends only one counts. */
static uint64_t cost(const struct op_list *list, uint32_t first, uint32_t end)
{
    uint64_t elements = 0;
    for (uint32_t i = 0; i < list->op_count; i++) {
        const struct op *op = &list->ops[i];
        bool mine = op->layer >= 0 ? (uint32_t)op->layer >= first && (uint32_t)op->layer < end
                    : op->layer == LAYER_FIRST
                        ? first == 0
                        : op->layer == LAYER_LAST && end == list->layers && op->rows != ROWS_SCORED;
        bool multiplies = op->kind == OP_MATMUL || op->kind == OP_ROUTE || op->kind == OP_EXPERTS;
        if (!multiplies || !mine)
            continue;
        const struct list_weight *weight = &list->weights[op->weight];
        uint64_t rows = 0;
        for (uint32_t j = 0; j < weight->part_count; j++)
            rows += weight->parts[j].rows;
        elements += rows * weight->columns * (op->kind == OP_EXPERTS ? op->experts.top : 1);
    }
    return elements;
}

uint64_t stages_cost(const struct op_list *list)
{
    return cost(list, 0, list->layers);
}

/* The others share out what the last one leaves. */
static void first_set(const struct op_list *list, uint32_t stages, uint32_t last, uint32_t *first)
{
    uint32_t rest = list->layers - last, others = stages - 1;
    for (uint32_t i = 0; i < stages; i++)
        first[i] = others ? rest * i / others : 0;
    first[stages] = list->layers;
}

/* Of the dearest stage. */
static uint64_t worst(const struct op_list *list, uint32_t stages, const uint32_t *first)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < stages; i++) {
        uint64_t own = cost(list, first[i], first[i + 1]);
        most = own > most ? own : most;
    }
    return most;
}

int stages_split(const struct op_list *list, uint32_t stages, uint32_t *first, struct error *error)
{
    uint64_t best = UINT64_MAX;
    uint32_t last = list->layers;
    if (list->layers < stages)
        return error_limit(error, ERR_BAD_CONFIG, list->layers, stages,
                           "pp is %u: the model has %u layers", stages, list->layers);
    for (uint32_t i = 1; stages > 1 && i + stages - 1 <= list->layers; i++) {
        first_set(list, stages, i, first);
        uint64_t own = worst(list, stages, first);
        last = own <= best ? i : last;
        best = own <= best ? own : best;
    }
    first_set(list, stages, last, first);
    return 0;
}
