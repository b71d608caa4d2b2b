#include "gpu/graph/build_inner.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One more element behind `count`; NULL, and the build has failed, where there is no memory, or are
 * `most`. */
static void *grown(struct build *b, void **array, uint32_t count, uint32_t most, uint32_t *room,
                   size_t size)
{
    if (b->status)
        return NULL;
    if (count >= most) {
        b->status = error_set(&b->error, ERR_BAD_MODEL, "the model is too large for a list of ops");
        return NULL;
    }
    if (count == *room) {
        uint32_t more = *room ? 2 * *room : 64;
        void *made = realloc(*array, more * size);
        if (!made) {
            b->status = error_set(&b->error, ERR_NO_MEMORY, "no memory for a model's ops");
            return NULL;
        }
        *array = made;
        *room = more;
    }
    return (char *)*array + count * size;
}

void build_refuse(struct build *b, uint32_t size, const char *what)
{
    if (!b->status)
        b->status = error_limit(&b->error, ERR_BAD_CONFIG, size, b->list.ranks,
                                "tp is %u: the model's %u %s do not divide by it", b->list.ranks,
                                size, what);
}

/* ---- values ---- */

static bool value_same(const struct list_value *a, const struct list_value *b)
{
    return a->width == b->width && a->type == b->type && a->rows == b->rows &&
           a->common == b->common && a->before == b->before && a->of == b->of &&
           a->first == b->first && a->once == b->once && a->heads == b->heads &&
           a->head_dim == b->head_dim;
}

static value_id value_add(struct build *b, const struct list_value *value)
{
    struct op_list *list = &b->list;
    struct list_value *made = grown(b, (void **)&list->values, list->value_count, LIST_NONE,
                                    &b->value_room, sizeof *list->values);
    if (made && list->value_count == LIST_VALUES_MAX)
        b->status = error_set(&b->error, ERR_BAD_MODEL, "layers are of too many kinds");
    if (b->status)
        return LIST_NONE;
    *made = *value;
    return (value_id)list->value_count++;
}

/* A value of the block, or of one before that began alike. */
value_id build_value(struct build *b, struct list_value value)
{
    const struct op_list *list = &b->list;
    bool view = value.of != LIST_NONE;
    value.before = view ? LIST_NONE : b->block;
    value_id id = 0;
    while (id < list->value_count && !value_same(&list->values[id], &value))
        id++;
    if (id == list->value_count)
        id = value_add(b, &value);
    if (!view)
        b->block = id;
    return id;
}

value_id build_value_common(struct build *b, uint32_t width, enum value_type type)
{
    return value_add(
        b, &(struct list_value){
               .width = width, .type = type, .common = true, .before = LIST_NONE, .of = LIST_NONE});
}

static bool is_picked(const struct build *b)
{
    return b->rows == ROWS_SCORED || b->rows == ROWS_SAMPLED;
}

value_id build_value_block(struct build *b, uint32_t width, enum value_type type)
{
    return build_value(b,
                       (struct list_value){.width = width,
                                           .type = type,
                                           .rows = is_picked(b) ? VALUE_OF_PICKED : VALUE_OF_TOKENS,
                                           .of = LIST_NONE});
}

uint32_t build_width(const struct build *b, value_id x)
{
    return b->status || x == LIST_NONE ? 0 : b->list.values[x].width;
}

/* ---- weights ---- */

static void name_put(const struct build *b, const char *tensor, const char *ending,
                     char name[LIST_NAME_MAX])
{
    char prefix[LIST_NAME_MAX / 2] = "";
    const char *number = strstr(b->prefix, "%u");
    if (b->layer >= 0 && !number) { /* there is one */
        snprintf(prefix, sizeof prefix, "%s", b->prefix);
    } else if (b->layer >= 0) {
        snprintf(prefix, sizeof prefix, "%.*s%d%s", (int)(number - b->prefix), b->prefix, b->layer,
                 number + 2);
    }
    snprintf(name, LIST_NAME_MAX, "%s%.39s%s", prefix, tensor, ending);
}

