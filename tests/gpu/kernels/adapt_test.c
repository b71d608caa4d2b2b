/* Low-rank adapters: every row with its own, against doubles; behind a product, and in it. */
#include <math.h>

#include "gpu/kernels/adapted/adapted.h"
#include "tests/gpu/kernels/rig.h"
#include "tests/gpu/kernels/suites.h"

#define ADAPTERS 3
#define SEQUENCES 5
#define TOKENS 512

struct adapt_case {
    enum dtype x, y, w;
    uint32_t k, parts, ends[ADAPT_PARTS];
    uint32_t ranks[ADAPTERS];
    uint32_t count, max; /* tokens */
    bool alike;          /* A and B have x's dtype, which some kernels want */
    bool gated;
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
    return c->alike ? c->x : (enum dtype)(((uint32_t)c->w + adapter) % 3);
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

struct adapt_scene {
    struct pair pairs[ADAPTERS][ADAPT_PARTS];
    struct batch_row rows[SEQUENCES];
    uint32_t token_row[TOKENS];
    struct tensor x, y, out, w; /* w: of a product that adds to y, or not; one row */
    struct adapt_args args;
    bool multiplies, adds;
    bool spread; /* rows have the scene's adapters by turns */
    /* A x of one row, and the sums of its terms' sizes. */
    uint32_t inner_row, inner_adapter; /* 0: of none yet */
    double inner[ADAPT_PARTS][ADAPT_RANK_MAX], inner_size[ADAPT_PARTS][ADAPT_RANK_MAX];
};

/* Of the row, which has that adapter. */
static void inner_make(const struct adapt_case *c, struct adapt_scene *s, uint32_t row,
                       uint32_t adapter)
{
    if (s->inner_row == row + 1 && s->inner_adapter == adapter)
        return;
    s->inner_row = row + 1;
    s->inner_adapter = adapter;
    for (uint32_t p = 0; p < c->parts; p++)
        for (uint32_t r = 0; has_part(adapter, p) && r < c->ranks[adapter]; r++) {
            double inner = 0, size = 0;
            for (uint32_t k = 0; k < c->k; k++) {
                double term = (double)tensor_at(&s->pairs[adapter][p].a, 0, r * c->k + k) *
                              (double)tensor_at(&s->x, row, k);
                inner += term;
                size += fabs(term);
            }
            s->inner[p][r] = inner;
            s->inner_size[p][r] = size;
        }
}

/* What is added to an output, and by how much float32 may be off. */
static double added(const struct adapt_case *c, struct adapt_scene *s, uint32_t row,
                    uint32_t adapter, uint32_t n, double *ret_slack)
{
    uint32_t p = 0;
    *ret_slack = 0;
    while (n >= c->ends[p])
        p++;
    if (!has_part(adapter, p))
        return 0;
    double sum = 0, size = 0, scale = 0.25 + 0.5 * adapter;
    inner_make(c, s, row, adapter);
    for (uint32_t r = 0; r < c->ranks[adapter]; r++) {
        uint32_t at = (n - (p ? c->ends[p - 1] : 0)) * c->ranks[adapter] + r;
        double b = (double)tensor_at(&s->pairs[adapter][p].b, 0, at);
        sum += b * s->inner[p][r];
        size += fabs(b) * s->inner_size[p][r];
    }
    *ret_slack = scale * size * 1e-6;
    return scale * sum;
}

static double silu(double x)
{
    return x / (1 + exp(-x));
}

/* Of y before adapters. */
static double base_of(const struct adapt_case *c, const struct adapt_scene *s, uint32_t row,
                      uint32_t n, double *ret_size)
{
    double was = s->multiplies && !s->adds ? 0 : (double)tensor_at(&s->y, row, n);
    *ret_size = fabs(was);
    for (uint32_t k = 0; s->multiplies && k < c->k; k++) {
        double term = (double)s->w.host[n * c->k + k] * (double)tensor_at(&s->x, row, k);
        was += term;
        *ret_size += fabs(term);
    }
    return was;
}

/* Of the row's adapter, 0: none. */
static double expected(const struct adapt_case *c, struct adapt_scene *s, uint32_t row,
                       uint32_t adapter, uint32_t n, double *ret_slack)
{
    double slack = 0, size, was = base_of(c, s, row, n, &size);
    double more = adapter ? added(c, s, row, adapter - 1, n, &slack) : 0;
    *ret_slack = slack + size * 1e-6;
    return was + more;
}

static uint32_t adapter_of(const struct adapt_scene *s, uint32_t row)
{
    uint32_t sequence = s->token_row[row];
    return s->spread ? sequence % ADAPTERS + 1 : s->rows[sequence].adapter;
}

static void sums_check(const struct adapt_case *c, struct adapt_scene *s)
{
    struct tensor y = s->y;
    y.host = malloc(sizeof(float) * y.rows * y.stride);
    tensor_read(&y);
    for (uint32_t row = 0; row < c->max; row++) {
        uint32_t adapter = row < c->count ? adapter_of(s, row) : 0;
        for (uint32_t n = 0; n < c->ends[c->parts - 1]; n++) {
            double slack, want = expected(c, s, row, c->gated ? 0 : adapter, n, &slack);
            double now = (double)tensor_at(&y, row, n);
            ck_assert((adapter && !c->gated) || now == (double)tensor_at(&s->y, row, n));
            check_close(now, want, c->y, slack);
        }
    }
    free(y.host);
}

/* Rows without an adapter are activated as well. */
static void activated_check(const struct adapt_case *c, struct adapt_scene *s)
{
    uint32_t channels = c->ends[0];
    tensor_read(&s->out);
    for (uint32_t row = 0; row < c->count; row++) {
        uint32_t adapter = adapter_of(s, row);
        for (uint32_t n = 0; n < channels; n++) {
            double of_gate, of_up, gate = expected(c, s, row, adapter, n, &of_gate);
            double up = expected(c, s, row, adapter, channels + n, &of_up);
            double want = silu(gate) * up;
            check_close((double)tensor_at(&s->out, row, n), want, c->y,
                        1.1 * of_gate * fabs(up) + of_up * fabs(gate) + 4e-6 * fabs(want));
        }
    }
    ck_assert(tensor_untouched(&s->out, c->count));
}

static void scene_make(const struct adapt_case *c, struct adapt_scene *s)
{
    uint32_t width = c->ends[c->parts - 1], rank_max = 0;
    rig_begin();
    tensor_align(c->alike ? 8 : 1);
    memset(s, 0, sizeof *s);
    for (uint32_t i = 0; i < SEQUENCES; i++)
        s->rows[i].adapter = (i + 1) % (ADAPTERS + 1); /* the third but one has none */
    for (uint32_t i = 0; i < c->max; i++)
        s->token_row[i] = i < c->count ? i * SEQUENCES / c->count : 1u << 30; /* is not read */
    for (uint32_t i = 0; i < ADAPTERS; i++)
        rank_max = c->ranks[i] > rank_max ? c->ranks[i] : rank_max;
    s->x = tensor_random(c->x, c->max, c->k, 1);
    s->y = tensor_random(c->y, c->max, width, 1);
    s->out = tensor_poison(c->y, c->max, c->ends[0]);
    s->args = (struct adapt_args){
        .rows = rig_span(c->count, 0, c->max),
        .token_row = rig_new(s->token_row, sizeof *s->token_row * c->max),
        .batch_rows = rig_new(s->rows, sizeof s->rows),
        .places = places_make(c, s->pairs),
        .x = s->x.device,
        .y = s->y.device,
        .inner = rig_new(NULL, sizeof(float) * c->max * ADAPT_PARTS * rank_max),
        .list = rig_new(NULL, sizeof(uint32_t) * c->max * ADAPT_LIST),
        .sums = rig_new(NULL, sizeof(float) * ADAPT_SUMS(rank_max)),
        .k = c->k,
        .x_stride = s->x.stride,
        .y_stride = s->y.stride,
        .rank_max = rank_max,
        .part_count = c->parts,
        .x_dtype = c->x,
        .y_dtype = c->y,
        .lists = true,
        .number = 1,
        .spreads = true,
        .alike = c->alike,
        .gated = c->gated,
        .out = s->out.device,
        .out_stride = s->out.stride,
    };
    memcpy(s->args.ends, c->ends, sizeof s->args.ends);
}

static const struct adapt_case cases[] = {
    {DTYPE_F32, DTYPE_F32, DTYPE_BF16, 32, 1, {48}, {8, 16, 12}, 7, 9, false, false},
    {DTYPE_F32, DTYPE_F32, DTYPE_F32, 48, 3, {256, 384, 512}, {8, 256, 24}, 13, 13, false, false},
    {DTYPE_BF16, DTYPE_BF16, DTYPE_F16, 264, 3, {40, 41, 300}, {1, 9, 64}, 40, 64, false, false},
    {DTYPE_F16, DTYPE_F32, DTYPE_F16, 300, 2, {530, 1061}, {33, 8, 128}, 5, 8, false, false},
    {DTYPE_BF16, DTYPE_F32, DTYPE_BF16, 129, 4, {3, 6, 9, 1030}, {16, 16, 16}, 1, 1, false, false},
    {DTYPE_BF16, DTYPE_BF16, DTYPE_BF16, 512, 3, {256, 320, 384}, {16, 16, 16}, 64, 64, true, false},
    {DTYPE_BF16, DTYPE_F32, DTYPE_BF16, 2104, 2, {40, 1048}, {8, 33, 66}, 5, 16, true, false},
    {DTYPE_F16, DTYPE_F16, DTYPE_F16, 264, 4, {8, 16, 24, 600}, {1, 64, 20}, 120, 128, true, false},
    {DTYPE_F16, DTYPE_F32, DTYPE_F16, 8, 1, {8}, {3, 2, 1}, 1, 1, true, false},
    {DTYPE_BF16, DTYPE_BF16, DTYPE_BF16, 1000, 1, {96}, {256, 255, 5}, 100, 110, true, false},
    {DTYPE_BF16, DTYPE_BF16, DTYPE_BF16, 256, 2, {344, 688}, {16, 8, 40}, 90, 91, true, true},
    {DTYPE_F16, DTYPE_F16, DTYPE_F16, 136, 2, {2056, 4112}, {7, 16, 128}, 3, 3, true, true},
    {DTYPE_BF16, DTYPE_F32, DTYPE_BF16, 2104, 2, {40, 296}, {8, 33, 40}, 5, 16, true, false},
    {DTYPE_BF16, DTYPE_BF16, DTYPE_BF16, 2048, 3, {256, 264, 528}, {16, 16, 16}, 20, 20, true, false},
    {DTYPE_F16, DTYPE_F16, DTYPE_F16, 1288, 2, {264, 528}, {16, 5, 12}, 4, 5, true, true},
    {DTYPE_BF16, DTYPE_BF16, DTYPE_BF16, 136, 2, {264, 528}, {16, 16, 16}, 150, 150, true, true},
};
#define CASES (int)(sizeof cases / sizeof *cases)

/* More than blocks know of at a time: of parts and steps of rank, of outputs. */
static const struct adapt_case larger[] = {
    {DTYPE_BF16, DTYPE_BF16, DTYPE_BF16, 264, 4, {8, 16, 24, 64}, {64, 58, 64}, 512, 512, true, false},
    {DTYPE_F16, DTYPE_F16, DTYPE_F16, 40, 1, {725504}, {2, 8, 1}, 5, 5, true, false},
};
#define LARGER (int)(sizeof larger / sizeof *larger)

/* By the way of many adapters, where there is one, and by that of few. */
START_TEST(each_row_gets_what_its_adapter_adds)
{
    static struct adapt_scene scene;
    const struct adapt_case *c = &cases[_i / 2];
    scene_make(c, &scene);
    if (_i % 2)
        scene.args.spreads = false;
    if (c->gated)
        ck_assert_int_eq(adapt_fuses(&scene.args), rig_gates_many);
    if (c->gated && !adapt_fuses(&scene.args)) {
        ck_assert_int_eq(op_adapt(&scene.args, rig_stream), cudaErrorInvalidValue);
    } else {
        OK(op_adapt(&scene.args, rig_stream));
        sums_check(c, &scene);
        if (c->gated)
            activated_check(c, &scene);
    }
    rig_end();
}
END_TEST

/* The last row of an adapter has the bits that it has without the others, and in a wider step; so
 * has it behind another ADAPT of the step, which made the list. */
START_TEST(rows_have_the_bits_that_they_have_alone)
{
    static struct adapt_scene scene;
    const struct adapt_case *c = &cases[_i];
    uint32_t last = c->count - 1, width = c->ends[c->parts - 1];
    size_t bytes = (size_t)width * dtype_bytes(c->y);
    if (c->gated || c->count < 2)
        return;
    char *together = malloc(bytes), *alone = malloc(bytes);
    scene_make(c, &scene);
    uint32_t row = scene.token_row[last];
    char *y = (char *)scene.args.y + scene.y.stride * last * dtype_bytes(c->y);
    char *before = malloc(bytes);
    rig_read(before, y, bytes);
    OK(op_adapt(&scene.args, rig_stream));
    rig_read(together, y, bytes);
    size_t x_bytes = c->k * dtype_bytes(c->x);
    char *x = malloc(x_bytes);
    rig_read(x, (const char *)scene.args.x + scene.x.stride * last * dtype_bytes(c->x), x_bytes);
    scene.args.x = rig_new(x, x_bytes);
    scene.args.y = rig_new(before, bytes);
    scene.args.token_row = rig_new(&row, sizeof row);
    scene.args.rows = rig_span(1, 0, 1);
    struct adapt_args first = scene.args;
    first.y = rig_new(before, bytes);
    OK(op_adapt(&first, rig_stream));
    scene.args.lists = false;
    OK(op_adapt(&scene.args, rig_stream));
    rig_read(alone, scene.args.y, bytes);
    ck_assert(memcmp(before, together, bytes) != 0);
    ck_assert(!memcmp(alone, together, bytes));
    free(x);
    free(before);
    free(together);
    free(alone);
    rig_end();
}
END_TEST

/* As many adapters as there may be, of which the scene's are one after the other, and the last has
 * all rows but one of each. */
static void adapters_spread(struct adapt_scene *s, uint32_t count)
{
    struct adapt_place places[GPU_ADAPTERS_MAX];
    struct batch_row rows[GPU_ADAPTERS_MAX] = {0};
    rig_read(places, s->args.places, ADAPTERS * sizeof *places);
    for (uint32_t i = 0; i < GPU_ADAPTERS_MAX; i++) {
        places[i] = places[i % ADAPTERS];
        rows[i].adapter = i + 1;
    }
    for (uint32_t i = 0; i < count; i++)
        s->token_row[i] = i < GPU_ADAPTERS_MAX ? i : GPU_ADAPTERS_MAX - 1;
    s->spread = true;
    s->args.places = rig_new(places, sizeof places);
    s->args.batch_rows = rig_new(rows, sizeof rows);
    s->args.token_row = rig_new(s->token_row, sizeof *s->token_row * count);
}

/* Few rows go another way than many, where there is room for it. */
static void ways_compare(const struct adapt_case *c)
{
    static struct adapt_scene scene;
    scene_make(c, &scene);
    if (c->count > GPU_ADAPTERS_MAX)
        adapters_spread(&scene, c->count);
    size_t bytes = (size_t)c->max * scene.y.stride * dtype_bytes(c->y);
    char *before = malloc(bytes);
    rig_read(before, scene.args.y, bytes);
    OK(op_adapt(&scene.args, rig_stream));
    tensor_read(&scene.y);
    struct tensor many = scene.y;
    many.host = malloc(sizeof(float) * many.rows * many.stride);
    scene.args.spreads = false;
    scene.args.y = many.device = rig_new(before, bytes);
    OK(op_adapt(&scene.args, rig_stream));
    tensor_read(&many);
    for (uint32_t row = 0; row < c->count; row++)
        for (uint32_t n = 0; n < c->ends[c->parts - 1]; n++) {
            double want = (double)tensor_at(&many, row, n);
            check_close((double)tensor_at(&scene.y, row, n), want, c->y, 0.01 + 0.01 * fabs(want));
        }
    free(before);
    free(many.host);
    rig_end();
}

START_TEST(blocks_take_more_than_they_know_at_a_time)
{
    ways_compare(&larger[_i]);
}
END_TEST

/* ---- in a product ---- */

/* F32 as y: added to it. */
static const struct adapt_case products[] = {
    {DTYPE_BF16, DTYPE_BF16, DTYPE_BF16, 512, 3, {256, 320, 384}, {16, 16, 16}, 64, 64, true, false},
    {DTYPE_BF16, DTYPE_F32, DTYPE_BF16, 2104, 2, {40, 1048}, {8, 33, 64}, 40, 64, true, false},
    {DTYPE_F16, DTYPE_F16, DTYPE_F16, 264, 4, {8, 16, 24, 600}, {1, 16, 12}, 60, 64, true, false},
    {DTYPE_F16, DTYPE_F32, DTYPE_F16, 1000, 1, {96}, {16, 12, 2}, 17, 17, true, false},
    {DTYPE_BF16, DTYPE_BF16, DTYPE_BF16, 256, 2, {344, 688}, {16, 8, 40}, 60, 60, true, true},
    {DTYPE_BF16, DTYPE_BF16, DTYPE_BF16, 136, 2, {2056, 4112}, {7, 16, 12}, 100, 100, true, true},
    {DTYPE_F16, DTYPE_F16, DTYPE_F16, 72, 2, {264, 528}, {16, 5, 12}, 17, 17, true, true},
    {DTYPE_BF16, DTYPE_BF16, DTYPE_BF16, 128, 3, {4096, 4736, 5376}, {16, 4, 16}, 100, 128, true, false},
    {DTYPE_BF16, DTYPE_BF16, DTYPE_BF16, 64, 2, {16392, 32768}, {16, 16, 24}, 5, 6, true, false},
    {DTYPE_BF16, DTYPE_BF16, DTYPE_BF16, 9224, 1, {136}, {64, 16, 48}, 1, 1, true, false},
};
#define PRODUCTS (int)(sizeof products / sizeof *products)

static struct matmul_args product_make(const struct adapt_case *c, struct adapt_scene *s)
{
    uint32_t width = c->ends[c->parts - 1];
    scene_make(c, s);
    s->multiplies = true;
    s->adds = c->y == DTYPE_F32;
    s->w = tensor_random(c->w, 1, width * c->k, 0.1f);
    return (struct matmul_args){
        .rows = s->args.rows,
        .w = {.data = s->w.device, .format = format_plain(c->w), .n = width, .k = c->k},
        .x = s->x.device,
        .y = c->gated ? s->out.device : s->y.device,
        .x_stride = s->x.stride,
        .y_stride = c->gated ? s->out.stride : s->y.stride,
        .x_dtype = c->x,
        .y_dtype = c->y,
        .bias_dtype = DTYPE_BF16,
        .gated = c->gated,
        .adds = s->adds,
    };
}

static void product_check(const struct adapt_case *c, struct adapt_scene *s)
{
    struct tensor y = s->y;
    y.host = malloc(sizeof(float) * y.rows * y.stride);
    tensor_read(&y);
    for (uint32_t row = 0; row < c->count; row++)
        for (uint32_t n = 0; n < c->ends[c->parts - 1]; n++) {
            double slack, want = expected(c, s, row, adapter_of(s, row), n, &slack);
            check_close((double)tensor_at(&y, row, n), want, c->y, slack);
        }
    free(y.host);
}

START_TEST(a_product_gives_what_adapters_add_as_well)
{
    static struct adapt_scene scene;
    const struct adapt_case *c = &products[_i];
    struct matmul_args product = product_make(c, &scene);
    ck_assert_int_eq(adapted_fuses(&product, &scene.args), rig_gates_many);
    if (!rig_gates_many) {
        ck_assert_int_eq(op_adapted(&product, &scene.args, rig_stream), cudaErrorInvalidValue);
    } else {
        OK(op_adapted(&product, &scene.args, rig_stream));
        if (c->gated)
            activated_check(c, &scene);
        else
            product_check(c, &scene);
    }
    rig_end();
}
END_TEST

/* A row's bits are the same whatever adapters others have, and whatever is in these. */
START_TEST(rows_in_a_product_do_not_see_each_other)
{
    static struct adapt_scene scene;
    const struct adapt_case *c = &products[_i];
    struct matmul_args product = product_make(c, &scene);
    size_t bytes = (size_t)c->max * product.y_stride * dtype_bytes(c->y);
    char *before = malloc(bytes), *together = malloc(bytes), *alone = malloc(bytes);
    rig_read(before, product.y, bytes);
    if (rig_gates_many)
        OK(op_adapted(&product, &scene.args, rig_stream));
    rig_read(together, product.y, bytes);
    for (uint32_t i = 1; rig_gates_many && i <= ADAPTERS; i++) {
        struct adapt_place places[ADAPTERS];
        struct batch_row rows[SEQUENCES];
        memcpy(rows, scene.rows, sizeof rows);
        rig_read(places, scene.args.places, sizeof places);
        for (uint32_t p = 0; p < c->parts; p++) { /* another's are huge, or nobody's */
            struct pair *pair = &scene.pairs[i % ADAPTERS][p];
            size_t size = sizeof(uint16_t) * pair->b.stride;
            void *huge = memset(malloc(size), c->w == DTYPE_BF16 ? 0x7f : 0x7b, size);
            if (has_part(i % ADAPTERS, p))
                places[i % ADAPTERS].parts[p].b = rig_new(huge, size);
            free(huge);
        }
        for (uint32_t j = 0; j < SEQUENCES; j++)
            rows[j].adapter = rows[j].adapter == (i + 1) % ADAPTERS + 1 ? 0 : rows[j].adapter;
        struct adapt_args args = scene.args;
        args.places = rig_new(places, sizeof places);
        args.batch_rows = rig_new(rows, sizeof rows);
        product.y = rig_new(before, bytes);
        OK(op_adapted(&product, &args, rig_stream));
        rig_read(alone, product.y, bytes);
        size_t row_bytes = (size_t)product.y_stride * dtype_bytes(c->y);
        size_t of_row = (size_t)(c->gated ? c->ends[0] : c->ends[c->parts - 1]) * dtype_bytes(c->y);
        for (uint32_t row = 0; row < c->count; row++)
            if (adapter_of(&scene, row) == i || adapter_of(&scene, row) == 0)
                ck_assert(!memcmp(alone + row * row_bytes, together + row * row_bytes, of_row));
    }
    free(before);
    free(together);
    free(alone);
    rig_end();
}
END_TEST

/* So many that a stage does not hold them all. */
START_TEST(a_product_goes_through_as_many_adapters_as_there_may_be)
{
    static const struct adapt_case of_many[] = {
        {DTYPE_BF16, DTYPE_BF16, DTYPE_BF16, 512, 2, {72, 144}, {64, 58, 64}, 64, 64, true, false},
        {DTYPE_F16, DTYPE_F32, DTYPE_F16, 4096, 1, {264}, {16, 8, 1}, 64, 64, true, false},
        {DTYPE_BF16, DTYPE_BF16, DTYPE_BF16, 512, 2, {256, 512}, {16, 16, 15}, 128, 128, true, true},
        {DTYPE_BF16, DTYPE_BF16, DTYPE_BF16, 264, 2, {14336, 28672}, {16, 8, 16}, 64, 64, true, true},
        {DTYPE_F16, DTYPE_F16, DTYPE_F16, 136, 2, {3072, 6144}, {16, 12, 16}, 40, 40, true, true},
    };
#define OF_MANY 5
    static struct adapt_scene scene;
    const struct adapt_case *c = &of_many[_i];
    struct matmul_args product = product_make(c, &scene);
    adapters_spread(&scene, c->count);
    if (rig_gates_many) {
        OK(op_adapted(&product, &scene.args, rig_stream));
        if (c->gated)
            activated_check(c, &scene);
        else
            product_check(c, &scene);
    }
    rig_end();
}
END_TEST

/* Up to ADAPTED_ROWS_ANY a row's bits do not depend on how many there are: tiles of a width have
 * one order of sums. */
START_TEST(products_of_a_step_give_equal_bits)
{
    static const struct adapt_case shapes[] = {
        {DTYPE_BF16, DTYPE_BF16, DTYPE_BF16, 1024, 2, {14336, 28672}, {16, 16, 8}, 64, 64, true, true},
        {DTYPE_BF16, DTYPE_BF16, DTYPE_BF16, 512, 3, {4096, 5120, 6144}, {16, 8, 16}, 64, 64, true, false},
        {DTYPE_F16, DTYPE_F32, DTYPE_F16, 832, 1, {4096}, {16, 12, 16}, 64, 64, true, false},
    };
    static struct adapt_scene scene;
    const struct adapt_case *c = &shapes[_i];
    struct matmul_args product = product_make(c, &scene);
    size_t row_bytes = (size_t)product.y_stride * dtype_bytes(c->y), bytes = c->max * row_bytes;
    char *before = malloc(bytes), *all = malloc(bytes), *some = malloc(bytes);
    rig_read(before, product.y, bytes);
    if (rig_gates_many)
        OK(op_adapted(&product, &scene.args, rig_stream));
    rig_read(all, product.y, bytes);
    for (uint32_t rows = 17; rig_gates_many && rows < c->max; rows += 23) {
        struct adapt_args args = scene.args;
        args.rows.count = rig_new(&rows, sizeof rows);
        args.rows.max = rows;
        product.rows = args.rows;
        product.y = rig_new(before, bytes);
        OK(op_adapted(&product, &args, rig_stream));
        rig_read(some, product.y, bytes);
        ck_assert(!memcmp(some, all, rows * row_bytes));
    }
    free(before);
    free(all);
    free(some);
    rig_end();
}
END_TEST

START_TEST(products_that_cannot_say_so)
{
    static struct adapt_scene scene;
    struct matmul_args product = product_make(&products[0], &scene);
    for (uint32_t i = 0; i < 7; i++) {
        struct matmul_args other = product;
        struct adapt_args args = scene.args;
        if (i == 0)
            args.sums = NULL;
        if (i == 1)
            args.alike = false;
        if (i == 2)
            args.invariant = true;
        if (i == 3)
            other.invariant = true;
        if (i == 4)
            other.rows.max = args.rows.max = ADAPTED_ROWS_MAX + 1;
        if (i == 5)
            args.rank_max = ADAPTED_RANK_MAX + 1;
        if (i == 6)
            args.ends[2] += 8;
        ck_assert(!adapted_fuses(&other, &args));
        ck_assert_int_eq(op_adapted(&other, &args, NULL), cudaErrorInvalidValue);
    }
    rig_end();
}
END_TEST

START_TEST(many_adapters_are_a_way_of_their_own)
{
    ck_assert(adapt_spread(64, 64) == ADAPT_SPREAD && adapt_spread(40, 33) == ADAPT_SPREAD);
    ck_assert(adapt_spread(64, 8) == ADAPT_MIXED && adapt_spread(8, 8) == ADAPT_MIXED &&
              adapt_spread(64, 32) == ADAPT_MIXED);
    ck_assert(adapt_spread(65, 8) == ADAPT_SHARED && adapt_spread(7, 7) == ADAPT_SHARED &&
              adapt_spread(0, 0) == ADAPT_SHARED);
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
    args.rank_max = 8;
    args.gated = true; /* of one part */
    ck_assert_int_eq(op_adapt(&args, NULL), cudaErrorInvalidValue);
}
END_TEST

Suite *adapt_suite(void)
{
    Suite *suite = suite_create("adapt");
    TCase *tcase = tcase_create("adapt");
    tcase_add_loop_test(tcase, each_row_gets_what_its_adapter_adds, 0, 2 * CASES);
    tcase_add_loop_test(tcase, rows_have_the_bits_that_they_have_alone, 0, CASES);
    tcase_add_loop_test(tcase, blocks_take_more_than_they_know_at_a_time, 0, LARGER);
    tcase_add_loop_test(tcase, a_product_gives_what_adapters_add_as_well, 0, PRODUCTS);
    tcase_add_loop_test(tcase, rows_in_a_product_do_not_see_each_other, 0, PRODUCTS);
    tcase_add_loop_test(tcase, a_product_goes_through_as_many_adapters_as_there_may_be, 0, OF_MANY);
    tcase_add_loop_test(tcase, products_of_a_step_give_equal_bits, 0, 3);
    tcase_add_test(tcase, products_that_cannot_say_so);
    tcase_add_test(tcase, many_adapters_are_a_way_of_their_own);
    tcase_add_test(tcase, what_does_not_fit_is_refused);
    suite_add_tcase(suite, tcase);
    return suite;
}
