/* Texts that a constraint must take, and texts that it must not; schemas that are refused, and by
 * which words. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/constrain/grammar/pattern.h"
#include "daemon/constrain/machine/machine.h"
#include "tests/constrain/constrain_suites.h"

#define J CONSTRAINT_JSON
#define O CONSTRAINT_OBJECT
#define S CONSTRAINT_SCHEMA
#define P CONSTRAINT_PATTERN
#define C CONSTRAINT_CHOICE
#define G CONSTRAINT_GRAMMAR
#define T CONSTRAINT_STRUCTURE

struct instance {
    enum constraint_kind kind;
    const char *text;
    const char *good[8], *bad[10];
};

static const struct instance instances[] = {
#include "tests/constrain/instances.def"
};

struct refusal {
    enum constraint_kind kind;
    const char *text, *says;
};

static const struct refusal refusals[] = {
    {S, "{\"properties\":{\"a\":{\"type\":\"integer\",\"multipleOf\":5001}}}",
     "schema: #/properties/a: multipleOf: of this size"},
    {S, "{\"type\":\"array\",\"uniqueItems\":true}", "#: uniqueItems: is supported of up to 8"},
    {S, "{\"unevaluatedProperties\":false}", "#: unevaluatedProperties: is not supported"},
    {S, "{\"not\":{\"items\":{\"type\":\"null\"}}}", "items: is not supported where it is denied"},
    {S, "{\"not\":{\"format\":\"date\"}}", "format: is not supported where it is denied"},
    {S, "{\"type\":\"number\",\"not\":{\"const\":1}}", "one that may have a fraction"},
    {S, "{\"type\":\"array\",\"not\":{\"const\":[1]}}", "not: of an array or object"},
    {S, "{\"minProperties\":3}", "beside names that may be any"},
    {S, "{\"enum\":[{\"a\":1}],\"patternProperties\":{\"a\":{}}}",
     "patternProperties: is not supported beside listed values"},
    {S, "{\"contains\":{},\"maxItems\":3}",
     "contains: is not supported beside minItems or maxItems"},
    {S, "{\"patternProperties\":{\"a\":{},\"b\":{},\"c\":{},\"d\":{},\"e\":{}}}",
     "patternProperties: of more than 4"},
    {S, "{\"type\":\"string\",\"pattern\":\"(a|bc){0,900}d\",\"maxLength\":9000}",
     "which takes too many states"},
    {P, "a\\bc", "a word's boundary"},
    {P, "(^a|b)+", "an anchor inside the pattern"},
    {P, "b(^a)", "an anchor inside the pattern"},
    {S, "{\"type\":\"string\",\"format\":\"iri\"}", "#: format: \"iri\" is not supported"},
    {S, "{\"type\":\"string\",\"pattern\":\"(?=a)\"}", "#/pattern: at byte 1: a group that looks"},
    {S, "{\"type\":\"string\",\"pattern\":\"(a)\\\\1\"}", "an escape that is not known here"},
    {S, "{\"type\":\"string\",\"pattern\":\"a^b\"}", "an anchor inside the pattern"},
    {S, "{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"number\"}]}",
     "type: of numbers that are no integers"},
    {S, "{\"allOf\":[{\"$ref\":\"#\"}]}", "leads to itself before anything"},
    {S, "{\"allOf\":[{\"type\":\"string\"},{\"type\":\"null\"}]}", "nothing finite"},
    {S, "{\"$ref\":\"#/$defs/none\"}", "leads to nothing in this document"},
    {S, "{\"$ref\":\"http://example.com/\"}", "leads to nothing in this document"},
    {S, "{\"$ref\":\"#\"}", "leads to itself before anything"},
    {S, "{\"anyOf\":[{\"$ref\":\"#\"},{\"type\":\"null\"}]}", "leads to itself before anything"},
    {S, "{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}",
     "nothing finite"},
    {S, "false", "nothing finite"},
    {S, "{\"type\":\"integer\",\"minimum\":2,\"maximum\":1}", "nothing finite"},
    {S, "{\"type\":\"array\",\"minItems\":3,\"maxItems\":1}", "nothing finite"},
    {S, "{\"type\":\"array\",\"maxItems\":1.5}", "maxItems: must be a whole number"},
    {S, "{\"type\":\"text\"}", "type: is no type"},
    {S, "[1]", "is no object and no boolean"},
    {S, "{\"type\":", "schema: "},
    {S, "{\"if\":{},\"then\":false}", "nothing finite"},
    {P, "a{2,1}", "in the wrong order"},
    {P, "a{99999999}", "too large"},
    {P, "[b-a]", "a range without an order"},
    {P, "(a", "a group without its end"},
    {P, "a)", "a bracket without its beginning"},
    {P, "[a", "a class without its end"},
    {P, "*a", "a quantifier of nothing"},
    {P, "a\\", "a backslash at the end"},
    {P, "\\p{Greek}", "a property of characters that is not known"},
    {P, "\\P{C}", "a property of characters that is not known"},
    {P, "\\pL", "p without its braces"},
    {P, "\\p{L", "p without its braces"},
    {P, "[^\\u0000-\\u{10ffff}]", "nothing finite"},
    {G, "root ::= a", "there is no rule \"a\""},
    {G, "a ::= \"x\"", "there is no rule \"root\""},
    {G, "", "there is no rule \"root\""},
    {G, "root ::= root \"a\" | \"b\"", "leads to itself before anything"},
    {G, "root ::= a* \"b\"\na ::= root", "leads to itself before anything"},
    {G, "root ::= \"a\" root", "nothing finite"},
    {G, "root ::= \"a\"\nroot ::= \"b\"", "line 2, column 5: a rule that is there twice"},
    {G, "root ::= <[1]>", "tokens (<...>) are not supported"},
    {G, "root ::= !<think>", "tokens (<...>) are not supported"},
    {G, "root ::= (\"a\"", "a group without its end"},
    {G, "root ::= \"a\")", "a bracket without its beginning"},
    {G, "root ::= \"a", "a text or class without its end"},
    {G, "root ::= [a", "a text or class without its end"},
    {G, "root ::= [b-a]", "a range without an order"},
    {G, "root ::= \"\\q\"", "an escape that is not known"},
    {G, "root ::= \"\\xg0\"", "an escape without its digits"},
    {G, "root ::= \"\\ud800\"", "an escape of no character"},
    {G, "root ::= \"a\"{3,2}", "in the wrong order"},
    {G, "root ::= \"a\"{9999999}", "too large"},
    {G, "root ::= \"a\"**", "a repetition of a repetition"},
    {G, "root = \"a\"", "::= is missing"},
    {C, "[]", "choices must be a list"},
    {T, "{\"until\":\"\"}", "an empty mark"},
    {T, "{\"kind\":\"structure\",\"of\":\"\"}", "of no kind that is known"},
    {T, "{\"kind\":\"schema\",\"of\":\"{\\\"type\\\":7}\",\"name\":\"tool f\"}",
     "tool f: schema: "},
    {T, "{\"all\":[{\"some\":1}]}", "a part that is not known"},
    {C, "[\"a\",1]", "a choice must be a text"},
};

#define COUNT(array) ((int)(sizeof(array) / sizeof(array[0])))

START_TEST(a_text_is_taken_where_it_meets_the_constraint_and_only_there)
{
    const struct instance *one = &instances[_i];
    struct vocabulary *vocabulary = style_new(STYLE_BYTES);
    struct constraint *constraint = NULL;
    struct error error = {0};
    int code =
        constraint_new(one->kind, one->text, strlen(one->text), vocabulary, &constraint, &error);
    ck_assert_msg(code == 0, "%s: %s", one->text, error.text);
    for (int i = 0; i < COUNT(one->good) && one->good[i]; i++)
        ck_assert_msg(meets(constraint, one->good[i], strlen(one->good[i])) == 1,
                      "%s does not take %s", one->text, one->good[i]);
    for (int i = 0; i < COUNT(one->bad) && one->bad[i]; i++)
        ck_assert_msg(meets(constraint, one->bad[i], strlen(one->bad[i])) != 1, "%s takes %s",
                      one->text, one->bad[i]);
    constraint_free(constraint);
    vocabulary_free(vocabulary);
}
END_TEST

/* Far more than LANGUAGE_STORE_BYTES have room for, each of them twice, with others between. */
START_TEST(patterns_beyond_those_that_are_kept_say_what_they_say)
{
    static char text[32768];
    struct vocabulary *vocabulary = style_new(STYLE_BYTES);
    struct constraint *constraint = NULL;
    struct error error = {0};
    size_t used = (size_t)snprintf(text, sizeof(text), "{\"properties\":{");
    for (unsigned i = 0; i < 200; i++)
        used += (size_t)snprintf(text + used, sizeof(text) - used,
                                 "%s\"p%u\":{\"type\":\"string\",\"pattern\":\"^%u[a-c]+$\","
                                 "\"maxLength\":4}",
                                 i ? "," : "", i, i % 100);
    snprintf(text + used, sizeof(text) - used, "}}");
    int code = constraint_new(S, text, strlen(text), vocabulary, &constraint, &error);
    ck_assert_msg(code == 0, "%s", error.text);
    const char *good = "{\"p0\":\"0abc\",\"p99\":\"99ab\",\"p100\":\"0c\",\"p199\":\"99a\"}";
    ck_assert_int_eq(meets(constraint, good, strlen(good)), 1);
    for (unsigned i = 0; i < 200; i++) {
        char long_one[64], other[64];
        snprintf(long_one, sizeof(long_one), "{\"p%u\":\"%uabcc\"}", i, i % 100);
        snprintf(other, sizeof(other), "{\"p%u\":\"%ua\"}", i, (i + 1) % 100);
        ck_assert_int_ne(meets(constraint, long_one, strlen(long_one)), 1);
        ck_assert_int_ne(meets(constraint, other, strlen(other)), 1);
    }
    constraint_free(constraint);
    vocabulary_free(vocabulary);
}
END_TEST

