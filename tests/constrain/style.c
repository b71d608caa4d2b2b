#include <stdlib.h>
#include <string.h>

#include "tests/constrain/constrain_suites.h"

static const char *const words[] = {"{\"",
                                    "\":",
                                    "\": ",
                                    "\",\"",
                                    "\", \"",
                                    "\"}",
                                    "\"]",
                                    "},",
                                    "},{\"",
                                    "]}",
                                    "[",
                                    "[[",
                                    "[]",
                                    "{}",
                                    "true",
                                    "false",
                                    "null",
                                    "tr",
                                    "ue",
                                    " 1",
                                    "12",
                                    "123",
                                    "0.5",
                                    "-1",
                                    "e1",
                                    "name",
                                    "\"name\"",
                                    "\"name\":",
                                    "age",
                                    "a",
                                    "ab",
                                    "abc",
                                    " abc",
                                    "abcabcabc",
                                    "  ",
                                    "\n",
                                    "\\n",
                                    "\\\"",
                                    "\\u00",
                                    "\\ud83d",
                                    "ab\"",
                                    "abc\",",
                                    "caf\xc3\xa9",
                                    "\xc3\xa9",
                                    "\xe2\x82\xac",
                                    "\xf0\x9f\x98\x80",
                                    "hello world, this is a longer piece of text than thirty-two",
                                    "ok",
                                    "ok\""};
static const char *const pieces[] = {"\xc3",     "\xa9\"", "a\xc3",        "\xe2\x82",
                                     "\x82\xac", "\xac",   "\xf0\x9f",     "\x98\x80",
                                     "\x9f\x98", "\"\xe2", "\xf0\x9f\x98", "\x80\xc3\xa9"};

struct vocabulary *style_new(int style)
{
    static char bytes[256];
    struct vocabulary_token tokens[512] = {0};
    int32_t end = END_TOKEN;
    uint32_t count = END_TOKEN + 2; /* and one special token more, that nothing allows */
    for (int i = 0; i < 256; i++) {
        bytes[i] = (char)i;
        tokens[i] = (struct vocabulary_token){&bytes[i], 1};
    }
    for (size_t i = 0; style >= STYLE_WORDS && i < sizeof(words) / sizeof(words[0]); i++)
        tokens[count++] = (struct vocabulary_token){words[i], strlen(words[i])};
    for (size_t i = 0; style == STYLE_SPLIT && i < sizeof(pieces) / sizeof(pieces[0]); i++)
        tokens[count++] = (struct vocabulary_token){pieces[i], strlen(pieces[i])};
    tokens[count++] = (struct vocabulary_token){"abc", 3}; /* the same bytes twice */
    struct vocabulary *vocabulary = NULL;
    if (vocabulary_new(tokens, count, &end, 1, &vocabulary, NULL))
        abort(); /* not a check of Check: lines.c has no tests */
    return vocabulary;
}

int meets(struct constraint *constraint, const char *text, size_t length)
{
    struct constraint_place place;
    constraint_start(constraint, &place);
    int code = constraint_read(constraint, &place, text, length, NULL);
    int found = code ? 0 : constraint_may_end(&place) ? 1 : -1;
    constraint_drop(constraint, &place);
    return found;
}
