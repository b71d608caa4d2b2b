#include "daemon/request/admission.h"

#include <string.h>

#include "tests/daemon/daemon_suites.h"

static const struct admission_limits limits = {.connections_max = 2,
                                               .sequences_max = 10,
                                               .tokens_max = 1000,
                                               .batch_max = 4,
                                               .n_max = 3,
                                               .logprobs_max = 5,
                                               .context_max = 100,
                                               .kv_tokens = 80};

static const struct {
    enum job job;
    uint32_t prompt, max_tokens, n;
    int32_t logprobs;
    int code;
    uint64_t limit, value;
    uint32_t then; /* max_tokens afterwards */
} prompts[] = {
    {JOB_GENERATE, 10, 20, 1, -1, 0, 0, 0, 20},
    {JOB_GENERATE, 10, 70, 1, -1, 0, 0, 0, 70},
    {JOB_GENERATE, 10, 71, 1, -1, ERR_TOO_LARGE, 80, 81, 0},
    {JOB_GENERATE, 10, 91, 1, -1, ERR_TOO_LARGE, 100, 101, 0},
    {JOB_GENERATE, 10, 0, 1, -1, 0, 0, 0, 16}, /* the model's default */
    {JOB_GENERATE, 70, 0, 1, -1, 0, 0, 0, 10}, /* what is left */
    {JOB_GENERATE, 79, 0, 1, -1, 0, 0, 0, 1},
    {JOB_GENERATE, 80, 0, 1, -1, ERR_TOO_LARGE, 80, 81, 0},
    {JOB_GENERATE, 100, 0, 1, -1, ERR_TOO_LARGE, 100, 101, 0},
    {JOB_GENERATE, UINT32_MAX, UINT32_MAX, 1, -1, ERR_TOO_LARGE, 100, 2ull * UINT32_MAX, 0},
    {JOB_GENERATE, 0, 1, 1, -1, ERR_EMPTY, 0, 0, 0},
    {JOB_GENERATE, 10, 1, 4, -1, ERR_TOO_LARGE, 3, 4, 0},
    {JOB_GENERATE, 10, 1, 1, 6, ERR_TOO_LARGE, 5, 6, 0},
    {JOB_SCORE, 80, 0, 1, -1, 0, 0, 0, 0},
    {JOB_SCORE, 81, 0, 1, -1, ERR_TOO_LARGE, 80, 81, 0},
    {JOB_EMBED, 101, 0, 1, -1, ERR_TOO_LARGE, 100, 101, 0},
};

START_TEST(no_capacity_is_not_no_limit)
{
    struct error error = {0};
    struct admission_limits none = limits;
    struct sampling sampling = {.n = 1, .logprobs = -1, .max_tokens = 1};
    none.kv_tokens = 0;
    ck_assert_int_eq(admission_prompt(&none, JOB_GENERATE, 1, 16, &sampling, &error),
                     -ERR_TOO_LARGE);
    ck_assert_int_eq(admission_prompt(&none, JOB_SCORE, 1, 16, &sampling, &error), -ERR_TOO_LARGE);
    ck_assert_uint_eq(error.value, 1);
}
END_TEST

START_TEST(a_prompt_is_measured_by_the_limits)
{
    struct error error = {0};
    struct sampling sampling = {
        .max_tokens = prompts[_i].max_tokens, .n = prompts[_i].n, .logprobs = prompts[_i].logprobs};
    int rc = admission_prompt(&limits, prompts[_i].job, prompts[_i].prompt, 16, &sampling, &error);
    ck_assert_int_eq(rc, -prompts[_i].code);
    ck_assert_uint_eq(error.limit, prompts[_i].limit);
    ck_assert_uint_eq(error.value, prompts[_i].value);
    if (!rc)
        ck_assert_uint_eq(sampling.max_tokens, prompts[_i].then);
}
END_TEST

static const struct {
    uint64_t all_sequences, all_tokens, user_sequences, user_tokens, sequences, tokens;
    int code;
    uint64_t limit;
} batches[] = {
    {0, 0, 0, 0, 4, 500, 0, 0},
    {0, 0, 0, 0, 5, 10, ERR_TOO_LARGE, 4},    /* over batch-max */
    {0, 0, 0, 0, 4, 501, ERR_TOO_LARGE, 500}, /* over half of the tokens: never */
    {4, 10, 4, 10, 1, 10, 0, 0},
    {4, 10, 4, 10, 2, 10, ERR_BUSY, 5}, /* over half of the sequences: now */
    {8, 10, 2, 10, 2, 10, 0, 0},
    {8, 10, 2, 10, 3, 10, ERR_BUSY, 10}, /* over all of them */
    {1, 400, 1, 400, 1, 100, 0, 0},
    {1, 400, 1, 400, 1, 101, ERR_BUSY, 500},
    {2, 900, 1, 100, 1, 101, ERR_BUSY, 1000},
    {50, 10, 1, 10, 1, 10, ERR_BUSY, 10}, /* the limits were lowered meanwhile */
    {50, 10, 50, 10, 1, 10, ERR_BUSY, 5},
};

