/* How long steps are by the targets for first and for further tokens. */
#include "tests/daemon/replica_suites.h"
#include "tests/daemon/sched/sched_rig.h"

/* With this a step lasts a quarter of what the first token takes (sched_limit.c: 40 ms of a target
 * that is reached). A step costs 10 us and 1 us per token, so reading P tokens by C of them beside
 * 4 decode rows takes P / C steps of 14 + C us, and a quarter of that is 14 + C where C is P / 4.
 */
#define QUARTER_US 160000u

static struct rig rig;

/* Four that decode, on a device whose costs are known; the index of the next. */
static uint32_t open_rig(uint32_t context_max, uint32_t tokens_max)
{
    struct fake_shape shape = rig_shape();
    shape.context_max = context_max;
    shape.tokens_max = tokens_max;
    shape.block_tokens = context_max / 32;
    rig_open(&rig, &shape, 1);
    rig_teach(&rig, 1);
    struct fake_options options = rig_generate(4, 100);
    for (int i = 0; i < 4; i++)
        rig_add(&rig, &options);
    rig_submit(&rig);
    rig_complete(&rig);
    return rig.seq_count;
}

static void add(uint32_t count, uint32_t prompt_len)
{
    struct fake_options options = rig_generate(prompt_len, 2);
    for (uint32_t i = 0; i < count; i++)
        rig_add(&rig, &options);
}

static void close_rig(void)
{
    rig_finish(&rig);
    ck_assert_str_eq(rig_check_answers(&rig, true), "");
    rig_close(&rig);
}

/* Tokens of the sequence in a step that is planned now. */
static uint32_t tokens_of(uint32_t index)
{
    ck_assert(rig_submit(&rig));
    ck_assert_ptr_nonnull(rig_row(&rig, 0 + 16)); /* the first that decodes, behind the lessons */
    const struct gpu_row *row = rig_row(&rig, index);
    return row ? row->q_len : 0;
}

static void expect_about(uint32_t value, uint32_t about)
{
    ck_assert_uint_ge(value, about - about / 5);
    ck_assert_uint_le(value, about + about / 5);
}

START_TEST(prompts_beside_decode_rows_are_cut_to_the_latency_target)
{
    uint32_t first = open_rig(256, 256);
    rig.sched.options.itl_target_us = 60; /* 10 + 4 decode rows leave 46 tokens */
    add(1, 200);
    expect_about(tokens_of(first), 46);
    close_rig();
}
END_TEST

/* What whoever comes later waits for, whatever its turn. */
START_TEST(no_more_prompts_are_taken_than_three_steps_read)
{
    uint32_t first = open_rig(256, 256);
    ck_assert_uint_eq(sched_room(&rig.sched, rig.now_us).prefill_tokens, 3 * 256);
    rig.sched.options.itl_target_us = 60; /* 46 tokens a step, as above */
    expect_about((uint32_t)sched_room(&rig.sched, rig.now_us).prefill_tokens, 3 * 46);
    add(1, 40);
    expect_about((uint32_t)sched_room(&rig.sched, rig.now_us).prefill_tokens, 3 * 46 - 40);
    ck_assert_uint_gt(tokens_of(first), 0);
    rig.sched.options.itl_target_us = 1; /* the decode rows alone last longer */
    ck_assert_uint_eq(sched_room(&rig.sched, rig.now_us).prefill_tokens, 3 * rig.sched.chunk_min);
    close_rig();
}
END_TEST

START_TEST(a_prompt_that_is_in_time_is_read_in_shorter_steps)
{
    uint32_t first = open_rig(256, 256);
    rig.sched.options.itl_target_us = 100;
    rig.sched.options.ttft_target_us = QUARTER_US;
    add(1, 200);
    expect_about(tokens_of(first), 50);
    close_rig();
}
END_TEST

START_TEST(what_a_first_token_has_waited_counts)
{
    uint32_t first = open_rig(256, 256);
    rig.sched.options.itl_target_us = 120;
    rig.sched.options.ttft_target_us = QUARTER_US;
    add(1, 200);
    rig.now_us += 180; /* a quarter of 180 us, and of 200 tokens by 80, is 94 us */
    expect_about(tokens_of(first), 80);
    close_rig();
}
END_TEST

START_TEST(a_first_token_that_is_late_has_all_that_the_other_target_allows)
{
    uint32_t first = open_rig(256, 256);
    rig.sched.options.itl_target_us = 100;
    rig.sched.options.ttft_target_us = QUARTER_US;
    add(1, 250);
    rig.now_us += QUARTER_US;
    expect_about(tokens_of(first), 86);
    close_rig();
}
END_TEST

