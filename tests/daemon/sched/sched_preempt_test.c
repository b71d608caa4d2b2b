/* Higher priorities take the places of lower ones: at the next plan, of as few as it takes, and of
 * each once. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "tests/daemon/replica_suites.h"
#include "tests/daemon/sched/sched_rig.h"

static struct rig rig;

static uint32_t add(uint32_t prompt_len, uint32_t max_tokens, int32_t priority)
{
    struct fake_options options = rig_generate(prompt_len, max_tokens);
    options.priority = priority;
    return rig_add(&rig, &options);
}

static void steps(uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        ck_assert(rig_submit(&rig) && rig_complete(&rig));
        ck_assert_str_eq(sched_check(&rig.sched), "");
    }
}

static void open_slots(uint32_t slots)
{
    struct fake_shape shape = rig_shape();
    shape.slots_max = slots;
    rig_open(&rig, &shape, 1);
}

/* Sixteen blocks of eight positions, more slots than those fill. */
static void open_blocks(void)
{
    struct fake_shape shape = rig_shape();
    shape.slabs_max = 2;
    rig_open(&rig, &shape, 1);
}

static void finish_and_close(void)
{
    rig_finish(&rig);
    ck_assert_str_eq(rig_check_answers(&rig, true), "");
    ck_assert_str_eq(rig_check_kv(&rig), "");
    ck_assert_str_eq(sched_check(&rig.sched), "");
    ck_assert_uint_eq(rig.sched.gave_way_count, 0);
    rig_close(&rig);
}

static void gave_way(uint32_t count, uint64_t mask)
{
    for (uint32_t i = 0; i < count; i++)
        ck_assert_msg(rig.seqs[i]->preemptions == (mask >> i & 1), "%u", i);
}

/* Four slots are taken; who gives its own up is the one that costs the least of the lowest. */
static const struct {
    uint32_t prompts[4];
    int32_t priorities[4], priority;
    uint64_t gives; /* a bit for each */
} slots[] = {
    {{40, 10, 30, 20}, {0, 0, 0, 0}, 1, 2},  /* the least to compute again */
    {{40, 10, 30, 20}, {0, 1, -1, 0}, 1, 4}, /* the lowest priority */
    {{20, 20, 20, 20}, {0, 0, 0, 0}, 5, 8},  /* the youngest */
    {{20, 20, 20, 20}, {0, 0, 0, 0}, 0, 0},  /* an equal one waits */
    {{20, 20, 20, 20}, {2, 3, 2, 2}, 1, 0},  {{20, 20, 20, 20}, {2, 0, 2, 2}, 2, 2},
};

START_TEST(a_slot_is_taken_at_the_next_plan)
{
    open_slots(4);
    for (int i = 0; i < 4; i++)
        add(slots[_i].prompts[i], 60, slots[_i].priorities[i]);
    steps(5);
    ck_assert_uint_eq(rig.sched.slots_free_count, 0);
    ck_assert(rig_submit(&rig)); /* those who give way have rows in flight */
    uint32_t high = add(24, 3, slots[_i].priority);
    ck_assert(rig_submit(&rig));
    ck_assert((rig_row(&rig, high) != NULL) == (slots[_i].gives > 0));
    gave_way(4, slots[_i].gives);
    ck_assert_uint_eq(rig.stats.preemptions_priority_total, slots[_i].gives > 0);
    rig_complete(&rig);
    for (int i = 0; i < 6; i++)
        rig_submit(&rig), rig_complete(&rig);
    gave_way(4, slots[_i].gives);
    finish_and_close();
    ck_assert_uint_eq(rig.stats.preemptions_total, slots[_i].gives > 0);
}
END_TEST

START_TEST(some_that_come_together_all_start)
{
    open_slots(4);
    for (int i = 0; i < 4; i++)
        add(20, 60, 0);
    steps(4);
    uint32_t high = add(24, 3, 1), highest = add(24, 3, 2);
    add(24, 3, 1);
    ck_assert(rig_submit(&rig));
    for (uint32_t i = high; i < high + 3; i++) /* whose prompt is not beside one above it */
        ck_assert((rig_row(&rig, i) != NULL) == (i == highest));
    gave_way(4, 8 + 4 + 2);
    ck_assert(rig_submit(&rig));
    for (uint32_t i = high; i < high + 3; i++)
        ck_assert_ptr_nonnull(rig_row(&rig, i));
    finish_and_close();
}
END_TEST

