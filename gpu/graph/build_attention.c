/* The words of attention. */
#include "gpu/graph/build_inner.h"

void build_rope(struct build *b, value_id q, value_id k, uint16_t table, uint32_t head_dim)
{
    struct op *op = build_op(b, OP_ROPE, q, q);
    op->in[1] = k;
    op->in[2] = b->list.angles[table];
    op->rope.table = table;
    op->rope.head_dim = head_dim;
}

static uint16_t group_of(struct build *b, const struct list_group *like)
{
    struct op_list *list = &b->list;
    uint32_t group = 0;
    while (group < list->group_count && (list->groups[group].window != like->window ||
                                         list->groups[group].kv_heads != like->kv_heads ||
                                         list->groups[group].head_dim != like->head_dim))
        group++;
    if (group == GPU_GROUPS_MAX) {
        if (!b->status)
            b->status = error_set(&b->error, ERR_BAD_MODEL,
                                  "layers have more than %d kinds of attention", GPU_GROUPS_MAX);
        return 0;
    }
    if (group == list->group_count)
        list->groups[list->group_count++] = *like;
    return (uint16_t)group;
}

static weight_id sinks_put(struct build *b, const struct build_attention *attention)
{
    const struct list_weight like = {.kind = WEIGHT_EXACT, .split = SPLIT_ROWS, .columns = 1};
    if (!attention->sinks)
        return LIST_NONE;
    return build_weight(b, &like, PARTS({attention->sinks, attention->heads}), "");
}

value_id build_attention(struct build *b, value_id q, value_id k, value_id v,
                         const struct build_attention *attention)
{
    uint32_t ranks = b->list.ranks, head_dim = attention->head_dim;
    if (attention->heads % ranks)
        build_refuse(b, attention->heads, "attention heads");
    if (attention->kv_heads % ranks)
        build_refuse(b, attention->kv_heads, "key and value heads");
    uint32_t heads = attention->heads / ranks, kv_heads = attention->kv_heads / ranks;
    struct list_group like = {
        .window = attention->window, .kv_heads = kv_heads, .head_dim = head_dim};
    uint16_t group = group_of(b, &like), layer = (uint16_t)b->list.groups[group].layers++;
    value_id out = build_value_block(b, heads * head_dim, VALUE_COMPUTE);
    struct list_value scratch = {
        .type = VALUE_ATTENTION_SCRATCH, .of = LIST_NONE, .heads = heads, .head_dim = head_dim};
    value_id room = build_value(b, scratch);
    weight_id sinks = sinks_put(b, attention);
    struct op *write = build_op(b, OP_KV_WRITE, k, LIST_NONE);
    write->in[1] = v;
    for (int i = 0; i < 2; i++) {
        struct op *op = i ? build_op(b, OP_ATTENTION, q, out) : write;
        op->attention.group = group;
        op->attention.layer = layer;
        op->attention.heads = heads;
        op->attention.kv_heads = kv_heads;
        op->attention.head_dim = head_dim;
        op->attention.scale = attention->scale;
        op->attention.softcap = attention->softcap;
        op->attention.k_tensor = op->attention.v_tensor = LIST_NO_TENSOR;
        if (i) {
            op->in[1] = room;
            op->weight = sinks;
        }
    }
    return out;
}
