/* Constraints by their text: those used last are kept, by whoever holds them longer; end tokens have
 * no text, whatever the tokenizer says. */
#include <stdio.h>
#include <string.h>

#include "daemon/constrain/constraint.h"
#include "daemon/request/constraint_cache.h"
#include "daemon/text/tokenizer.h"
#include "gpu/gpu.h"
#include "tests/daemon/daemon_suites.h"

#define PLENTY (1u << 30)
#define BUDGET (8u << 20)

/* "a", "b", "ab", and an end that is not said to be special. */
static const char vocabulary[] =
    "{\"added_tokens\":[],\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
    "\"use_regex\":false},\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\","
    "\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"</s>\":3},\"merges\":[]}}";

static struct constraint_cache *cache;
static struct tokenizer *tokenizer;
static const struct gpu_model model = {.vocab = 5, .eos_count = 1, .eos = {3}}; /* one is padding */
static struct error error;

static void begin(size_t budget)
{
    ck_assert_int_eq(constraint_cache_make(budget, &cache, &error), 0);
    int rc = tokenizer_load(vocabulary, strlen(vocabulary), &tokenizer, &error);
    ck_assert_msg(rc == 0, "%s", error.text);
}

static void end(void)
{
    constraint_cache_free(cache);
    tokenizer_free(tokenizer);
}

static const struct constraint_owner someone = {7, 0};

static struct constraint_held *get_for(const struct constraint_owner *owner,
                                       enum message_constraint_kind kind, const char *text,
                                       bool hit)
{
    const struct message_constraint constraint = {kind, text, text ? strlen(text) : 0};
    struct constraint_held *held;
    bool was;
    int rc =
        constraint_cache_get(cache, tokenizer, &model, &constraint, owner, &held, &was, &error);
    ck_assert_msg(rc == 0, "%s", error.text);
    ck_assert_int_eq(was, hit);
    return held;
}

static struct constraint_held *get(enum message_constraint_kind kind, const char *text, bool hit)
{
    return get_for(&someone, kind, text, hit);
}

START_TEST(the_last_are_kept_and_who_holds_one_keeps_it)
{
    char text[32];
    begin(PLENTY);
    struct constraint_held *first = get(MESSAGE_CONSTRAINT_PATTERN, "a{1,3}", false);
    struct constraint_held *again = get(MESSAGE_CONSTRAINT_PATTERN, "a{1,3}", true);
    ck_assert_ptr_eq(first, again);
    constraint_cache_put(cache, again);
    /* The same text of another kind is another constraint. */
    constraint_cache_put(cache, get(MESSAGE_CONSTRAINT_SCHEMA, "{}", false));
    constraint_cache_put(cache, get(MESSAGE_CONSTRAINT_JSON, NULL, false));
    constraint_cache_put(cache, get(MESSAGE_CONSTRAINT_OBJECT, NULL, false));
    for (unsigned i = 0; i < CONSTRAINTS_KEPT; i++) {
        snprintf(text, sizeof(text), "b{%u}", i + 1);
        constraint_cache_put(cache, get(MESSAGE_CONSTRAINT_PATTERN, text, false));
    }
    constraint_cache_put(cache, get(MESSAGE_CONSTRAINT_PATTERN, text, true));
    constraint_cache_put(cache, get(MESSAGE_CONSTRAINT_PATTERN, "b{1}", true));
    constraint_cache_put(cache, get(MESSAGE_CONSTRAINT_SCHEMA, "{}", false)); /* it had to go */
    struct constraint_place place;
    constraint_start(first->constraint, &place); /* and so had this one, which is held */
    ck_assert_int_eq(constraint_read(first->constraint, &place, "aa", 2, &error), 0);
    constraint_drop(first->constraint, &place);
    constraint_cache_put(cache, first);
    constraint_cache_put(cache, get(MESSAGE_CONSTRAINT_PATTERN, "a{1,3}", false));
    constraint_cache_put(cache, NULL);
    end();
}
END_TEST

/* Whether it was there would tell one what another has asked for. */
START_TEST(nobody_finds_what_another_has_asked_for)
{
    const struct constraint_owner another = {8, 0}, salted = {7, constraint_salt("s")},
                                  other_salt = {7, constraint_salt("t")},
                                  another_salted = {8, constraint_salt("s")};
    const struct constraint_owner *owners[] = {&someone, &another, &salted, &other_salt,
                                               &another_salted};
    struct constraint_held *held[5];
    begin(PLENTY);
    for (size_t i = 0; i < 5; i++) {
        held[i] = get_for(owners[i], MESSAGE_CONSTRAINT_PATTERN, "a{1,3}", false);
        for (size_t j = 0; j < i; j++)
            ck_assert_ptr_ne(held[i], held[j]);
    }
    for (size_t i = 0; i < 5; i++) {
        struct constraint_held *again =
            get_for(owners[i], MESSAGE_CONSTRAINT_PATTERN, "a{1,3}", true);
        ck_assert_ptr_eq(again, held[i]);
        constraint_cache_put(cache, again);
        constraint_cache_put(cache, held[i]);
    }
    end();
}
END_TEST

