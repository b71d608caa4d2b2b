/* Products of pairs with experts' weights in e4m3, u4, u8 and e2m1, against plain doubles: every
 * way in which either device makes them. Inputs that are rounded are rounded here as well, by the
 * formula of kernel.h, so that products of equal numbers are compared. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/kernels/cpu/number.h"
#include "gpu/kernels/experts/experts.h"
#include "tests/gpu/kernels/rig.h"
#include "tests/gpu/kernels/suites.h"

#define E4M3 FORMAT_E4M3
#define U4 FORMAT_U4
#define U8 FORMAT_U8
#define E2M1 FORMAT_E2M1
#define F32 DTYPE_F32
#define BF16 DTYPE_BF16
#define F16 DTYPE_F16

enum extra {
    PLAIN = 0,
    ZEROS = 1,
    ORDERED = 2,
    GATED = 4,
    GELU = 8,
    OWN = 16,
    ALIKE = 32,
    BIAS = 64,
    LARGE = 128,
    INVARIANT = 256
};

/* Scales are of `n` rows and `k` columns, 0: all; inputs are rounded by `group` columns where that
 * is how. OWN: some experts are elsewhere; ALIKE: all rows go through the same; LARGE: some
 * exponents are beyond what one number of 16 bits makes of an element. */
static const struct shape {
    enum format format;
    enum dtype dtype;
    uint32_t max, count, experts, top, rows, columns; /* of an expert's matrix */
    uint32_t n, k;
    enum weight_rounding rounding;
    uint32_t group;
    int extra;
} shapes[] = {
    /* Few pairs: whole units in one turn and in several. */
    {E4M3, BF16, 1, 1, 8, 2, 48, 512, 1, 0, ROUNDING_TOKEN, 0, GATED},
    {E4M3, F16, 7, 6, 16, 4, 33, 1040, 0, 0, ROUNDING_NONE, 0, PLAIN},
    {E4M3, BF16, 4, 4, 6, 3, 260, 272, 128, 128, ROUNDING_GROUP, 128, GATED},
    {E4M3, BF16, 8, 8, 4, 2, 40, 768, 0, 0, ROUNDING_STATIC, 0, GELU | GATED},
    {U4, BF16, 5, 4, 8, 2, 37, 1056, 1, 32, ROUNDING_NONE, 0, ZEROS},
    {U4, F16, 9, 9, 5, 4, 64, 640, 1, 128, ROUNDING_NONE, 0, ZEROS | GATED},
    {U4, BF16, 3, 3, 4, 2, 24, 96, 1, 32, ROUNDING_NONE, 0, ZEROS | ORDERED | OWN},
    {U8, BF16, 6, 5, 8, 2, 30, 528, 1, 0, ROUNDING_NONE, 0, GATED},
    {U8, F16, 2, 2, 4, 4, 20, 128, 1, 64, ROUNDING_NONE, 0, ZEROS | OWN},
    /* Rows of no whole units, and more of them than a grid has. */
    {E4M3, BF16, 9, 9, 4, 2, 30, 150, 1, 0, ROUNDING_TOKEN, 0, GATED},
    {E4M3, F16, 40, 33, 4, 3, 20, 72, 16, 24, ROUNDING_GROUP, 8, PLAIN},
    {U4, BF16, 30, 30, 4, 3, 14, 75, 1, 8, ROUNDING_NONE, 0, ZEROS | GATED},
    {U8, F32, 40, 40, 5, 2, 16, 50, 1, 0, ROUNDING_NONE, 0, ZEROS | ORDERED},
    /* Whole units in 32 bits, many pairs. */
    {U4, F32, 40, 39, 6, 2, 18, 96, 1, 32, ROUNDING_NONE, 0, ZEROS | GATED},
    {E4M3, F32, 50, 50, 6, 2, 18, 64, 1, 0, ROUNDING_TOKEN, 0, GATED},
    /* Many pairs: tiles of 16 and of 64, some not full; the last k inside a stage. */
    {E4M3, BF16, 40, 37, 16, 4, 80, 272, 1, 0, ROUNDING_TOKEN, 0, GATED},
    {E4M3, F16, 40, 37, 16, 4, 136, 144, 0, 0, ROUNDING_NONE, 0, ALIKE},
    {E4M3, BF16, 100, 97, 6, 3, 272, 256, 128, 128, ROUNDING_GROUP, 128, GATED | GELU},
    {E4M3, BF16, 70, 70, 4, 2, 136, 400, 128, 128, ROUNDING_GROUP, 128, PLAIN},
    {E4M3, F16, 70, 66, 8, 2, 64, 96, 32, 64, ROUNDING_NONE, 0, GATED | OWN},
    {E4M3, BF16, 90, 90, 8, 2, 72, 160, 0, 0, ROUNDING_STATIC, 0, GATED},
    /* So many that wgmma takes them: scales of rows, of tensors, of blocks; columns of no whole
     * stage, more than its ring has stages, tiles of several columns. */
    {E4M3, BF16, 300, 299, 6, 3, 528, 272, 1, 0, ROUNDING_TOKEN, 0, GATED | OWN},
    {E4M3, F16, 300, 290, 3, 2, 264, 144, 0, 0, ROUNDING_STATIC, 0, PLAIN},
    {E4M3, BF16, 300, 290, 3, 2, 272, 912, 128, 128, ROUNDING_GROUP, 128, PLAIN},
    {E4M3, F16, 300, 290, 4, 2, 384, 400, 64, 128, ROUNDING_GROUP, 128, GATED | GELU | ALIKE},
    {U4, BF16, 40, 37, 16, 4, 80, 320, 1, 32, ROUNDING_NONE, 0, ZEROS | GATED},
    {U4, F16, 300, 290, 4, 2, 136, 128, 1, 128, ROUNDING_NONE, 0, ZEROS},
    {U4, BF16, 100, 97, 6, 3, 72, 192, 1, 64, ROUNDING_NONE, 0, ORDERED | OWN},
    {U4, F16, 60, 60, 4, 2, 66, 80, 1, 16, ROUNDING_NONE, 0, ZEROS | GATED | ALIKE},
    {U8, BF16, 40, 37, 16, 4, 80, 272, 1, 0, ROUNDING_NONE, 0, GATED},
    {U8, F16, 200, 199, 6, 2, 130, 288, 1, 96, ROUNDING_NONE, 0, ZEROS | GATED | GELU},
    {U8, BF16, 33, 0, 4, 3, 16, 64, 1, 64, ROUNDING_NONE, 0, ZEROS},
    /* Scales that are powers of two: few pairs, tiles of both sizes, 32 bits, no whole units. */
    {E2M1, BF16, 5, 4, 8, 4, 38, 1056, 1, 32, ROUNDING_NONE, 0, GATED},
    {E2M1, F16, 9, 9, 5, 4, 33, 96, 1, 32, ROUNDING_NONE, 0, OWN},
    {E2M1, BF16, 40, 37, 16, 4, 80, 320, 1, 32, ROUNDING_NONE, 0, GATED},
    {E2M1, F16, 100, 97, 6, 3, 136, 160, 1, 32, ROUNDING_NONE, 0, PLAIN},
    {E2M1, BF16, 300, 290, 4, 2, 72, 96, 1, 32, ROUNDING_NONE, 0, GATED | OWN | ALIKE},
    /* Left operands out of registers: pairs of an expert few and many, tiles of each number of
     * columns, and outputs and columns that end within tiles and stages, or with the ring. */
    {E2M1, BF16, 3, 2, 16, 4, 64, 320, 1, 32, ROUNDING_NONE, 0, GATED | BIAS | LARGE},
    {E2M1, BF16, 5, 5, 32, 4, 144, 2144, 1, 32, ROUNDING_NONE, 0, BIAS},
    {E2M1, BF16, 2, 2, 4, 1, 32, 8192, 1, 32, ROUNDING_NONE, 0, PLAIN},
    {E2M1, BF16, 30, 30, 4, 4, 32, 8192, 1, 32, ROUNDING_NONE, 0, GATED},
    {E2M1, BF16, 52, 52, 2, 2, 16, 8192, 1, 32, ROUNDING_NONE, 0, PLAIN},
    {E2M1, BF16, 12, 11, 16, 4, 288, 1184, 1, 32, ROUNDING_NONE, 0, GATED | OWN},
    {E2M1, BF16, 9, 9, 8, 2, 272, 96, 1, 32, ROUNDING_NONE, 0, BIAS},
    {E2M1, BF16, 20, 20, 8, 3, 96, 352, 1, 32, ROUNDING_NONE, 0, LARGE},
    {E2M1, BF16, 40, 37, 16, 4, 160, 2208, 1, 32, ROUNDING_NONE, 0, GATED | BIAS},
    {E2M1, BF16, 33, 33, 8, 2, 176, 416, 1, 32, ROUNDING_NONE, 0, OWN},
    {E2M1, BF16, 60, 57, 8, 4, 544, 1056, 1, 32, ROUNDING_NONE, 0, GATED | BIAS | OWN},
    {E2M1, BF16, 100, 97, 4, 2, 528, 160, 1, 32, ROUNDING_NONE, 0, BIAS | ALIKE},
    {E2M1, BF16, 70, 70, 4, 3, 48, 832, 1, 32, ROUNDING_NONE, 0, PLAIN},
    {E2M1, BF16, 20, 19, 32, 4, 96, 2880, 1, 32, ROUNDING_NONE, 0, ALIKE},
    {E2M1, BF16, 40, 37, 16, 4, 160, 224, 1, 32, ROUNDING_NONE, 0, ALIKE | GATED},
    {E2M1, BF16, 150, 149, 16, 2, 256, 384, 1, 32, ROUNDING_NONE, 0, ALIKE},
    {E2M1, BF16, 120, 117, 5, 3, 208, 736, 1, 32, ROUNDING_NONE, 0, GATED | BIAS | LARGE},
    {E2M1, BF16, 300, 290, 3, 2, 272, 96, 1, 32, ROUNDING_NONE, 0, PLAIN},
    {E2M1, BF16, 300, 299, 6, 3, 528, 320, 1, 32, ROUNDING_NONE, 0, GATED | OWN},
    /* What becomes BF16 before, and is multiplied by wgmma: stages more than its ring has. */
    {E2M1, BF16, 1030, 1021, 2, 2, 40, 96, 1, 32, ROUNDING_NONE, 0, PLAIN},
    {E2M1, BF16, 1030, 1029, 4, 2, 48, 320, 1, 32, ROUNDING_NONE, 0, GATED | OWN},
    /* In one order of sums. */
    {E2M1, BF16, 9, 8, 8, 2, 80, 320, 1, 32, ROUNDING_NONE, 0, BIAS | INVARIANT},
    {E2M1, BF16, 40, 37, 16, 4, 80, 320, 1, 32, ROUNDING_NONE, 0, GATED | INVARIANT},
    {E2M1, BF16, 300, 290, 4, 2, 72, 96, 1, 32, ROUNDING_NONE, 0, GATED | OWN | INVARIANT},
    {E2M1, F32, 40, 39, 6, 2, 18, 96, 1, 32, ROUNDING_NONE, 0, GATED},
    {E2M1, BF16, 30, 30, 4, 3, 14, 40, 1, 32, ROUNDING_NONE, 0, GATED},
};

