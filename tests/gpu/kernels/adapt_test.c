/* Low-rank adapters: every row with its own, against doubles. */
#include <math.h>

#include "gpu/kernels/adapt/adapt.h"
#include "tests/gpu/kernels/rig.h"
#include "tests/gpu/kernels/suites.h"

#define ADAPTERS 3
#define SEQUENCES 5

struct adapt_case {
    enum dtype x, y, w;
    uint32_t k, parts, ends[ADAPT_PARTS];
    uint32_t ranks[ADAPTERS];
    uint32_t count, max; /* tokens */
};

/* Of each adapter and part; a matrix is one row, for it has no gaps. */
struct pair {
    struct tensor a, b;
};

static uint32_t width_of(const struct adapt_case *c, uint32_t p)
{
    return c->ends[p] - (p ? c->ends[p - 1] : 0);
}

/* Adapter 1 lacks the second part, adapter 2 reads A x of the first part for all. */
static bool has_part(uint32_t adapter, uint32_t p)
{
    return adapter != 1 || p != 1;
}

static uint32_t from_of(uint32_t adapter, uint32_t p)
{
    return adapter == 2 ? 0 : p;
}

static enum dtype dtype_of(const struct adapt_case *c, uint32_t adapter)
{
    return (enum dtype)(((uint32_t)c->w + adapter) % 3);
}

static const struct adapt_place *places_make(const struct adapt_case *c,
                                             struct pair pairs[ADAPTERS][ADAPT_PARTS])
{
    struct adapt_place places[ADAPTERS] = {0};
    for (uint32_t i = 0; i < ADAPTERS; i++) {
        places[i].rank = c->ranks[i];
        places[i].scale = 0.25f + 0.5f * (float)i;
        for (uint32_t p = 0; p < c->parts; p++) {
            enum dtype dtype = dtype_of(c, i);
            struct pair *pair = &pairs[i][p];
            if (!has_part(i, p))
                continue;
            pair->a = from_of(i, p) == p ? tensor_random(dtype, 1, c->ranks[i] * c->k, 1)
                                         : pairs[i][0].a;
            pair->b = tensor_random(dtype, 1, width_of(c, p) * c->ranks[i], 1);
            places[i].parts[p] = (struct adapt_part){.a = pair->a.device,
                                                     .b = pair->b.device,
                                                     .a_dtype = dtype,
                                                     .b_dtype = dtype,
                                                     .from = from_of(i, p)};
        }
    }
    return rig_new(places, sizeof places);
}

/* What is added to an output, and by how much float32 may be off. */
static double added(const struct adapt_case *c, struct pair pairs[ADAPTERS][ADAPT_PARTS],
                    const struct tensor *x, uint32_t row, uint32_t adapter, uint32_t n,
                    double *ret_slack)
{
    uint32_t p = 0;
    *ret_slack = 0;
    while (n >= c->ends[p])
        p++;
    if (!has_part(adapter, p))
        return 0;
    const struct pair *pair = &pairs[adapter][p];
    double sum = 0, size = 0, scale = 0.25 + 0.5 * adapter;
    for (uint32_t r = 0; r < c->ranks[adapter]; r++) {
        double inner = 0, inner_size = 0;
        for (uint32_t k = 0; k < c->k; k++) {
            double term = (double)tensor_at(&pair->a, 0, r * c->k + k) * (double)tensor_at(x, row, k);
            inner += term;
            inner_size += fabs(term);
        }
        uint32_t at = (n - (p ? c->ends[p - 1] : 0)) * c->ranks[adapter] + r;
        double b = (double)tensor_at(&pair->b, 0, at);
        sum += b * inner;
        size += fabs(b) * inner_size;
    }
    *ret_slack = scale * size * 1e-6;
    return scale * sum;
}

