/* Guesses found in a text. */
#include "daemon/sched/lookup.h"

#include <string.h>

#include "tests/daemon/replica_suites.h"
#include "tests/daemon/rig/fake_device.h"

static struct lookup lookup;

static struct lookup_text text_of(const int32_t *tokens, uint32_t prompt_len, uint32_t len)
{
    return (struct lookup_text){
        .prompt = tokens, .out = tokens + prompt_len, .prompt_len = prompt_len, .len = len};
}

START_TEST(what_followed_the_last_tokens_is_guessed)
{
    static const int32_t tokens[] = {5, 1, 2, 3, 4, 9, 8, 7, 1, 2, 3, 4};
    int32_t guesses[4];
    uint32_t left = 12;
    lookup_clear(&lookup);
    for (uint32_t len = 1; len <= 12; len++) {
        struct lookup_text text = text_of(tokens, 6, len);
        ck_assert(lookup_read(&lookup, &text, &left));
        uint32_t found = lookup_find(&lookup, &text, guesses, 4);
        ck_assert_uint_eq(found, len >= 10 ? 4 : 0);
        if (len == 10)
            ck_assert_mem_eq(guesses, (tokens + 3), 4 * sizeof *guesses);
        if (len == 12)
            ck_assert_mem_eq(guesses, (tokens + 5), 4 * sizeof *guesses);
    }
}
END_TEST

START_TEST(the_longer_run_is_believed)
{
    /* Behind 3 4 stood 6 last; behind 1 2 3 4 stood 9. */
    static const int32_t tokens[] = {1, 2, 3, 4, 9, 3, 4, 6, 1, 2, 3, 4};
    int32_t guess;
    uint32_t left = 12;
    struct lookup_text text = text_of(tokens, 12, 12);
    lookup_clear(&lookup);
    ck_assert(lookup_read(&lookup, &text, &left));
    ck_assert_uint_eq(lookup_find(&lookup, &text, &guess, 1), 1);
    ck_assert_int_eq(guess, 9);
}
END_TEST

START_TEST(what_goes_round_is_guessed_beyond_the_end)
{
    static const int32_t tokens[] = {7, 1, 2, 3, 1, 2, 3, 1, 2};
    static const int32_t goes_on[] = {3, 1, 2, 3, 1, 2, 3, 1};
    int32_t guesses[8];
    uint32_t left = 9;
    struct lookup_text text = text_of(tokens, 9, 9);
    lookup_clear(&lookup);
    ck_assert(lookup_read(&lookup, &text, &left));
    ck_assert_uint_eq(lookup_find(&lookup, &text, guesses, 8), 8);
    ck_assert_mem_eq(guesses, goes_on, sizeof goes_on);
}
END_TEST

enum { PART = 1000 };

/* Places that two runs share say nothing wrong, however many there are. */
START_TEST(a_guess_stands_behind_the_same_run)
{
    static int32_t tokens[6 * LOOKUP_PLACES];
    uint64_t random = 3;
    int32_t guess;
    uint32_t found = 0, reads = 1, left = PART;
    for (uint32_t i = 0; i < 6 * LOOKUP_PLACES; i++)
        tokens[i] = (int32_t)fake_below(&random, 500);
    lookup_clear(&lookup);
    struct lookup_text text = text_of(tokens, 100, 5 * LOOKUP_PLACES);
    for (; !lookup_read(&lookup, &text, &left); reads++, left = PART)
        ck_assert_uint_eq(left, 0);
    ck_assert_uint_eq(reads, (5 * LOOKUP_PLACES + PART - 1) / PART);
    for (; text.len < 6 * LOOKUP_PLACES; text.len++) {
        left = 1; /* no token is read twice */
        ck_assert(lookup_read(&lookup, &text, &left));
        if (lookup_find(&lookup, &text, &guess, 1) == 0)
            continue;
        bool stood = false;
        for (uint32_t i = 2; i < text.len && !stood; i++)
            stood = tokens[i] == guess && tokens[i - 1] == tokens[text.len - 1] &&
                    tokens[i - 2] == tokens[text.len - 2];
        ck_assert(stood);
        found++;
    }
    ck_assert_uint_gt(found, 0);
}
END_TEST

Suite *lookup_suite(void)
{
    Suite *suite = suite_create("lookup");
    TCase *tcase = tcase_create("guesses");
    tcase_add_test(tcase, what_followed_the_last_tokens_is_guessed);
    tcase_add_test(tcase, the_longer_run_is_believed);
    tcase_add_test(tcase, what_goes_round_is_guessed_beyond_the_end);
    tcase_add_test(tcase, a_guess_stands_behind_the_same_run);
    suite_add_tcase(suite, tcase);
    return suite;
}
