/* A mask has exactly the tokens whose bytes may be read; texts drawn by masks end right. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/constrain/machine/machine.h"
#include "protocol/base/json.h"
#include "tests/constrain/constrain_suites.h"

#define WORDS_MAX 64

static const struct {
    enum constraint_kind kind;
    const char *text;
} drawn[] = {
    {CONSTRAINT_JSON, ""},
    {CONSTRAINT_OBJECT, ""},
    {CONSTRAINT_SCHEMA,
     "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":12},"
     "\"age\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":150},\"tags\":{\"type\":\"array\","
     "\"items\":{\"enum\":[\"a\",\"abc\",\"caf\xc3\xa9\"]},\"maxItems\":4}},"
     "\"required\":[\"name\",\"age\"],\"additionalProperties\":{\"type\":\"boolean\"}}"},
    {CONSTRAINT_SCHEMA, "{\"type\":\"string\",\"minLength\":2,\"maxLength\":9}"},
    {CONSTRAINT_SCHEMA,
     "{\"anyOf\":[{\"type\":\"string\",\"maxLength\":2},{\"const\":\"abcabcabc\"}]}"},
    {CONSTRAINT_SCHEMA, "{\"type\":\"string\",\"pattern\":\"caf\xc3\xa9|\\\\d{3}\"}"},
    {CONSTRAINT_PATTERN, "([a-c]{1,9}|\\u20ac*)?(ok|\\u{1F600})"},
    {CONSTRAINT_CHOICE, "[\"abc\",\"abcabc\",\"true\",\"null or not\"]"},
    {CONSTRAINT_GRAMMAR, "root ::= (\"abc\" | [^a-z] root | \"\\u20ac\"{2,3}) [a-c\"\\\\]*"},
    {CONSTRAINT_SCHEMA,
     "{\"type\":\"string\",\"pattern\":\"^[^x]+$\",\"maxLength\":7,\"not\":{\"const\":\"abc\"}}"},
    {CONSTRAINT_SCHEMA, "{\"type\":\"object\",\"patternProperties\":{\"^a\":{\"type\":\"integer\"}}"
                        ",\"additionalProperties\":{\"type\":\"null\"}}"},
};
#define DRAWN ((int)(sizeof(drawn) / sizeof(drawn[0])))

struct run {
    struct vocabulary *vocabulary;
    struct constraint *constraint;
    struct constraint_place place;
    uint32_t bits[WORDS_MAX];
    struct constraint_allowed allowed;
    unsigned seed;
    char text[4096];
    size_t used;
};

static bool bit(const struct run *run, uint32_t token)
{
    return run->bits[token / 32] >> token % 32 & 1;
}

static uint32_t draw(struct run *run, uint32_t below)
{
    run->seed = run->seed * 1664525u + 1013904223u;
    return (run->seed >> 8) % below;
}

static void open_run(struct run *run, int which, int style, unsigned seed)
{
    struct error error = {0};
    *run = (struct run){.vocabulary = style_new(style), .seed = seed};
    ck_assert_uint_le(run->vocabulary->words, WORDS_MAX);
    ck_assert_msg(constraint_new(drawn[which].kind, drawn[which].text, strlen(drawn[which].text),
                                 run->vocabulary, &run->constraint, &error) == 0,
                  "%s", error.text);
    constraint_start(run->constraint, &run->place);
}

static void close_run(struct run *run)
{
    ck_assert_ptr_null(machine_dead.row); /* it is of all constraints */
    constraint_drop(run->constraint, &run->place);
    constraint_free(run->constraint);
    vocabulary_free(run->vocabulary);
}

/* Each token tried by itself. */
static void compare(struct run *run)
{
    uint32_t count = 0, last = 0;
    for (uint32_t token = 0; token < run->vocabulary->tokens; token++) {
        struct constraint_place copy;
        constraint_copy(run->constraint, &run->place, &copy);
        bool may = constraint_advance(run->constraint, &copy, (int32_t)token, NULL) == 0;
        constraint_drop(run->constraint, &copy);
        ck_assert_msg(may == bit(run, token), "token %u after %.*s: %d", token, (int)run->used,
                      run->text, may);
        count += may;
        last = may ? token : last;
    }
    ck_assert_uint_eq(count, run->allowed.count);
    ck_assert_int_eq(run->allowed.only, count == 1 ? (int32_t)last : -1);
    ck_assert(run->allowed.ends == bit(run, END_TOKEN));
    ck_assert_uint_gt(count, 0);
}

