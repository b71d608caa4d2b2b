/* gemm: right against doubles, and the same bits in every variant, beside anything and in pieces.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/jobs/device_rig.h"
#include "tests/jobs/device_suites.h"
#include "tests/runner.h"

#define VARIANTS 4     /* with a cluster and without, started early and not */
#define CHECKED 40000u /* elements of a product that are added up in doubles */

enum { M, K, N };

struct product {
    uint64_t sizes[3];
    uint16_t *a, *b, *c[VARIANTS];
};

static float widened(uint16_t bits)
{
    uint32_t word = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &word, sizeof(value));
    return value;
}

/* From -2 to 2, of a few bits. */
static uint16_t *draw_matrix(uint64_t elements)
{
    uint16_t *matrix = malloc(elements * sizeof(*matrix));
    ck_assert_ptr_nonnull(matrix);
    for (uint64_t i = 0; i < elements; i++) {
        float value = (float)((int)device_rig_draw(513) - 256) / 128;
        uint32_t word;
        memcpy(&word, &value, sizeof(word));
        matrix[i] = (uint16_t)(word >> 16);
    }
    return matrix;
}

static void make_product(struct product *product, uint64_t m, uint64_t k, uint64_t n)
{
    *product = (struct product){.sizes = {m, k, n}};
    product->a = draw_matrix(m * k);
    product->b = draw_matrix(k * n);
    for (int i = 0; i < VARIANTS; i++) {
        product->c[i] = malloc(m * n * sizeof(uint16_t));
        ck_assert_ptr_nonnull(product->c[i]);
        memset(product->c[i], 0xff, m * n * sizeof(uint16_t)); /* NaN */
    }
}

static void free_product(struct product *product)
{
    free(product->a);
    free(product->b);
    for (int i = 0; i < VARIANTS; i++)
        free(product->c[i]);
}

static struct gpu_piece piece_of(const struct product *product, int variant)
{
    struct gpu_piece piece = {.whole = product->sizes[M],
                              .inputs = {product->a, product->b},
                              .outputs = {product->c[variant]}};
    memcpy(piece.sizes, product->sizes, sizeof(product->sizes));
    piece.values[0].integer = variant & 1;
    piece.values[1].integer = variant >> 1;
    return piece;
}

/* A bf16 result is off by half of its last bit, and by what float32 sums in any order are. */
static bool element_right(const struct product *product, uint64_t row, uint64_t column)
{
    const uint64_t k = product->sizes[K], n = product->sizes[N];
    double want = 0, mass = 0;
    for (uint64_t i = 0; i < k; i++) {
        double term =
            (double)widened(product->a[row * k + i]) * (double)widened(product->b[i * n + column]);
        want += term;
        mass += fabs(term);
    }
    const double got = widened(product->c[0][row * n + column]);
    return fabs(got - want) <= fabs(want) / 256 + mass / 65536;
}

static void check_product(const struct product *product)
{
    const uint64_t m = product->sizes[M], n = product->sizes[N], all = m * n;
    const uint64_t every = 1 + all / CHECKED;
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < all; i += every)
        wrong += !element_right(product, i / n, i % n);
    ck_assert_msg(wrong == 0, "%lu elements of %lu x %lu x %lu are wrong", wrong, m,
                  product->sizes[K], n);
    for (int i = 1; i < VARIANTS; i++)
        ck_assert_msg(!memcmp(product->c[0], product->c[i], all * sizeof(uint16_t)),
                      "variant %d of %lu x %lu x %lu has other bits", i, m, product->sizes[K], n);
}

static bool open_rig(struct device_rig *rig)
{
    const struct gpu_jobs_options options = {
        .lanes = 1, .ring = 1, .chunk_bytes = 48u << 20, .stream_count = 1};
    return device_rig_open(rig, GEMM_FILE, &options);
}

