#include "daemon/text/regex.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/text/text_suites.h"

/* What the two dialects read differently, and what becomes of it. */
static const char *const translations[][2] = {
    {"a|b", "a|b"},
    {"\\p{L}+", "\\p{L}+"},
    {"\\p{^Lu}\\P{^N}", "\\P{Lu}\\p{N}"},
    {"\\p{Han}", "\\p{sc:Han}"},
    {"\\d\\D", "\\p{Nd}\\P{Nd}"},
    {"(a)", "(?:a)"},
    {"(?i:'s|'t)", "(?i:\\x{27}s|\\x{27}t)"},
    {"a{,3}", "a{0,3}"},
    {"a{2}", "a{2}"},
    {"a{2,}?", "a{2,}?"},
    {"a{1,3}+", "(?:a{1,3})+"}, /* possessive to PCRE2 alone */
    {"(?:ab){1,3}+c", "(?:(?:ab){1,3})+c"},
    {"a++b?+c*+", "a++b?+c*+"},
    {"[a-z]", "[a-z]"},
    {"[^\\r\\n\\p{L}]", "[^\\x{d}\\x{a}\\p{L}]"},
    {"\\v\\t", "\\x{b}\\x{9}"},
    {"[\\-\\]x-]", "[\\x{2d}\\x{5d}x\\x{2d}]"},
    {"\xe4\xb8\x80", "\\x{4e00}"},
    {"[\xe4\xb8\x80-\xe9\xbe\xa5]", "[\\x{4e00}-\\x{9fa5}]"},
    {"\\u4e00\\x41\\x{1F600}", "\\x{4e00}A\\x{1f600}"},
    {"^a$", "^a$"},
};

START_TEST(patterns_are_put_in_the_other_dialect)
{
    struct buffer out = {0};
    struct error error = {0};
    const char *const *pair = translations[_i];
    int code = regex_translate(pair[0], strlen(pair[0]), "x", &out, &error);
    ck_assert_msg(code == 0, "%s: %s", pair[0], error.text);
    ck_assert_uint_eq(out.length, strlen(pair[1]));
    ck_assert_mem_eq(out.data, pair[1], out.length);
    buffer_free(&out);
}
END_TEST

static const char *const refused[] = {
    "",
    "\\1",
    "\\k<a>",
    "(?<a>b)",
    "(?i)a",
    "(?m:a)",
    "(?#x)",
    "(?(1)a)",
    "\\b",
    "\\h",
    "\\R",
    "\\X",
    "\\K",
    "\\G",
    "\\A",
    "\\z",
    "\\p{C}",
    "\\p{Cn}",
    "\\p{Foo}",
    "\\p{}",
    "\\p",
    "\\p{L",
    "[[:alpha:]]",
    "[a[b]]",
    "[a&&b]",
    "[]",
    "[^]",
    "[z-a]",
    "[a-\\s]",
    "[\\W]",
    "a**",
    "a{2}?",
    "a{3,1}",
    "a{,}",
    "a{x}",
    "a{99999}",
    "*a",
    "a|*",
    "(?=a)*",
    "(",
    ")",
    "(a",
    "[a",
    "\\",
    "\\xff",
    "\\x{110000}",
    "\\ud800",
    "(?i:ss)",
    "(?i:STop)",
    "(?i:\xc3\x9f)",
    "(?i:[\xc3\x9f])",
    "(?i:\\p{Lu})",
    "{",
    "}",
    "]",
};

START_TEST(what_has_not_been_compared_is_refused)
{
    struct regex *regex = NULL;
    struct error error = {0};
    int code = regex_compile(refused[_i], strlen(refused[_i]), "path", &regex, &error);
    ck_assert_msg(code < 0, "%s", refused[_i]);
    ck_assert_msg(strstr(error.text, "path"), "%s", error.text);
}
END_TEST

struct match {
    const char *pattern, *text;
    int start, end; /* -1: none */
};

static const struct match matches[] = {
    {"\\s+", "a\xe1\xa0\x8e\xc2\x85 b", 4, 7}, /* U+180E is no space, U+0085 is */
    {"[^\\s]+", " \xe1\xa0\x8e ", 1, 4},
    {"[\\S]+", " \xe1\xa0\x8e ", 1, 4},
    {"\\w+",
     "-\xc3\xa9_\xe2\x80\xbf"
     "1 ",
     1, 8},                         /* U+203F connects */
    {"(?i:'s)", "'\xc5\xbf", 0, 3}, /* the long s folds to s */
    {".+", "\na\r\n", 1, 3},
    {"^b", "a\nb", 2, 3},
    {"a$", "ba\nb", 1, 2},
    {"(?<=a)b", "bab", 2, 3},
    {"x", "abc", -1, -1},
    {"\\p{N}", "\xc2\xbd", 0, 2},
};

START_TEST(matches_are_those_of_the_reference)
{
    const struct match *match = &matches[_i];
    struct regex *regex = NULL;
    struct regex_scratch *scratch = regex_scratch_new();
    struct error error = {0};
    size_t start = 0, end = 0;
    int code = regex_compile(match->pattern, strlen(match->pattern), "x", &regex, &error);
    ck_assert_msg(code == 0, "%s", error.text);
    int found =
        regex_find(regex, scratch, match->text, strlen(match->text), 0, &start, &end, &error);
    ck_assert_int_eq(found, match->start >= 0);
    if (found) {
        ck_assert_int_eq((int)start, match->start);
        ck_assert_int_eq((int)end, match->end);
    }
    regex_scratch_free(scratch);
    regex_free(regex);
}
END_TEST

/* Exponential for the compiled code, and deep for the stack: both end, one way or the other. */
START_TEST(a_pattern_that_explodes_is_stopped)
{
    static const char *const patterns[] = {"(?:a|aa)+b", "(?:a*)*b", "(?:(?:a|b)*|c)*d",
                                           "(?=(?:a|b|ab)*c)x"};
    const size_t size = 1 << 20;
    const char *pattern = patterns[_i];
    struct regex *regex = NULL;
    struct regex_scratch *scratch = regex_scratch_new();
    struct error error = {0};
    size_t start, end;
    char *text = malloc(size);
    for (size_t i = 0; i < size; i++)
        text[i] = i % 3 ? 'a' : 'b';
    ck_assert_int_eq(regex_compile(pattern, strlen(pattern), "x", &regex, &error), 0);
    int code = regex_find(regex, scratch, text, size, 0, &start, &end, &error);
    ck_assert(code >= 0 || code == -ERR_TOO_LARGE);
    memset(text, 'a', size);
    code = regex_find(regex, scratch, text, size, 0, &start, &end, &error);
    ck_assert(code == 0 || code == -ERR_TOO_LARGE);
    free(text);
    regex_scratch_free(scratch);
    regex_free(regex);
}
END_TEST

Suite *regex_suite(void)
{
    Suite *suite = suite_create("regex");
    TCase *tests = tcase_create("patterns");
    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, patterns_are_put_in_the_other_dialect, 0,
                        (int)(sizeof(translations) / sizeof(translations[0])));
    tcase_add_loop_test(tests, what_has_not_been_compared_is_refused, 0,
                        (int)(sizeof(refused) / sizeof(refused[0])));
    tcase_add_loop_test(tests, matches_are_those_of_the_reference, 0,
                        (int)(sizeof(matches) / sizeof(matches[0])));
    tcase_add_loop_test(tests, a_pattern_that_explodes_is_stopped, 0, 4);
    suite_add_tcase(suite, tests);
    return suite;
}
