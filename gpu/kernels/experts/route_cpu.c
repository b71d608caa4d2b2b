#include "gpu/kernels/experts/route.h"

#include "gpu/kernels/cpu/body.h"
#include "gpu/kernels/experts/norm_route.h"

static float sigmoid(float x)
{
    return 1 / (1 + simd_exp(-x));
}

/* What is no number is less than all that are, and never the one that is taken twice. */
static bool route_better(float x, float than)
{
    return x > than || (than != than && x == x);
}

static uint32_t route_best(const float *logits, const bool *taken, uint32_t count)
{
    uint32_t best = count;
    for (uint32_t e = 0; e < count; e++) {
        if (!taken[e] && (best == count || route_better(logits[e], logits[best])))
            best = e;
    }
    return best;
}

static void route_softmax(const float *logits, float *scores, uint32_t count)
{
    float most = logits[0], sum = 0;
    for (uint32_t e = 1; e < count; e++)
        most = logits[e] > most ? logits[e] : most;
    for (uint32_t e = 0; e < count; e++) {
        scores[e] = logits[e] == logits[e] ? simd_exp(logits[e] - most) : logits[e];
        sum += scores[e];
    }
    for (uint32_t e = 0; e < count; e++)
        scores[e] /= sum;
}

/* By what experts are chosen: logits have the order of their scores. */
static const float *route_keys(const struct route_args *args, const float *logits,
                               const float *scores, float *keys)
{
    const float *bias = args->bias ? dev(args->bias) : NULL;
    for (uint32_t e = 0; bias && e < args->count; e++)
        keys[e] = scores[e] + bias[e];
    return bias ? keys : logits;
}

static void route_take(const struct route_args *args, const float *logits, struct route *routes)
{
    float scores[ROUTE_EXPERTS_MAX], biased[ROUTE_EXPERTS_MAX], sum = 0;
    bool taken[ROUTE_EXPERTS_MAX] = {false};
    if (args->scores == ROUTE_SCORES_SOFTMAX)
        route_softmax(logits, scores, args->count);
    else
        for (uint32_t e = 0; e < args->count; e++)
            scores[e] = sigmoid(logits[e]);
    const float *keys = route_keys(args, logits, scores, biased);
    for (uint32_t i = 0; i < args->top; i++) {
        uint32_t best = route_best(keys, taken, args->count);
        taken[best] = true;
        routes[i] = (struct route){best, scores[best]};
        sum += scores[best];
    }
    for (uint32_t i = 0; i < args->top; i++)
        routes[i].weight =
            (args->normalised ? routes[i].weight / sum : routes[i].weight) * args->scale;
    if (args->shared)
        routes[args->top] =
            (struct route){args->count, args->w.n > args->count ? sigmoid(logits[args->count]) : 1};
}

static void route_row(const void *params, uint32_t index)
{
    const struct route_args *args = params;
    float logits[ROUTE_EXPERTS_MAX + 1];
    if (index >= body_rows(&args->rows))
        return;
    struct simd_panel panel = {
        .w = dev(args->w.data),
        .x = body_at(args->x, args->x_dtype, index, args->x_stride),
        .y = logits,
        .w_stride = args->w.k,
        .x_stride = args->x_stride,
        .y_stride = args->w.n,
        .n = args->w.n,
        .rows = 1,
        .k = args->w.k,
        .w_dtype = format_info(args->w.format).dtype,
        .x_dtype = args->x_dtype,
    };
    simd_best()->panel(&panel);
    const float *added = args->added ? dev(args->added) : NULL;
    for (uint32_t e = 0; added && e < args->count; e++)
        logits[e] += added[e];
    struct route *routes = dev(args->routes);
    route_take(args, logits, routes + (size_t)index * (args->top + args->shared));
}

cudaError_t op_route(const struct route_args *args, cudaStream_t stream)
{
    if (!route_can(args))
        return cudaErrorNotSupported;
    return body_launch(stream, "route", route_row, args, sizeof *args, args->rows.max);
}

cudaError_t op_norm_route(const struct norm_args *norm, const struct route_args *route,
                          const struct segments_args *segments, cudaStream_t stream)
{
    cudaError_t result = norm ? op_norm(norm, stream) : cudaSuccess;
    if (result == cudaSuccess)
        result = op_route(route, stream);
    return result == cudaSuccess ? op_segments(segments, stream) : result;
}