START_TEST(what_is_not_kept_is_refused_by_name)
{
    const struct refusal *one = &refusals[_i];
    struct vocabulary *vocabulary = style_new(STYLE_BYTES);
    struct constraint *constraint = NULL;
    struct error error = {0};
    int code =
        constraint_new(one->kind, one->text, strlen(one->text), vocabulary, &constraint, &error);
    ck_assert_msg(code < 0 && !constraint, "%s is taken", one->text);
    ck_assert_msg(strstr(error.text, one->says), "%s: %s", one->text, error.text);
    vocabulary_free(vocabulary);
}
END_TEST

/* From wherever the text stands within what is bounded, the rest of its mark alone may follow. */
START_TEST(a_budget_leaves_the_mark_alone)
{
    static const char text[] = "{\"all\":[{\"until\":\"</t>\",\"budget\":7},{\"text\":\"end\"}]}";
    static const char *const begun[] = {"", "ab", "<", "a</t"}, *const rest[] = {"</t>", "</t>",
                                                                                 "/t>", ">"};
    struct vocabulary *vocabulary = style_new(STYLE_BYTES);
    struct constraint *constraint = NULL;
    struct error error = {0};
    ck_assert_int_eq(constraint_new(T, text, strlen(text), vocabulary, &constraint, &error), 0);
    ck_assert_uint_eq(constraint_budget(constraint), 7);
    for (int i = 0; i < COUNT(begun); i++) {
        struct constraint_place place;
        struct constraint_allowed allowed;
        uint32_t bits[16];
        ck_assert_uint_le(vocabulary->words, 16);
        constraint_start(constraint, &place);
        ck_assert_int_eq(constraint_read(constraint, &place, begun[i], strlen(begun[i]), &error),
                         0);
        for (int again = 0; again < 2; again++) /* what is cut stays so */
            ck_assert_int_eq(constraint_cut(constraint, &place, &error), 0);
        ck_assert_int_eq(constraint_mask(constraint, &place, bits, &allowed, &error), 0);
        ck_assert_int_eq(allowed.only, rest[i][0]);
        ck_assert_int_eq(constraint_read(constraint, &place, rest[i], strlen(rest[i]), &error), 0);
        ck_assert_int_eq(constraint_cut(constraint, &place, &error), 0);
        ck_assert_int_eq(constraint_read(constraint, &place, "end", 3, &error), 0);
        ck_assert(constraint_may_end(&place));
        constraint_drop(constraint, &place);
    }
    constraint_free(constraint);
    vocabulary_free(vocabulary);
}
END_TEST