tensor_id build_tensor(struct build *b, const char *name, const char *ending,
                       const struct list_tensor *shape)
{
    struct op_list *list = &b->list;
    struct list_tensor *made = grown(b, (void **)&list->tensors, list->tensor_count,
                                     LIST_TENSORS_MAX, &b->tensor_room, sizeof *list->tensors);
    if (!made)
        return LIST_NO_TENSOR;
    *made = *shape;
    name_put(b, name, ending, made->name);
    const char *own = b->layer >= 0
                          ? made->name + strlen(made->name) - strlen(name) - strlen(ending)
                          : made->name;
    made->number = b->number ? b->number(own, b->layer < 0 ? 0 : b->layer) : 0;
    return list->tensor_count++;
}

/* Parts of one tensor stand side by side: it has the rows of all of them. */
static void parts_put(struct build *b, struct list_weight *weight, const struct build_part *parts,
                      const char *ending)
{
    uint32_t rank = weight->kind == WEIGHT_MATRIX ? 2 : 1;
    for (uint32_t i = 0; i < LIST_PARTS_MAX && parts[i].tensor && !b->status; i++) {
        struct list_part *part = &weight->parts[weight->part_count++];
        bool again = i > 0 && !strcmp(parts[i].tensor, parts[i - 1].tensor);
        part->rows = parts[i].rows;
        part->order = parts[i].order;
        part->row = again ? part[-1].row + part[-1].rows : 0;
        part->tensor =
            again ? part[-1].tensor
                  : build_tensor(b, parts[i].tensor, ending,
                                 &(struct list_tensor){.rank = rank, .columns = weight->columns});
        if (b->status)
            return;
        b->list.tensors[part->tensor].rows += part->rows;
        if (weight->split == SPLIT_ROWS && part->rows % b->list.ranks)
            build_refuse(b, part->rows, parts[i].tensor);
    }
}

/* The tensors of one expert behind those of another. */
static void expert_parts_put(struct build *b, struct list_weight *weight,
                             const struct build_part *parts)
{
    for (uint32_t e = 0; e < weight->experts && !b->status; e++) {
        weight->part_count = 0;
        for (uint32_t i = 0; i < LIST_PARTS_MAX && parts[i].tensor && !b->status; i++) {
            const char *number = strstr(parts[i].tensor, "%u");
            struct list_tensor shape = {
                .rank = 2, .rows = parts[i].rows, .columns = weight->columns};
            char name[LIST_NAME_MAX / 2];
            snprintf(name, sizeof name, "%.*s%u%s", (int)(number - parts[i].tensor),
                     parts[i].tensor, e, number + 2);
            tensor_id tensor = build_tensor(b, name, ".weight", &shape);
            if (!e)
                weight->parts[i] = (struct list_part){.tensor = tensor, .rows = parts[i].rows};
            weight->part_count++;
            if (weight->split == SPLIT_ROWS && parts[i].rows % b->list.ranks)
                build_refuse(b, parts[i].rows, parts[i].tensor);
        }
    }
}

/* One tensor of all: of each its parts, one below the other. */
static void stacked_parts_put(struct build *b, struct list_weight *weight,
                              const struct build_part *parts, const char *ending)
{
    bool bare = weight->kind == WEIGHT_MATRIX && !parts->upright;
    const struct list_tensor shape = {.rank = weight->kind == WEIGHT_MATRIX ? 2 : 1,
                                      .columns = weight->columns,
                                      .experts = weight->experts,
                                      .transposed = bare};
    tensor_id tensor = build_tensor(b, parts->tensor, bare ? "" : ending, &shape);
    weight->stacked = true;
    for (uint32_t i = 0; i < LIST_PARTS_MAX && parts[i].tensor && !b->status; i++) {
        struct list_tensor *of = &b->list.tensors[tensor];
        assert(!strcmp(parts[i].tensor, parts->tensor));
        weight->parts[weight->part_count++] = (struct list_part){
            .row = of->rows, .rows = parts[i].rows, .order = parts[i].order, .tensor = tensor};
        of->rows += parts[i].rows;
        if (weight->split == SPLIT_ROWS && parts[i].rows % b->list.ranks)
            build_refuse(b, parts[i].rows, parts[i].tensor);
    }
}