/* One came above those that run: for ten seconds what is below it has half of the other target, or
 * twice what the decode rows take; what is as high as it has all of it. */
static const struct {
    uint64_t itl_us;
    int32_t above, beside; /* priorities: of the one that came, and of another that has a prompt */
    time_us since_us;
    uint32_t tokens;
} steps[] = {{100, 0, 0, 0, 86},       {100, 1, 0, 0, 36}, {40, 1, 0, 0, 14},
             {100, 1, 0, 11000000, 86}, {100, 1, 1, 0, 86}, {100, 2, 1, 0, 36}};

START_TEST(who_may_come_above_does_not_wait_for_a_long_step)
{
    open_rig(256, 256);
    rig.sched.options.ttft_target_us = QUARTER_US;
    struct fake_options above = rig_generate(4, 1), prompt = rig_generate(250, 2);
    above.priority = steps[_i].above;
    uint32_t first = rig_add(&rig, &above);
    while (rig.ended[first] == 0)
        rig_submit(&rig), rig_complete(&rig);
    rig.now_us += steps[_i].since_us;
    rig.sched.chunk_min = 8;
    rig.sched.options.itl_target_us = steps[_i].itl_us;
    prompt.priority = steps[_i].beside;
    uint32_t index = rig_add(&rig, &prompt);
    rig.seqs[index]->arrived_us -= QUARTER_US;
    rig_submit(&rig);
    const struct gpu_row *row = rig_row(&rig, index);
    expect_about(row ? row->q_len : 0, steps[_i].tokens);
    close_rig();
}
END_TEST

START_TEST(what_takes_two_steps_is_read_in_equal_ones)
{
    uint32_t first = open_rig(256, 256);
    rig.sched.options.itl_target_us = 100; /* 86 tokens */
    rig.sched.options.ttft_target_us = QUARTER_US;
    add(1, 100);
    rig.now_us += QUARTER_US;
    ck_assert_uint_eq(tokens_of(first), 50);
    close_rig();
}
END_TEST

START_TEST(equal_steps_are_whole_tiles)
{
    uint32_t first = open_rig(4096, 1024);
    rig.sched.options.itl_target_us = 700;
    rig.sched.options.ttft_target_us = QUARTER_US;
    add(1, 1000);
    rig.now_us += 4 * QUARTER_US;
    ck_assert_uint_eq((tokens_of(first) + 4) % 64, 0);
    close_rig();
}
END_TEST

/* The last of four waits for the tokens of all. */
START_TEST(who_waits_behind_others_counts)
{
    uint32_t first = open_rig(256, 256);
    rig.sched.options.itl_target_us = 200;
    rig.sched.options.ttft_target_us = 2 * QUARTER_US;
    add(4, 200);
    expect_about(tokens_of(first), 100);
    close_rig();
}
END_TEST

static const struct {
    uint32_t prompt, tokens;
} lengths[] = {{512, 51}, {1024, 102}, {2048, 102}, {3000, 102}};

START_TEST(long_prompts_have_longer_targets)
{
    uint32_t first = open_rig(4096, 1024);
    rig.sched.options.itl_target_us = 1000;
    rig.sched.options.ttft_target_us = 400000; /* a tenth */
    rig.sched.chunk_min = 16;
    add(1, lengths[_i].prompt);
    expect_about(tokens_of(first), lengths[_i].tokens);
    close_rig();
}
END_TEST

/* 4 decode rows take 14 of 15 us; the least chunk here adds 3. */
START_TEST(the_first_prompt_advances_where_decode_rows_leave_no_time)
{
    uint32_t first = open_rig(256, 256);
    rig.sched.options.itl_target_us = 15;
    rig.sched.options.chunk_every = 1000;
    rig.sched.chunk_min = 3;
    add(2, 200);
    for (int i = 0; i < 3; i++) {
        expect_about(tokens_of(first), 3);
        ck_assert_ptr_null(rig_row(&rig, first + 1));
        rig_complete(&rig);
    }
    rig.sched.chunk_min = 6; /* that would add more than a quarter */
    ck_assert_uint_eq(tokens_of(first), 0);
    rig.sched.options.itl_target_us = 0;
    close_rig();
}
END_TEST

START_TEST(large_steps_are_of_whole_tiles)
{
    uint32_t first = open_rig(4096, 2048);
    rig.sched.options.itl_target_us = 700;
    add(2, 3000);
    for (int i = 0; i < 4; i++) {
        ck_assert_uint_eq(tokens_of(first), 640 - 4); /* 690 would be in time */
        rig_complete(&rig);
    }
    rig.sched.chunk_min = 16;
    rig.sched.options.itl_target_us = 250;
    ck_assert_uint_gt(tokens_of(first), 192); /* too small for that */
    close_rig();
}
END_TEST

