#include "daemon/sched/cost.h"

#include <math.h>

#include "tests/daemon/replica_suites.h"
#include "tests/daemon/rig/fake_device.h"

static struct cost cost;
static const struct cost_experts no_experts;

/* A device: so much per step, row, token, KV position and pair. */
struct truth {
    double step, row, token, kv, pair;
};
static const struct truth truths[] = {
    {3500, 2, 0.6, 0.03, 0.0001},
    {20, 0.5, 0.5, 0.001, 0},
    {100000, 500, 900, 1, 0.02},
    {0, 0, 3, 0, 0},
};

static double true_us(const struct truth *truth, const struct cost_work *work)
{
    return truth->step + truth->row * (double)work->rows + truth->token * (double)work->tokens +
           truth->kv * (double)work->kv + truth->pair * (double)work->pairs;
}

static struct cost_work random_work(uint64_t *random)
{
    struct cost_work work = {.rows = 0};
    uint32_t decodes = fake_below(random, 200), prompts = fake_below(random, 4);
    for (uint32_t i = 0; i < decodes; i++)
        cost_add_row(&work, fake_below(random, 4000), 1);
    for (uint32_t i = 0; i < prompts || work.rows == 0; i++)
        cost_add_row(&work, fake_below(random, 2000), 1 + fake_below(random, 1000));
    return work;
}

/* A device that reads the experts that some token goes through, at equal chances. */
static double mixture_us(struct cost_experts experts, const struct cost_work *work)
{
    double missed = 1;
    for (uint64_t i = 0; i < work->tokens; i++)
        missed *= 1 - (double)experts.top / experts.count;
    return 800 + 12000 * (1 - missed) + 2 * (double)work->rows + 0.01 * (double)work->kv;
}

START_TEST(the_model_learns_a_linear_device_within_a_tenth)
{
    uint64_t random = 5;
    cost_init(&cost, no_experts);
    for (int i = 0; i < 400; i++) {
        struct cost_work work = random_work(&random);
        double noise = 0.98 + 0.04 * fake_below(&random, 1000) / 1000.0;
        cost_learn(&cost, &work, true_us(&truths[_i], &work) * noise);
    }
    ck_assert(cost_known(&cost));
    for (int i = 0; i < 100; i++) {
        struct cost_work work = random_work(&random);
        double truth = true_us(&truths[_i], &work);
        ck_assert_double_le(fabs(cost_predict_us(&cost, &work) - truth), 0.1 * truth);
    }
}
END_TEST

/* Weights are read of the experts that have a token, so a token more costs much where there are few
 * and next to nothing where there are many. */
START_TEST(of_a_mixture_it_knows_how_many_experts_a_step_reads)
{
    static const struct cost_experts mixtures[] = {{128, 8}, {8, 2}, {60, 4}};
    struct cost_experts experts = mixtures[_i];
    uint64_t random = 13;
    cost_init(&cost, experts);
    for (int i = 0; i < 900; i++) {
        struct cost_work work = {.rows = 0};
        uint32_t decodes = 1 + fake_below(&random, i % 3 ? 256 : 8);
        for (uint32_t row = 0; row < decodes; row++)
            cost_add_row(&work, fake_below(&random, 4000), 1);
        cost_learn(&cost, &work, mixture_us(experts, &work));
    }
    for (uint32_t tokens = 1; tokens <= 256; tokens *= 2) {
        struct cost_work work = {.rows = 0};
        for (uint32_t row = 0; row < tokens; row++)
            cost_add_row(&work, 1000, 1);
        double truth = mixture_us(experts, &work);
        ck_assert_double_le(fabs(cost_predict_us(&cost, &work) - truth), 0.1 * truth);
    }
}
END_TEST

