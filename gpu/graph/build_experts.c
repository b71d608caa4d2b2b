/* The words of mixtures of experts. */
#include "gpu/graph/build_inner.h"

#include <string.h>

static struct op *experts_op(struct build *b, enum op_kind kind, value_id in, value_id out,
                             const struct build_routes *routes)
{
    struct op *op = build_op(b, kind, in, out);
    op->experts.count = routes->of.count;
    op->experts.top = routes->of.top;
    op->experts.own = routes->of.count / (b->whole_experts ? b->list.ranks : 1);
    op->experts.score = routes->of.score;
    op->experts.normalised = routes->of.normalised;
    op->experts.shared = routes->of.shared;
    op->experts.scale = routes->of.scale;
    return op;
}

/* A route is an expert's number and a weight: two words (kernels/experts/route.h). */
struct build_routes build_route(struct build *b, value_id x, const struct build_routing *routing)
{
    const struct list_weight like = {.columns = build_width(b, x)};
    struct build_routes routes = {.of = *routing};
    build_sums(b);
    if (b->whole_experts && routing->count % b->list.ranks)
        build_refuse(b, routing->count, "experts");
    weight_id router = build_weight(
        b, &like, PARTS({routing->router, routing->count}, {routing->shared_gate, 1}), ".weight");
    const struct list_weight vector = {.kind = WEIGHT_EXACT, .columns = 1};
    weight_id bias = LIST_NONE;
    if (routing->bias)
        bias = build_weight(b, &vector, PARTS({routing->router, routing->count}), routing->bias);
    routes.routes = build_value_block(b, 2 * (routing->top + routing->shared), VALUE_F32);
    struct op *op = experts_op(b, OP_ROUTE, x, routes.routes, &routes);
    op->weight = router;
    op->bias = bias;
    op->experts.added = routing->added;
    routes.segments = build_value(b, (struct list_value){.width = routing->top,
                                                         .type = VALUE_F32,
                                                         .once = routing->count + 1,
                                                         .of = LIST_NONE});
    experts_op(b, OP_SEGMENTS, routes.routes, routes.segments, &routes);
    return routes;
}

static struct op *experts_put(struct build *b, value_id x, uint32_t width, weight_id weight,
                              const struct build_routes *routes)
{
    value_id out = build_value_block(b, width * routes->of.top, VALUE_COMPUTE);
    struct op *op = experts_op(b, OP_EXPERTS, x, out, routes);
    op->in[1] = routes->routes;
    op->in[2] = routes->segments;
    op->weight = weight;
    return op;
}

static weight_id experts_bias(struct build *b, bool biased, enum split split, uint32_t experts,
                              const struct build_part *parts)
{
    const struct list_weight like = {
        .kind = WEIGHT_BIAS, .columns = 1, .split = split, .experts = experts};
    return biased ? build_weight(b, &like, parts, "_bias") : LIST_NONE;
}

/* What a rank has of rows that take turns has turns of its own. */
static void turns_set(const struct build *b, enum split split, struct build_part *part)
{
    uint32_t rows = part->rows / (split == SPLIT_ROWS ? b->list.ranks : 1);
    if (!strstr(part->tensor, "%u") && !part->upright)
        part->order = (struct head_order){.head_dim = rows, .rotary = rows, .adjacent = true};
}

value_id build_experts_up(struct build *b, value_id x, const struct build_routes *routes,
                          const struct build_gate *gate, const struct build_part *parts)
{
    const struct list_weight like = {.columns = build_width(b, x),
                                     .split = b->whole_experts ? SPLIT_EXPERTS : SPLIT_ROWS,
                                     .experts = routes->of.count};
    struct build_part own[LIST_PARTS_MAX];
    memcpy(own, parts, sizeof own);
    turns_set(b, like.split, &own[0]);
    weight_id weight = build_weight(b, &like, own, ".weight");
    weight_id bias = experts_bias(b, gate->bias, like.split, like.experts, own);
    struct op *op = experts_put(b, x, build_rows(b, parts, like.split) / 2, weight, routes);
    op->bias = bias;
    op->experts.spread = op->experts.gated = true;
    op->experts.activation = gate->kind;
    op->experts.alpha = gate->alpha;
    op->experts.limit = gate->limit;
    return op->out;
}

/* Ranks that have a part of each sum have all of what is added once. */
value_id build_experts_down(struct build *b, value_id pairs, const struct build_routes *routes,
                            bool bias, const struct build_part *parts)
{
    const struct list_weight like = {.columns = build_width(b, pairs) / routes->of.top *
                                                (b->whole_experts ? 1 : b->list.ranks),
                                     .split = b->whole_experts ? SPLIT_EXPERTS : SPLIT_COLUMNS,
                                     .experts = routes->of.count};
    weight_id weight = build_weight(b, &like, parts, ".weight");
    weight_id own =
        experts_bias(b, bias, b->whole_experts ? SPLIT_EXPERTS : SPLIT_NOT, like.experts, parts);
    struct op *op = experts_put(b, pairs, build_rows(b, parts, like.split), weight, routes);
    op->bias = own;
    return op->out;
}

value_id build_shared_down(struct build *b, value_id x, const struct build_part *parts)
{
    const struct list_weight like = {.columns = build_width(b, x) * b->list.ranks,
                                     .split = SPLIT_COLUMNS};
    weight_id weight = build_weight(b, &like, parts, ".weight");
    value_id out = build_value_block(b, build_rows(b, parts, SPLIT_COLUMNS), VALUE_COMPUTE);
    struct op *op = build_op(b, OP_MATMUL, x, out);
    op->weight = weight;
    op->matmul.split = SPLIT_COLUMNS;
    return out;
}

value_id build_combine(struct build *b, value_id pairs, value_id shared,
                       const struct build_routes *routes)
{
    struct op *op = experts_op(b, OP_COMBINE, pairs, b->list.sum, routes);
    op->in[1] = routes->routes;
    op->in[2] = shared;
    build_reduce(b, b->list.sum);
    return b->list.sum;
}