struct product {
    const struct shape *s;
    struct expert_range own;
    struct route *routes;
    struct tensor x, y, bias;
    uint8_t *elements, *zeros;
    float *scales, *inputs;
    uint32_t *order;
    uint64_t count; /* of a matrix's scales */
    struct experts_args args;
};

static bool has(const struct shape *s, enum extra extra)
{
    return (s->extra & extra) != 0;
}

static uint32_t across(uint32_t size, uint32_t each)
{
    return each ? (size + each - 1) / each : 1;
}

/* ---- what is multiplied ---- */

/* The distinct experts of each row. */
static void routes_make(struct product *p)
{
    const struct shape *s = p->s;
    p->routes = calloc((size_t)s->max * s->top, sizeof *p->routes);
    for (uint32_t row = 0; row < s->max; row++) {
        struct route *of = p->routes + (size_t)row * s->top;
        uint32_t first = has(s, ALIKE) ? 1 : rig_between(0, s->experts - 1);
        for (uint32_t i = 0; i < s->top; i++)
            of[i] = (struct route){(first + i) % s->experts, 1};
    }
}

static void segments_make(struct product *p)
{
    const struct shape *s = p->s;
    uint32_t words = p->own.count + 1 + s->max * s->top;
    struct segments_args args = {.rows = p->args.rows,
                                 .routes = p->args.routes,
                                 .stride = s->top,
                                 .top = s->top,
                                 .own = p->own,
                                 .segments = rig_new(NULL, words * sizeof(uint32_t))};
    OK(op_segments(&args, rig_stream));
    p->args.segments = args.segments;
}