/* One token on; false at the end. Ends where it may, in two of three. */
static bool step(struct run *run, bool compared)
{
    ck_assert_int_eq(constraint_mask(run->constraint, &run->place, run->bits, &run->allowed, NULL),
                     0);
    if (compared)
        compare(run);
    if (run->allowed.ends && (run->allowed.count == 1 || draw(run, 3)))
        return false;
    uint32_t choice = draw(run, run->vocabulary->tokens), token = choice;
    while (!bit(run, token) || token == END_TOKEN)
        token = (token + 1) % run->vocabulary->tokens;
    if (run->used > 100) /* close what is open: the last of the tokens that may, or a quote */
        for (const char *closer = "\"]}0"; *closer; closer++)
            if (bit(run, (uint8_t)*closer)) {
                token = (uint8_t)*closer;
                break;
            }
    size_t length = run->vocabulary->offset[token + 1] - run->vocabulary->offset[token];
    ck_assert_uint_lt(run->used + length, sizeof(run->text));
    memcpy(run->text + run->used, run->vocabulary->bytes + run->vocabulary->offset[token], length);
    run->used += length;
    ck_assert_int_eq(constraint_advance(run->constraint, &run->place, (int32_t)token, NULL), 0);
    return true;
}

START_TEST(a_mask_has_the_tokens_that_may_come_and_no_others)
{
    struct run run;
    for (unsigned seed = 0; seed < 4; seed++) {
        open_run(&run, _i / STYLES, _i % STYLES, seed);
        for (int i = 0; i < 25 && step(&run, true); i++)
            ;
        close_run(&run);
    }
}
END_TEST

START_TEST(what_masks_let_through_and_has_ended_is_json)
{
    struct run run;
    int ended = 0;
    for (unsigned seed = 0; seed < 200; seed++) {
        open_run(&run, _i / STYLES, _i % STYLES, seed + 1000);
        int steps = 0;
        while (steps < 1000 && step(&run, false))
            steps++;
        if (run.allowed.ends) {
            struct json_bounds bounds = {.bytes_max = sizeof(run.text), .depth_max = 64};
            json *document = NULL;
            struct error error = {0};
            int code = json_parse(run.text, run.used, bounds, &document, &error);
            /* The strict parser has rules beyond JSON's. */
            ck_assert_msg(code == 0 || strstr(error.text, "\\u0000") ||
                              strstr(error.text, "2^53") || strstr(error.text, "uplicate") ||
                              strstr(error.text, "number"),
                          "%.*s: %s", (int)run.used, run.text, error.text);
            json_free(document);
            ended++;
        }
        close_run(&run);
    }
    /* A pattern that has to be found somewhere is seldom found by chance. */
    ck_assert_int_ge(ended, _i / STYLES == 5 ? 1 : 150);
}
END_TEST

START_TEST(a_second_sequence_makes_no_state_anew)
{
    struct run first, second;
    open_run(&first, 2, STYLE_WORDS, 7);
    while (step(&first, false))
        ;
    uint64_t made = constraint_states(first.constraint);
    second = first;
    second.seed = 7;
    second.used = 0;
    constraint_start(first.constraint, &second.place);
    while (step(&second, false))
        ;
    ck_assert_uint_eq(second.used, first.used);
    ck_assert_uint_eq(constraint_states(first.constraint), made);
    constraint_drop(first.constraint, &second.place);
    close_run(&first);
}
END_TEST