weight_id build_weight(struct build *b, const struct list_weight *like,
                       const struct build_part *parts, const char *ending)
{
    struct op_list *list = &b->list;
    struct list_weight *made = grown(b, (void **)&list->weights, list->weight_count, LIST_NONE,
                                     &b->weight_room, sizeof *list->weights);
    if (!made)
        return LIST_NONE;
    *made = *like;
    made->layer = b->layer;
    made->deviation = like->kind == WEIGHT_MATRIX ? b->deviation : 0;
    if (like->experts && !strstr(parts[0].tensor, "%u"))
        stacked_parts_put(b, made, parts, ending);
    else if (like->experts)
        expert_parts_put(b, made, parts);
    else
        parts_put(b, made, parts, ending);
    return (weight_id)list->weight_count++;
}

/* Synthetic ones leave what was normed as it is. */
weight_id build_norm_weight(struct build *b, struct build_part part, enum norm_kind kind,
                            const struct list_weight *of)
{
    struct list_weight like = *of;
    like.columns = 1;
    like.mean = kind == NORM_RMS_PLUS_ONE ? 0 : 1;
    return build_weight(b, &like, PARTS(part), ".weight");
}

/* The weight of the product that gave x; NULL: none did. */
static const struct list_weight *product_of(const struct build *b, value_id x)
{
    const struct op_list *list = &b->list;
    uint32_t at = list->op_count;
    while (at > 0 && (list->ops[at - 1].kind != OP_MATMUL || list->ops[at - 1].out != x))
        at--;
    return b->status || !at ? NULL : &list->weights[list->ops[at - 1].weight];
}

/* What a product's parts before that one give of each row. */
static uint32_t part_first(const struct build *b, const struct list_weight *weight, uint32_t part)
{
    uint32_t first = 0;
    for (uint32_t i = 0; i < part; i++)
        first += weight->parts[i].rows;
    return first / (weight->split == SPLIT_ROWS ? b->list.ranks : 1);
}

/* Of the elements of a value, as the product that gave it has its rows. */
static struct head_order order_of(const struct build *b, value_id x)
{
    const struct list_value *value = b->status ? NULL : &b->list.values[x];
    const struct list_weight *weight =
        value ? product_of(b, value->of == LIST_NONE ? x : value->of) : NULL;
    for (uint32_t i = 0; weight && i < weight->part_count; i++) {
        if (part_first(b, weight, i) == value->first)
            return weight->parts[i].order;
    }
    return (struct head_order){0};
}

/* ---- ops ---- */

struct op *build_op(struct build *b, enum op_kind kind, value_id in, value_id out)
{
    struct op_list *list = &b->list;
    struct op *made =
        grown(b, (void **)&list->ops, list->op_count, LIST_NONE, &b->op_room, sizeof *list->ops);
    if (!made)
        return &b->nowhere;
    *made = (struct op){
        .kind = (uint8_t)kind,
        .rows = b->rows,
        .layer = b->layer,
        .in = {in, LIST_NONE, LIST_NONE},
        .out = out,
        .weight = LIST_NONE,
        .bias = LIST_NONE,
    };
    list->op_count++;
    return made;
}

