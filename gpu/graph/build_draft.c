/* The words of a head that guesses for another model. */
#include "gpu/graph/build_inner.h"

/* What begins with the residual is there all the time; the table of angles is there already. */
static void commons_put(struct build *b)
{
    struct op_list *list = &b->list;
    list->residual = build_value_common(b, list->hidden, VALUE_F32);
    list->normed = build_value_common(b, list->hidden, VALUE_COMPUTE);
}

static void tokens_put(struct build *b, const struct build_draft *draft)
{
    struct op_list *list = &b->list;
    list->draft_vocab = draft->vocab;
    list->draft_tokens = LIST_NO_TENSOR;
    if (draft->vocab < list->vocab)
        list->draft_tokens = build_tensor(
            b, draft->tokens, "",
            &(struct list_tensor){
                .elements = TENSOR_TOKENS, .rank = 1, .rows = draft->vocab, .columns = 1});
}

static void state_put(struct build *b, const struct build_draft *draft)
{
    uint32_t hidden = b->list.hidden, width = LIST_FEATURES * draft->hidden;
    b->list.features = width;
    b->rows = ROWS_FEATURED;
    value_id features = build_value_block(b, width, VALUE_COMPUTE);
    build_op(b, OP_FEATURES, LIST_NONE, features);
    value_id state = build_matmul(b, features, SPLIT_NOT, false, PARTS({draft->fc, hidden}));
    b->rows = ROWS_TOKENS;
    build_op(b, OP_STATE, state, b->list.residual)->state.own = true;
}

static value_id norm_into(struct build *b, value_id x, value_id wide, uint32_t part,
                          const char *weight, float eps)
{
    const struct list_weight plain = {.kind = WEIGHT_NORM};
    uint32_t hidden = b->list.hidden;
    value_id out = build_value(
        b, (struct list_value){
               .width = hidden, .type = VALUE_COMPUTE, .of = wide, .first = part * hidden});
    weight_id id = build_norm_weight(b, (struct build_part){.tensor = weight, .rows = hidden},
                                     NORM_RMS, &plain);
    struct op *op = build_op(b, OP_NORM, x, out);
    op->weight = id;
    op->norm.kind = NORM_RMS;
    op->norm.eps = eps;
    op->norm.size = hidden;
    return out;
}

value_id build_draft(struct build *b, const struct build_draft *draft)
{
    uint32_t hidden = b->list.hidden;
    const struct list_weight table = {.columns = hidden};
    b->layer = LAYER_FIRST;
    b->block = LIST_NONE;
    commons_put(b);
    tokens_put(b, draft);
    state_put(b, draft);
    value_id embedding = build_value_block(b, hidden, VALUE_F32);
    struct op *embed = build_op(b, OP_EMBED, LIST_NONE, embedding);
    embed->scale.by = 1;
    if (draft->table)
        embed->weight = build_weight(b, &table, PARTS({draft->table, b->list.vocab}), ".weight");
    b->layer = 0;
    value_id wide = build_value_block(b, 2 * hidden, VALUE_COMPUTE);
    (void)norm_into(b, embedding, wide, 0, draft->token_norm, draft->eps);
    value_id normed = norm_into(b, b->list.residual, wide, 1, draft->state_norm, draft->eps);
    if (draft->normed)
        build_op(b, OP_STATE, normed, b->list.residual)->state.own = false;
    return wide;
}
