/* A row's bits among any number of others: of each kernel that the invariant mode may take. */
#include <stdio.h>
#include <string.h>

#include "gpu/kernels/cpu/number.h"
#include "gpu/kernels/experts/experts.h"
#include "gpu/kernels/matmul/matmul.h"
#include "gpu/kernels/norm/norm.h"
#include "tests/gpu/kernels/rig.h"
#include "tests/gpu/kernels/suites.h"

#define ROWS 520
#define COUNTS (sizeof counts / sizeof counts[0])

/* On both sides of where another kernel, or another tile, is taken. */
static const uint32_t counts[] = {1,   2,   3,   8,   9,   16,  17,  33,  64,  65,
                                  128, 129, 200, 256, 257, 320, 321, 512, ROWS};

/* As wide as asks for each width of tiles, where SMs are 132; the last are for the kernel of any
 * shape. Those from BIG on are for GPUs. */
static const struct product {
    uint32_t n, k;
    bool gated, adds, sums, bias; /* sums: in float32 */
} products[] = {
    {64, 72, false, false, false, false},
    {136, 200, false, true, true, false},
    {33, 40, false, false, true, true},
    {40, 77, false, true, true, false},
#define BIG 4
    {2048, 1000, false, false, false, true},
    {2048, 1000, false, true, true, false},
    {4096, 1024, false, true, true, false},
    {4096, 1032, false, false, false, false},
    {6144, 512, false, false, false, true},
    {8192, 512, false, false, false, false},
    {12288, 256, false, true, true, false},
    {14336, 256, true, false, false, false},
    {20480, 256, true, false, false, false},
    {24576, 256, true, false, false, false},
    {28672, 256, true, false, false, false},
    {32016, 256, false, false, true, false},
    {1024, 3072, true, false, false, false},
};

static const char *name_of(enum dtype dtype)
{
    return format_info(format_plain(dtype)).name;
}

/* Rows first .. first + count - 1 of what `whole` says of all. */
static void part_check(const char *what, enum dtype dtype, const void *part, const void *whole,
                       uint32_t first, uint32_t count, uint32_t width)
{
    const uint32_t each = dtype_bytes(dtype);
    for (uint32_t row = 0; row < count; row++) {
        const char *got = (const char *)part + (size_t)row * width * each;
        const char *want = (const char *)whole + (size_t)(first + row) * width * each;
        uint32_t i = 0;
        if (!memcmp(got, want, (size_t)width * each))
            continue;
        while (!memcmp(got + (size_t)i * each, want + (size_t)i * each, each))
            i++;
        float values[2];
        number_widen(&values[0], got + (size_t)i * each, dtype, 1);
        number_widen(&values[1], want + (size_t)i * each, dtype, 1);
        ck_abort_msg("%s: row %u of %u differs from itself in %u rows at output %u: %a, not %a", what,
                     row, count, ROWS, i, (double)values[0], (double)values[1]);
    }
}

struct product_run {
    const struct product *p;
    struct tensor w, x, bias, before; /* before: what is added to, as values without gaps */
    enum dtype dtype;
    uint32_t width;
};

/* In fresh memory of this machine. */
static void *product_make(const struct product_run *run, uint32_t first, uint32_t count)
{
    const struct product *p = run->p;
    const enum dtype y = p->sums ? DTYPE_F32 : run->dtype;
    const size_t bytes = (size_t)count * run->width * dtype_bytes(y);
    const float *before = p->adds ? run->before.host + (size_t)first * run->width : NULL;
    void *out = malloc(bytes);
    struct matmul_args args = {
        .rows = rig_span(count, 0, count),
        .w = {.data = run->w.device, .format = format_plain(run->dtype), .n = p->n, .k = p->k},
        .bias = run->bias.device,
        .bias_dtype = DTYPE_F32,
        .x = (const char *)run->x.device + (size_t)first * run->x.stride * dtype_bytes(run->dtype),
        .y = rig_new(before, bytes),
        .x_stride = run->x.stride,
        .y_stride = run->width,
        .x_dtype = run->dtype,
        .y_dtype = y,
        .gated = p->gated,
        .adds = p->adds,
        .invariant = true,
    };
    if (!matmul_fuses(&args)) { /* the CPU device's products stand alone */
        ck_assert(!rig_kernels_wait && (p->gated || p->adds));
        args.gated = args.adds = false;
    }
    ck_assert_ptr_nonnull(out);
    OK(op_matmul(&args, rig_stream));
    rig_read(out, args.y, bytes);
    return out;
}

START_TEST(a_row_of_a_product_has_its_bits_among_any_number)
{
    rig_begin();
    tensor_align(8);
    const struct product *p = &products[_i / 2];
    struct product_run run = {.p = p, .dtype = _i % 2 ? DTYPE_F16 : DTYPE_BF16};
    char what[128];
    run.width = p->gated ? p->n / 2 : p->n;
    run.w = tensor_random(run.dtype, 1, p->n * p->k, 1);
    run.x = tensor_random(run.dtype, ROWS, p->k, 1);
    if (p->bias)
        run.bias = tensor_random(DTYPE_F32, 1, p->n, 1);
    if (p->adds)
        run.before = tensor_random(DTYPE_F32, ROWS, run.width, 1);
    snprintf(what, sizeof what, "product of %u x %u in %s%s%s%s%s", p->n, p->k, name_of(run.dtype),
             p->gated ? ", gated" : "", p->adds ? ", added" : "", p->sums ? ", to float32" : "",
             p->bias ? ", with a bias" : "");
    void *whole = product_make(&run, 0, ROWS);
    for (size_t i = 0; i < COUNTS; i++) {
        const uint32_t first = (ROWS - counts[i]) * 3 / 4;
        void *part = product_make(&run, first, counts[i]);
        part_check(what, p->sums ? DTYPE_F32 : run.dtype, part, whole, first, counts[i], run.width);
        free(part);
    }
    free(whole);
    rig_end();
}
END_TEST