/* More states than are kept, while a place is held in the middle and must go on as before. */
START_TEST(what_is_thrown_away_is_made_again_and_what_is_held_stays)
{
    struct run run;
    struct constraint_place held, at;
    open_run(&run, 3, STYLE_BYTES, 1);
    close_run(&run);
    struct error error = {0};
    const char *text = "(a|b|c){0,200000}x";
    run.vocabulary = style_new(STYLE_WORDS);
    ck_assert_int_eq(constraint_new(CONSTRAINT_PATTERN, text, strlen(text), run.vocabulary,
                                    &run.constraint, &error),
                     0);
    constraint_start(run.constraint, &at);
    ck_assert_int_eq(constraint_read(run.constraint, &at, "abc", 3, &error), 0);
    constraint_copy(run.constraint, &at, &held);
    for (int i = 0; i < 199997 / 3; i++) {
        ck_assert_int_eq(constraint_read(run.constraint, &at, "cab", 3, &error), 0);
        if (i % 1000 == 0)
            ck_assert_int_eq(constraint_mask(run.constraint, &at, run.bits, &run.allowed, &error),
                             0);
    }
    ck_assert_int_eq(constraint_read(run.constraint, &at, "cc", 2, &error), 0);
    ck_assert_int_eq(constraint_read(run.constraint, &at, "a", 1, &error), -ERR_BAD_TOKEN);
    ck_assert_int_eq(constraint_read(run.constraint, &at, "x", 1, &error), 0);
    ck_assert(constraint_may_end(&at));
    ck_assert_int_eq(constraint_read(run.constraint, &held, "bx", 2, &error), 0);
    ck_assert(constraint_may_end(&held));
    constraint_drop(run.constraint, &at);
    constraint_drop(run.constraint, &held);
    constraint_free(run.constraint);
    vocabulary_free(run.vocabulary);
}
END_TEST

static const char shared_text[] =
    "{\"name\":\"caf\xc3\xa9\",\"age\": 99,\"tags\":[\"abc\",\"a\"],\"x\":true}";

/* Reads a text byte by byte by masks, often; counts what went wrong. */
static void *read_often(void *argument)
{
    struct run run = *(struct run *)argument;
    size_t wrong = 0;
    for (int times = 0; times < 20; times++) {
        constraint_start(run.constraint, &run.place);
        for (size_t i = 0; i + 1 < sizeof(shared_text); i++) {
            uint8_t token = (uint8_t)shared_text[i];
            if (constraint_mask(run.constraint, &run.place, run.bits, &run.allowed, NULL) ||
                !bit(&run, token) || constraint_advance(run.constraint, &run.place, token, NULL))
                wrong++;
        }
        wrong += !constraint_may_end(&run.place);
        constraint_drop(run.constraint, &run.place);
    }
    return (void *)wrong;
}

START_TEST(threads_share_a_constraint)
{
    struct run run;
    pthread_t threads[4];
    void *wrong = NULL;
    open_run(&run, 2, STYLE_WORDS, 1);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, read_often, &run), 0);
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(pthread_join(threads[i], &wrong), 0);
        ck_assert_ptr_null(wrong);
    }
    close_run(&run);
}
END_TEST

START_TEST(an_end_stands_only_where_the_text_may_end)
{
    struct run run;
    open_run(&run, 7, STYLE_WORDS, 1);
    ck_assert_int_eq(constraint_advance(run.constraint, &run.place, END_TOKEN, NULL),
                     -ERR_BAD_TOKEN);
    ck_assert_int_eq(constraint_advance(run.constraint, &run.place, END_TOKEN + 1, NULL),
                     -ERR_BAD_TOKEN);
    ck_assert_int_eq(constraint_advance(run.constraint, &run.place, -1, NULL), -ERR_BAD_TOKEN);
    ck_assert_int_eq(constraint_read(run.constraint, &run.place, "abcabc", 6, NULL), 0);
    ck_assert_int_eq(constraint_mask(run.constraint, &run.place, run.bits, &run.allowed, NULL), 0);
    ck_assert(run.allowed.ends);
    ck_assert_int_eq(run.allowed.only, END_TOKEN);
    ck_assert_int_eq(constraint_advance(run.constraint, &run.place, END_TOKEN, NULL), 0);
    close_run(&run);
}
END_TEST

Suite *mask_suite(void)
{
    Suite *suite = suite_create("mask");
    TCase *cases = tcase_create("mask");
    tcase_set_timeout(cases, 120);
    tcase_add_loop_test(cases, a_mask_has_the_tokens_that_may_come_and_no_others, 0,
                        DRAWN * STYLES);
    tcase_add_loop_test(cases, what_masks_let_through_and_has_ended_is_json, 0, 6 * STYLES);
    tcase_add_test(cases, a_second_sequence_makes_no_state_anew);
    tcase_add_test(cases, what_is_thrown_away_is_made_again_and_what_is_held_stays);
    tcase_add_test(cases, threads_share_a_constraint);
    tcase_add_test(cases, an_end_stands_only_where_the_text_may_end);
    suite_add_tcase(suite, cases);
    return suite;
}