static void elements_make(struct product *p)
{
    const struct shape *s = p->s;
    uint64_t bytes = format_bytes(s->format, s->rows, s->columns) * p->own.count;
    p->elements = malloc(bytes + 1);
    for (uint64_t i = 0; i < bytes; i++) {
        uint8_t byte = (uint8_t)rig_random();
        p->elements[i] = s->format == E4M3 && (byte & 0x7f) >= 0x60 ? byte & 0x8f : byte;
    }
    p->args.w.data = rig_new(p->elements, bytes);
}

/* The least is 2^-127 now and then, and 2^9 the greatest. */
static void exponents_make(struct product *p, uint64_t count)
{
    uint8_t *bytes = malloc(count);
    for (uint64_t i = 0; i < count; i++) {
        bytes[i] = i % 41 == 7 ? 0 : (uint8_t)rig_between(120, 126);
        if (has(p->s, LARGE) && i % 37 == 5)
            bytes[i] = (uint8_t)rig_between(127, 136);
        p->scales[i] = ldexpf(1, bytes[i] - 127);
    }
    p->args.w.scales.data = rig_new(bytes, count);
    free(bytes);
}

static void scales_make(struct product *p)
{
    const struct shape *s = p->s;
    struct weight *w = &p->args.w;
    w->scales =
        (struct weight_scales){.dtype = F32, .n = s->n, .k = s->k, .exponents = s->format == E2M1};
    p->count = weight_scale_count(w);
    uint64_t all = p->count * p->own.count;
    float middle = s->format == E4M3 ? 0.02f : s->format == U4 ? 0.05f : 0.004f;
    p->scales = malloc(all * sizeof *p->scales);
    p->zeros = malloc(all);
    for (uint64_t i = 0; i < all; i++) {
        p->scales[i] = middle * (1 + (float)rig_between(0, 100) / 100);
        p->zeros[i] = (uint8_t)rig_between(0, s->format == U4 ? 15 : 255);
    }
    if (s->format == E2M1)
        exponents_make(p, all);
    else
        w->scales.data = rig_new(p->scales, all * sizeof *p->scales);
    if (has(s, ZEROS))
        w->zeros = rig_new(p->zeros, all);
}