void build_begin(struct build *b, uint32_t ranks, uint32_t layers, uint32_t hidden, uint32_t vocab)
{
    *b = (struct build){
        .list = {.ranks = ranks,
                 .layers = layers,
                 .hidden = hidden,
                 .vocab = vocab,
                 .residual = LIST_NONE,
                 .normed = LIST_NONE,
                 .sum = LIST_NONE,
                 .squares = LIST_NONE,
                 .logits = LIST_NONE},
        .prefix = "model.layers.%u.",
        .layer = LAYER_EVERY,
        .block = LIST_NONE,
    };
    build_op(b, OP_BEGIN, LIST_NONE, LIST_NONE);
    build_op(b, OP_COPY_BLOCKS, LIST_NONE, LIST_NONE);
}

int build_end(struct build *b, struct op_list *ret, struct error *error)
{
    b->layer = LAYER_EVERY;
    b->rows = ROWS_TOKENS;
    build_op(b, OP_END, LIST_NONE, LIST_NONE);
    if (!b->status) {
        *ret = b->list;
        return 0;
    }
    if (error)
        *error = b->error;
    op_list_free(&b->list);
    return b->status;
}

void build_layer(struct build *b, uint32_t layer)
{
    b->layer = (int16_t)layer;
    b->block = LIST_NONE;
}

weight_id build_embed(struct build *b, const char *table, float scale)
{
    struct op_list *list = &b->list;
    struct list_weight like = {.columns = list->hidden};
    b->layer = LAYER_FIRST;
    list->residual = build_value_common(b, list->hidden, VALUE_F32);
    list->normed = build_value_common(b, list->hidden, VALUE_COMPUTE);
    weight_id weight = build_weight(b, &like, PARTS({table, list->vocab}), ".weight");
    struct op *op = build_op(b, OP_EMBED, LIST_NONE, list->residual);
    op->weight = weight;
    op->scale.by = scale;
    return weight;
}

void build_rope_table(struct build *b, const struct model_rope *rope)
{
    struct op_list *list = &b->list;
    b->layer = LAYER_EVERY;
    if (list->rope_count == LIST_ROPES_MAX) {
        if (!b->status)
            b->status = error_set(&b->error, ERR_BAD_MODEL,
                                  "layers have more than %d tables of angles", LIST_ROPES_MAX);
        return;
    }
    value_id angles = build_value_common(b, rope->pairs * 2, VALUE_F32);
    build_op(b, OP_ANGLES, LIST_NONE, angles)->rope.table = (uint16_t)list->rope_count;
    list->angles[list->rope_count] = angles;
    list->ropes[list->rope_count++] = *rope;
}

/* Once all that is there from the beginning is placed. */
void build_sums(struct build *b)
{
    struct op_list *list = &b->list;
    if (list->sum != LIST_NONE)
        return;
    list->squares = build_value_common(b, 0, VALUE_F32);
    list->sum = build_value_common(b, list->hidden, VALUE_SUM);
    list->sums_rounded = list->ranks > 1;
}

void build_reduce(struct build *b, value_id sum)
{
    if (b->list.ranks > 1)
        build_op(b, OP_ALL_REDUCE, sum, sum);
}

value_id build_norm(struct build *b, value_id x, const char *weight, enum norm_kind kind, float eps)
{
    const struct list_weight plain = {.kind = WEIGHT_NORM};
    const struct list_weight bias = {.kind = WEIGHT_BIAS, .columns = 1};
    value_id out = x == b->list.residual ? b->list.normed : x;
    uint32_t size = build_width(b, x);
    assert(b->status || x == b->list.residual || x == b->list.sum);
    weight_id id =
        build_norm_weight(b, (struct build_part){.tensor = weight, .rows = size}, kind, &plain);
    weight_id own = LIST_NONE;
    if (kind == NORM_LAYER)
        own = build_weight(b, &bias, PARTS({weight, size}), ".bias");
    struct op *op = build_op(b, OP_NORM, x, out);
    op->weight = id;
    op->bias = own;
    op->norm.kind = kind;
    op->norm.eps = eps;
    op->norm.size = size;
    return out;
}

value_id build_round(struct build *b)
{
    build_op(b, OP_ROUND, b->list.residual, b->list.normed);
    return b->list.normed;
}