/* The slots are there, the blocks are not. So many give theirs up as it takes: one for the first,
 * two for the second, nobody where all would not do. */
static const struct {
    uint32_t prompt, gives;
    bool starts;
    int32_t priorities[3];
} blocks[] = {{20, 0, true, {0, 0, 0}}, /* there are as many: what lower ones need next is theirs */
              {20, 0, false, {1, 1, 1}}, {36, 1, true, {0, 0, 0}}, {70, 2, true, {0, 0, 0}},
              {70, 0, false, {7, 0, 7}}, {70, 0, false, {1, 1, 1}}};

START_TEST(blocks_are_taken_as_many_as_it_lacks)
{
    open_blocks();
    for (int i = 0; i < 3; i++)
        add(28, 7, blocks[_i].priorities[i]);
    steps(2);
    ck_assert_uint_eq(rig.sched.slot_count, 3);
    ck_assert(rig_submit(&rig)); /* it touches their blocks: the one behind may write to them */
    uint32_t high = add(blocks[_i].prompt, 2, 1);
    rig_submit(&rig);
    ck_assert_uint_eq(rig.stats.preemptions_priority_total, blocks[_i].gives);
    ck_assert((rig.seqs[high]->stamps.scheduled_us > 0) == blocks[_i].starts);
    ck_assert_uint_eq(rig.stats.preemptions_priority_total, blocks[_i].gives);
    finish_and_close();
}
END_TEST

/* What those below need for the step that is planned they take before anybody starts: it is no room. */
START_TEST(what_decode_rows_take_is_no_place)
{
    open_blocks();
    for (int i = 0; i < 3; i++)
        add(32, 7, 0); /* four blocks each, and one more to go on */
    steps(1);
    ck_assert_uint_eq(rig.sched.kv.group[0].free, 4);
    uint32_t high = add(20, 2, 1);
    ck_assert(rig_submit(&rig));
    ck_assert_ptr_nonnull(rig_row(&rig, high));
    ck_assert_uint_eq(rig.stats.preemptions_priority_total, 1);
    finish_and_close();
}
END_TEST

/* However many come above it, it goes on; and the room says so. */
START_TEST(who_gave_way_does_so_once)
{
    open_slots(1);
    uint32_t low = add(20, 30, 0);
    steps(4);
    ck_assert_uint_eq(sched_room(&rig.sched, rig.now_us).gave_way, 0);
    uint32_t first = add(20, 4, 1);
    steps(1);
    ck_assert_ptr_nonnull(rig_row(&rig, first));
    ck_assert_uint_eq(sched_room(&rig.sched, rig.now_us).gave_way, 1);
    ck_assert_uint_eq(sched_room(&rig.sched, rig.now_us).waiting, 0);
    uint32_t second = add(20, 4, 1);
    ck_assert_uint_eq(sched_room(&rig.sched, rig.now_us).waiting, 1);
    while (rig.ended[second] == 0)
        steps(1);
    uint32_t third = add(20, 4, 0);
    while (rig.seqs[low]->phase == PHASE_WAITING)
        steps(1);
    uint32_t last = add(20, 4, 7);
    steps(8);
    ck_assert_ptr_nonnull(rig_row(&rig, low));
    ck_assert_uint_eq(rig.seqs[low]->preemptions, 1);
    while (rig.ended[low] == 0)
        steps(1);
    ck_assert_uint_eq(rig.seqs[last]->out_count, 0);
    while (rig.ended[last] == 0)
        steps(1);
    ck_assert_uint_eq(rig.ended[third], 0);
    finish_and_close();
}
END_TEST

/* What turns and shares gave it is not taken for a priority. */
START_TEST(who_is_owed_a_slot_or_has_it_by_a_share_keeps_it)
{
    open_slots(2);
    add(20, 30, 0);
    add(20, 30, 0);
    rig.seqs[0]->owed = true;
    rig.seqs[1]->low = true;
    steps(3);
    uint32_t high = add(20, 4, 7);
    steps(3);
    ck_assert_uint_eq(rig.seqs[high]->phase, PHASE_WAITING);
    gave_way(2, 0);
    finish_and_close();
}
END_TEST

/* Two below have all slots, two above begin alike: the second of these waits until the first has
 * read what they have in common. The first's index. */
static uint32_t open_two_above(void)
{
    struct fake_shape shape = rig_shape();
    shape.slots_max = 2;
    shape.tokens_max = 100;
    rig_open_cached(&rig, &shape, 1, "salt");
    add(20, 60, 0);
    add(20, 60, 0);
    steps(3);
    struct fake_options options = rig_generate(180, 3);
    options.priority = 1;
    options.stem = 1;
    options.stem_len = 170;
    uint32_t high = rig_add(&rig, &options);
    options.seed++;
    rig_add(&rig, &options);
    return high;
}

