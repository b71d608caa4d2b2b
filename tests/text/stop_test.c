#include "daemon/text/stop.h"

#include <stdlib.h>
#include <string.h>

#include "tests/text/text_suites.h"

struct search {
    const char *stops[4];
    const char *text;
    int found;           /* index, or -1 */
    const char *before;  /* what is let through */
    const char *pending; /* what is held back at the end */
};

static const struct search searches[] = {
    {{"stop"}, "go on, stop it", 0, "go on, ", ""},
    {{"stop"}, "go on", -1, "go on", ""},
    {{"stop"}, "ststo", -1, "st", "sto"},
    {{"stop"}, "", -1, "", ""},
    {{"aab"}, "aaab", 0, "a", ""},
    {{"abab", "x"}, "aababxab", 0, "a", ""},
    {{"\n\nUser:"}, "a\n\n\nUser:b", 0, "a\n", ""},
    {{"abcd", "bc"}, "abcd", 1, "a", ""},   /* complete first */
    {{"bcd", "abcd"}, "xabcd", 1, "x", ""}, /* at the same byte: the longest */
    {{"abcx", "bcy"}, "abcy", 1, "a", ""},
    {{"abcx", "bcy"}, "abc", -1, "", "abc"},
    {{"\xc3\xa9t\xc3\xa9"}, "l'\xc3\xa9t\xc3\xa8", -1, "l'\xc3\xa9t\xc3\xa8", ""},
    {{"\xc3\xa9t\xc3\xa9"}, "l'\xc3\xa9t\xc3\xa9.", 0, "l'", ""},
    {{NULL}, "nothing stops", -1, "nothing stops", ""},
};

static struct stop_set *make_set(const char *const *stops)
{
    struct stop_string strings[4];
    struct stop_set *set = NULL;
    size_t count = 0;
    for (; count < 4 && stops[count]; count++)
        strings[count] = (struct stop_string){stops[count], strlen(stops[count])};
    ck_assert_int_eq(stop_set_new(strings, count, &set, NULL), 0);
    return set;
}

/* Pieces of at most `size` bytes, the first one of `first`. */
static void run(const struct search *search, size_t first, size_t size)
{
    struct stop_set *set = make_set(search->stops);
    struct stop stop;
    char out[1024], piece[512];
    size_t used = 0, length = strlen(search->text), more;
    int found = -1;
    stop_init(&stop, set);
    for (size_t at = 0, step = first; at < length && found < 0; at += step, step = size) {
        step = step < length - at ? step : length - at;
        found = stop_push(&stop, search->text + at, step, piece, &more);
        memcpy(out + used, piece, more);
        used += more;
    }
    ck_assert_int_eq(found, search->found);
    ck_assert_uint_eq(used, strlen(search->before));
    ck_assert_mem_eq(out, search->before, used);
    if (found < 0) {
        more = stop_finish(&stop, piece);
        ck_assert_uint_eq(more, strlen(search->pending));
        ck_assert_mem_eq(piece, search->pending, more);
    }
    stop_set_free(set);
}

START_TEST(text_is_cut_before_the_stop_however_it_comes)
{
    const struct search *search = &searches[_i];
    size_t length = strlen(search->text);
    for (size_t first = 1; first <= length + 1; first++)
        for (size_t size = 1; size <= length + 1; size++)
            run(search, first, size);
}
END_TEST

/* The end of text that is a proper start of some string, found the slow way. */
static size_t longest_start(const char *text, size_t length, const char *const *stops)
{
    size_t most = 0;
    for (size_t i = 0; i < 4 && stops[i]; i++)
        for (size_t n = 1; n < strlen(stops[i]) && n <= length; n++)
            if (n > most && memcmp(text + length - n, stops[i], n) == 0)
                most = n;
    return most;
}

START_TEST(no_more_is_held_back_than_could_become_a_stop)
{
    static const char *const stops[4] = {"abaab", "aabb", "bbba", "abab"};
    struct stop_set *set = make_set(stops);
    unsigned seed = (unsigned)_i + 1;
    for (int round = 0; round < 200; round++) {
        struct stop stop;
        char text[64], out[STOP_BYTES_MAX + 1];
        size_t written = 0, more;
        stop_init(&stop, set);
        for (size_t length = 1; length <= sizeof(text); length++) {
            seed = seed * 1664525u + 1013904223u;
            text[length - 1] = seed >> 31 ? 'a' : 'b';
            if (stop_push(&stop, text + length - 1, 1, out, &more) >= 0)
                break;
            ck_assert_mem_eq(out, text + written, more);
            written += more;
            ck_assert_uint_eq(length - written, longest_start(text, length, stops));
        }
    }
    stop_set_free(set);
}
END_TEST

START_TEST(strings_over_a_limit_are_refused)
{
    char longest[STOP_BYTES_MAX + 1];
    struct stop_string strings[STOP_STRINGS_MAX + 1];
    struct stop_set *set = NULL;
    struct error error;
    memset(longest, 'x', sizeof(longest));
    for (size_t i = 0; i <= STOP_STRINGS_MAX; i++)
        strings[i] = (struct stop_string){longest, STOP_BYTES_MAX};
    ck_assert_int_eq(stop_set_new(strings, STOP_STRINGS_MAX + 1, &set, &error), -ERR_BAD_VALUE);
    ck_assert_uint_eq(error.limit, STOP_STRINGS_MAX);
    ck_assert_int_eq(stop_set_new(strings, STOP_STRINGS_MAX, &set, &error), 0);
    stop_set_free(set);
    strings[3].length++;
    ck_assert_int_eq(stop_set_new(strings, 4, &set, &error), -ERR_BAD_VALUE);
    ck_assert_str_eq(error.text, "stop[3] has 257 bytes, 256 is the limit");
    strings[0].length = 0;
    ck_assert_int_eq(stop_set_new(strings, 1, &set, &error), -ERR_BAD_VALUE);
    strings[0] = (struct stop_string){"a\xc3", 2};
    ck_assert_int_eq(stop_set_new(strings, 1, &set, &error), -ERR_BAD_VALUE);
}
END_TEST

START_TEST(a_matcher_of_no_strings_lets_all_through)
{
    struct stop_set *set = NULL;
    struct stop stop;
    char out[STOP_BYTES_MAX + 8];
    size_t length;
    ck_assert_int_eq(stop_set_new(NULL, 0, &set, NULL), 0);
    stop_init(&stop, set);
    ck_assert_int_eq(stop_push(&stop, "abc", 3, out, &length), -1);
    ck_assert_uint_eq(length, 3);
    ck_assert_uint_eq(stop_finish(&stop, out), 0);
    stop_set_free(set);
}
END_TEST

Suite *stop_suite(void)
{
    Suite *suite = suite_create("stop");
    TCase *tests = tcase_create("matcher");
    tcase_add_loop_test(tests, text_is_cut_before_the_stop_however_it_comes, 0,
                        (int)(sizeof(searches) / sizeof(searches[0])));
    tcase_add_loop_test(tests, no_more_is_held_back_than_could_become_a_stop, 0, 8);
    tcase_add_test(tests, strings_over_a_limit_are_refused);
    tcase_add_test(tests, a_matcher_of_no_strings_lets_all_through);
    suite_add_tcase(suite, tests);
    return suite;
}