/* Of each expert its own. */
static void inputs_make(struct product *p)
{
    const struct shape *s = p->s;
    struct weight *w = &p->args.w;
    uint32_t experts = p->own.count, k = s->columns;
    p->inputs = malloc(experts * sizeof *p->inputs);
    p->order = malloc((size_t)experts * k * sizeof *p->order);
    for (uint32_t e = 0; e < experts; e++) {
        p->inputs[e] = 0.002f * (float)(1 + e);
        for (uint32_t i = 0; i < k; i++) { /* shuffled from within */
            uint32_t at = rig_between(0, i);
            p->order[(size_t)e * k + i] = i;
            p->order[(size_t)e * k + i] = p->order[(size_t)e * k + at];
            p->order[(size_t)e * k + at] = i;
        }
    }
    w->input = (struct weight_input){.rounding = s->rounding, .group = s->group};
    if (s->rounding == ROUNDING_STATIC)
        w->input.scales = rig_new(p->inputs, experts * sizeof *p->inputs);
    if (has(s, ORDERED))
        w->order = rig_new(p->order, (size_t)experts * k * sizeof *p->order);
}

/* Gated ones multiply rows of the step, others what pairs have. */
static void product_make(struct product *p)
{
    const struct shape *s = p->s;
    uint32_t pairs = s->max * s->top;
    bool spread = has(s, GATED);
    p->own = has(s, OWN) ? (struct expert_range){1, s->experts - 2}
                         : (struct expert_range){0, s->experts};
    routes_make(p);
    p->args = (struct experts_args){
        .rows = rig_span(s->count, 0, s->max),
        .w = {.format = s->format, .n = s->rows, .k = s->columns},
        .routes = rig_new(p->routes, (size_t)pairs * sizeof *p->routes),
        .route_stride = s->top,
        .top = s->top,
        .own = p->own,
        .dtype = s->dtype,
        .spread = spread,
        .gated = spread,
        .invariant = has(s, INVARIANT),
        .activation = has(s, GELU) ? ACTIVATE_GELU_TANH : ACTIVATE_SILU,
    };
    segments_make(p);
    elements_make(p);
    scales_make(p);
    inputs_make(p);
    p->x = tensor_random(s->dtype, spread ? s->max : pairs, s->columns, 1);
    p->y = tensor_poison(s->dtype, pairs, spread ? s->rows / 2 : s->rows);
    if (has(s, BIAS)) {
        p->bias = tensor_random(s->dtype, 1, p->own.count * s->rows, 1);
        p->args.bias = p->bias.device;
    }
    p->args.x = p->x.device;
    p->args.x_stride = p->x.stride;
    p->args.y = p->y.device;
    p->args.y_stride = p->y.stride;
    p->args.scratch_bytes =
        experts_scratch_bytes(&p->args.w, p->own.count, s->max, s->top, spread, s->dtype);
    p->args.scratch = p->args.scratch_bytes ? rig_new(NULL, p->args.scratch_bytes) : NULL;
}