START_TEST(a_place_is_kept_for_whom_it_was_made)
{
    uint32_t high = open_two_above();
    steps(1);
    gave_way(2, 3);
    ck_assert_ptr_nonnull(rig_row(&rig, high));
    while (rig.seqs[high + 1]->phase == PHASE_WAITING) {
        ck_assert_uint_eq(rig.seqs[0]->phase, PHASE_WAITING);
        ck_assert_uint_eq(rig.seqs[1]->phase, PHASE_WAITING);
        steps(1);
    }
    ck_assert_uint_gt(rig.seqs[high + 1]->num_computed, 0);
    finish_and_close();
    ck_assert_uint_eq(rig.stats.preemptions_priority_total, 2);
}
END_TEST

/* It is taken back before it could start: those who gave way go on. */
START_TEST(a_place_is_free_when_it_was_made_for_nobody)
{
    uint32_t high = open_two_above(), waits = high + 1;
    steps(1);
    ck_assert_uint_eq(rig.stats.preemptions_priority_total, 2);
    ck_assert_uint_eq(rig.seqs[waits]->phase, PHASE_WAITING);
    sched_cancel(&rig.sched, rig.seqs[waits], FINISH_DEADLINE, rig.now_us);
    while (rig.seqs[high]->phase == PHASE_PREFILL)
        steps(1);
    ck_assert_uint_eq(rig.ended[high], 0);
    steps(1);
    ck_assert_uint_ne(rig.seqs[0]->phase, PHASE_WAITING);
    finish_and_close();
}
END_TEST

/* Results of one prompt start when the first has read it: until then one place is enough. */
START_TEST(results_of_a_prompt_take_one_place_first)
{
    open_slots(4);
    for (int i = 0; i < 4; i++)
        add(20, 60, 0);
    steps(3);
    struct fake_options options = rig_generate(40, 3);
    options.priority = 1;
    options.n = 3;
    uint32_t first = rig_add(&rig, &options);
    rig_add_result(&rig, &options, first);
    rig_add_result(&rig, &options, first);
    steps(1);
    gave_way(4, 8);
    steps(1);
    gave_way(4, 8 + 4 + 2);
    finish_and_close();
}
END_TEST

/* Beside rows that decode, and without: its step is not made longer by prompts of lower priorities,
 * but for those that a share let in. */
START_TEST(who_is_above_does_not_wait_for_the_prompts_of_others)
{
    struct fake_shape shape = rig_shape();
    rig_open(&rig, &shape, 1);
    rig_teach(&rig, 1);
    rig.sched.options.itl_target_us = 1000000;
    const int kind = _i % 3;
    if (_i < 3) {
        add(20, 60, 0);
        steps(3);
    }
    uint32_t low = add(60, 3, kind == 1 ? 1 : 0);
    rig.seqs[low]->low = kind == 2;
    uint32_t high = add(60, 3, 1);
    ck_assert(rig_submit(&rig));
    ck_assert_ptr_nonnull(rig_row(&rig, high));
    ck_assert((rig_row(&rig, low) != NULL) == (kind > 0));
    ck_assert(rig_submit(&rig));
    ck_assert(kind > 0 || rig_row(&rig, low) != NULL);
    finish_and_close();
}
END_TEST

/* The step behind one that decodes is planned late, though a prompt waits, where one that came above
 * others makes it likely that another does, also for one that is as high; and not for ever. */
START_TEST(the_next_above_is_in_the_next_step)
{
    const bool late = _i == 1 || _i == 2;
    struct fake_shape shape = rig_shape();
    rig_open(&rig, &shape, 1);
    rig_teach(&rig, 1000);
    rig.sched.options.ttft_target_us = 100000;
    add(20, 60, 0);
    steps(3);
    uint32_t above = add(20, 1, _i > 0 ? 1 : 0);
    while (rig.ended[above] == 0)
        steps(1);
    rig.now_us += _i == 3 ? 11000000 : 0;
    ck_assert(rig_submit(&rig));
    rig.sched.running_since_us = rig.now_us;
    uint32_t waits = add(20, 3, 0);
    if (_i == 2)
        waits = add(20, 3, 1);
    ck_assert(rig_submit(&rig) == !late);
    if (late) {
        ck_assert_uint_gt(sched_due_us(&rig.sched), rig.now_us);
        rig.now_us = sched_due_us(&rig.sched);
        uint32_t last = add(20, 3, 1);
        ck_assert(rig_submit(&rig));
        ck_assert_ptr_nonnull(rig_row(&rig, last));
    }
    ck_assert(_i == 1 || rig_row(&rig, waits) != NULL);
    finish_and_close();
}
END_TEST

