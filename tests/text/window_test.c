/* A piece that goes on and on is merged a window at a time: with the ids of merging it whole, and
 * with the scratch of a window. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/text/bpe_merge.h"
#include "daemon/text/tokenizer_parts.h"
#include "tests/text/file.h"
#include "tests/text/text_suites.h"

#define PIECE_MAX 20000
#define LARGE (4u << 20)

static const char *const styles[] = {"gpt2",  "qwen2", "llama2", "mistral",    "mixed",
                                     "gemma", "phi3",  "olmo2",  "starcoder2", "glm4"};
#define STYLES (int)(sizeof styles / sizeof styles[0])

/* What stands in a row, which is worst for one or the other. */
static const char *const units[] = {
    "a",
    "ab",
    "hello",
    "the",
    "thethen",
    "\xe2\x96\x81",
    "\n",
    "aaab",
    "tionthe",
    "1",
    "ererx",
    "\xc3\xa9",
    "\xe4\xbd\xa0\xe5\xa5\xbd",
    "\xf0\x9f\x98\x80",
    "a\xf0\x9f\x98\x80",
    "inging",
    "xyz",
    "-",
    "wouldwillher",
    "\xf0\x93\x80\x80",
    "a\xf0\x93\x80\x80",
    "the\xf0\x93\x80\x80then\xf0\x93\x80\x80",
};
#define UNITS (sizeof units / sizeof units[0])

static size_t repeat(const char *unit, size_t length, char *text)
{
    size_t used = 0, bytes = strlen(unit);
    for (; used + bytes <= length; used += bytes)
        memcpy(text + used, unit, bytes);
    return used;
}

/* Stretches of units, some of them long. */
static size_t draw(uint32_t *state, size_t most, char *text)
{
    size_t used = 0;
    for (uint32_t i = 0; i < 400; i++) {
        *state = *state * 1664525u + 1013904223u;
        const char *unit = units[(*state >> 8) % UNITS];
        size_t length = strlen(unit) * (*state >> 28 ? 1 : 1 + (*state >> 14) % 700);
        if (used + length > most)
            break;
        used += repeat(unit, length, text + used);
    }
    return used;
}

static size_t encoded(const struct bpe *bpe, size_t window, const char *text, size_t length,
                      int32_t *to, size_t *ret_room)
{
    struct bpe_scratch scratch;
    struct bpe_ids ids = {.ids = to, .max = 4 * length + 4};
    ck_assert(bpe_scratch_init(&scratch));
    scratch.window = window;
    ck_assert_int_eq(bpe_encode(bpe, &scratch, text, length, &ids), BPE_DONE);
    if (ret_room)
        *ret_room = scratch.room;
    bpe_scratch_free(&scratch);
    return ids.count;
}

static void same_ids(const struct bpe *bpe, const char *style, const char *text, size_t length)
{
    static const size_t windows[] = {16, 40, 64, 97, 333, 2048};
    static int32_t whole[4 * PIECE_MAX + 4], ids[4 * PIECE_MAX + 4];
    size_t count = encoded(bpe, PIECE_MAX * 4, text, length, whole, NULL);
    for (size_t i = 0; i < sizeof windows / sizeof windows[0]; i++) {
        size_t found = encoded(bpe, windows[i], text, length, ids, NULL);
        ck_assert_msg(found == count && !memcmp(ids, whole, count * sizeof *ids),
                      "%s, windows of %zu, %zu bytes of \"%.20s\": %zu ids, %zu are right", style,
                      windows[i], length, text, found, count);
    }
}

START_TEST(windows_of_any_size_give_the_ids_of_the_whole)
{
    char name[64], text[PIECE_MAX];
    uint32_t state = 7;
    snprintf(name, sizeof name, "%s.json", styles[_i]);
    struct tokenizer *tokenizer = file_tokenizer(name);
    for (size_t i = 0; i < UNITS; i++)
        same_ids(&tokenizer->bpe, styles[_i], text, repeat(units[i], 3001, text));
    for (int i = 0; i < 20; i++)
        same_ids(&tokenizer->bpe, styles[_i], text, draw(&state, PIECE_MAX, text));
    tokenizer_free(tokenizer);
}
END_TEST

