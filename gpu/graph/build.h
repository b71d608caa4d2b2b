/* The words that a family's file makes its list of ops with (op_list.h).
 *
 * Sizes are the whole model's: what a rank has of them is worked out here, and where ranks put
 * their parts together an op for that is added. A name is a tensor's without ".weight", and of a
 * layer's without the prefix; a weight that was named before is the same one. What cannot be had
 * (no memory, sizes that do not divide) is kept until build_end, which says so: nobody asks before.
 * One thread.
 */
#pragma once

#include "gpu/graph/op_list.h"
#include "protocol/base/error.h"

struct build_part {
    const char *tensor;
    uint32_t rows;
    struct head_order order; /* of q and k, where it is not that of the kernels */
    bool upright; /* of one tensor that has all experts': each stands [rows][columns], as a linear
                   * layer's, and parts of one name one below the other */
};

/* Parts leave out the order that most have not: who includes this is not warned of it. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
#define PARTS(...)                                                                                 \
    (const struct build_part[LIST_PARTS_MAX])                                                      \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

struct build_attention {
    uint32_t window; /* a token sees itself and the window - 1 tokens before it; 0: all */
    uint32_t heads, kv_heads, head_dim;
    float scale;
    float softcap;     /* of scores: s = softcap * tanh(s / softcap); 0: none */
    const char *sinks; /* a vector, of each head a score of no value, its whole name; NULL: none */
};

struct build {
    struct op_list list;
    const char *prefix; /* of a layer's tensors, with %u for its number */
    uint32_t (*number)(const char *tensor, int32_t layer); /* of synthetic values; NULL: all 0 */
    float deviation;                                       /* of matrices' synthetic values */
    bool whole_experts; /* ranks share out experts, rather than columns of each */
    uint32_t op_room, value_room, weight_room, tensor_room;
    int16_t layer;     /* that ops are added to, or an op_layer */
    value_id block;    /* the last value of the block; LIST_NONE: it has none yet */
    uint8_t rows;      /* that ops go over */
    int status;        /* of the first that failed */
    struct op nowhere; /* written and never read, once it has */
    struct error error;
};

/* `vocab` and `hidden` of the model; `ranks` that share a layer. */
void build_begin(struct build *b, uint32_t ranks, uint32_t layers, uint32_t hidden, uint32_t vocab);
/* The list, or the first error. Nothing is left to be freed but the list. */
int build_end(struct build *b, struct op_list *ret, struct error *error);

/* From here on ops are of this layer. */
void build_layer(struct build *b, uint32_t layer);

/* Before the layers: rows of the table, times `scale`, become the residual. Its weight. */
weight_id build_embed(struct build *b, const char *table, float scale);
void build_rope_table(struct build *b, const struct model_rope *rope);

/* Of the residual, or, in place, of the sum that COLUMNS gave: a norm behind attention or an MLP,
 * before what it norms is added. NORM_LAYER has a bias of the weight's name. */
value_id build_norm(struct build *b, value_id x, const char *weight, enum norm_kind kind,
                    float eps);
/* The residual without a norm, as products read it. */
value_id build_round(struct build *b);
/* Of each head of a value, in place; its weight takes the order of the value's rows. Not
 * NORM_LAYER. */
void build_head_norm(struct build *b, value_id x, const char *weight, uint32_t head_dim,
                     enum norm_kind kind, float eps);
/* Of x and of y, in place, each over its whole width, all ranks' parts of it together: they are
 * parts of one value that ROWS gave; their weights take the order of its rows. Not NORM_LAYER. */
void build_wide_norm(struct build *b, value_id x, value_id y, const char *wx, const char *wy,
                     enum norm_kind kind, float eps);
/* COLUMNS: each rank has a part of each sum; what is given is the sum, to be added. */
value_id build_matmul(struct build *b, value_id x, enum split split, bool bias,
                      const struct build_part *parts);
