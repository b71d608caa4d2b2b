/* Several results of one prompt: it is computed once, and what they hold together is nobody's to
 * write, to move alone or to give back. */
#include <stdlib.h>

#include "tests/daemon/replica_suites.h"
#include "tests/daemon/sched/sched_rig.h"

#define RESULTS 8u
#define PROMPT 193u
#define BLOCK 8u
#define SHARED 192u /* whole blocks below the last token */

static struct rig rig;

static struct fake_options results(uint32_t prompt_len, uint32_t max_tokens)
{
    static uint64_t seed;
    return (struct fake_options){.job = JOB_GENERATE,
                                 .prompt_len = prompt_len,
                                 .max_tokens = max_tokens,
                                 .ignore_eos = true,
                                 .logprobs = -1,
                                 .n = RESULTS,
                                 .seed = ++seed * 1000};
}

/* All of a prompt's; the index of the first. */
static uint32_t add_all(const struct fake_options *options)
{
    uint32_t first = rig_add(&rig, options);
    for (uint32_t i = 1; i < options->n; i++)
        rig_add_result(&rig, options, first);
    return first;
}

static void check(void)
{
    ck_assert_str_eq(sched_check(&rig.sched), "");
    ck_assert_str_eq(rig_check_kv(&rig), "");
    ck_assert_str_eq(fake_fault(rig.engine), "");
}

static void finish_and_close(void)
{
    for (uint32_t turn = 0; rig.ended_count < rig.seq_count; turn++) {
        ck_assert_msg(turn < 100000, "it never ends");
        if (!rig_submit(&rig) && !rig_complete(&rig))
            rig.now_us = sched_due_us(&rig.sched);
        check();
    }
    while (rig_complete(&rig))
        continue;
    check();
    ck_assert_str_eq(rig_check_answers(&rig, true), "");
    ck_assert_uint_eq(rig.sched.kv.group[0].used, 0);
    ck_assert(list_empty(&rig.sched.shares));
    rig_close(&rig);
}

static struct fake_shape shape_of(uint32_t groups)
{
    struct fake_shape shape = rig_shape();
    shape.group_count = groups;
    shape.window = 20;
    return shape;
}

/* Three steps read it, two name its blocks to the others: also where the first ends with its only
 * token, and where some of the layers have a window. */
START_TEST(a_prompt_of_many_results_is_read_once)
{
    static const uint32_t max_tokens[] = {1, 2, 30};
    struct fake_shape shape = shape_of(1 + (uint32_t)_i % 2);
    shape.tokens_max = _i >= 6 ? 256 : 64;
    rig_open(&rig, &shape, 1);
    struct fake_options options = results(PROMPT, max_tokens[_i / 2 % 3]);
    options.penalty = _i >= 6; /* then the device is told the tokens that it does not read */
    add_all(&options);
    uint32_t steps = 0;
    for (; rig.seqs[RESULTS - 1]->out_count == 0; steps++) {
        ck_assert(rig_submit(&rig) && rig_complete(&rig));
        check();
    }
    ck_assert_uint_eq(steps, _i >= 6 ? 1 + 7 : 3 + 2);
    ck_assert_uint_eq(rig.stats.prompt_tokens_total, PROMPT + (RESULTS - 1) * (PROMPT - SHARED));
    ck_assert_uint_eq(rig.stats.prompt_tokens_shared_total, (RESULTS - 1) * SHARED);
    finish_and_close();
}
END_TEST

/* The steps ahead: those that read the blocks may be planned before those that write them end. */
START_TEST(the_others_start_one_step_behind_the_prompt)
{
    struct fake_shape shape = shape_of(1);
    rig_open(&rig, &shape, 1);
    struct fake_options options = results(PROMPT, 4);
    options.n = 4;
    add_all(&options);
    ck_assert(rig_submit(&rig) && rig_submit(&rig));
    ck_assert_uint_eq(rig.sched.step_done, 0);
    ck_assert_uint_eq(rig.seqs[3]->num_computed, PROMPT);
    finish_and_close();
}
END_TEST

