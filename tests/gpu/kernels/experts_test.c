/* Mixtures of experts: routes, segments, products of pairs, what a row's experts become. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/kernels/cpu/number.h"
#include "gpu/kernels/experts/experts_sum.h"
#include "gpu/kernels/experts/norm_route.h"
#include "tests/gpu/kernels/rig.h"
#include "tests/gpu/kernels/suites.h"

/* Few pairs and many, experts more than lanes and one alone, widths of no multiple of anything, all
 * experts here and some of them. */
static const struct mix_case {
    enum dtype dtype;
    uint32_t max, count, experts, top, hidden, inner;
    enum route_scores scores;
    bool normalised, shared;
    enum activation activation;
    uint32_t first, own; /* experts that are here; 0: all */
    bool alike;          /* all rows go through the same experts */
    enum biases {
        NONE,
        CHOICE,   /* what all go through has no gate; weights are scaled */
        PRODUCTS, /* and logits; the activation is clamped */
    } biases;
} cases[] = {
    {DTYPE_BF16, 3, 2, 8, 2, 40, 24, ROUTE_SCORES_SOFTMAX, true, false, ACTIVATE_SILU, 0, 0, false,
     NONE},
    {DTYPE_F16, 70, 66, 6, 4, 33, 17, ROUTE_SCORES_SOFTMAX, false, true, ACTIVATE_SILU, 0, 0, false,
     NONE},
    {DTYPE_F32, 19, 19, 130, 8, 48, 9, ROUTE_SCORES_SIGMOID, true, true, ACTIVATE_GELU_TANH, 0, 0,
     false, NONE},
    {DTYPE_BF16, 1, 1, 1, 1, 8, 8, ROUTE_SCORES_SIGMOID, false, false, ACTIVATE_GELU_TANH, 0, 0,
     false, NONE},
    {DTYPE_BF16, 33, 0, 4, 3, 16, 8, ROUTE_SCORES_SOFTMAX, true, false, ACTIVATE_SILU, 0, 0, false,
     NONE},
    {DTYPE_F16, 40, 37, 512, 32, 24, 8, ROUTE_SCORES_SOFTMAX, true, false, ACTIVATE_SILU, 0, 0,
     false, NONE},
    {DTYPE_BF16, 9, 7, 8, 3, 40, 24, ROUTE_SCORES_SOFTMAX, true, true, ACTIVATE_SILU, 4, 4, false,
     NONE},
    {DTYPE_F16, 60, 57, 12, 4, 33, 17, ROUTE_SCORES_SOFTMAX, false, false, ACTIVATE_SILU, 3, 6,
     false, NONE},
    {DTYPE_F32, 66, 65, 64, 1, 16, 8, ROUTE_SCORES_SIGMOID, true, false, ACTIVATE_SILU, 0, 1, false,
     NONE},
    /* What the tensor cores take on CUDA: tiles of 16, 64 and 128 pairs, some of them not full. */
    {DTYPE_BF16, 40, 37, 16, 4, 72, 40, ROUTE_SCORES_SOFTMAX, true, false, ACTIVATE_SILU, 0, 0,
     false, NONE},
    {DTYPE_F16, 40, 37, 16, 4, 152, 72, ROUTE_SCORES_SOFTMAX, true, false, ACTIVATE_SILU, 0, 0,
     true, NONE},
    {DTYPE_F16, 100, 97, 6, 3, 136, 88, ROUTE_SCORES_SOFTMAX, true, true, ACTIVATE_GELU_TANH, 0, 0,
     false, NONE},
    {DTYPE_BF16, 100, 97, 48, 3, 64, 8, ROUTE_SCORES_SOFTMAX, true, true, ACTIVATE_SILU, 40, 8,
     true, NONE},
    {DTYPE_BF16, 300, 299, 2, 1, 200, 72, ROUTE_SCORES_SOFTMAX, true, false, ACTIVATE_SILU, 0, 0,
     false, NONE},
    {DTYPE_F16, 300, 290, 4, 2, 72, 136, ROUTE_SCORES_SIGMOID, true, false, ACTIVATE_SILU, 1, 2,
     true, NONE},
    /* What wgmma takes: stages more than the ring has, tiles of several columns, tiles more than
     * SMs. */
    {DTYPE_BF16, 500, 490, 3, 2, 328, 264, ROUTE_SCORES_SOFTMAX, true, false, ACTIVATE_SILU, 0, 0,
     false, NONE},
    {DTYPE_F16, 500, 490, 6, 2, 264, 328, ROUTE_SCORES_SOFTMAX, true, false, ACTIVATE_SILU, 2, 3,
     false, PRODUCTS},
    {DTYPE_BF16, 6000, 5990, 3, 2, 40, 264, ROUTE_SCORES_SOFTMAX, true, false, ACTIVATE_SILU, 0, 0,
     false, NONE},
    {DTYPE_BF16, 21, 19, 12, 4, 40, 24, ROUTE_SCORES_SIGMOID, true, true, ACTIVATE_SILU, 0, 0,
     false, CHOICE},
    {DTYPE_F16, 300, 290, 160, 8, 72, 8, ROUTE_SCORES_SIGMOID, false, true, ACTIVATE_SILU, 0, 0,
     false, CHOICE},
    {DTYPE_F32, 5, 5, 40, 3, 33, 8, ROUTE_SCORES_SIGMOID, true, false, ACTIVATE_SILU, 0, 0, false,
     CHOICE},
    /* Biases and a clamped activation: few pairs, tiles of each size, and neither. */
    {DTYPE_BF16, 5, 4, 8, 4, 40, 24, ROUTE_SCORES_SOFTMAX, true, false, ACTIVATE_SILU, 0, 0, false,
     PRODUCTS},
    {DTYPE_F32, 19, 19, 32, 4, 33, 9, ROUTE_SCORES_SOFTMAX, true, false, ACTIVATE_SILU, 8, 16,
     false, PRODUCTS},
    {DTYPE_F16, 40, 37, 16, 4, 72, 40, ROUTE_SCORES_SOFTMAX, true, false, ACTIVATE_SILU, 0, 0,
     false, PRODUCTS},
    {DTYPE_BF16, 100, 97, 6, 3, 136, 88, ROUTE_SCORES_SOFTMAX, true, false, ACTIVATE_SILU, 2, 3,
     false, PRODUCTS},
    {DTYPE_F16, 300, 290, 2, 1, 72, 136, ROUTE_SCORES_SOFTMAX, true, false, ACTIVATE_SILU, 0, 0,
     true, PRODUCTS},
};
#define ALPHA 1.702f
#define LIMIT 1.5f
#define CASES (int)(sizeof cases / sizeof cases[0])