static void product_free(struct product *p)
{
    free(p->routes);
    free(p->elements);
    free(p->scales);
    free(p->zeros);
    free(p->inputs);
    free(p->order);
}

/* ---- what it gives ---- */

static float scale_of(const float *x, uint32_t count)
{
    float greatest = 0;
    for (uint32_t i = 0; i < count; i++)
        greatest = fmaxf(greatest, fabsf(x[i]));
    return greatest > 0 ? greatest / 448 : 1;
}

static void round_by(float *x, uint32_t count, float scale)
{
    for (uint32_t i = 0; i < count; i++)
        x[i] = e4m3_widen(e4m3_round(x[i] / scale)) * scale;
}

/* A pair's input, in order and rounded. */
static void input_of(const struct product *p, uint32_t pair, uint32_t expert, float *to)
{
    const struct shape *s = p->s;
    uint32_t k = s->columns, row = p->args.spread ? pair / s->top : pair;
    uint32_t group = s->rounding == ROUNDING_GROUP ? s->group : k;
    for (uint32_t i = 0; i < k; i++)
        to[i] = tensor_at(&p->x, row, has(s, ORDERED) ? p->order[(size_t)expert * k + i] : i);
    for (uint32_t i = 0; s->rounding != ROUNDING_NONE && i < k; i += group) {
        uint32_t count = k - i < group ? k - i : group;
        round_by(to + i, count,
                 s->rounding == ROUNDING_STATIC ? p->inputs[expert] : scale_of(to + i, count));
    }
}

