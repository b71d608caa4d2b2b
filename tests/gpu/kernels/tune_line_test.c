/* Lines of timed products: what was written is read, and nothing else is. */
#include "gpu/kernels/matmul/tune_line.h"

#include <string.h>

#include "tests/gpu/kernels/rig.h"
#include "tests/gpu/kernels/suites.h"

static const struct {
    struct lt_shape shape;
    uint32_t choice;
    const char *line;
} lines[] = {
    {{17, 4096, 14336, FORMAT_BF16, DTYPE_BF16, DTYPE_F32, 0},
     7,
     "17 4096 14336 bf16 bf16 f32 0 7\n"},
    {{8192, 6144, 4096, FORMAT_F16, DTYPE_F16, DTYPE_F16, 1},
     0,
     "8192 6144 4096 f16 f16 f16 1 0\n"},
    {{32, 1, 1, FORMAT_F32, DTYPE_F32, DTYPE_F32, 0}, 1, "32 1 1 f32 f32 f32 0 1\n"},
    {{64, 28672, 4096, FORMAT_E4M3, LT_X_SCALED + LT_UNSCALED, DTYPE_F32, 0},
     3,
     "64 28672 4096 e4m3 e4m3 f32 0 3\n"},
    {{1024, 28672, 4096, FORMAT_E4M3, LT_X_SCALED + LT_OUTER, DTYPE_BF16, 0},
     2,
     "1024 28672 4096 e4m3 e4m3-rows bf16 0 2\n"},
    {{1024, 28672, 4096, FORMAT_E4M3, LT_X_SCALED + LT_BLOCKS, DTYPE_F16, 0},
     5,
     "1024 28672 4096 e4m3 e4m3-blocks f16 0 5\n"},
    {{1536, 4096, 14336, FORMAT_BF16, DTYPE_BF16, DTYPE_F32, 0},
     TUNE_TILES,
     "1536 4096 14336 bf16 bf16 f32 0 tiles\n"},
};

START_TEST(what_was_written_is_read)
{
    char line[TUNE_LINE_BYTES];
    struct lt_shape shape;
    uint32_t choice;
    memset(&shape, 0xa5, sizeof shape);
    ck_assert_uint_eq(tune_line_write(&lines[_i].shape, lines[_i].choice, line), strlen(line));
    ck_assert_str_eq(line, lines[_i].line);
    ck_assert(tune_line_read(line, &shape, &choice));
    ck_assert_mem_eq(&shape, &lines[_i].shape, sizeof shape);
    ck_assert_uint_eq(choice, lines[_i].choice);
    for (size_t length = strlen(line); length-- > 0;) { /* without its end it is none */
        line[length] = '\0';
        ck_assert(!tune_line_read(line, &shape, &choice));
    }
}
END_TEST

static const char *const wrong[] = {
    "",
    "\n",
    "17 4096 14336 1 1 0 0 7\n", /* as older files have it */
    "16 4096 14336 bf16 bf16 f32 0 7\n",
    "17 0 14336 bf16 bf16 f32 0 7\n",
    "17 4096 0 bf16 bf16 f32 0 7\n",
    "-17 4096 14336 bf16 bf16 f32 0 7\n",
    "17 -4096 14336 bf16 bf16 f32 0 7\n",
    "17 4096 -1 bf16 bf16 f32 0 7\n",
    "17 4096 14336 bf16 f16 f32 0 7\n",
    "17 4096 14336 bf16 e4m3 f32 0 7\n",
    "17 4096 14336 e4m3 bf16 f32 0 7\n",
    "17 4096 14336 e4m3 e4m3-row f32 0 7\n",
    "17 4096 14336 u4 u4 f32 0 7\n",
    "17 4096 14336 u8 bf16 f32 0 7\n",
    "17 4096 14336 bf16 bf16 e4m3 0 7\n",
    "17 4096 14336 bf16 bf16 f32 2 7\n",
    "17 4096 14336 bf16 bf16 f32 0 8\n",
    "17 4096 14336 bf16 bf16 f32 0 77\n",
    "17 4096 14336 bf16 bf16 f32 0 07\n",
    "17 4096 14336 bf16 bf16 f32 0 +7\n",
    "17 4096 14336 bf16 bf16 f32 0 tile\n",
    "17 4096 14336 bf16 bf16 f32 0 tiles-of-another-kind\n",
    "17 4096 14336 bf16 bf16 f32 0 tiles 1\n",
    "17 4096 14336 bf16 bf16 f32 0 7 1\n",
    "17 4096 14336 bf16 bf16 f32 0\n",
    "17 4096 14336 a-word-that-is-too-long-for-it bf16 f32 0 7\n",
    "99999999999999999999 4096 14336 bf16 bf16 f32 0 7\n",
};

START_TEST(what_is_no_line_is_not_read)
{
    struct lt_shape shape, before;
    uint32_t choice = 99;
    memset(&shape, 0xa5, sizeof shape);
    before = shape;
    ck_assert_msg(!tune_line_read(wrong[_i], &shape, &choice), "%s", wrong[_i]);
    ck_assert_mem_eq(&shape, &before, sizeof shape);
    ck_assert_uint_eq(choice, 99);
}
END_TEST

START_TEST(what_has_no_line_is_not_written)
{
    static const struct {
        struct lt_shape shape;
        uint32_t choice;
    } none[] = {
        {{17, 1, 1, FORMAT_U4, DTYPE_BF16, DTYPE_F32, 0}, 0},
        {{17, 1, 1, FORMAT_E4M3, DTYPE_BF16, DTYPE_F32, 0}, 0},
        {{17, 1, 1, FORMAT_E4M3, LT_X_SCALED + LT_PLAIN, DTYPE_F32, 0}, 0},
        {{17, 1, 1, FORMAT_BF16, DTYPE_BF16, LT_X_SCALED, 0}, 0},
        {{17, 1, 1, FORMAT_BF16, DTYPE_BF16, DTYPE_F32, 0}, TUNE_TILES + 1},
    };
    char line[TUNE_LINE_BYTES];
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        ck_assert_uint_eq(tune_line_write(&none[i].shape, none[i].choice, line), 0);
}
END_TEST

Suite *tune_line_suite(void)
{
    Suite *suite = suite_create("kernels: lines of timed products");
    TCase *tcase = tcase_create("lines");
    tcase_add_loop_test(tcase, what_was_written_is_read, 0, (int)(sizeof lines / sizeof *lines));
    tcase_add_loop_test(tcase, what_is_no_line_is_not_read, 0, (int)(sizeof wrong / sizeof *wrong));
    tcase_add_test(tcase, what_has_no_line_is_not_written);
    suite_add_tcase(suite, tcase);
    return suite;
}