/* Few rows, of which a step is as long as its kernels are many: normed and routed at once, and
 * multiplied and summed at once; experts fewer and more than a cluster's blocks, rows of one turn
 * and of more, and what is too much for one kernel. */
static const struct mix_case few[] = {
    {DTYPE_BF16, 1, 1, 128, 8, 264, 72, ROUTE_SCORES_SOFTMAX, true, false, ACTIVATE_SILU, 0, 0,
     false, NONE},
    {DTYPE_BF16, 2, 2, 60, 4, 2880, 328, ROUTE_SCORES_SOFTMAX, true, true, ACTIVATE_SILU, 0, 0,
     false, NONE},
    {DTYPE_BF16, 1, 1, 512, 10, 48, 40, ROUTE_SCORES_SOFTMAX, false, true, ACTIVATE_SILU, 0, 0,
     false, NONE},
    {DTYPE_F16, 2, 1, 8, 2, 72, 1352, ROUTE_SCORES_SOFTMAX, true, false, ACTIVATE_SILU, 2, 4, false,
     NONE},
    {DTYPE_BF16, 1, 1, 32, 4, 96, 24, ROUTE_SCORES_SOFTMAX, true, false, ACTIVATE_SILU, 8, 8, false,
     PRODUCTS},
    {DTYPE_BF16, 2, 2, 160, 6, 64, 16, ROUTE_SCORES_SIGMOID, true, true, ACTIVATE_SILU, 0, 0, false,
     CHOICE},
    {DTYPE_BF16, 3, 3, 16, 3, 40, 24, ROUTE_SCORES_SOFTMAX, true, true, ACTIVATE_SILU, 0, 0, false,
     NONE},
    {DTYPE_BF16, 1, 0, 8, 2, 40, 24, ROUTE_SCORES_SOFTMAX, true, false, ACTIVATE_SILU, 0, 0, false,
     NONE},
    {DTYPE_F32, 1, 1, 8, 2, 33, 9, ROUTE_SCORES_SOFTMAX, true, false, ACTIVATE_SILU, 0, 0, false,
     NONE},
    {DTYPE_BF16, 2, 2, 512, 32, 8200, 8, ROUTE_SCORES_SOFTMAX, true, false, ACTIVATE_SILU, 0, 0,
     false, NONE},
};
#define FEW (int)(sizeof few / sizeof few[0])
#define EPS 1e-5f

