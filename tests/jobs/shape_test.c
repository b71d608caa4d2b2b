/* Sizes to bytes: what a client may say, and how items are cut. */
#include <string.h>

#include "gpu/jobs/shape.h"
#include "tests/jobs/bench.h"

static const struct sluice_size sizes[] = {{"n", 1, 1 << 20}, {"k", 2, 64}};
static const struct sluice_tensor inputs[] = {
    {"x", SLUICE_F32, 2, {SLUICE_SIZE(0), SLUICE_SIZE(1)}}, {"w", SLUICE_F64, 1, {SLUICE_SIZE(1)}}};
static const struct sluice_tensor outputs[] = {{"y", SLUICE_U8, 2, {SLUICE_SIZE(0), 3}}};

static int nothing(const struct sluice_batch *batch, const struct sluice_streams *streams,
                   struct sluice_allocator *allocator)
{
    (void)batch;
    (void)streams;
    (void)allocator;
    return 0;
}

static struct sluice_program said(void)
{
    return (struct sluice_program){.abi = SLUICE_PROGRAM_ABI, .name = "p", .size_count = 2,
                                   .input_count = 2, .output_count = 1, .sizes = sizes,
                                   .inputs = inputs, .outputs = outputs, .cut_rows = 10,
                                   .enqueue = nothing};
}

START_TEST(test_dimensions_of_a_client_are_held_against_the_program)
{
    static const struct {
        uint32_t tensor, rank;
        uint64_t dimensions[3];
        int code; /* 0: they are right, behind n = 5 and k = 7 */
        const char *names;
    } cases[] = {
        {0, 2, {5, 7, 0}, 0, ""},
        {1, 1, {7, 0, 0}, 0, ""},
        {0, 1, {5, 0, 0}, ERR_BAD_VALUE, "x has 1 dimensions"},
        {0, 3, {5, 7, 1}, ERR_BAD_VALUE, "x has 3 dimensions"},
        {0, 2, {6, 7, 0}, ERR_BAD_VALUE, "x: dimension 0 (n)"},
        {1, 1, {8, 0, 0}, ERR_BAD_VALUE, "w: dimension 0 (k)"},
        {0, 2, {0, 7, 0}, ERR_BAD_VALUE, "x: dimension 0 (n)"},
        {0, 2, {(1 << 20) + 1, 7, 0}, ERR_TOO_LARGE, "x: dimension 0 (n)"},
        {0, 2, {UINT64_MAX, UINT64_MAX, 0}, ERR_TOO_LARGE, "x: dimension 0 (n)"},
        {1, 1, {1, 0, 0}, ERR_BAD_VALUE, "w: dimension 0 (k)"},
        {1, 1, {65, 0, 0}, ERR_TOO_LARGE, "w: dimension 0 (k)"},
    };
    const struct sluice_program from = said();
    struct program program = bench_program(&from);
    uint64_t known[SLUICE_SIZES_MAX] = {5, 7};
    struct error error;
    int rc = shape_match(&program, &program.inputs[cases[_i].tensor], cases[_i].rank,
                         cases[_i].dimensions, known, &error);
    ck_assert_int_eq(rc, -cases[_i].code);
    ck_assert(rc == 0 || !strncmp(error.text, cases[_i].names, strlen(cases[_i].names)));
}
END_TEST

START_TEST(test_bytes_that_overflow_are_too_large)
{
    static const struct sluice_size wide[] = {{"n", 1, (uint64_t)1 << 40}};
    static const struct sluice_tensor cube[] = {
        {"x", SLUICE_F64, 3, {SLUICE_SIZE(0), SLUICE_SIZE(0), SLUICE_SIZE(0)}}};
    struct sluice_program from = said();
    from.sizes = wide;
    from.inputs = cube;
    from.size_count = from.input_count = 1;
    from.cut_rows = 0;
    struct program program = bench_program(&from);
    uint64_t size[SLUICE_SIZES_MAX] = {(uint64_t)1 << 22}, bytes = 1; /* 2^69 bytes */
    struct error error;
    ck_assert_int_eq(shape_bytes(&program.inputs[0], size, &bytes, &error), -ERR_TOO_LARGE);
    size[0] = 1 << 12; /* 2^39 */
    ck_assert_int_eq(shape_bytes(&program.inputs[0], size, &bytes, &error), 0);
    ck_assert_uint_eq(bytes, (uint64_t)1 << 39);
}
END_TEST

START_TEST(test_items_are_cut_at_multiples_that_fit)
{
    const struct sluice_program from = said();
    struct program program = bench_program(&from);
    struct sluice_item item = {.sizes = {1000, 16}};
    /* A row has 64 bytes of x; w has 128 and comes with each piece; all in whole 256. */
    ck_assert_uint_eq(shape_rows(&program, &item, 1 << 20, 1 << 20), 1000);
    ck_assert_uint_eq(shape_rows(&program, &item, 256 + 64 * 100, 1 << 20), 100);
    ck_assert_uint_eq(shape_rows(&program, &item, 255 + 64 * 100, 1 << 20), 90);
    ck_assert_uint_eq(shape_rows(&program, &item, 256 + 64 * 10 - 1, 1 << 20), 0);
    ck_assert_uint_eq(shape_rows(&program, &item, 1 << 20, 4096), 50); /* y, too: 3 bytes a row */
    item.sizes[0] = 9;
    ck_assert_uint_eq(shape_rows(&program, &item, 256 + 512, 1 << 20), 0); /* the least is not cut */
    ck_assert_uint_eq(shape_offset(&program.inputs[0], item.sizes, 10), 640);
    ck_assert_uint_eq(shape_offset(&program.inputs[1], item.sizes, 10), 0);
    ck_assert_uint_eq(shape_offset(&program.outputs[0], item.sizes, 10), 30);
    program.cut_rows = 0;
    item.sizes[0] = 1000;
    ck_assert_uint_eq(shape_rows(&program, &item, 256 + 64 * 100, 1 << 20), 0);
}
END_TEST

Suite *shape_suite(void)
{
    Suite *suite = suite_create("shape");
    TCase *tests = tcase_create("shape");
    tcase_add_loop_test(tests, test_dimensions_of_a_client_are_held_against_the_program, 0, 11);
    tcase_add_test(tests, test_bytes_that_overflow_are_too_large);
    tcase_add_test(tests, test_items_are_cut_at_multiples_that_fit);
    suite_add_tcase(suite, tests);
    return suite;
}