void build_head_norm(struct build *b, value_id x, const char *weight, uint32_t head_dim,
                     enum norm_kind kind, float eps)
{
    const struct list_weight head = {.kind = WEIGHT_HEAD_NORM};
    assert(kind != NORM_LAYER);
    weight_id id =
        build_norm_weight(b, (struct build_part){weight, head_dim, order_of(b, x)}, kind, &head);
    struct op *op = build_op(b, OP_HEAD_NORM, x, x);
    op->weight = id;
    op->norm.kind = kind;
    op->norm.eps = eps;
    op->norm.size = head_dim;
}

/* Of each row of x and y a sum, which ranks that share their columns add up. */
static value_id squares_put(struct build *b, value_id x, value_id y)
{
    if (b->list.ranks == 1)
        return LIST_NONE;
    value_id squares = build_value_block(b, 2, VALUE_F32);
    build_op(b, OP_SQUARES, x, squares)->in[1] = y;
    build_reduce(b, squares);
    return squares;
}

void build_wide_norm(struct build *b, value_id x, value_id y, const char *wx, const char *wy,
                     enum norm_kind kind, float eps)
{
    const struct list_weight shared = {.kind = WEIGHT_NORM, .split = SPLIT_ROWS};
    const struct list_value *values = b->list.values;
    uint32_t ranks = b->list.ranks;
    assert(kind != NORM_LAYER);
    assert(b->status || (values[x].of != LIST_NONE && values[x].of == values[y].of));
    const struct build_part parts[] = {{wx, build_width(b, x) * ranks, order_of(b, x)},
                                       {wy, build_width(b, y) * ranks, order_of(b, y)}};
    weight_id of_x = build_norm_weight(b, parts[0], kind, &shared);
    weight_id of_y = build_norm_weight(b, parts[1], kind, &shared);
    value_id squares = squares_put(b, x, y);
    struct op *op = build_op(b, OP_WIDE_NORM, x, x);
    op->in[1] = y;
    op->in[2] = squares;
    op->weight = of_x;
    op->bias = of_y;
    op->norm.kind = kind;
    op->norm.eps = eps;
}

/* What all ranks' rows together are, and a rank's. */
uint32_t build_rows(const struct build *b, const struct build_part *parts, enum split split)
{
    uint32_t rows = 0;
    for (uint32_t i = 0; i < LIST_PARTS_MAX && parts[i].tensor; i++)
        rows += parts[i].rows;
    return split == SPLIT_ROWS ? rows / b->list.ranks : rows;
}

value_id build_matmul(struct build *b, value_id x, enum split split, bool bias,
                      const struct build_part *parts)
{
    uint32_t ranks = b->list.ranks, columns = build_width(b, x);
    struct list_weight like = {.columns = split == SPLIT_COLUMNS ? columns * ranks : columns,
                               .split = split};
    struct list_weight vector = {
        .columns = 1, .kind = WEIGHT_BIAS, .split = split == SPLIT_COLUMNS ? SPLIT_NOT : split};
    build_sums(b);
    weight_id weight = build_weight(b, &like, parts, ".weight");
    weight_id own = bias ? build_weight(b, &vector, parts, ".bias") : LIST_NONE;
    bool sum = split == SPLIT_COLUMNS;
    value_id out =
        sum ? b->list.sum : build_value_block(b, build_rows(b, parts, split), VALUE_COMPUTE);
    struct op *op = build_op(b, OP_MATMUL, x, out);
    op->weight = weight;
    op->bias = own;
    op->matmul.split = split;
    if (!sum)
        return out;
    b->list.sums_rounded = b->list.sums_rounded || bias;
    build_reduce(b, out);
    return out;
}

value_id build_part(struct build *b, value_id x, uint32_t part)
{
    const struct list_weight *weight = product_of(b, x);
    if (!weight)
        return LIST_NONE;
    uint32_t ranks = weight->split == SPLIT_ROWS ? b->list.ranks : 1;
    return build_value(b, (struct list_value){.width = weight->parts[part].rows / ranks,
                                              .type = b->list.values[x].type,
                                              .of = x,
                                              .first = part_first(b, weight, part)});
}