/* What the memory of one prompt is, and a block or two for each of the others. */
START_TEST(blocks_of_a_prompt_are_held_once)
{
    struct fake_shape shape = shape_of(1);
    rig_open(&rig, &shape, 1);
    struct fake_options options = results(PROMPT, 4);
    add_all(&options);
    ck_assert(rig_submit(&rig) && rig_submit(&rig));
    ck_assert_uint_le(rig.sched.kv.group[0].used, SHARED / BLOCK + 2 * RESULTS);
    finish_and_close();
}
END_TEST

START_TEST(who_comes_behind_them_does_not_wait_for_the_prompt)
{
    struct fake_shape shape = shape_of(1);
    shape.tokens_max = 100;
    rig_open(&rig, &shape, 1);
    struct fake_options options = results(190, 4), other = results(10, 4);
    add_all(&options);
    other.n = 1;
    uint32_t behind = rig_add(&rig, &other);
    ck_assert(rig_submit(&rig));
    for (uint32_t i = 1; i < RESULTS; i++)
        ck_assert_int_eq(rig.seqs[i]->phase, PHASE_WAITING);
    ck_assert(rig_submit(&rig)); /* the rest of the prompt, and who came last */
    ck_assert_uint_eq(rig.seqs[behind]->num_computed, 10);
    for (uint32_t i = 1; i < RESULTS; i++)
        ck_assert_int_eq(rig.seqs[i]->phase, PHASE_WAITING);
    finish_and_close();
}
END_TEST

/* At every point of its reading: another takes its place, and all others still end well. */
START_TEST(another_reads_the_prompt_when_the_first_is_gone)
{
    struct fake_shape shape = shape_of(2);
    shape.tokens_max = 32;
    rig_open(&rig, &shape, 1);
    struct fake_options options = results(PROMPT, 3);
    add_all(&options);
    for (int event = 0; event < _i; event++)
        if (event % 3 == 2 || !rig_submit(&rig))
            rig_complete(&rig);
    if (rig.ended[0] == 0)
        sched_cancel(&rig.sched, rig.seqs[0], FINISH_CANCELLED, rig.now_us);
    check();
    finish_and_close();
}
END_TEST

/* It gives its slot to one that is owed it; then it shares, or reads the prompt again. */
START_TEST(who_gives_way_starts_again_with_what_others_hold)
{
    struct fake_shape shape = shape_of(1);
    shape.slots_max = RESULTS;
    rig_open(&rig, &shape, 1);
    struct fake_options options = results(PROMPT, 30), other = results(10, 4);
    add_all(&options);
    for (int i = 0; i < 4; i++)
        ck_assert(rig_submit(&rig) && rig_complete(&rig));
    other.n = 1;
    other.owed = true;
    (void)rig_add(&rig, &other);
    uint64_t read = rig.stats.prompt_tokens_total;
    while (rig.ended_count == 0)
        ck_assert(rig_submit(&rig) && rig_complete(&rig));
    ck_assert_uint_eq(rig.stats.preemptions_total, 1);
    finish_and_close();
    ck_assert_uint_lt(rig.stats.prompt_tokens_total, read + 10 + 30 + BLOCK);
}
END_TEST

/* Others take the memory: the prompt goes when nobody runs who has it, and is read again. */
START_TEST(a_prompt_that_only_waits_gives_its_blocks_up)
{
    struct fake_shape shape = shape_of(1);
    shape.slots_max = 2;
    rig_open(&rig, &shape, 1);
    struct fake_options first = results(PROMPT, 1), other = results(100, 150);
    other.n = 1;
    other.priority = 1;
    fake_knobs(rig.engine)->slabs_max = 5; /* 40 blocks */
    add_all(&first);
    ck_assert(rig_submit(&rig));
    rig_add(&rig, &other);
    rig_add(&rig, &other);
    finish_and_close();
    ck_assert_uint_ge(rig.stats.prompt_tokens_total, 2 * PROMPT + 2 * 100);
}
END_TEST