START_TEST(megabytes_in_one_piece_take_the_scratch_of_a_window)
{
    struct tokenizer *tokenizer = file_tokenizer("gemma.json");
    char *text = malloc(LARGE);
    int32_t *ids = malloc((4 * (size_t)LARGE + 4) * sizeof *ids);
    ck_assert(text && ids);
    size_t room = 0, length = repeat(units[_i], LARGE, text);
    (void)encoded(&tokenizer->bpe, 0, text, length, ids, &room);
    ck_assert_msg(room <= 2 * BPE_WINDOW, "%s: room for %zu symbols", units[_i], room);
    free(ids);
    free(text);
    tokenizer_free(tokenizer);
}
END_TEST

/* Runs of a that double, up to so many. */
static struct tokenizer *doubling(size_t most)
{
    static char file[65536];
    char run[1025];
    struct tokenizer *tokenizer = NULL;
    struct error error = {0};
    size_t used = 0, number = 1;
    memset(run, 'a', sizeof run - 1);
    used += (size_t)sprintf(file, "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0");
    for (size_t n = 2; n <= most; n *= 2)
        used += (size_t)sprintf(file + used, ",\"%.*s\":%zu", (int)n, run, number++);
    used += (size_t)sprintf(file + used, "},\"merges\":[");
    for (size_t n = 1; n < most; n *= 2)
        used += (size_t)sprintf(file + used, "%s\"%.*s %.*s\"", n > 1 ? "," : "", (int)n, run,
                                (int)n, run);
    used += (size_t)sprintf(file + used, "]}}");
    ck_assert_msg(!tokenizer_load(file, used, &tokenizer, &error), "%s", error.text);
    return tokenizer;
}

/* Tokens longer than what is looked at: a megabyte in one piece is merged whole, more is refused.
 */
START_TEST(what_cannot_be_cut_is_bounded_and_refused_by_name)
{
    struct tokenizer *tokenizer = doubling(_i ? 1024 : 128);
    struct tokenizer_scratch *scratch = tokenizer_scratch_new();
    struct error error = {0};
    char *text = malloc(LARGE);
    int32_t *ids = malloc(LARGE * sizeof *ids);
    size_t count = 0;
    ck_assert(scratch && text && ids);
    memset(text, 'a', LARGE);
    for (size_t length = BPE_WINDOW_MAX; length <= 2 * BPE_WINDOW_MAX; length *= 2) {
        int code =
            tokenizer_encode(tokenizer, scratch, text, length, true, ids, LARGE, &count, &error);
        if (_i && length > BPE_WINDOW_MAX) {
            ck_assert_int_eq(code, -ERR_TOO_LARGE);
            ck_assert_str_eq(error.text, "the text has more than 1048576 symbols in a row without "
                                         "a place where it could be cut");
            continue;
        }
        ck_assert_int_eq(code, 0);
        ck_assert_uint_eq(count, length / (_i ? 1024 : 128));
    }
    free(ids);
    free(text);
    tokenizer_scratch_free(scratch);
    tokenizer_free(tokenizer);
}
END_TEST

Suite *window_suite(void)
{
    Suite *suite = suite_create("window");
    TCase *tests = tcase_create("windows");
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, windows_of_any_size_give_the_ids_of_the_whole, 0, STYLES);
    tcase_add_loop_test(tests, megabytes_in_one_piece_take_the_scratch_of_a_window, 0, (int)UNITS);
    tcase_add_loop_test(tests, what_cannot_be_cut_is_bounded_and_refused_by_name, 0, 2);
    suite_add_tcase(suite, tests);
    return suite;
}
