/* The words of mixtures of experts. */
#include "gpu/graph/build_inner.h"

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

value_id build_experts_up(struct build *b, value_id x, const struct build_routes *routes,
                          enum activation_kind kind, const struct build_part *parts)
{
    const struct list_weight like = {.columns = build_width(b, x),
                                     .split = b->whole_experts ? SPLIT_EXPERTS : SPLIT_ROWS,
                                     .experts = routes->of.count};
    weight_id weight = build_weight(b, &like, parts, ".weight");
    struct op *op = experts_put(b, x, build_rows(b, parts, like.split) / 2, weight, routes);
    op->experts.spread = op->experts.gated = true;
    op->experts.activation = kind;
    return op->out;
}

value_id build_experts_down(struct build *b, value_id pairs, const struct build_routes *routes,
                            const struct build_part *parts)
{
    const struct list_weight like = {.columns = build_width(b, pairs) / routes->of.top *
                                                (b->whole_experts ? 1 : b->list.ranks),
                                     .split = b->whole_experts ? SPLIT_EXPERTS : SPLIT_COLUMNS,
                                     .experts = routes->of.count};
    weight_id weight = build_weight(b, &like, parts, ".weight");
    return experts_put(b, pairs, build_rows(b, parts, like.split), weight, routes)->out;
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