START_TEST(an_end_token_is_no_text)
{
    struct constraint_allowed allowed;
    uint32_t bits;
    begin(PLENTY);
    struct constraint_held *held = get(MESSAGE_CONSTRAINT_PATTERN, "(a|b|<|/|s|>)*!|(ab)", false);
    struct constraint_place place;
    ck_assert_uint_eq(held->words, 1);
    constraint_start(held->constraint, &place);
    ck_assert_int_eq(constraint_mask(held->constraint, &place, &bits, &allowed, &error), 0);
    ck_assert_uint_eq(bits, 7); /* as a text "</s>" might come here */
    ck_assert_int_eq(constraint_advance(held->constraint, &place, 2, &error), 0);
    ck_assert_int_eq(constraint_mask(held->constraint, &place, &bits, &allowed, &error), 0);
    ck_assert_uint_eq(bits, 15);
    constraint_drop(held->constraint, &place);
    constraint_cache_put(cache, held);
    end();
}
END_TEST

START_TEST(what_is_refused_is_not_kept)
{
    static const struct message_constraint bad[] = {
        {MESSAGE_CONSTRAINT_PATTERN, "(a", 2},
        {MESSAGE_CONSTRAINT_SCHEMA, "{\"not\":{}}", 10},
        {MESSAGE_CONSTRAINT_SCHEMA, "{", 1},
        {MESSAGE_CONSTRAINT_CHOICE, "[]", 2},
        {MESSAGE_CONSTRAINT_CHOICE, "[1]", 3},
    };
    begin(PLENTY);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        for (int twice = 0; twice < 2; twice++) {
            struct constraint_held *held = NULL;
            bool hit = true;
            ck_assert_int_lt(constraint_cache_get(cache, tokenizer, &model, &bad[i], &someone,
                                                  &held, &hit, &error),
                             0);
            ck_assert(!hit && !held && error.text[0]);
        }
    end();
}
END_TEST

#define MANY 64u

static int get_as(uint64_t user, unsigned number, struct constraint_held **ret_held)
{
    char text[32];
    bool hit;
    int length = snprintf(text, sizeof(text), "b{1,%u}", number);
    const struct message_constraint constraint = {MESSAGE_CONSTRAINT_PATTERN, text,
                                                  (size_t)length};
    const struct constraint_owner owner = {user, 0};
    return constraint_cache_get(cache, tokenizer, &model, &constraint, &owner, ret_held, &hit,
                                &error);
}

START_TEST(a_user_has_half_of_what_constraints_may_take)
{
    struct constraint_held *held[MANY] = {NULL}, *others;
    unsigned count = 0;
    int rc;
    begin(BUDGET);
    while ((rc = get_as(1, 10 + count, &held[count])) == 0 && count + 1 < MANY)
        count++;
    ck_assert_int_eq(rc, -ERR_BUSY);
    ck_assert_uint_gt(error.retry_after_ms, 0);
    ck_assert_ptr_nonnull(strstr(error.text, "constraints-max"));
    ck_assert_uint_gt(count, 2);
    ck_assert_uint_le(atomic_load(&held[0]->budget->all), BUDGET / 2);
    ck_assert_int_eq(get_as(2, 9, &others), 0); /* another's half is there */
    constraint_cache_put(cache, others);
    /* Given back by the loop, it is there for the next. */
    constraint_cache_put(cache, held[--count]);
    ck_assert_int_eq(get_as(1, 200, &held[count]), 0);
    for (unsigned i = 0; i <= count; i++)
        constraint_cache_put(cache, held[i]);
    end();
}
END_TEST

/* What it read is charged as well; over the budget what nobody holds goes. */
START_TEST(states_count_and_go_where_there_is_no_room)
{
    struct constraint_held *held;
    struct constraint_place place;
    begin(BUDGET);
    ck_assert_int_eq(get_as(1, 60000, &held), 0);
    size_t before = atomic_load(&held->bytes);
    constraint_start(held->constraint, &place);
    for (unsigned i = 0; i < 30000; i++)
        ck_assert_int_eq(constraint_read(held->constraint, &place, "b", 1, &error), 0);
    constraint_held_measure(held);
    size_t after = atomic_load(&held->bytes);
    ck_assert_uint_gt(after, before + 30000);
    ck_assert_uint_eq(atomic_load(&held->budget->all), after);
    held->budget->max = before; /* others took the rest */
    constraint_held_measure(held);
    ck_assert_uint_lt(atomic_load(&held->bytes), before + 4096);
    ck_assert_int_eq(constraint_read(held->constraint, &place, "b", 1, &error), 0);
    constraint_drop(held->constraint, &place);
    held->budget->max = BUDGET;
    constraint_cache_put(cache, held);
    end();
}
END_TEST

Suite *constraint_cache_suite(void)
{
    Suite *suite = suite_create("constraint_cache");
    TCase *tcase = tcase_create("constraint_cache");
    tcase_add_test(tcase, the_last_are_kept_and_who_holds_one_keeps_it);
    tcase_add_test(tcase, nobody_finds_what_another_has_asked_for);
    tcase_add_test(tcase, an_end_token_is_no_text);
    tcase_add_test(tcase, what_is_refused_is_not_kept);
    tcase_add_test(tcase, a_user_has_half_of_what_constraints_may_take);
    tcase_add_test(tcase, states_count_and_go_where_there_is_no_room);
    suite_add_tcase(suite, tcase);
    return suite;
}