START_TEST(steps_that_teach_nothing_do_not_make_it_forget)
{
    uint64_t random = 9;
    cost_init(&cost, no_experts);
    for (int i = 0; i < 400; i++) {
        struct cost_work work = random_work(&random);
        cost_learn(&cost, &work, true_us(&truths[0], &work));
    }
    struct cost_work decode = {.rows = 0}, prompt = {.rows = 0};
    for (int i = 0; i < 64; i++)
        cost_add_row(&decode, 500, 1);
    cost_add_row(&prompt, 0, 2048);
    for (int i = 0; i < 100000; i++)
        cost_learn(&cost, &decode, true_us(&truths[0], &decode));
    double truth = true_us(&truths[0], &prompt);
    ck_assert_double_le(fabs(cost_predict_us(&cost, &prompt) - truth), 0.1 * truth);
}
END_TEST

START_TEST(it_follows_a_device_that_has_become_slower)
{
    uint64_t random = 3;
    cost_init(&cost, no_experts);
    for (int i = 0; i < 1000; i++) {
        struct cost_work work = random_work(&random);
        cost_learn(&cost, &work, true_us(&truths[0], &work) * (i < 500 ? 1 : 2));
    }
    struct cost_work work = random_work(&random);
    double truth = 2 * true_us(&truths[0], &work);
    ck_assert_double_le(fabs(cost_predict_us(&cost, &work) - truth), 0.15 * truth);
}
END_TEST

START_TEST(more_work_never_looks_cheaper)
{
    uint64_t random = 77;
    cost_init(&cost, no_experts);
    for (int i = 0; i < 300; i++) {
        struct cost_work work = random_work(&random);
        cost_learn(&cost, &work, fake_below(&random, 100000)); /* durations without any sense */
        struct cost_work more = work;
        cost_add_row(&more, 100, 50);
        ck_assert_double_ge(cost_predict_us(&cost, &more), cost_predict_us(&cost, &work));
        ck_assert(isfinite(cost_predict_us(&cost, &more)));
    }
}
END_TEST

START_TEST(a_budget_is_the_most_that_keeps_the_target)
{
    uint64_t random = 11;
    cost_init(&cost, no_experts);
    for (int i = 0; i < 400; i++) {
        struct cost_work work = random_work(&random);
        cost_learn(&cost, &work, true_us(&truths[0], &work));
    }
    struct cost_work work = {.rows = 0};
    for (int i = 0; i < 32; i++)
        cost_add_row(&work, 300, 1);
    uint32_t tokens = cost_tokens(&cost, &work, 100, 8192, 5000);
    ck_assert_uint_gt(tokens, 0);
    ck_assert_uint_lt(tokens, 8192);
    struct cost_work fits = work, over = work;
    cost_add_row(&fits, 100, tokens);
    cost_add_row(&over, 100, tokens + 1);
    ck_assert_double_le(cost_predict_us(&cost, &fits), 5000);
    ck_assert_double_gt(cost_predict_us(&cost, &over), 5000);
    ck_assert_uint_eq(cost_tokens(&cost, &work, 100, 8192, 1e9), 8192);
    ck_assert_uint_eq(cost_tokens(&cost, &work, 100, 8192, 10), 0);
    ck_assert_uint_eq(cost_tokens(&cost, &work, 100, 0, 1e9), 0);
}
END_TEST

Suite *cost_suite(void)
{
    Suite *suite = suite_create("cost");
    TCase *tcase = tcase_create("model");
    tcase_add_loop_test(tcase, the_model_learns_a_linear_device_within_a_tenth, 0,
                        sizeof(truths) / sizeof(truths[0]));
    tcase_add_loop_test(tcase, of_a_mixture_it_knows_how_many_experts_a_step_reads, 0, 3);
    tcase_add_test(tcase, steps_that_teach_nothing_do_not_make_it_forget);
    tcase_add_test(tcase, it_follows_a_device_that_has_become_slower);
    tcase_add_test(tcase, more_work_never_looks_cheaper);
    tcase_add_test(tcase, a_budget_is_the_most_that_keeps_the_target);
    suite_add_tcase(suite, tcase);
    return suite;
}