static double half_of(const struct shape *s, uint8_t half)
{
    static const double e2m1[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    if (s->format != E2M1)
        return half;
    return half & 8 ? -e2m1[half & 7] : e2m1[half & 7];
}

static double element_of(const struct product *p, uint32_t expert, uint32_t n, uint32_t k)
{
    const struct shape *s = p->s;
    const uint8_t *row = p->elements + format_bytes(s->format, s->rows, s->columns) * expert +
                         format_bytes(s->format, n, s->columns);
    uint64_t scale = p->count * expert + (s->n ? n / s->n : 0) * across(s->columns, s->k) +
                     (s->k ? k / s->k : 0);
    double value = s->format == E4M3 ? (double)e4m3_widen(row[k])
                   : s->format == U8 ? row[k]
                                     : half_of(s, row[k / 2] >> k % 2 * 4 & 15);
    return (value - (has(s, ZEROS) ? p->zeros[scale] : 0)) * (double)p->scales[scale];
}

/* The product, and what its terms' magnitudes add up to. */
struct sum {
    double value, size;
};

static struct sum sum_of(const struct product *p, const float *x, uint32_t expert, uint32_t n)
{
    struct sum sum = {0, 0};
    if (has(p->s, BIAS))
        sum.value = (double)tensor_at(&p->bias, 0, expert * p->s->rows + n);
    for (uint32_t k = 0; k < p->s->columns; k++) {
        double term = (double)x[k] * element_of(p, expert, n, k);
        sum.value += term;
        sum.size += fabs(term);
    }
    return sum;
}

static double active(const struct shape *s, double x)
{
    double u = sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
    return x / (1 + exp(has(s, GELU) ? -2 * u : -x));
}

/* What sums may be off by: in e4m3 the tensor cores sum up to 128 columns with fewer bits than
 * float32 has. */
static double unit_of(const struct product *p)
{
    const struct shape *s = p->s;
    return s->format == E4M3 && s->rounding != ROUNDING_NONE ? 0x1p-11 : 1e-5;
}

static void output_check(const struct product *p, uint32_t pair, uint32_t expert, const float *x,
                         uint32_t n)
{
    const struct shape *s = p->s;
    struct sum sum = sum_of(p, x, expert, n);
    double unit = unit_of(p), got = (double)tensor_at(&p->y, pair, n), slack = unit * sum.size;
    if (has(s, GATED)) {
        struct sum up = sum_of(p, x, expert, s->rows / 2 + n);
        double gate = active(s, sum.value);
        slack = unit * (1.2 * sum.size * fabs(up.value) + up.size * fabs(gate)) +
                1e-5 * fabs(gate * up.value) + 1e-5;
        sum.value = gate * up.value;
    }
    check_close(got, sum.value, s->dtype, slack);
}

static void product_check(struct product *p)
{
    const struct shape *s = p->s;
    float *x = malloc(s->columns * sizeof *x), poison = tensor_at(&p->y, 0, 0);
    uint32_t outputs = has(s, GATED) ? s->rows / 2 : s->rows;
    ck_assert(tensor_untouched(&p->y, s->count * s->top));
    tensor_read(&p->y);
    for (uint32_t pair = 0; pair < s->count * s->top; pair++) {
        uint32_t expert = p->routes[pair].expert - p->own.first;
        if (expert >= p->own.count) {
            number_widen(&poison, "\xa5\xa5\xa5\xa5", s->dtype, 1);
            ck_assert_float_eq(tensor_at(&p->y, pair, 0), poison);
            continue;
        }
        input_of(p, pair, expert, x);
        for (uint32_t n = 0; n < outputs; n++)
            output_check(p, pair, expert, x, n);
    }
    free(x);
}

START_TEST(pairs_are_multiplied_by_what_experts_stand_for)
{
    struct product p = {.s = &shapes[_i]};
    rig_begin();
    rig_seed((uint64_t)_i + 1);
    tensor_align(p.s->columns % 8 || p.s->rows % 2 ? 1 : 8);
    product_make(&p);
    ck_assert(experts_takes(&p.args.w));
    OK(op_experts(&p.args, rig_stream));
    product_check(&p);
    product_free(&p);
    tensor_align(1);
    rig_end();
}
END_TEST

/* The bits of a pair are those of the pair alone: inputs are rounded alike however many there are,
 * and few pairs and many differ by the order of sums at most. */
START_TEST(many_pairs_give_what_few_give)
{
    struct product p = {.s = &shapes[_i]};
    uint32_t outputs = has(p.s, GATED) ? p.s->rows / 2 : p.s->rows;
    if (p.s->max * p.s->top <= 64 || !p.s->count)
        return;
    rig_begin();
    rig_seed((uint64_t)_i + 1);
    tensor_align(p.s->columns % 8 || p.s->rows % 2 ? 1 : 8);
    product_make(&p);
    OK(op_experts(&p.args, rig_stream));
    tensor_read(&p.y);
    struct tensor few = tensor_poison(p.s->dtype, p.y.rows, outputs);
    struct experts_args one = p.args;
    one.rows = rig_span(1, 0, 1);
    one.y = few.device;
    one.y_stride = few.stride;
    struct product alone = p;
    alone.args = one;
    segments_make(&alone);
    OK(op_experts(&alone.args, rig_stream));
    tensor_read(&few);
    for (uint32_t pair = 0; pair < p.s->top; pair++)
        for (uint32_t n = 0; n < outputs; n++) {
            double other = (double)tensor_at(&few, pair, n);
            if (p.routes[pair].expert - p.own.first < p.own.count)
                check_close((double)tensor_at(&p.y, pair, n), other, p.s->dtype,
                            20 * unit_of(&p) * (1 + fabs(other)));
        }
    product_free(&p);
    tensor_align(1);
    rig_end();
}
END_TEST

/* What no way is there for says so. */
START_TEST(what_has_no_meaning_is_refused)
{
    static const uint32_t order[16];
    float one = 1;
    rig_begin();
    struct weight w = {.data = &one,
                       .format = E4M3,
                       .n = 1,
                       .k = 16,
                       .scales = {.data = &one, .dtype = F32},
                       .input = {.rounding = ROUNDING_GROUP, .group = 16}};
    ck_assert(experts_takes(&w));
    w.order = order;
    ck_assert(!experts_takes(&w));
    w.input.rounding = ROUNDING_TOKEN;
    ck_assert(experts_takes(&w));
    w.zeros = (const uint8_t *)&one;
    ck_assert(!experts_takes(&w));
    struct experts_args args = {.rows = {.max = 1}, .w = w, .top = 1, .own = {0, 1}};
    ck_assert_int_eq(op_experts(&args, rig_stream), cudaErrorNotSupported);
    rig_end();
}
END_TEST

Suite *experts_packed_suite(void)
{
    Suite *suite = suite_create("kernels: experts packed");
    TCase *tcase = tcase_create("experts packed");
    int count = (int)(sizeof shapes / sizeof *shapes);
    tcase_add_loop_test(tcase, pairs_are_multiplied_by_what_experts_stand_for, 0, count);
    tcase_add_loop_test(tcase, many_pairs_give_what_few_give, 0, count);
    tcase_add_test(tcase, what_has_no_meaning_is_refused);
    suite_add_tcase(suite, tcase);
    return suite;
}