/* Each asks for about as many comparisons as the square of what it holds. */
START_TEST(searches_in_a_schema_are_counted)
{
    static const char *const shapes[][4] = {
        {"{\"oneOf\":[{\"enum\":[", "\"a%d\"", "]},{\"enum\":[", "]}]}"},
        {"{\"properties\":{", "\"a%d\":true", "},\"required\":[", "]}"},
        {"{\"$defs\":{", "\"a%d\":{}", "},\"anyOf\":[", "]}"}};
    static const char *const seconds[] = {"\"b%d\"", "\"a%d\"", "{\"$ref\":\"#/$defs/a%d\"}"};
    const int count = 16000;
    struct vocabulary *vocabulary = style_new(STYLE_BYTES);
    char *text = malloc(CONSTRAINT_TEXT_MAX);
    ck_assert_ptr_nonnull(text);
    size_t used = strlen(strcpy(text, shapes[_i][0]));
    for (int half = 0; half < 2; half++) {
        for (int i = 0; i < count; i++) {
            used += i ? strlen(strcpy(text + used, ",")) : 0;
            used += (size_t)sprintf(text + used, half ? seconds[_i] : shapes[_i][1], i);
        }
        used += strlen(strcpy(text + used, shapes[_i][2 + half]));
        ck_assert_uint_lt(used, CONSTRAINT_TEXT_MAX);
    }
    struct constraint *constraint = NULL;
    struct error error = {0};
    ck_assert_int_eq(constraint_new(S, text, used, vocabulary, &constraint, &error),
                     -ERR_TOO_LARGE);
    ck_assert_msg(strstr(error.text, "steps to read"), "%s", error.text);
    free(text);
    vocabulary_free(vocabulary);
}
END_TEST