/* A part of what build_matmul gave. */
value_id build_part(struct build *b, value_id x, uint32_t part);
void build_rope(struct build *b, value_id q, value_id k, uint16_t table, uint32_t head_dim);
value_id build_attention(struct build *b, value_id q, value_id k, value_id v,
                         const struct build_attention *attention);
/* Gated: two halves, the activated one first, become one. Else each element. */
value_id build_activation(struct build *b, value_id x, enum activation_kind kind, bool gated);

/* A mixture of experts: each row goes through `top` of `count`. Pairs of a row and an expert of its
 * are what is between; a row's lie side by side. */
struct build_routing {
    const char *router;      /* its matrix, whole on all ranks */
    const char *bias;        /* ending of its vector that is added for the choice; NULL: none */
    bool added;              /* to the logits rather */
    const char *shared_gate; /* a row, by which what all go through is weighted; NULL: by 1 */
    bool shared;             /* there is such */
    uint32_t count, top;
    float scale; /* of the weights */
    enum route_score score;
    bool normalised;
};
struct build_routes {
    struct build_routing of;
    value_id routes, segments;
};
struct build_routes build_route(struct build *b, value_id x, const struct build_routing *routing);
/* How experts make one of gate and up, and what is added to products. */
struct build_gate {
    enum activation_kind kind;
    float alpha, limit; /* it is clamped (kernels/experts/experts.h); limit 0: it is not */
    bool bias;          /* of a tensor that has all experts', the matrices' name and "_bias" */
};
/* Of all pairs, each by its own expert: gate and up of the rows in x, activated. Names have %u for
 * the expert's number; or one tensor of that name has all experts' matrices: upright ones (above),
 * or transposed ones without ".weight", of which rows of gate and of up take turns. */
value_id build_experts_up(struct build *b, value_id x, const struct build_routes *routes,
                          const struct build_gate *gate, const struct build_part *parts);
/* And down of what that gave; each rank has a part of each sum. */
value_id build_experts_down(struct build *b, value_id pairs, const struct build_routes *routes,
                            bool bias, const struct build_part *parts);
/* What all rows go through beside: down of x, each rank a part of each sum. */
value_id build_shared_down(struct build *b, value_id x, const struct build_part *parts);
/* A row's pairs, each by its weight, and `shared` (LIST_NONE: none): a sum, to be added. */
value_id build_combine(struct build *b, value_id pairs, value_id shared,
                       const struct build_routes *routes);

/* x, times `scale`, is added to the residual. */
void build_add(struct build *b, value_id x, float scale);

/* A head that guesses for another model, in place of build_embed: of each row's token and of what
 * that model made of the position before, the residuals of LIST_FEATURES of its layers.
 *     state = fc * features, or what the head itself made of the position before
 *     given = { norm(embedding, token_norm), norm(state, state_norm) }
 * The residual begins with the state. One rank. Gives what the first product reads. */
struct build_draft {
    const char *table; /* of embeddings; NULL: that model's */
    const char *fc;
    const char *token_norm, *state_norm; /* of layer 0 */
    float eps;
    bool normed;        /* the residual begins with the normed state */
    uint32_t hidden;    /* of that model */
    uint32_t vocab;     /* tokens that the head knows */
    const char *tokens; /* a tensor, whole: which, where they are not all */
};
value_id build_draft(struct build *b, const struct build_draft *draft);

/* Behind the layers: the last norm, embeddings, scores and samples. */
struct build_head {
    const char *norm;
    enum norm_kind kind; /* NORM_RMS by default */
    float eps;
    const char *head; /* NULL: the logits are by the table `embed` */
    weight_id embed;
    float scale;   /* of the logits */
    float softcap; /* of the logits, behind `scale`: x = softcap * tanh(x / softcap); 0: none */
};
void build_head(struct build *b, const struct build_head *head);

/* All of the model that computes nothing. */
void build_null(struct build *b, uint32_t state_bytes);