static uint32_t block_of(uint32_t index, uint32_t number)
{
    return rig.sched.tables[rig.seqs[index]->slot].group[0].blocks[number];
}

/* The slab of a prompt's first block is emptied while three hold that, and refused steps take
 * moves back: it moves once, and for all of them. */
START_TEST(a_block_that_several_hold_is_moved_for_all)
{
    struct fake_shape shape = shape_of(1 + (uint32_t)_i % 2);
    shape.moves_max = 1 + (uint32_t)_i;
    rig_open(&rig, &shape, 1);
    struct fake_options kept = results(100, 150);
    kept.n = 3;
    add_all(&kept);
    for (int i = 0; i < 20; i++)
        ck_assert(rig_submit(&rig) && rig_complete(&rig));
    uint32_t from = block_of(0, 0), slab = from / shape.slab_blocks;
    ck_assert_uint_eq(rig.sched.kv.group[0].references[from], 4);
    kv_slab_close(&rig.sched.kv, 0, slab);
    rig.sched.group[0].victim = slab;
    for (int i = 0; i < 40; i++) {
        fake_knobs(rig.engine)->scratch_refused = i % 2 ? 70 : 0;
        (void)(rig_submit(&rig) || rig_complete(&rig));
        check();
    }
    while (rig_complete(&rig))
        continue;
    ck_assert_uint_ne(block_of(0, 0), from);
    ck_assert_uint_eq(block_of(0, 0), block_of(1, 0));
    ck_assert_uint_eq(block_of(0, 0), block_of(2, 0));
    fake_knobs(rig.engine)->scratch_refused = 0;
    finish_and_close();
}
END_TEST

/* Scores, embeddings and a lone result leave no position out. */
START_TEST(who_needs_every_position_reads_it)
{
    static const struct fake_options kinds[] = {
        {.job = JOB_SCORE, .logprobs = -1, .n = RESULTS},
        {.job = JOB_EMBED, .pooling = POOLING_MEAN, .logprobs = -1, .n = RESULTS},
        {.job = JOB_EMBED, .pooling = POOLING_ALL, .logprobs = -1, .n = RESULTS},
        {.job = JOB_GENERATE, .logprobs = -1, .n = 1},
    };
    struct fake_shape shape = shape_of(1);
    rig_open(&rig, &shape, 1);
    struct fake_options options = kinds[_i];
    options.prompt_len = 60;
    options.max_tokens = 2;
    add_all(&options);
    if (options.n == 1)
        rig_add_result(&rig, &options, 0);
    finish_and_close();
    ck_assert_uint_eq(rig.stats.prompt_tokens_shared_total, 0);
}
END_TEST

Suite *sched_share_suite(void)
{
    Suite *suite = suite_create("sched, results of one prompt");
    TCase *tcase = tcase_create("shared");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, a_prompt_of_many_results_is_read_once, 0, 12);
    tcase_add_test(tcase, the_others_start_one_step_behind_the_prompt);
    tcase_add_test(tcase, blocks_of_a_prompt_are_held_once);
    tcase_add_test(tcase, who_comes_behind_them_does_not_wait_for_the_prompt);
    tcase_add_loop_test(tcase, another_reads_the_prompt_when_the_first_is_gone, 0, 40);
    tcase_add_test(tcase, who_gives_way_starts_again_with_what_others_hold);
    tcase_add_test(tcase, a_prompt_that_only_waits_gives_its_blocks_up);
    tcase_add_loop_test(tcase, a_block_that_several_hold_is_moved_for_all, 0, 8);
    tcase_add_loop_test(tcase, who_needs_every_position_reads_it, 0, 4);
    suite_add_tcase(suite, tcase);
    return suite;
}