static int of_repeated(enum constraint_kind kind, const char *begin, const char *part, int times,
                       const char *end, struct error *error)
{
    size_t length = strlen(begin) + strlen(part) * (size_t)times + strlen(end), used = 0;
    char *text = malloc(length + 1);
    ck_assert_ptr_nonnull(text);
    used = strlen(strcpy(text, begin));
    for (int i = 0; i < times; i++, used += strlen(part))
        memcpy(text + used, part, strlen(part) + 1);
    strcpy(text + used, end);
    struct vocabulary *vocabulary = style_new(STYLE_BYTES);
    struct constraint *constraint = NULL;
    int code = constraint_new(kind, text, length, vocabulary, &constraint, error);
    constraint_free(constraint);
    vocabulary_free(vocabulary);
    free(text);
    return code;
}

START_TEST(size_and_depth_are_bounded)
{
    struct error error = {0};
    ck_assert_int_eq(of_repeated(S, "\"", "x", 1 << 20, "\"", &error), -ERR_TOO_LARGE);
    ck_assert_int_lt(of_repeated(S, "", "{\"items\":", 70, "true", &error), 0);
    ck_assert_int_eq(of_repeated(P, "", "(", 70, ")", &error), -ERR_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(error.text, "nested too deep"));
    ck_assert_int_eq(of_repeated(P, "", "a", 9000, "", &error), -ERR_TOO_LARGE);
    ck_assert_int_eq(of_repeated(G, "root ::= ", "(", 70, "", &error), -ERR_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(error.text, "nested too deep"));
    ck_assert_int_eq(of_repeated(G, "root ::= ", "[^a]", 200000, "", &error), -ERR_TOO_LARGE);
    ck_assert_int_eq(of_repeated(G, "root ::= ", "(\"a\"{1000}", 60, "\"b\"))", &error),
                     -ERR_UNSUPPORTED);
    ck_assert_int_eq(of_repeated(S, "[", "1,", 70000, "1]", &error), -ERR_TOO_LARGE);
    ck_assert_int_eq(of_repeated(P, "", "[\\p{L}\\p{N}]", 600, "", &error), -ERR_TOO_LARGE);
    ck_assert_int_eq(of_repeated(S, "{\"allOf\":[", "{\"minimum\":1},", 20000, "true]}", &error),
                     -ERR_TOO_LARGE);
    ck_assert_int_eq(of_repeated(S, "{\"allOf\":[",
                                 "{\"oneOf\":[{\"minLength\":1},{\"maxLength\":4}]},", 40, "true]}",
                                 &error),
                     -ERR_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(error.text, "ways to be met"));
    /* Each of these is a few bytes that stand for very many, and has to be cheap. */
    ck_assert_int_eq(of_repeated(P, "", "(a{1000}", 6, "))))))", &error), 0);
}
END_TEST

