#include "gpu/adapters/adapters.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WEIGHTS_NAME "adapter_model.safetensors"
#define PEFT_PREFIX "base_model.model."

/* The tensor of an adapter that belongs to one of the model's: its module, without what its own
 * tensor is called there. False: the name is too long for any. */
static bool name_of(const struct list_tensor *tensor, const char *which, char ret[LIST_NAME_MAX])
{
    const char *end = strrchr(tensor->name, '.');
    int length = end ? (int)(end - tensor->name) : 0;
    int made = snprintf(ret, LIST_NAME_MAX, PEFT_PREFIX "%.*s.lora_%s.weight", length, tensor->name,
                        which);
    return length > 0 && made < LIST_NAME_MAX;
}

static bool has(const struct adapter *adapter, const struct list_tensor *tensor, const char *which)
{
    char name[LIST_NAME_MAX];
    return name_of(tensor, which, name) && checkpoint_has(adapter->checkpoint, name);
}

/* Either of the two: the other must be there then. */
static bool changes_part(const struct adapter *adapter, const struct op_list *list,
                         const struct list_part *part)
{
    const struct list_tensor *tensor = &list->tensors[part->tensor];
    return has(adapter, tensor, "A") || has(adapter, tensor, "B");
}

static bool is_site(const struct adapters *adapters, const struct op_list *list,
                    const struct op *op)
{
    if (op->kind != OP_MATMUL || op->layer < 0)
        return false;
    if (adapters->places > adapters->count)
        return true;
    const struct list_weight *weight = &list->weights[op->weight];
    for (uint32_t i = 0; i < adapters->count; i++)
        for (uint32_t p = 0; p < weight->part_count; p++)
            if (changes_part(&adapters->at[i], list, &weight->parts[p]))
                return true;
    return false;
}

/* ---- the model's list ---- */

/* A x of all parts, of the greatest rank; behind all of it the list of a step's rows, and then what
 * kernels sum apart. */
static int value_add(struct op_list *list, uint32_t rank_max, value_id *ret, struct error *error)
{
    struct list_value *values = NULL;
    if (list->value_count < LIST_VALUES_MAX)
        values = realloc(list->values, (list->value_count + 1) * sizeof *values);
    if (!values)
        return error_set(error, ERR_NO_MEMORY, "no memory for one value more");
    list->values = values;
    *ret = (value_id)list->value_count++;
    values[*ret] = (struct list_value){.width = LIST_PARTS_MAX * rank_max + ADAPTERS_LIST,
                                       .type = VALUE_F32,
                                       .common = true,
                                       .once = ADAPTERS_SUMS(rank_max),
                                       .before = LIST_NONE,
                                       .of = LIST_NONE};
    return 0;
}

static struct op adapt_of(const struct op *matmul, uint32_t site, value_id inner)
{
    struct op op = {.kind = OP_ADAPT,
                    .rows = matmul->rows,
                    .layer = matmul->layer,
                    .in = {matmul->in[0], inner, matmul->out},
                    .out = matmul->out,
                    .weight = matmul->weight,
                    .bias = LIST_NONE};
    op.adapt.site = site;
    op.adapt.split = matmul->matmul.split;
    return op;
}

/* An ADAPT behind each site. */
static int attach(struct adapters *adapters, struct op_list *list, struct error *error)
{
    value_id inner = LIST_NONE;
    int rc = value_add(list, adapters->rank_max, &inner, error);
    if (rc)
        return rc;
    struct op *ops = calloc(2 * (size_t)list->op_count, sizeof *ops);
    if (!ops)
        return error_set(error, ERR_NO_MEMORY, "no memory for a list of %u ops", list->op_count);
    uint32_t count = 0;
    for (uint32_t i = 0; i < list->op_count; i++) {
        ops[count++] = list->ops[i];
        if (is_site(adapters, list, &list->ops[i]))
            ops[count++] = adapt_of(&list->ops[i], adapters->site_count++, inner);
    }
    free(list->ops);
    list->ops = ops;
    list->op_count = count;
    return 0;
}