/* A matrix without gaps, and so many of them: row 0 is all there is. */
static struct tensor flat(enum dtype dtype, uint64_t count, float deviation)
{
    return tensor_random(dtype, 1, (uint32_t)count, deviation);
}

static double dot(const float *a, const float *b, uint32_t k)
{
    double sum = 0;
    for (uint32_t i = 0; i < k; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

/* How far float32 may be off that: the sum on its way is as large as this, not as what is left. */
static double dot_slack(const float *a, const float *b, uint32_t k)
{
    double size = 0;
    for (uint32_t i = 0; i < k; i++)
        size += fabs((double)a[i] * (double)b[i]);
    return fmax(1e-5, 1e-7 * size);
}

static const float *row_of(const struct tensor *tensor, uint32_t row)
{
    return tensor->host + (size_t)row * tensor->stride;
}

struct mix {
    const struct mix_case *c;
    struct tensor x, router, up, down, shared, pairs, given, out;
    void *routes, *segments;
    struct route *route; /* as the device has them */
    float bias[ROUTE_EXPERTS_MAX];
    struct tensor biases; /* of products, [experts here][outputs] */
    const void *down_bias;
    uint32_t stride;
};

static struct expert_range own_of(const struct mix *m)
{
    return (struct expert_range){m->c->first, m->c->own ? m->c->own : m->c->experts};
}

/* The expert of a pair, counted from the first that is here. */
static uint32_t expert_of(const struct mix *m, uint32_t p)
{
    return m->route[p / m->c->top * m->stride + p % m->c->top].expert - m->c->first;
}

static bool is_here(const struct mix *m, uint32_t p)
{
    return expert_of(m, p) < own_of(m).count;
}

static struct row_range rows_of(const struct mix *m)
{
    return rig_span(m->c->count, 0, m->c->max);
}

static struct weight weight_of(const struct tensor *t, uint32_t n, uint32_t k)
{
    return (struct weight){.data = t->device, .format = format_plain(t->dtype), .n = n, .k = k};
}

/* ---- routes ---- */

/* The router's last row weights what all rows go through. */
static bool gated_beside(const struct mix_case *c)
{
    return c->shared && c->biases != CHOICE;
}

static float scale_of(const struct mix_case *c)
{
    return c->biases == CHOICE ? 1.5f : 1;
}

static void route_row_check(const struct mix *m, uint32_t row)
{
    const struct mix_case *c = m->c;
    const struct route *got = m->route + (size_t)row * m->stride;
    double logits[ROUTE_EXPERTS_MAX + 1], keys[ROUTE_EXPERTS_MAX], all = 0, taken = 0;
    bool has[ROUTE_EXPERTS_MAX] = {false};
    for (uint32_t e = 0; e < c->experts + gated_beside(c); e++)
        logits[e] = dot(row_of(&m->x, row), m->router.host + (size_t)e * c->hidden, c->hidden) +
                    (c->biases == PRODUCTS ? (double)m->bias[e] : 0);
    for (uint32_t e = 0; e < c->experts; e++) {
        all += exp(logits[e]);
        keys[e] = c->biases == CHOICE ? 1 / (1 + exp(-logits[e])) + (double)m->bias[e] : logits[e];
    }
    bool softmax = c->scores == ROUTE_SCORES_SOFTMAX;
    for (uint32_t i = 0; i < c->top; i++) {
        ck_assert_uint_lt(got[i].expert, c->experts);
        ck_assert(!has[got[i].expert]);
        has[got[i].expert] = true;
        ck_assert(!i || keys[got[i].expert] <= keys[got[i - 1].expert] + 1e-4);
        taken += softmax ? exp(logits[got[i].expert]) / all : 1 / (1 + exp(-logits[got[i].expert]));
    }
    for (uint32_t e = 0; e < c->experts; e++)
        ck_assert(has[e] || keys[e] <= keys[got[c->top - 1].expert] + 1e-4);
    for (uint32_t i = 0; i < c->top; i++) {
        double logit = logits[got[i].expert];
        double want = softmax ? exp(logit) / all : 1 / (1 + exp(-logit));
        want *= (double)scale_of(c) / (c->normalised ? taken : 1);
        check_close((double)got[i].weight, want, DTYPE_F32, 2e-5);
    }
    if (c->shared) {
        ck_assert_uint_eq(got[c->top].expert, c->experts);
        check_close((double)got[c->top].weight,
                    c->biases == CHOICE ? 1 : 1 / (1 + exp(-logits[c->experts])), DTYPE_F32, 2e-5);
    }
}

static struct route_args route_of(struct mix *m)
{
    const struct mix_case *c = m->c;
    m->router = flat(c->dtype, (uint64_t)(c->experts + gated_beside(c)) * c->hidden, 0.3f);
    m->stride = c->top + c->shared;
    for (uint32_t e = 0; e < c->experts; e++)
        m->bias[e] = c->biases == PRODUCTS ? rig_normal() : 4 + 0.3f * rig_normal();
    size_t bytes = sizeof(struct route) * c->max * m->stride;
    m->routes = rig_new(NULL, bytes);
    m->route = malloc(bytes);
    void *bias = rig_new(m->bias, c->experts * sizeof *m->bias);
    return (struct route_args){.rows = rows_of(m),
                               .w = weight_of(&m->router, c->experts + gated_beside(c), c->hidden),
                               .bias = c->biases == CHOICE ? bias : NULL,
                               .added = c->biases == PRODUCTS ? bias : NULL,
                               .x = m->x.device,
                               .routes = m->routes,
                               .x_stride = m->x.stride,
                               .x_dtype = c->dtype,
                               .count = c->experts,
                               .top = c->top,
                               .scores = c->scores,
                               .normalised = c->normalised,
                               .shared = c->shared,
                               .scale = scale_of(c)};
}

static void routes_read(struct mix *m)
{
    const struct mix_case *c = m->c;
    size_t bytes = sizeof(struct route) * c->max * m->stride;
    rig_read(m->route, m->routes, bytes);
    for (uint32_t row = 0; row < c->count; row++)
        route_row_check(m, row);
    const unsigned char *rest = (const unsigned char *)(m->route + (size_t)c->count * m->stride);
    for (size_t i = 0; i < bytes - sizeof(struct route) * c->count * m->stride; i++)
        ck_assert_uint_eq(rest[i], 0xa5);
}

static void route_check(struct mix *m)
{
    m->x = tensor_random(m->c->dtype, m->c->max, m->c->hidden, 1);
    struct route_args args = route_of(m);
    OK(op_route(&args, rig_stream));
    routes_read(m);
}

/* Those of the first row are all rows'. */
static void routes_set_alike(struct mix *m)
{
    size_t row = m->stride * sizeof *m->route;
    for (uint32_t i = 1; i < m->c->count; i++)
        memcpy(m->route + (size_t)i * m->stride, m->route, row);
    m->routes = rig_new(m->route, m->c->max * row);
}

/* ---- segments ---- */

static uint32_t segments_words(const struct mix *m)
{
    return own_of(m).count + 1 + m->c->max * m->c->top;
}

static struct segments_args segments_of(struct mix *m)
{
    m->segments = rig_new(NULL, segments_words(m) * sizeof(uint32_t));
    return (struct segments_args){.rows = rows_of(m),
                                  .routes = m->routes,
                                  .stride = m->stride,
                                  .top = m->c->top,
                                  .own = own_of(m),
                                  .segments = m->segments};
}

static void segments_read(const struct mix *m)
{
    const struct mix_case *c = m->c;
    uint32_t own = own_of(m).count, words = segments_words(m), at = 0;
    uint32_t *got = malloc(words * sizeof *got);
    rig_read(got, m->segments, words * sizeof *got);
    for (uint32_t e = 0; e < own; e++) {
        ck_assert_uint_eq(got[e], at);
        for (uint32_t p = 0; p < c->count * c->top; p++)
            if (expert_of(m, p) == e)
                ck_assert_uint_eq(got[own + 1 + at++], p);
    }
    ck_assert_uint_eq(got[own], at);
    for (at += own + 1; at < words; at++)
        ck_assert_uint_eq(got[at], 0xa5a5a5a5);
    free(got);
}

static void segments_check(struct mix *m)
{
    struct segments_args args = segments_of(m);
    OK(op_segments(&args, rig_stream));
    segments_read(m);
}

/* A value that is normed, routed and cut at once; what others read of it is there. */
static void norm_route_check(struct mix *m)
{
    const struct mix_case *c = m->c;
    struct tensor value = tensor_random(DTYPE_F32, c->max, c->hidden, 3);
    struct tensor weight = flat(c->dtype, c->hidden, 1);
    m->x = tensor_poison(c->dtype, c->max, c->hidden);
    struct route_args route = route_of(m);
    struct segments_args segments = segments_of(m);
    struct norm_args norm = {.rows = rows_of(m),
                             .residual = value.device,
                             .weight = weight.device,
                             .out = m->x.device,
                             .size = c->hidden,
                             .residual_stride = value.stride,
                             .out_stride = m->x.stride,
                             .residual_dtype = DTYPE_F32,
                             .weight_dtype = c->dtype,
                             .out_dtype = c->dtype,
                             .eps = EPS,
                             .offset = 1};
    OK(op_norm_route(&norm, &route, &segments, rig_stream));
    ck_assert(tensor_untouched(&m->x, c->count));
    tensor_read(&m->x);
    for (uint32_t row = 0; row < c->count; row++) {
        const float *of = row_of(&value, row);
        double scale = 1 / sqrt(dot(of, of, c->hidden) / c->hidden + (double)EPS);
        for (uint32_t i = 0; i < c->hidden; i++)
            check_close((double)tensor_at(&m->x, row, i),
                        (double)of[i] * scale * (1 + (double)weight.host[i]), c->dtype, 1e-5);
    }
    routes_read(m);
    segments_read(m);
}

/* ---- products ---- */

static double active(enum activation kind, double x)
{
    double u = sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
    return x / (1 + exp(kind == ACTIVATE_SILU ? -x : -2 * u));
}

/* Gate and up to one. */
static double gated(const struct mix_case *c, double gate, double up)
{
    if (c->biases != PRODUCTS)
        return active(c->activation, gate) * up;
    double limit = (double)LIMIT;
    gate = fmin(gate, limit);
    return gate / (1 + exp(-(double)ALPHA * gate)) * (fmin(fmax(up, -limit), limit) + 1);
}

/* What is added to output n of a pair. */
static double bias_of(const struct mix *m, uint32_t pair, uint32_t n, uint32_t outputs)
{
    return m->c->biases == PRODUCTS ? (double)m->biases.host[expert_of(m, pair) * outputs + n] : 0;
}

static struct experts_args experts_of(struct mix *m, const struct tensor *w, uint32_t n, uint32_t k)
{
    m->biases = flat(m->c->dtype, (uint64_t)own_of(m).count * n, 1);
    return (struct experts_args){.rows = rows_of(m),
                                 .w = weight_of(w, n, k),
                                 .segments = m->segments,
                                 .routes = m->routes,
                                 .route_stride = m->stride,
                                 .top = m->c->top,
                                 .own = own_of(m),
                                 .dtype = m->c->dtype,
                                 .activation = m->c->activation,
                                 .bias = m->c->biases == PRODUCTS ? m->biases.device : NULL};
}

/* Of an element that nobody has written. */
static float poison_of(enum dtype dtype)
{
    unsigned char bytes[4];
    float value;
    memset(bytes, 0xa5, sizeof bytes);
    number_widen(&value, bytes, dtype, 1);
    return value;
}

static void up_check(struct mix *m)
{
    const struct mix_case *c = m->c;
    uint64_t one = (uint64_t)2 * c->inner * c->hidden;
    m->up = flat(c->dtype, own_of(m).count * one, 0.2f);
    m->pairs = tensor_poison(c->dtype, c->max * c->top, c->inner);
    struct experts_args args = experts_of(m, &m->up, 2 * c->inner, c->hidden);
    args.x = m->x.device;
    args.x_stride = m->x.stride;
    args.y = m->pairs.device;
    args.y_stride = m->pairs.stride;
    args.spread = args.gated = true;
    args.alpha = ALPHA;
    args.limit = c->biases == PRODUCTS ? LIMIT : 0;
    OK(op_experts(&args, rig_stream));
    ck_assert(tensor_untouched(&m->pairs, c->count * c->top));
    tensor_read(&m->pairs);
    for (uint32_t p = 0; p < c->count * c->top; p++) {
        if (!is_here(m, p)) {
            ck_assert_float_eq(tensor_at(&m->pairs, p, 0), poison_of(c->dtype));
            continue;
        }
        const float *w = m->up.host + expert_of(m, p) * one;
        const float *x = row_of(&m->x, p / c->top);
        for (uint32_t i = 0; i < c->inner; i++) {
            double gate =
                dot(x, w + (size_t)i * c->hidden, c->hidden) + bias_of(m, p, i, 2 * c->inner);
            double up = dot(x, w + (size_t)(c->inner + i) * c->hidden, c->hidden) +
                        bias_of(m, p, c->inner + i, 2 * c->inner);
            check_close((double)tensor_at(&m->pairs, p, i), gated(c, gate, up), c->dtype,
                        1e-5 * (1 + c->hidden / 500.0) * (1 + fabs(gate)) * (1 + fabs(up)));
        }
    }
}

static void down_check(struct mix *m)
{
    const struct mix_case *c = m->c;
    uint64_t one = (uint64_t)c->hidden * c->inner;
    m->down = flat(c->dtype, own_of(m).count * one, 0.3f);
    m->given = tensor_poison(c->dtype, 1, c->max * c->top * c->hidden);
    struct experts_args args = experts_of(m, &m->down, c->hidden, c->inner);
    args.x = m->pairs.device;
    args.x_stride = m->pairs.stride;
    args.y = m->given.device;
    args.y_stride = c->hidden;
    m->down_bias = args.bias;
    OK(op_experts(&args, rig_stream));
    tensor_read(&m->given);
    for (uint32_t p = 0; p < c->count * c->top; p++) {
        const float *of = m->down.host + expert_of(m, p) * one, *x = row_of(&m->pairs, p);
        for (uint32_t i = 0; is_here(m, p) && i < c->hidden; i++) {
            const float *w = of + (size_t)i * c->inner;
            check_close((double)m->given.host[(size_t)p * c->hidden + i],
                        dot(x, w, c->inner) + bias_of(m, p, i, c->hidden), c->dtype,
                        dot_slack(x, w, c->inner));
        }
    }
}

/* What the products gave, and what is no number where they gave nothing. */
static void *given_of(const struct mix *m)
{
    size_t row = m->c->hidden * dtype_bytes(m->c->dtype), pairs = (size_t)m->c->max * m->c->top;
    unsigned char *bytes = malloc(pairs * row);
    rig_read(bytes, m->given.device, pairs * row);
    for (uint32_t p = 0; p < m->c->count * m->c->top; p++)
        if (!is_here(m, p))
            memset(bytes + p * row, 0xff, row);
    void *device = rig_new(bytes, pairs * row);
    free(bytes);
    return device;
}

static struct combine_args combine_of(const struct mix *m, void *out)
{
    const struct mix_case *c = m->c;
    return (struct combine_args){.rows = rows_of(m),
                                 .routes = m->routes,
                                 .x = given_of(m),
                                 .shared = c->shared ? m->shared.device : NULL,
                                 .out = out,
                                 .size = c->hidden,
                                 .top = c->top,
                                 .own = own_of(m),
                                 .dtype = c->dtype,
                                 .out_dtype = DTYPE_F32};
}

static void combine_check(struct mix *m)
{
    const struct mix_case *c = m->c;
    m->shared = flat(c->dtype, (uint64_t)c->max * c->hidden, 1);
    m->out = tensor_poison(DTYPE_F32, 1, c->max * c->hidden);
    struct combine_args args = combine_of(m, m->out.device);
    OK(op_combine(&args, rig_stream));
    tensor_read(&m->out);
    for (uint32_t row = 0; row < c->count; row++)
        for (uint32_t i = 0; i < c->hidden; i++) {
            const struct route *route = m->route + (size_t)row * m->stride;
            double want = c->shared ? (double)route[c->top].weight *
                                          (double)m->shared.host[row * c->hidden + i]
                                    : 0;
            double size = fabs(want);
            for (uint32_t j = 0; j < c->top; j++) {
                double given = (double)m->given.host[(size_t)(row * c->top + j) * c->hidden + i];
                double term = is_here(m, row * c->top + j) ? (double)route[j].weight * given : 0;
                want += term;
                size += fabs(term);
            }
            check_close((double)m->out.host[row * c->hidden + i], want, DTYPE_F32,
                        1e-5 + 1e-6 * size);
        }
}

/* The same bits as op_combine's, added to the residual, and its norm. */
static void combine_norm_check(struct mix *m)
{
    const struct mix_case *c = m->c;
    struct tensor residual = flat(DTYPE_F32, (uint64_t)c->max * c->hidden, 2), after = residual;
    struct tensor weight = flat(c->dtype, c->hidden, 1);
    struct tensor out = tensor_poison(c->dtype, c->max, c->hidden);
    struct combine_args combine = combine_of(m, rig_new(NULL, sizeof(float) * c->max * c->hidden));
    struct norm_args norm = {.rows = rows_of(m),
                             .residual = residual.device,
                             .delta = combine.out,
                             .weight = weight.device,
                             .out = out.device,
                             .size = c->hidden,
                             .residual_stride = c->hidden,
                             .delta_stride = c->hidden,
                             .out_stride = out.stride,
                             .residual_dtype = DTYPE_F32,
                             .delta_dtype = DTYPE_F32,
                             .weight_dtype = c->dtype,
                             .out_dtype = c->dtype,
                             .eps = EPS};
    after.host = malloc(sizeof(float) * c->max * c->hidden);
    OK(op_combine_norm(&combine, &norm, rig_stream));
    rig_read(after.host, residual.device, sizeof(float) * c->max * c->hidden);
    tensor_read(&out);
    for (uint32_t row = 0; row < c->count; row++) {
        const float *of = after.host + (size_t)row * c->hidden;
        double scale = 1 / sqrt(dot(of, of, c->hidden) / c->hidden + (double)EPS);
        for (uint32_t i = 0; i < c->hidden; i++) {
            size_t at = (size_t)row * c->hidden + i;
            ck_assert_float_eq(of[i], residual.host[at] + m->out.host[at]);
            check_close((double)tensor_at(&out, row, i),
                        (double)of[i] * scale * (double)weight.host[i], c->dtype, 1e-5);
        }
    }
    free(after.host);
}

/* Products that become one for their row as they are made: the same bits. */
static void sum_check(struct mix *m, bool adds, bool hands)
{
    const struct mix_case *c = m->c;
    size_t size = (size_t)c->max * c->hidden;
    struct tensor residual = flat(DTYPE_F32, size, 2), weight = flat(c->dtype, c->hidden, 1);
    struct tensor handed = tensor_poison(c->dtype, c->max, c->hidden);
    float *after = malloc(size * sizeof *after), squares[3 * MATMUL_PARTS];
    struct experts_sum_args args = {.experts = experts_of(m, &m->down, c->hidden, c->inner),
                                    .combine = combine_of(m, residual.device),
                                    .adds = adds};
    args.experts.x = m->pairs.device;
    args.experts.x_stride = m->pairs.stride;
    args.experts.bias = m->down_bias;
    if (hands)
        args.norm_out = (struct matmul_norm_out){.weight = weight.device,
                                                 .out = handed.device,
                                                 .squares = rig_new(NULL, sizeof squares),
                                                 .out_stride = handed.stride,
                                                 .weight_dtype = c->dtype,
                                                 .offset = 1};
    if (experts_sum_can(&args)) {
        OK(op_experts_sum(&args, rig_stream));
        rig_read(after, residual.device, size * sizeof *after);
        tensor_read(&handed);
        for (uint32_t i = 0; i < c->count * c->hidden; i++) {
            ck_assert_float_eq(after[i], m->out.host[i] + (adds ? residual.host[i] : 0));
            if (hands)
                check_close((double)tensor_at(&handed, i / c->hidden, i % c->hidden),
                            (double)after[i] * (1 + (double)weight.host[i % c->hidden]), c->dtype,
                            1e-5);
        }
        for (uint32_t row = 0; hands && row < c->count; row++) {
            const float *of = after + (size_t)row * c->hidden;
            double sum = 0, units = (c->hidden + 7) / 8;
            rig_read(squares, args.norm_out.squares, sizeof squares);
            for (uint32_t i = 0; i < MATMUL_PARTS && i < units; i++) {
                float part = squares[row * MATMUL_PARTS + i];
                sum += part == poison_of(DTYPE_F32) ? 0 : (double)part; /* more parts than blocks */
            }
            check_close(sum, dot(of, of, c->hidden), DTYPE_F32, 1e-4 * sum);
        }
    } else {
        ck_assert_int_eq(op_experts_sum(&args, rig_stream), cudaErrorNotSupported);
    }
    free(after);
}

START_TEST(few_rows_go_through_theirs_at_once)
{
    struct mix m = {.c = &few[_i]};
    rig_begin();
    tensor_align(m.c->hidden % 8 || m.c->inner % 8 ? 1 : 8);
    norm_route_check(&m);
    up_check(&m);
    down_check(&m);
    combine_check(&m);
    combine_norm_check(&m);
    sum_check(&m, false, false);
    sum_check(&m, true, false);
    sum_check(&m, true, true);
    free(m.route);
    tensor_align(1);
    rig_end();
}
END_TEST

START_TEST(a_row_goes_through_its_experts)
{
    struct mix m = {.c = &cases[_i]};
    rig_begin();
    tensor_align(m.c->hidden % 8 || m.c->inner % 8 ? 1 : 8);
    route_check(&m);
    if (m.c->alike)
        routes_set_alike(&m);
    segments_check(&m);
    up_check(&m);
    down_check(&m);
    combine_check(&m);
    combine_norm_check(&m);
    free(m.route);
    tensor_align(1);
    rig_end();
}
END_TEST

/* Rows of numbers that are none, and of equal ones: experts stay in range, each once. */
START_TEST(routes_of_no_numbers_stay_in_range)
{
    rig_begin();
    float x[3][2] = {{NAN, 1}, {0, 0}, {INFINITY, -1}},
          w[5][2] = {{1, 1}, {2, 0}, {0, 1}, {1, 2}, {3, 3}};
    struct route routes[3][4];
    struct route_args args = {.rows = rig_span(3, 0, 3),
                              .w = {.data = rig_new(w, sizeof w), .n = 5, .k = 2},
                              .x = rig_new(x, sizeof x),
                              .routes = rig_new(NULL, sizeof routes),
                              .x_stride = 2,
                              .count = 5,
                              .top = 4,
                              .scale = 1};
    OK(op_route(&args, rig_stream));
    rig_read(routes, args.routes, sizeof routes);
    for (uint32_t row = 0; row < 3; row++) {
        uint32_t seen = 0;
        for (uint32_t i = 0; i < 4; i++) {
            ck_assert_uint_lt(routes[row][i].expert, 5);
            seen |= 1u << routes[row][i].expert;
            ck_assert(row == 1 || isnan(routes[row][i].weight));
        }
        ck_assert_int_eq(__builtin_popcount(seen), 4);
    }
    for (uint32_t i = 0; i < 4; i++)
        ck_assert(routes[1][i].expert == i && fabs((double)routes[1][i].weight - 0.2) < 1e-6);
    rig_end();
}
END_TEST

Suite *experts_suite(void)
{
    Suite *suite = suite_create("kernels: experts");
    TCase *tcase = tcase_create("experts");
    tcase_add_loop_test(tcase, a_row_goes_through_its_experts, 0, CASES);
    tcase_add_loop_test(tcase, few_rows_go_through_theirs_at_once, 0, FEW);
    tcase_add_test(tcase, routes_of_no_numbers_stay_in_range);
    suite_add_tcase(suite, tcase);
    return suite;
}