START_TEST(a_batch_is_measured_by_what_is_held)
{
    struct error error = {0};
    const struct load all = {.sequences = batches[_i].all_sequences,
                             .tokens = batches[_i].all_tokens};
    const struct load user = {.sequences = batches[_i].user_sequences,
                              .tokens = batches[_i].user_tokens};
    int rc = admission_batch(&limits, &all, &user, batches[_i].sequences, batches[_i].tokens, 250,
                             &error);
    ck_assert_int_eq(rc, -batches[_i].code);
    ck_assert_uint_eq(error.limit, batches[_i].limit);
    ck_assert_uint_eq(error.retry_after_ms, batches[_i].code == ERR_BUSY ? 250 : 0);
}
END_TEST

START_TEST(connections_have_a_limit)
{
    struct error error;
    ck_assert_int_eq(admission_conn(&limits, 1, &error), 0);
    ck_assert_int_eq(admission_conn(&limits, 2, &error), -ERR_BUSY);
    ck_assert_uint_eq(error.limit, 2);
}
END_TEST

static const struct {
    uint64_t all, user, conn, bytes;
    bool fits;
} kept[] = {
    {0, 0, 0, 1024, true}, /* a quarter: alone, all that a connection may have */
    {0, 0, 0, 1025, false},       {1000, 1000, 1000, 24, true}, {1000, 1000, 1000, 25, false},
    {1000, 1000, 0, 524, true}, /* another connection of the same user */
    {1000, 1000, 0, 525, false},  {2000, 2000, 0, 24, true}, /* half, whatever its connections hold
                                                              */
    {2000, 2000, 0, 25, false},   {2048, 0, 0, 1024, true},  /* another user finds half of what is
                                                                left */
    {2048, 0, 0, 1025, false},    {3072, 0, 0, 512, true},      {3072, 0, 0, 513, false},
    {4096, 0, 0, 1, false},       {5000, 0, 0, 1, false}, /* the limit was lowered */
    {5000, 5000, 5000, 0, false},
};

START_TEST(results_have_room_or_have_not)
{
    const struct admission_limits small = {.results_max = 4096};
    ck_assert(admission_keep(&small, kept[_i].all, kept[_i].user, kept[_i].conn, kept[_i].bytes) ==
              kept[_i].fits);
}
END_TEST

/* Whoever comes one after the other and takes all it gets: each leaves half of what it found. */
START_TEST(greed_leaves_something_to_the_next)
{
    const struct admission_limits large = {.results_max = 1u << 30};
    uint64_t all = 0;
    for (uint32_t user = 0; user < 10; user++) {
        uint64_t held = 0, found = large.results_max - all;
        for (uint32_t conn = 0; conn < 4; conn++)
            for (uint64_t mine = 0; admission_keep(&large, all, held, mine, 4096); mine += 4096) {
                held += 4096;
                all += 4096;
            }
        ck_assert_uint_gt(held, found / 3);
        ck_assert_uint_le(held, found / 2);
    }
}
END_TEST

START_TEST(priorities_are_refused_above_what_is_allowed)
{
    struct error error;
    ck_assert_int_eq(admission_priority(0, 0, &error), 0);
    ck_assert_int_eq(admission_priority(0, -8, &error), 0);
    ck_assert_int_eq(admission_priority(-1, 0, &error), -ERR_DENIED);
    ck_assert_int_eq(admission_priority(3, 4, &error), -ERR_DENIED);
    ck_assert_ptr_nonnull(strstr(error.text, "priority 4 is above 3"));
}
END_TEST

Suite *admission_suite(void)
{
    Suite *suite = suite_create("admit");
    TCase *tcase = tcase_create("admit");
    tcase_add_test(tcase, no_capacity_is_not_no_limit);
    tcase_add_loop_test(tcase, a_prompt_is_measured_by_the_limits, 0,
                        (int)(sizeof(prompts) / sizeof(prompts[0])));
    tcase_add_loop_test(tcase, a_batch_is_measured_by_what_is_held, 0,
                        (int)(sizeof(batches) / sizeof(batches[0])));
    tcase_add_test(tcase, connections_have_a_limit);
    tcase_add_loop_test(tcase, results_have_room_or_have_not, 0,
                        (int)(sizeof(kept) / sizeof(kept[0])));
    tcase_add_test(tcase, greed_leaves_something_to_the_next);
    tcase_add_test(tcase, priorities_are_refused_above_what_is_allowed);
    suite_add_tcase(suite, tcase);
    return suite;
}