/* ---- an adapter's list ---- */

static void like_base(const struct op_list *base, struct op_list *list)
{
    *list = (struct op_list){.ranks = base->ranks,
                             .layers = base->layers,
                             .hidden = base->hidden,
                             .residual = LIST_NONE,
                             .normed = LIST_NONE,
                             .sum = LIST_NONE,
                             .squares = LIST_NONE,
                             .logits = LIST_NONE};
}

static int tensor_add(struct op_list *list, const struct list_tensor *of, const char *which,
                      uint32_t rows, uint32_t columns, tensor_id *ret, struct error *error)
{
    struct list_tensor tensor = {.rank = 2, .rows = rows, .columns = columns};
    (void)name_of(of, which, tensor.name);
    for (tensor_id i = 0; i < list->tensor_count; i++) {
        *ret = i;
        if (!strcmp(list->tensors[i].name, tensor.name))
            return 0;
    }
    return op_list_tensor_add(list, &tensor, ret, error);
}

static weight_id weight_add(struct op_list *list, const struct list_weight *weight)
{
    list->weights[list->weight_count] = *weight;
    return (weight_id)list->weight_count++;
}

/* Rows of the tensor that a part is of. */
static uint32_t tensor_rows(const struct list_weight *weight, tensor_id tensor)
{
    uint32_t rows = 0;
    for (uint32_t p = 0; p < weight->part_count; p++) {
        uint32_t end = weight->parts[p].row + weight->parts[p].rows;
        if (weight->parts[p].tensor == tensor && end > rows)
            rows = end;
    }
    return rows;
}

/* A of a tensor that has more parts is the first one's. */
static weight_id known_a(const struct adapter *adapter, const struct list_weight *weight,
                         uint32_t site, uint32_t part)
{
    for (uint32_t p = 0; p < part; p++)
        if (weight->parts[p].tensor == weight->parts[part].tensor)
            return adapter->a[site][p];
    return LIST_NONE;
}

static int part_add(struct adapter *adapter, const struct op_list *base, const struct op *op,
                    uint32_t p, struct error *error)
{
    struct op_list *list = &adapter->list;
    const struct list_weight *weight = &base->weights[op->weight];
    const struct list_tensor *of = &base->tensors[weight->parts[p].tensor];
    uint32_t site = op->adapt.site, rank = adapter->config.rank;
    enum split split = op->adapt.split;
    tensor_id a = 0, b = 0;
    int rc = tensor_add(list, of, "A", rank, weight->columns, &a, error);
    if (!rc)
        rc = tensor_add(list, of, "B", tensor_rows(weight, weight->parts[p].tensor), rank, &b,
                        error);
    if (rc)
        return rc;
    struct list_weight of_a = {.parts = {{.tensor = a, .rows = rank}},
                               .part_count = 1,
                               .columns = weight->columns,
                               .split = split == SPLIT_COLUMNS ? SPLIT_COLUMNS : SPLIT_NOT,
                               .layer = weight->layer};
    struct list_weight of_b = {.parts = {{.tensor = b,
                                          .row = weight->parts[p].row,
                                          .rows = weight->parts[p].rows,
                                          .order = weight->parts[p].order}},
                               .part_count = 1,
                               .columns = rank,
                               .split = split == SPLIT_ROWS ? SPLIT_ROWS : SPLIT_NOT,
                               .layer = weight->layer};
    weight_id known = known_a(adapter, weight, site, p);
    struct op *own = &list->ops[list->op_count++];
    *own = *op;
    own->weight = adapter->a[site][p] = known == LIST_NONE ? weight_add(list, &of_a) : known;
    own->bias = adapter->b[site][p] = weight_add(list, &of_b);
    return 0;
}