/* Steps of 14 ms. */
static uint32_t open_slow_rig(void)
{
    struct fake_shape shape = rig_shape();
    rig_open(&rig, &shape, 1);
    rig_teach(&rig, 1000);
    struct fake_options options = rig_generate(4, 100);
    for (int i = 0; i < 4; i++)
        rig_add(&rig, &options);
    rig.sched.options.ttft_target_us = 150000;
    rig.sched.options.itl_target_us = 200000;
    for (int i = 0; i < 2; i++) {
        ck_assert(rig_submit(&rig));
        rig_complete(&rig);
    }
    ck_assert(rig_submit(&rig));
    return rig.seq_count;
}

START_TEST(a_step_that_only_decodes_is_planned_shortly_before_it_begins)
{
    (void)open_slow_rig();
    time_us began_us = rig.now_us;
    ck_assert(!rig_submit(&rig));
    time_us due_us = sched_due_us(&rig.sched);
    ck_assert_uint_gt(due_us, began_us + 11000);
    ck_assert_uint_lt(due_us, began_us + 13500);
    rig.now_us = due_us - 1;
    ck_assert(!rig_submit(&rig));
    rig.now_us = due_us;
    ck_assert(rig_submit(&rig));
    ck_assert_uint_eq(sched_due_us(&rig.sched), SCHED_NEVER);
    close_rig();
}
END_TEST

START_TEST(a_prompt_that_comes_until_then_is_in_it)
{
    uint32_t first = open_slow_rig();
    ck_assert(!rig_submit(&rig));
    rig.now_us += 6000;
    add(1, 20);
    ck_assert_uint_gt(tokens_of(first), 0);
    close_rig();
}
END_TEST

/* The step that runs ended sooner than was thought: nothing is held back from an idle device. */
START_TEST(an_idle_device_is_never_made_to_wait)
{
    (void)open_slow_rig();
    ck_assert(!rig_submit(&rig));
    rig_complete(&rig);
    ck_assert(rig_submit(&rig));
    close_rig();
}
END_TEST

START_TEST(what_a_step_waited_for_weights_is_not_learned)
{
    (void)open_rig(1024, 512);
    const struct cost before = rig.sched.cost;
    const uint64_t counted = rig.stats.step_compute.count;
    fake_knobs(rig.engine)->step_ns = 1000000;
    fake_knobs(rig.engine)->weights_come = true;
    rig_submit(&rig);
    rig_complete(&rig);
    ck_assert_mem_eq(&rig.sched.cost, &before, sizeof before);
    ck_assert_uint_eq(rig.stats.step_compute.count, counted);
    fake_knobs(rig.engine)->weights_come = false;
    rig_submit(&rig);
    rig_complete(&rig);
    ck_assert_uint_gt(rig.sched.cost.samples, before.samples);
    close_rig();
}
END_TEST

Suite *limit_suite(void)
{
    Suite *suite = suite_create("limit");
    TCase *tcase = tcase_create("limit");
    tcase_add_test(tcase, prompts_beside_decode_rows_are_cut_to_the_latency_target);
    tcase_add_test(tcase, no_more_prompts_are_taken_than_three_steps_read);
    tcase_add_test(tcase, a_prompt_that_is_in_time_is_read_in_shorter_steps);
    tcase_add_test(tcase, what_a_first_token_has_waited_counts);
    tcase_add_test(tcase, a_first_token_that_is_late_has_all_that_the_other_target_allows);
    tcase_add_loop_test(tcase, who_may_come_above_does_not_wait_for_a_long_step, 0,
                        (int)(sizeof(steps) / sizeof(steps[0])));
    tcase_add_test(tcase, what_takes_two_steps_is_read_in_equal_ones);
    tcase_add_test(tcase, equal_steps_are_whole_tiles);
    tcase_add_test(tcase, who_waits_behind_others_counts);
    tcase_add_loop_test(tcase, long_prompts_have_longer_targets, 0,
                        (int)(sizeof(lengths) / sizeof(lengths[0])));
    tcase_add_test(tcase, the_first_prompt_advances_where_decode_rows_leave_no_time);
    tcase_add_test(tcase, large_steps_are_of_whole_tiles);
    tcase_add_test(tcase, a_step_that_only_decodes_is_planned_shortly_before_it_begins);
    tcase_add_test(tcase, a_prompt_that_comes_until_then_is_in_it);
    tcase_add_test(tcase, an_idle_device_is_never_made_to_wait);
    tcase_add_test(tcase, what_a_step_waited_for_weights_is_not_learned);
    suite_add_tcase(suite, tcase);
    return suite;
}