/* As the loop does (seq_renew()). */
static void send_again(uint32_t index)
{
    struct seq *seq = rig.seqs[index];
    const size_t worker = offsetof(struct seq, run_link);
    ck_assert(seq->handed_back);
    seq->handed_back = false;
    memset((char *)seq + worker, 0, sizeof(*seq) - worker);
    if (seq->constraint)
        fake_constrain(seq); /* its mask went */
    rig.ended[index]--;
    rig.ended_count--;
    sched_add(&rig.sched, seq, rig.now_us);
}

/* After so many steps all of them come back, whatever they are at, and go on with what they have;
 * twice. */
START_TEST(what_is_handed_back_goes_on_where_it_was)
{
    struct fake_options all = rig_generate(20, 12), constrained = rig_generate(20, 12);
    struct fake_shape shape = rig_shape();
    shape.slots_max = 6;
    rig_open(&rig, &shape, (uint64_t)_i);
    all.logprobs = 2;
    all.penalty = true;
    rig_add(&rig, &all);
    all.seed = 7;
    all.n = 2;
    rig_add_result(&rig, &all, rig_add(&rig, &all));
    rig_add_constrained(&rig, &constrained);
    rig_add(&rig, &(struct fake_options){.job = JOB_SCORE, .prompt_len = 150, .seed = 8, .n = 1});
    rig_add(&rig,
            &(struct fake_options){
                .job = JOB_EMBED, .pooling = POOLING_ALL, .prompt_len = 150, .seed = 9, .n = 1});
    for (uint32_t i = 0; i < 8; i++) /* more than find a slot */
        add(10 + 5 * i, 4 + i, (int32_t)i % 2);
    for (int times = 0; times < 2; times++) {
        for (int i = 0; i < _i; i++) {
            (void)rig_masks(&rig);
            if (rig_submit(&rig))
                while (rig_complete(&rig))
                    ;
        }
        const uint32_t before = rig.ended_count;
        sched_hand_back(&rig.sched, rig.now_us);
        ck_assert_uint_eq(rig.ended_count, rig.seq_count);
        ck_assert(sched_room(&rig.sched, rig.now_us).empty);
        ck_assert_str_eq(sched_check(&rig.sched), "");
        uint32_t back = 0;
        for (uint32_t i = 0; i < rig.seq_count; i++)
            if (rig.seqs[i]->handed_back) {
                send_again(i);
                back++;
            }
        ck_assert_uint_eq(before + back, rig.seq_count);
        ck_assert_str_eq(sched_check(&rig.sched), "");
    }
    finish_and_close();
}
END_TEST

Suite *sched_preempt_suite(void)
{
    Suite *suite = suite_create("sched, priorities");
    TCase *tcase = tcase_create("places");
    tcase_add_loop_test(tcase, a_slot_is_taken_at_the_next_plan, 0,
                        (int)(sizeof(slots) / sizeof(slots[0])));
    tcase_add_test(tcase, some_that_come_together_all_start);
    tcase_add_loop_test(tcase, blocks_are_taken_as_many_as_it_lacks, 0,
                        (int)(sizeof(blocks) / sizeof(blocks[0])));
    tcase_add_test(tcase, what_decode_rows_take_is_no_place);
    tcase_add_test(tcase, who_gave_way_does_so_once);
    tcase_add_test(tcase, who_is_owed_a_slot_or_has_it_by_a_share_keeps_it);
    tcase_add_test(tcase, a_place_is_kept_for_whom_it_was_made);
    tcase_add_test(tcase, a_place_is_free_when_it_was_made_for_nobody);
    tcase_add_test(tcase, results_of_a_prompt_take_one_place_first);
    tcase_add_loop_test(tcase, who_is_above_does_not_wait_for_the_prompts_of_others, 0, 6);
    tcase_add_loop_test(tcase, the_next_above_is_in_the_next_step, 0, 4);
    tcase_add_loop_test(tcase, what_is_handed_back_goes_on_where_it_was, 0, 24);
    suite_add_tcase(suite, tcase);
    return suite;
}