static void adapt_check(const struct adapt_case *c)
{
    struct pair pairs[ADAPTERS][ADAPT_PARTS] = {0};
    uint32_t token_row[64], width = c->ends[c->parts - 1], rank_max = 0;
    struct batch_row rows[SEQUENCES] = {0};
    for (uint32_t i = 0; i < SEQUENCES; i++)
        rows[i].adapter = (i + 1) % (ADAPTERS + 1); /* the third but one has none */
    for (uint32_t i = 0; i < c->max; i++)
        token_row[i] = i < c->count ? i * SEQUENCES / c->count : 1u << 30; /* is not read */
    const struct adapt_place *places = places_make(c, pairs);
    for (uint32_t i = 0; i < ADAPTERS; i++)
        rank_max = c->ranks[i] > rank_max ? c->ranks[i] : rank_max;
    struct tensor x = tensor_random(c->x, c->max, c->k, 1);
    struct tensor y = tensor_random(c->y, c->max, width, 1);
    struct tensor before = y;
    before.host = malloc(sizeof(float) * y.rows * y.stride);
    memcpy(before.host, y.host, sizeof(float) * y.rows * y.stride);
    struct adapt_args args = {
        .rows = rig_span(c->count, 0, c->max),
        .token_row = rig_new(token_row, sizeof *token_row * c->max),
        .batch_rows = rig_new(rows, sizeof rows),
        .places = places,
        .x = x.device,
        .y = y.device,
        .inner = rig_new(NULL, sizeof(float) * c->max * ADAPT_PARTS * rank_max),
        .k = c->k,
        .x_stride = x.stride,
        .y_stride = y.stride,
        .rank_max = rank_max,
        .part_count = c->parts,
        .x_dtype = c->x,
        .y_dtype = c->y,
    };
    memcpy(args.ends, c->ends, sizeof args.ends);
    OK(op_adapt(&args, rig_stream));
    tensor_read(&y);
    for (uint32_t row = 0; row < c->max; row++) {
        uint32_t adapter = row < c->count ? rows[token_row[row]].adapter : 0;
        for (uint32_t n = 0; n < width; n++) {
            double was = (double)tensor_at(&before, row, n), now = (double)tensor_at(&y, row, n);
            double slack = 0;
            double more = adapter ? added(c, pairs, &x, row, adapter - 1, n, &slack) : 0;
            ck_assert(adapter || now == was);
            check_close(now, was + more, c->y, slack + fabs(was) * 1e-6);
        }
    }
    free(before.host);
}

static const struct adapt_case cases[] = {
    {DTYPE_F32, DTYPE_F32, DTYPE_BF16, 32, 1, {48}, {8, 16, 12}, 7, 9},
    {DTYPE_F32, DTYPE_F32, DTYPE_F32, 48, 3, {256, 384, 512}, {8, 256, 24}, 13, 13},
    {DTYPE_BF16, DTYPE_BF16, DTYPE_F16, 264, 3, {40, 41, 300}, {1, 9, 64}, 40, 64},
    {DTYPE_F16, DTYPE_F32, DTYPE_F16, 300, 2, {530, 1061}, {33, 8, 128}, 5, 8},
    {DTYPE_BF16, DTYPE_F32, DTYPE_BF16, 129, 4, {3, 6, 9, 1030}, {16, 16, 16}, 1, 1},
};
#define CASES (int)(sizeof cases / sizeof *cases)

START_TEST(each_row_gets_what_its_adapter_adds)
{
    rig_begin();
    adapt_check(&cases[_i]);
    rig_end();
}
END_TEST

START_TEST(what_does_not_fit_is_refused)
{
    struct adapt_args args = {.part_count = ADAPT_PARTS + 1, .rank_max = 8};
    ck_assert_int_eq(op_adapt(&args, NULL), cudaErrorInvalidValue);
    args.part_count = 0;
    ck_assert_int_eq(op_adapt(&args, NULL), cudaErrorInvalidValue);
    args.part_count = 1;
    args.rank_max = ADAPT_RANK_MAX + 1;
    ck_assert_int_eq(op_adapt(&args, NULL), cudaErrorInvalidValue);
}
END_TEST

Suite *adapt_suite(void)
{
    Suite *suite = suite_create("adapt");
    TCase *tcase = tcase_create("adapt");
    tcase_add_loop_test(tcase, each_row_gets_what_its_adapter_adds, 0, CASES);
    tcase_add_test(tcase, what_does_not_fit_is_refused);
    suite_add_tcase(suite, tcase);
    return suite;
}