/* A text that a pattern cannot read within its limits neither matches nor does not. */
static const struct {
    const char *begin, *part;
    int times;
    const char *end;
} unread[] = {
    {"{\"enum\":[\"xa\",\"b\"],\"not\":{\"pattern\":\"x(?:a", "|a", 2499, ")\"}}"},
    {"{\"enum\":[\"xa\",\"b\"],\"pattern\":\"x(?:a", "|a", 2499, ")\"}"},
    {"{\"properties\":{\"xa\":true},\"patternProperties\":{\"x(?:a", "|a", 2499, ")\":false}}"},
    {"{\"properties\":{\"", "a", 4600, "b\":true},\"patternProperties\":{\"a.{0,4500}b\":false}}"},
};

START_TEST(what_a_pattern_cannot_tell_within_its_limits_is_an_error)
{
    struct error error = {0};
    ck_assert_int_eq(
        of_repeated(S, unread[_i].begin, unread[_i].part, unread[_i].times, unread[_i].end, &error),
        -ERR_TOO_LARGE);
    ck_assert_msg(strstr(error.text, "takes too many states"), "%s", error.text);
}
END_TEST

/* Names are read anew for each object: what that takes adds up. */
START_TEST(reading_names_is_counted)
{
    struct error error = {0};
    char begin[2048], name[201];
    memset(name, 'a', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    snprintf(begin, sizeof begin,
             "{\"$defs\":{\"o\":{\"type\":\"object\",\"properties\":{\"%s\":false},"
             "\"additionalProperties\":false,\"propertyNames\":{\"pattern\":\"a.{0,100}b\"}}},"
             "\"prefixItems\":[",
             name);
    ck_assert_int_eq(of_repeated(S, begin, "{\"$ref\":\"#/$defs/o\"},", 400, "true]}", &error),
                     -ERR_TOO_LARGE);
    ck_assert_msg(strstr(error.text, "steps to read"), "%s", error.text);
}
END_TEST

/* Each its own, since those alike are made once. */
START_TEST(multiples_are_counted)
{
    static const char item[] = "{\"multipleOf\":0.00%d,\"minimum\":0,\"maximum\":0},";
    struct vocabulary *vocabulary = style_new(STYLE_BYTES);
    char *text = malloc(CONSTRAINT_TEXT_MAX);
    ck_assert_ptr_nonnull(text);
    size_t used = strlen(strcpy(text, "{\"prefixItems\":["));
    for (int i = 0; i < 400; i++)
        used += (size_t)sprintf(text + used, item, 4095 - i);
    used += strlen(strcpy(text + used, "true],\"items\":false}"));
    struct constraint *constraint = NULL;
    struct error error = {0};
    ck_assert_int_eq(constraint_new(S, text, used, vocabulary, &constraint, &error),
                     -ERR_TOO_LARGE);
    ck_assert_msg(strstr(error.text, "steps to read"), "%s", error.text);
    free(text);
    vocabulary_free(vocabulary);
}
END_TEST

/* Places in a pattern are remembered while a text is read; behind it they are neither held nor
 * untold. */
START_TEST(what_a_long_text_made_grow_goes_back_and_is_told_meanwhile)
{
    char pattern[4096];
    size_t used = strlen(strcpy(pattern, "(?:x{0,999999}a"));
    for (int i = 1; i < 200; i++)
        used += strlen(strcpy(pattern + used, "|x{0,999999}a"));
    used += strlen(strcpy(pattern + used, ")"));
    struct grammar grammar;
    struct machine machine;
    struct error error = {0};
    grammar_init(&grammar, &error);
    uint32_t start = grammar_node(&grammar);
    uint32_t end =
        pattern_build(&grammar, start, pattern, used, PATTERN_WHOLE, CHARACTER_BARE, "pattern");
    grammar_final(&grammar, end);
    ck_assert_int_eq(grammar_finish(&grammar, start), 0);
    ck_assert_int_eq(machine_init(&machine, &grammar, &error), 0);
    struct machine_state *state = machine.start;
    for (int i = 0; i < 512; i++) {
        machine.steps = 0;
        state = machine_step(&machine, state, 'x', &error);
        ck_assert_msg(state && state != &machine_dead, "%s", error.text);
    }
    ck_assert_uint_gt(machine.frames_room, 100000);
    ck_assert_uint_ge(machine_bytes(&machine), machine.frames_room * sizeof(struct machine_frame));
    machine_shrink(&machine);
    ck_assert_uint_lt(machine.frames_room, 1000);
    machine_free(&machine);
    grammar_free(&grammar);
}
END_TEST

START_TEST(a_name_may_be_long)
{
    struct error error = {0};
    ck_assert_msg(of_repeated(S, "{\"type\":\"object\",\"required\":[\"", "k", 1100,
                              "\"],\"propertyNames\":{\"minLength\":1}}", &error) == 0,
                  "%s", error.text);
    ck_assert_int_lt(of_repeated(S, "{\"type\":\"object\",\"required\":[\"", "k", 1100,
                                 "\"],\"propertyNames\":{\"maxLength\":5}}", &error),
                     0);
}
END_TEST

START_TEST(a_text_read_in_too_many_ways_is_an_error_and_not_a_wait)
{
    const char *text = "(a?){3000}(a|aa){0,3000}b";
    struct vocabulary *vocabulary = style_new(STYLE_BYTES);
    struct constraint *constraint = NULL;
    struct constraint_place place;
    struct error error = {0};
    int code = constraint_new(P, text, strlen(text), vocabulary, &constraint, &error);
    if (code == 0) {
        constraint_start(constraint, &place);
        for (int i = 0; i < 10000 && code == 0; i++)
            code = constraint_read(constraint, &place, "a", 1, &error);
        constraint_drop(constraint, &place);
    }
    ck_assert_int_eq(code, -ERR_TOO_LARGE);
    ck_assert_ptr_nonnull(strstr(error.text, "in too many ways"));
    constraint_free(constraint);
    vocabulary_free(vocabulary);
}
END_TEST

Suite *instance_suite(void)
{
    Suite *suite = suite_create("instance");
    TCase *cases = tcase_create("instance");
    tcase_set_timeout(cases, 120);
    tcase_add_loop_test(cases, a_text_is_taken_where_it_meets_the_constraint_and_only_there, 0,
                        COUNT(instances));
    tcase_add_loop_test(cases, what_is_not_kept_is_refused_by_name, 0, COUNT(refusals));
    tcase_add_loop_test(cases, what_a_pattern_cannot_tell_within_its_limits_is_an_error, 0,
                        COUNT(unread));
    tcase_add_test(cases, reading_names_is_counted);
    tcase_add_test(cases, multiples_are_counted);
    tcase_add_test(cases, what_a_long_text_made_grow_goes_back_and_is_told_meanwhile);
    tcase_add_test(cases, a_name_may_be_long);
    tcase_add_test(cases, patterns_beyond_those_that_are_kept_say_what_they_say);
    tcase_add_loop_test(cases, searches_in_a_schema_are_counted, 0, 3);
    tcase_add_test(cases, a_budget_leaves_the_mark_alone);
    tcase_add_test(cases, size_and_depth_are_bounded);
    tcase_add_test(cases, a_text_read_in_too_many_ways_is_an_error_and_not_a_wait);
    suite_add_tcase(suite, cases);
    return suite;
}