/* One chunk from begin to end. */
static void run(struct device_rig *rig, struct gpu_piece *pieces, uint32_t count)
{
    struct gpu_chunk chunk = {.program = &rig->program, .count = count, .pieces = pieces};
    device_rig_submit(rig, &chunk);
    ck_assert_ptr_eq(device_rig_wait(rig), &chunk);
}

/* Around tiles, stages, boxes and rings; rows that are no multiple of 16 bytes among them. */
static const uint64_t small[][3] = {
    {1, 8, 8},       {1, 1, 1},      {128, 64, 256}, {129, 72, 264}, {7, 13, 5},
    {257, 1000, 24}, {64, 320, 512}, {300, 136, 33}, {200, 56, 520}, {385, 2056, 264},
};
#define SMALL (sizeof(small) / sizeof(small[0]))

START_TEST(test_products_of_all_sizes_in_one_batch_are_right)
{
    struct product products[SMALL];
    struct gpu_piece pieces[SMALL * VARIANTS];
    struct device_rig rig;
    if (!open_rig(&rig))
        RUNNER_SKIP("there is no device");
    for (uint32_t i = 0; i < SMALL; i++) {
        make_product(&products[i], small[i][M], small[i][K], small[i][N]);
        for (int j = 0; j < VARIANTS; j++)
            pieces[i * VARIANTS + (uint32_t)j] = piece_of(&products[i], j);
    }
    for (int round = 0; round < 3; round++)
        run(&rig, pieces, SMALL * VARIANTS);
    for (uint32_t i = 0; i < SMALL; i++) {
        check_product(&products[i]);
        free_product(&products[i]);
    }
    (void)device_rig_close(&rig);
}
END_TEST

/* More tiles than a GPU has SMs, the last cluster's second row of them beyond C. */
START_TEST(test_a_product_of_many_tiles_is_right)
{
    struct product product;
    struct gpu_piece pieces[VARIANTS];
    struct device_rig rig;
    if (!open_rig(&rig))
        RUNNER_SKIP("there is no device");
    make_product(&product, 1032, 136, 4200);
    for (int i = 0; i < VARIANTS; i++)
        pieces[i] = piece_of(&product, i);
    run(&rig, pieces, VARIANTS);
    check_product(&product);
    free_product(&product);
    (void)device_rig_close(&rig);
}
END_TEST

START_TEST(test_pieces_of_a_product_have_the_bits_of_the_whole)
{
    struct product whole;
    struct gpu_piece pieces[3];
    struct device_rig rig;
    uint64_t first = 0;
    if (!open_rig(&rig))
        RUNNER_SKIP("there is no device");
    const uint64_t cut = rig.program.cut_rows, rows[] = {cut, 2 * cut, 77};
    make_product(&whole, 3 * cut + 77, 136, 520);
    for (int i = 0; i < VARIANTS; i++) {
        pieces[0] = piece_of(&whole, i);
        run(&rig, pieces, 1);
    }
    check_product(&whole);
    for (int i = 0; i < 3; i++) {
        pieces[i] = piece_of(&whole, 3);
        pieces[i].sizes[M] = rows[i];
        pieces[i].first = first;
        pieces[i].inputs[0] = whole.a + first * whole.sizes[K];
        pieces[i].outputs[0] = whole.c[3] + first * whole.sizes[N];
        first += rows[i];
    }
    memset(whole.c[3], 0xff, whole.sizes[M] * whole.sizes[N] * sizeof(uint16_t));
    run(&rig, pieces, 3);
    check_product(&whole);
    free_product(&whole);
    (void)device_rig_close(&rig);
}
END_TEST

Suite *gemm_suite(void)
{
    Suite *suite = suite_create("gemm");
    TCase *tests = tcase_create("gemm");
    tcase_set_timeout(tests, 240);
    tcase_add_test(tests, test_products_of_all_sizes_in_one_batch_are_right);
    tcase_add_test(tests, test_a_product_of_many_tiles_is_right);
    tcase_add_test(tests, test_pieces_of_a_product_have_the_bits_of_the_whole);
    suite_add_tcase(suite, tests);
    return suite;
}
