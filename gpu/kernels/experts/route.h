/* Which experts a row goes through, and with what weight.
 *
 * logit[e] = dot(x[r], w[e]) in float32, with `added` plus added[e]; score[e] = exp(logit[e] - the
 * greatest) / the sum of those, or 1 / (1 + exp(-logit[e])). Taken are the `top` experts of the
 * greatest logits, or with `bias` of the greatest score[e] + bias[e], the greatest first, of equal
 * ones the one of the lower number; what is no number is taken last, and an expert never twice.
 * Their weights are their scores, `normalised` over the sum of those taken, times `scale`. With
 * `shared` a row has one route more, the last: {count, 1 / (1 + exp(-logit[count]))}, for which w
 * has one row more, or where it has not {count, 1}.
 *
 * A row's routes depend on nothing but the row. Of a row with a logit that is no number, the
 * weights by exp are none, too, as is that of an expert with such a logit: the row ends at the
 * model's logits, and its experts' numbers stay in range. */
#pragma once

#include "gpu/kernels/common/kernel.h"

#define ROUTE_EXPERTS_MAX 512
#define ROUTE_TOP_MAX 32

enum route_scores { ROUTE_SCORES_SOFTMAX, ROUTE_SCORES_SIGMOID };

struct route {
    uint32_t expert;
    float weight;
};

/* Of all experts, those whose matrices are here: with experts shared out over ranks, what a row
 * does with the others is other ranks' part of its sum. */
struct expert_range {
    uint32_t first, count;
};

struct route_args {
    struct row_range rows;
    struct weight w;      /* [count, or one more][k], plain */
    const float *bias;    /* [count], by sigmoid; NULL: none */
    const float *added;   /* [count], to logits; NULL: none */
    const void *x;        /* [max][x_stride] */
    struct route *routes; /* [max][top + shared] */
    uint32_t x_stride;
    enum dtype x_dtype;
    uint32_t count, top; /* up to ROUTE_EXPERTS_MAX, ROUTE_TOP_MAX and count */
    enum route_scores scores;
    bool normalised, shared;
    float scale;
};

static inline bool route_can(const struct route_args *args)
{
    return args->count > 0 && args->count <= ROUTE_EXPERTS_MAX && args->top > 0 &&
           args->top <= ROUTE_TOP_MAX && args->top <= args->count && weight_is_plain(&args->w) &&
           args->w.format <= FORMAT_F16 &&
           (args->w.n == args->count || (args->shared && args->w.n == args->count + 1)) &&
           (!args->bias || args->scores == ROUTE_SCORES_SIGMOID);
}

OP_C cudaError_t op_route(const struct route_args *args, cudaStream_t stream);