value_id build_activation(struct build *b, value_id x, enum activation_kind kind, bool gated)
{
    value_id out = build_value_block(b, build_width(b, x) / (gated ? 2 : 1), VALUE_COMPUTE);
    struct op *op = build_op(b, OP_ACTIVATION, x, out);
    op->activation.kind = kind;
    op->activation.gated = gated;
    return out;
}

void build_add(struct build *b, value_id x, float scale)
{
    build_op(b, OP_ADD, x, b->list.residual)->scale.by = scale;
    b->block = LIST_NONE;
}

/* Logits of the rows that are picked. A table that is the head as well is on every rank whole. */
static void logits_put(struct build *b, weight_id weight, const struct build_head *head)
{
    struct op_list *list = &b->list;
    b->block = LIST_NONE;
    value_id picked = build_value_block(b, list->hidden, VALUE_COMPUTE);
    list->logits = build_value_block(b, list->vocab, VALUE_F32);
    value_id given = list->draft_vocab && list->draft_vocab < list->vocab
                         ? build_value_block(b, list->draft_vocab, VALUE_F32)
                         : list->logits;
    build_op(b, OP_GATHER, list->normed, picked)->scale.by = head->scale;
    struct op *op = build_op(b, OP_MATMUL, picked, given);
    op->weight = weight;
    op->matmul.split = SPLIT_VOCABULARY;
    if (list->ranks > 1)
        build_op(b, OP_ALL_GATHER, list->logits, list->logits);
    if (given != list->logits)
        build_op(b, OP_SPREAD, given, list->logits);
    if (head->softcap != 0)
        build_op(b, OP_SOFTCAP, list->logits, list->logits)->softcap.cap = head->softcap;
}

void build_head(struct build *b, const struct build_head *head)
{
    struct op_list *list = &b->list;
    b->layer = LAYER_LAST;
    if (!b->status && list->vocab < list->ranks * list->ranks)
        b->status =
            error_limit(&b->error, ERR_BAD_CONFIG, list->vocab, list->ranks,
                        "tp is %u: a vocabulary of %u is too small", list->ranks, list->vocab);
    value_id x = build_norm(b, list->residual, head->norm, head->kind, head->eps);
    struct list_weight like = {.columns = list->hidden, .split = SPLIT_VOCABULARY};
    uint32_t rows = list->draft_vocab ? list->draft_vocab : list->vocab;
    weight_id weight =
        head->head ? build_weight(b, &like, PARTS({head->head, rows}), ".weight") : head->embed;
    if (list->features)
        build_op(b, OP_CARRY, list->residual, LIST_NONE)->rows = ROWS_SAMPLED;
    build_op(b, OP_POOL, x, LIST_NONE);
    b->rows = ROWS_SCORED;
    logits_put(b, weight, head);
    build_op(b, OP_SCORE, list->logits, LIST_NONE);
    b->rows = ROWS_TOKENS;
    build_op(b, OP_COUNT, LIST_NONE, LIST_NONE);
    b->rows = ROWS_SAMPLED;
    logits_put(b, weight, head);
    struct list_value scratch = {
        .type = VALUE_SAMPLE_SCRATCH, .rows = VALUE_OF_PICKED, .of = LIST_NONE};
    value_id room = build_value(b, scratch);
    build_op(b, OP_SAMPLE, list->logits, LIST_NONE)->in[1] = room;
}

void build_null(struct build *b, uint32_t state_bytes)
{
    struct op_list *list = &b->list;
    list->groups[list->group_count++] =
        (struct list_group){.layers = 1, .position_bytes = state_bytes};
    build_op(b, OP_NULL, LIST_NONE, build_value_block(b, 1, VALUE_STATE));
}