static int room_make(struct adapter *adapter, uint32_t sites, struct error *error)
{
    struct op_list *list = &adapter->list;
    size_t parts = (size_t)sites * LIST_PARTS_MAX;
    adapter->a = calloc(sites + 1, sizeof *adapter->a);
    adapter->b = calloc(sites + 1, sizeof *adapter->b);
    list->ops = calloc(parts + 1, sizeof *list->ops);
    list->weights = calloc(2 * parts + 1, sizeof *list->weights);
    if (!adapter->a || !adapter->b || !list->ops || !list->weights)
        return error_set(error, ERR_NO_MEMORY, "no memory for %u sites", sites);
    if (2 * parts >= LIST_NONE)
        return error_set(error, ERR_BAD_MODEL, "the model is too large for an adapter's list");
    for (uint32_t i = 0; i < sites; i++)
        for (uint32_t p = 0; p < LIST_PARTS_MAX; p++)
            adapter->a[i][p] = adapter->b[i][p] = LIST_NONE;
    return 0;
}

static int refuse_rest(const struct checkpoint_visitor *visitor,
                       const struct checkpoint *checkpoint, const struct checkpoint_rest *rest,
                       struct error *error)
{
    (void)visitor;
    (void)checkpoint;
    return error_set(error, ERR_BAD_MODEL,
                     "%s: tensor %.150s: not A or B of a matrix of the model's layers", rest->file,
                     rest->name);
}

/* Every A has its B, as the config makes them, and there is nothing else. */
static int match(struct adapter *adapter, struct error *error)
{
    const struct op_list *list = &adapter->list;
    const struct checkpoint_visitor rest = {.visit = refuse_rest};
    struct checkpoint_wanted *wanted = calloc(list->tensor_count + 1, sizeof *wanted);
    if (!wanted)
        return error_set(error, ERR_NO_MEMORY, "no memory for %u tensors", list->tensor_count);
    for (uint32_t i = 0; i < list->tensor_count; i++)
        wanted[i] = (struct checkpoint_wanted){
            .name = list->tensors[i].name,
            .shape = {2, list->tensors[i].rows, list->tensors[i].columns}};
    int rc = checkpoint_match(adapter->checkpoint, wanted, list->tensor_count, &rest, error);
    free(wanted);
    if (!rc && !list->tensor_count)
        rc = error_set(error, ERR_BAD_MODEL, "%s: it has no tensor", WEIGHTS_NAME);
    return rc;
}

/* Without a checkpoint: of all there is. */
static int list_make(struct adapter *adapter, const struct op_list *base, uint32_t sites,
                     struct error *error)
{
    like_base(base, &adapter->list);
    int rc = room_make(adapter, sites, error);
    for (uint32_t i = 0; !rc && i < base->op_count; i++) {
        const struct op *op = &base->ops[i];
        if (op->kind != OP_ADAPT)
            continue;
        const struct list_weight *weight = &base->weights[op->weight];
        for (uint32_t p = 0; !rc && p < weight->part_count; p++)
            if (!adapter->checkpoint || changes_part(adapter, base, &weight->parts[p]))
                rc = part_add(adapter, base, op, p, error);
    }
    return rc || !adapter->checkpoint ? rc : match(adapter, error);
}

static int list_read(struct adapter *adapter, const struct adapters *adapters,
                     const struct op_list *base, struct error *error)
{
    int rc = list_make(adapter, base, adapters->site_count, error);
    return rc ? rc : adapter_numbers_check(adapter, adapters->most, error);
}

/* ---- all of them ---- */

/* Says of which adapter it is. */
static int named(const struct gpu_adapter *adapter, int rc, struct error *error)
{
    if (!rc || !error)
        return rc;
    struct error why = *error;
    return error_set(error, why.code, "adapter %.64s: %s", adapter->name, why.text);
}