/* Of more rows than are taken at once they go in turns. */
START_TEST(a_row_s_norm_has_its_bits_among_any_number)
{
    static const uint32_t sizes[] = {72, 4096, 9000};
    const uint32_t size = sizes[_i], rows = 9000000 / size > 40000 ? 40000 : 9000000 / size;
    const enum dtype dtype = DTYPE_BF16;
    rig_begin();
    tensor_align(8);
    struct tensor x = tensor_random(DTYPE_F32, rows, size, 1);
    struct tensor weight = tensor_random(dtype, 1, size, 1);
    struct norm_args args = {.residual = x.device,
                             .weight = weight.device,
                             .size = size,
                             .residual_stride = x.stride,
                             .out_stride = size,
                             .residual_dtype = DTYPE_F32,
                             .weight_dtype = dtype,
                             .out_dtype = dtype,
                             .eps = 1e-6f};
    uint16_t *whole = malloc((size_t)rows * size * 2), *part = malloc((size_t)ROWS * size * 2);
    args.rows = rig_span(rows, 0, rows);
    args.out = rig_new(NULL, (size_t)rows * size * 2);
    OK(op_norm(&args, rig_stream));
    rig_read(whole, args.out, (size_t)rows * size * 2);
    for (size_t i = 0; i < COUNTS; i++) {
        args.rows = rig_span(counts[i], 0, counts[i]);
        OK(op_norm(&args, rig_stream));
        rig_read(part, args.out, (size_t)counts[i] * size * 2);
        part_check(size > 4096 ? "norm of 9000" : size > 72 ? "norm of 4096" : "norm of 72", dtype,
                   part, whole, 0, counts[i], size);
    }
    free(whole);
    free(part);
    rig_end();
}
END_TEST

#define EXPERTS 8
#define TOP 2
#define HIDDEN 136
#define INNER 72

struct mixture {
    struct tensor x, router, up;
    void *routes, *segments, *y;
};

/* Gate and up of rows first and on through their experts: [count * TOP][INNER]. */
static void mixture_make(const struct mixture *m, uint32_t first, uint32_t count, uint16_t *ret)
{
    const struct row_range rows = rig_span(count, 0, count);
    const struct expert_range own = {0, EXPERTS};
    const char *x = (const char *)m->x.device + (size_t)first * m->x.stride * 2;
    struct route_args route = {
        .rows = rows,
        .w = {.data = m->router.device, .format = FORMAT_BF16, .n = EXPERTS, .k = HIDDEN},
        .x = x,
        .routes = m->routes,
        .x_stride = m->x.stride,
        .x_dtype = DTYPE_BF16,
        .count = EXPERTS,
        .top = TOP,
        .normalised = true,
        .scale = 1,
    };
    struct segments_args segments = {.rows = rows,
                                     .routes = m->routes,
                                     .stride = TOP,
                                     .top = TOP,
                                     .own = own,
                                     .segments = m->segments};
    struct experts_args experts = {
        .rows = rows,
        .w = {.data = m->up.device, .format = FORMAT_BF16, .n = 2 * INNER, .k = HIDDEN},
        .segments = m->segments,
        .routes = m->routes,
        .route_stride = TOP,
        .top = TOP,
        .own = own,
        .x = x,
        .y = m->y,
        .x_stride = m->x.stride,
        .y_stride = INNER,
        .dtype = DTYPE_BF16,
        .spread = true,
        .gated = true,
        .invariant = true,
    };
    OK(op_route(&route, rig_stream));
    OK(op_segments(&segments, rig_stream));
    OK(op_experts(&experts, rig_stream));
    rig_read(ret, m->y, (size_t)count * TOP * INNER * 2);
}

START_TEST(a_row_s_experts_give_its_bits_among_any_number)
{
    static uint16_t whole[ROWS * TOP * INNER], part[ROWS * TOP * INNER];
    rig_begin();
    tensor_align(8);
    struct mixture m = {.x = tensor_random(DTYPE_BF16, ROWS, HIDDEN, 1),
                        .router = tensor_random(DTYPE_BF16, 1, EXPERTS * HIDDEN, 1),
                        .up = tensor_random(DTYPE_BF16, 1, EXPERTS * 2 * INNER * HIDDEN, 1),
                        .routes = rig_new(NULL, (size_t)ROWS * TOP * sizeof(struct route)),
                        .segments = rig_new(NULL, (EXPERTS + 1 + ROWS * TOP) * sizeof(uint32_t)),
                        .y = rig_new(NULL, sizeof whole)};
    mixture_make(&m, 0, ROWS, whole);
    for (size_t i = 0; i < COUNTS; i++) {
        const uint32_t first = (ROWS - counts[i]) / 2;
        mixture_make(&m, first, counts[i], part);
        part_check("experts' gate and up", DTYPE_BF16, part, whole, first, counts[i], TOP * INNER);
    }
    rig_end();
}
END_TEST

Suite *invariant_suite(void)
{
    Suite *suite = suite_create("kernels: invariant");
    TCase *tcase = tcase_create("invariant");
    const int all = sizeof products / sizeof products[0];
    tcase_set_timeout(tcase, 300);
    tcase_add_loop_test(tcase, a_row_of_a_product_has_its_bits_among_any_number, 0,
                        2 * (rig_kernels_wait ? all : BIG));
    tcase_add_loop_test(tcase, a_row_s_norm_has_its_bits_among_any_number, 0, 3);
    tcase_add_test(tcase, a_row_s_experts_give_its_bits_among_any_number);
    suite_add_tcase(suite, tcase);
    return suite;
}