static int files_open(const struct gpu_adapter *named_as, struct adapter *adapter,
                      struct error *error)
{
    int rc = adapter_config_load(named_as->directory, &adapter->config, error);
    if (!rc)
        rc = checkpoint_open_file(named_as->directory, WEIGHTS_NAME, "adapter_config.json",
                                  &adapter->checkpoint, error);
    return named(named_as, rc, error);
}

static int lists_make(const struct gpu_adapter *of, struct op_list *list,
                      struct adapters *adapters, struct error *error)
{
    int rc = attach(adapters, list, error);
    adapters->widest.config.rank = adapters->rank_max;
    if (!rc && adapters->places > adapters->count)
        rc = list_make(&adapters->widest, list, adapters->site_count, error);
    for (uint32_t i = 0; !rc && i < adapters->count; i++)
        rc = named(&of[i], list_read(&adapters->at[i], adapters, list, error), error);
    return rc;
}

static int room_check(const struct adapter_room *room, uint32_t count, struct error *error)
{
    uint32_t places = room->places > count ? room->places : count;
    if (places > GPU_ADAPTERS_MAX)
        return error_limit(error, ERR_BAD_CONFIG, GPU_ADAPTERS_MAX, places,
                           "%u adapters: at most %d", places, GPU_ADAPTERS_MAX);
    if (room->places > count && (!room->rank_max || room->rank_max > ADAPTER_RANK_MAX))
        return error_limit(error, ERR_BAD_CONFIG, ADAPTER_RANK_MAX, room->rank_max,
                           "adapter-rank-max is %u: it must be 1 to %d", room->rank_max,
                           ADAPTER_RANK_MAX);
    return 0;
}

int adapters_open(const struct gpu_adapter *of, uint32_t count, struct adapter_room room,
                  struct op_list *list, struct adapters *ret, struct error *error)
{
    *ret = (struct adapters){.count = 0};
    if (!count && !room.places)
        return 0;
    int rc = room_check(&room, count, error);
    if (rc)
        return rc;
    bool more = room.places > count;
    struct adapters made = {.at = calloc(count + 1, sizeof *made.at),
                            .rank_max = more ? room.rank_max : 0,
                            .places = more ? room.places : count,
                            .most = room.most};
    if (!made.at)
        return error_set(error, ERR_NO_MEMORY, "no memory for %u adapters", count);
    for (uint32_t i = 0; !rc && i < count; i++) {
        made.count++;
        rc = files_open(&of[i], &made.at[i], error);
        if (!rc && made.at[i].config.rank > made.rank_max)
            made.rank_max = made.at[i].config.rank;
    }
    if (!rc)
        rc = lists_make(of, list, &made, error);
    if (rc)
        adapters_drop(&made);
    else
        *ret = made;
    return rc;
}

int adapter_open(const struct gpu_adapter *of, const struct adapters *adapters,
                 const struct op_list *list, struct adapter *ret, struct error *error)
{
    struct adapter made = {.checkpoint = NULL};
    int rc = files_open(of, &made, error);
    if (!rc && made.config.rank > adapters->rank_max)
        rc = error_limit(error, ERR_TOO_LARGE, adapters->rank_max, made.config.rank,
                         "adapter %.64s: r: %u: at most %u (adapter-rank-max)", of->name,
                         made.config.rank, adapters->rank_max);
    if (!rc)
        rc = named(of, list_read(&made, adapters, list, error), error);
    if (rc)
        adapter_drop(&made);
    else
        *ret = made;
    return rc;
}

void adapter_drop(struct adapter *adapter)
{
    op_list_free(&adapter->list);
    checkpoint_close(adapter->checkpoint);
    free(adapter->a);
    free(adapter->b);
}

void adapters_drop(struct adapters *adapters)
{
    for (uint32_t i = 0; i < adapters->count; i++)
        adapter_drop(&adapters->at[i]);
    adapter_drop(&adapters->widest);
    free(adapters->at);
    *adapters = (struct adapters){.count = 0};
}
