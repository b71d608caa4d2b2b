#include <stdlib.h>
#include <string.h>

#include "tests/daemon/replica_suites.h"
#include "tests/daemon/sched/sched_rig.h"

static struct rig rig;

static void add(uint32_t count, uint32_t prompt_len, uint32_t max_tokens)
{
    for (uint32_t i = 0; i < count; i++) {
        struct fake_options options = rig_generate(prompt_len, max_tokens);
        rig_add(&rig, &options);
    }
}

static void finish_and_close(void)
{
    rig_finish(&rig);
    ck_assert_str_eq(rig_check_answers(&rig, true), "");
    ck_assert_str_eq(rig_check_kv(&rig), "");
    rig_close(&rig);
}

START_TEST(decode_rows_are_planned_ahead_of_the_token_they_read)
{
    struct fake_shape shape = rig_shape();
    rig_open(&rig, &shape, 1);
    add(1, 10, 3);
    ck_assert(rig_submit(&rig));
    ck_assert_int_eq(rig_row(&rig, 0)->input, GPU_IDS);
    ck_assert_uint_eq(rig_row(&rig, 0)->q_len, 10);
    ck_assert(rig_row(&rig, 0)->want & GPU_SAMPLE);
    ck_assert(rig_submit(&rig)); /* nothing has completed yet */
    ck_assert_int_eq(rig_row(&rig, 0)->input, GPU_LAST);
    ck_assert_uint_eq(rig_row(&rig, 0)->position, 10);
    ck_assert(!rig_submit(&rig)); /* two are in flight */
    ck_assert_uint_eq(rig.stats.steps_ahead_total, 1);
    finish_and_close();
}
END_TEST

static struct fake_shape pipeline_shape(uint32_t stages)
{
    struct fake_shape shape = rig_shape();
    shape.stages = stages;
    shape.depth = stages + 1;
    return shape;
}

static uint32_t decode_rows(void)
{
    const struct sched *sched = &rig.sched;
    const struct sched_step *step = &sched->steps[sched->step_last % (sched->limits.depth + 1)];
    uint32_t count = 0;
    for (uint32_t i = 0; i < step->plan.row_count; i++)
        count += step->rows[i].input == GPU_LAST;
    return count;
}

/* Once all of them decode: every step has its share, and no row is early. */
START_TEST(on_a_pipeline_decode_rows_take_turns)
{
    static const uint32_t counts[] = {2, 3, 7, 8, 12};
    const uint32_t stages = 2 + (uint32_t)_i % 3, count = counts[_i / 3];
    uint64_t last[16] = {0};
    struct fake_shape shape = pipeline_shape(stages);
    rig_open(&rig, &shape, 1);
    add(count, 10, 40);
    for (int i = 0; i < 60; i++) {
        if (!rig_submit(&rig))
            ck_assert(rig_complete(&rig) && rig_submit(&rig));
        for (uint32_t s = 0; s < count; s++) {
            uint64_t step = rig.sched.step_last;
            if (!rig_row(&rig, s))
                continue;
            /* With fewer sequences than stages some step has to wait. */
            ck_assert(i < 12 || count < stages || step - last[s] >= stages);
            last[s] = step;
        }
        ck_assert_uint_le(decode_rows(), (count + stages - 1) / stages);
        ck_assert(i < 12 || decode_rows() > 0);
    }
    finish_and_close();
}
END_TEST

START_TEST(a_lone_sequence_on_a_pipeline_is_still_planned_ahead)
{
    struct fake_shape shape = pipeline_shape(2);
    rig_open(&rig, &shape, 1);
    add(1, 10, 8);
    for (int i = 0; i < 3; i++)
        ck_assert(rig_submit(&rig) && rig_row(&rig, 0));
    ck_assert(!rig_submit(&rig)); /* three are in flight */
    finish_and_close();
}
END_TEST

/* Prompts fill the steps that a sequence that decodes leaves to the other stage. */
START_TEST(on_a_pipeline_prompts_go_where_a_row_would_wait)
{
    struct fake_shape shape = pipeline_shape(2);
    rig_open(&rig, &shape, 1);
    add(1, 10, 50);
    ck_assert(rig_submit(&rig) && rig_submit(&rig));
    rig_complete(&rig);
    rig_complete(&rig);
    add(8, 200, 1);
    uint32_t with = 0, without = 0;
    for (int i = 0; i < 6; i++) {
        if (!rig_submit(&rig))
            ck_assert(rig_complete(&rig) && rig_submit(&rig));
        with += rig_row(&rig, 0) != NULL;
        without += rig_row(&rig, 0) == NULL;
    }
    ck_assert_uint_eq(with, 3);
    ck_assert_uint_eq(without, 3);
    finish_and_close();
}
END_TEST

START_TEST(max_tokens_wastes_no_row)
{
    struct fake_shape shape = rig_shape();
    rig_open(&rig, &shape, 1);
    add(10, 5, 7);
    add(6, 12, 1);
    rig_finish(&rig);
    ck_assert_uint_eq(rig.stats.wasted_rows_total, 0);
    ck_assert_uint_eq(fake_counts(rig.engine).rows, 10 * 7 + 6);
    ck_assert_uint_eq(rig.stats.generated_tokens_total, 10 * 7 + 6);
    finish_and_close();
}
END_TEST

START_TEST(an_end_token_wastes_at_most_one_row)
{
    struct fake_shape shape = rig_shape();
    rig_open(&rig, &shape, 1);
    fake_knobs(rig.engine)->eos_every = 5;
    for (uint32_t i = 0; i < 40; i++) {
        struct fake_options options = rig_generate(5, 100);
        options.ignore_eos = false;
        rig_add(&rig, &options);
    }
    rig_finish(&rig);
    while (rig_complete(&rig))
        continue;
    ck_assert_uint_gt(rig.stats.wasted_rows_total, 0);
    ck_assert_uint_le(rig.stats.wasted_rows_total, 40);
    for (uint32_t i = 0; i < 40; i++)
        ck_assert_int_eq(rig.seqs[i]->finish, FINISH_STOP);
    finish_and_close();
}
END_TEST

START_TEST(a_step_without_decode_rows_is_full)
{
    struct fake_shape shape = rig_shape();
    rig_open(&rig, &shape, 1);
    rig.sched.options.itl_target_us = 1;
    add(8, 200, 5);
    ck_assert(rig_submit(&rig));
    ck_assert_uint_eq(fake_counts(rig.engine).tokens_most, shape.tokens_max);
    finish_and_close();
}
END_TEST

START_TEST(decode_saturated_every_prompt_still_advances)
{
    struct fake_shape shape = rig_shape();
    shape.slots_max = 32;
    rig_open(&rig, &shape, 1);
    rig_teach(&rig, 1);
    uint32_t first = rig.seq_count, decoders = 24;
    add(decoders, 4, 150);
    while (rig.sched.slot_count < decoders || !list_empty(&rig.sched.prefill)) {
        ck_assert(rig_submit(&rig));
        rig_complete(&rig);
    }
    rig.sched.options.itl_target_us = 5; /* decode alone takes longer */
    add(3, 200, 2);
    uint32_t planned[3] = {0}, quiet[3] = {0}, turns = 0;
    while (rig.ended_count < first + 3 && turns++ < 120) {
        ck_assert(rig_submit(&rig));
        for (uint32_t i = 0; i < 3; i++) {
            const struct seq *seq = rig.seqs[first + decoders + i];
            if (seq->phase != PHASE_PREFILL)
                continue;
            quiet[i] = seq->num_computed == planned[i] ? quiet[i] + 1 : 0;
            planned[i] = seq->num_computed;
            ck_assert_uint_lt(quiet[i], rig.sched.options.chunk_every);
        }
        rig_complete(&rig);
    }
    ck_assert_uint_gt(planned[0], 100);
    ck_assert_uint_gt(rig.sched.slot_count, 3); /* decoders were there all the time */
    finish_and_close();
}
END_TEST

START_TEST(the_youngest_of_the_lowest_priority_gives_way)
{
    struct fake_shape shape = rig_shape();
    shape.slabs_max = 2; /* 16 blocks of 8 */
    rig_open(&rig, &shape, 1);
    static const int32_t priorities[] = {0, -1, 1, -1, 0};
    for (uint32_t i = 0; i < 5; i++) {
        struct fake_options options = rig_generate(16, 40);
        options.priority = priorities[i];
        rig.seqs[rig_add(&rig, &options)]->low = true; /* read beside those above it */
    }
    rig_submit(&rig); /* two blocks each */
    for (uint32_t i = 0; i < 5; i++)
        ck_assert_ptr_nonnull(rig_row(&rig, i));
    while (rig.stats.preemptions_total == 0) {
        rig_complete(&rig);
        rig_submit(&rig);
    }
    for (uint32_t i = 0; i < 5; i++)
        ck_assert_uint_eq(rig.seqs[i]->preemptions, i == 3);
    finish_and_close();
}
END_TEST

/* One sequence that the loop sent before its turn, for which this sink's or user's give way. */
static uint32_t add_owed(uint64_t way_sink, uint64_t way_user)
{
    struct fake_options options = rig_generate(5, 3);
    options.owed = true;
    uint32_t index = rig_add(&rig, &options);
    rig.seqs[index]->sink = 99;
    rig.seqs[index]->user_id = 99;
    rig.seqs[index]->way_sink = way_sink;
    rig.seqs[index]->way_user = way_user;
    return index;
}

/* Four slots, taken by two users with two connections; who gives way for whom is to be seen. */
static const struct {
    uint64_t sink, user;
    uint32_t gives; /* index; 4: nobody */
} ways[] = {{11, 1, 1}, {12, 1, 2}, {21, 2, 3}, {13, 1, 2}, {13, 3, 4}};

START_TEST(a_slot_is_given_up_for_who_is_owed_one)
{
    static const uint64_t audiences[] = {11, 11, 12, 21}, users[] = {1, 1, 1, 2};
    struct fake_shape shape = rig_shape();
    shape.slots_max = 4;
    rig_open(&rig, &shape, 1);
    add(4, 10, 60);
    for (uint32_t i = 0; i < 4; i++) {
        rig.seqs[i]->sink = audiences[i];
        rig.seqs[i]->user_id = users[i];
    }
    for (int i = 0; i < 5; i++)
        ck_assert(rig_submit(&rig) && rig_complete(&rig));
    ck_assert_uint_eq(rig.sched.slots_free_count, 0);
    uint32_t owed = add_owed(ways[_i].sink, ways[_i].user);
    rig_submit(&rig);
    ck_assert((rig_row(&rig, owed) != NULL) == (ways[_i].gives < 4));
    for (int i = 0; i < 8; i++) {
        rig_complete(&rig);
        rig_submit(&rig);
    }
    for (uint32_t i = 0; i < 4; i++)
        ck_assert_uint_eq(rig.seqs[i]->preemptions, i == ways[_i].gives);
    ck_assert((rig.ended[owed] == 1) == (ways[_i].gives < 4));
    finish_and_close();
}
END_TEST

/* The slots are there, the blocks are not: who gives way gives those. */
START_TEST(blocks_are_given_up_for_who_is_owed_a_slot)
{
    struct fake_shape shape = rig_shape();
    shape.slabs_max = 2; /* 16 blocks of 8 */
    rig_open(&rig, &shape, 1);
    add(2, 50, 8);
    for (int i = 0; i < 3; i++)
        rig_submit(&rig), rig_complete(&rig);
    ck_assert_uint_eq(rig.sched.slot_count, 2);
    uint32_t owed = add_owed(0, 0);
    for (int i = 0; i < 6; i++)
        rig_submit(&rig), rig_complete(&rig);
    ck_assert_uint_eq(rig.seqs[1]->preemptions, 1);
    ck_assert_uint_eq(rig.seqs[0]->preemptions, 0);
    ck_assert_uint_eq(rig.ended[owed], 1);
    finish_and_close();
}
END_TEST

START_TEST(the_last_one_running_is_never_preempted)
{
    struct fake_shape shape = rig_shape();
    rig_open(&rig, &shape, 1);
    fake_knobs(rig.engine)->slabs_max = 1; /* 64 positions */
    add(3, 10, 90);
    while (rig_submit(&rig) || rig_complete(&rig))
        continue;
    ck_assert_uint_eq(rig.sched.slot_count, 1);
    ck_assert_uint_eq(rig.seqs[0]->num_computed, 64);
    ck_assert_uint_eq(rig.seqs[0]->preemptions, 0);
    ck_assert_uint_gt(rig.seqs[1]->preemptions, 0);
    fake_knobs(rig.engine)->slabs_max = 64;
    rig_finish(&rig);
    ck_assert_uint_eq(rig.seqs[0]->preemptions, 0);
    finish_and_close();
}
END_TEST

/* While a long prompt is read one comes whose user's turn is earlier, or whose priority is higher:
 * it is read first; and where it is above, without the other beside it. */
START_TEST(who_has_used_less_is_read_before_a_long_prompt)
{
    struct fake_shape shape = rig_shape();
    shape.tokens_max = 64;
    rig_open(&rig, &shape, 1);
    struct fake_options options = rig_generate(200, 2), other = rig_generate(40, 2);
    options.turn = 500;
    other.turn = _i == 0 ? 100 : 600;
    other.priority = _i == 1;
    uint32_t first = rig_add(&rig, &options);
    ck_assert(rig_submit(&rig));
    uint32_t second = rig_add(&rig, &other);
    ck_assert(rig_submit(&rig));
    const struct gpu_row *row = rig_row(&rig, second);
    ck_assert_int_eq(row != NULL, _i < 2);
    ck_assert(_i == 2 || row->q_len == 40);
    ck_assert_uint_eq(rig.seqs[first]->num_computed, _i == 0 ? 64 + 24 : _i == 1 ? 64 : 128);
    finish_and_close();
}
END_TEST

START_TEST(who_came_first_starts_first_within_a_priority)
{
    struct fake_shape shape = rig_shape();
    shape.slots_max = 1;
    rig_open(&rig, &shape, 1);
    static const int32_t priorities[] = {0, 0, 5, -3, 5, 0};
    static const uint32_t order[] = {2, 4, 0, 1, 5, 3};
    for (uint32_t i = 0; i < 6; i++) {
        struct fake_options options = rig_generate(3, 2);
        options.priority = priorities[i];
        rig_add(&rig, &options);
    }
    for (uint32_t i = 0; i < 6; i++) {
        while (rig.seqs[order[i]]->stamps.scheduled_us == 0)
            if (!rig_submit(&rig))
                ck_assert(rig_complete(&rig));
        for (uint32_t later = i + 1; later < 6; later++)
            ck_assert_uint_eq(rig.seqs[order[later]]->stamps.scheduled_us, 0);
    }
    finish_and_close();
}
END_TEST

/* Cancels one of some at the i-th event of their lives. */
START_TEST(a_cancel_at_any_moment_ends_it_at_once_and_for_good)
{
    struct fake_shape shape = rig_shape();
    shape.group_count = 2;
    shape.window = 9;
    rig_open(&rig, &shape, 1);
    fake_knobs(rig.engine)->eos_every = 30;
    add(5, 40, 20);
    for (int event = 0; event < _i; event++)
        if (event % 3 == 2 || !rig_submit(&rig))
            rig_complete(&rig);
    if (rig.ended[2] == 0) {
        sched_cancel(&rig.sched, rig.seqs[2], FINISH_DEADLINE, rig.now_us);
        ck_assert_uint_eq(rig.ended[2], 1);
        ck_assert_int_eq(rig.seqs[2]->finish, FINISH_DEADLINE);
        uint32_t count = rig.seqs[2]->out_count;
        for (int step = 0; step < 5; step++) {
            rig_submit(&rig);
            ck_assert_ptr_null(rig_row(&rig, 2));
            rig_complete(&rig);
        }
        ck_assert_uint_eq(rig.seqs[2]->out_count, count);
    }
    finish_and_close();
}
END_TEST

START_TEST(idle_memory_goes_back_once_and_completely)
{
    struct fake_shape shape = rig_shape();
    rig_open(&rig, &shape, 1);
    rig_tend(&rig);
    ck_assert_uint_eq(sched_due_us(&rig.sched), SCHED_NEVER); /* nothing was ever taken */
    for (uint32_t cycle = 1; cycle <= 3; cycle++) {
        add(10, 60, 30);
        rig_finish(&rig);
        rig_tend(&rig);
        ck_assert_uint_gt(fake_counts(rig.engine).slabs, 0);
        time_us due = sched_due_us(&rig.sched);
        ck_assert_uint_eq(due, rig.now_us + rig.sched.options.kv_idle_release_us);
        rig.now_us = due - 1;
        rig_tend(&rig);
        ck_assert_uint_eq(rig.trims, cycle - 1);
        rig.now_us = due;
        rig_tend(&rig);
        rig.now_us += 1000000;
        rig_tend(&rig);
        ck_assert_uint_eq(rig.trims, cycle);
        ck_assert_uint_eq(fake_counts(rig.engine).slabs, 0);
        ck_assert_uint_eq(sched_due_us(&rig.sched), SCHED_NEVER);
    }
    finish_and_close();
}
END_TEST

START_TEST(with_one_of_many_still_running_memory_falls_to_its_blocks_and_two_slabs)
{
    struct fake_shape shape = rig_shape();
    shape.slots_max = 64;
    shape.tokens_max = 512;
    rig_open(&rig, &shape, (uint64_t)_i);
    for (uint32_t i = 0; i < 64; i++) {
        struct fake_options options = rig_generate(20, i == (uint32_t)_i * 7 ? 220 : 40);
        rig_add(&rig, &options);
    }
    uint32_t most = 0;
    while (rig.ended_count < 63) {
        if (!rig_submit(&rig))
            rig_complete(&rig);
        rig_tend(&rig);
        if (fake_counts(rig.engine).slabs > most)
            most = fake_counts(rig.engine).slabs;
    }
    ck_assert_uint_ge(most, 60);
    for (uint32_t step = 0; step < 120; step++) {
        if (!rig_submit(&rig))
            rig_complete(&rig);
        rig_tend(&rig);
        ck_assert_str_eq(rig_check_kv(&rig), "");
    }
    const struct kv_group *group = &rig.sched.kv.group[0];
    ck_assert_uint_gt(group->used, 0);
    ck_assert_uint_le(group->slabs * group->slab_blocks, group->used + 2 * group->slab_blocks);
    finish_and_close();
}
END_TEST

START_TEST(a_slab_is_asked_for_ahead_of_need)
{
    struct fake_shape shape = rig_shape();
    rig_open(&rig, &shape, 1);
    add(1, 8, 100);
    rig_submit(&rig);
    rig_tend(&rig);
    ck_assert_uint_eq(rig.sched.kv.group[0].slabs, 2);
    ck_assert_uint_ge(rig.sched.kv.group[0].free, shape.slab_blocks);
    finish_and_close();
}
END_TEST

START_TEST(a_lone_sequence_without_memory_waits_and_then_fails)
{
    struct fake_shape shape = rig_shape();
    rig_open(&rig, &shape, 1);
    rig.sched.options.stall_us = 1000000;
    fake_knobs(rig.engine)->grow_refused = 100;
    add(1, 20, 5);
    ck_assert(!rig_submit(&rig));
    ck_assert(sched_room(&rig.sched, rig.now_us).starves);
    sched_cancel(&rig.sched, rig.seqs[0], FINISH_CANCELLED, rig.now_us);
    ck_assert(!sched_room(&rig.sched, rig.now_us).starves);
    rig_tend(&rig);
    rig.now_us += 1000000;
    const uint64_t from_us = rig.now_us;
    add(1, 20, 5); /* whose second begins now */
    ck_assert(!rig_submit(&rig));
    ck_assert_uint_eq(rig.ended_count, 1);
    while (rig.ended_count == 1) {
        time_us due = sched_due_us(&rig.sched);
        ck_assert_uint_ne(due, SCHED_NEVER);
        ck_assert_uint_gt(due, rig.now_us);
        rig.now_us = due;
        ck_assert(!rig_submit(&rig));
    }
    ck_assert_int_eq(rig.seqs[1]->finish, FINISH_ERROR);
    ck_assert_int_eq(rig.seqs[1]->failure->code, ERR_DEVICE_MEMORY);
    ck_assert_int_eq(error_retry(ERR_DEVICE_MEMORY), RETRY_LATER);
    ck_assert_uint_ge(rig.now_us - from_us, 1000000);
    rig_close(&rig);
}
END_TEST

START_TEST(a_step_refused_for_scratch_is_made_smaller_and_loses_nothing)
{
    struct fake_shape shape = rig_shape();
    rig_open(&rig, &shape, 1);
    add(6, 30, 6);
    fake_knobs(rig.engine)->scratch_refused = 100;
    for (uint32_t tokens = 90; tokens >= 1; tokens /= 2) {
        ck_assert(!rig_submit(&rig));
        ck_assert_uint_eq(rig.sched.tokens_cap, tokens);
        ck_assert_str_eq(rig_check_kv(&rig), "");
        if (tokens == 1)
            break;
    }
    fake_knobs(rig.engine)->scratch_refused = 0;
    finish_and_close();
}
END_TEST

START_TEST(the_score_of_one_token_needs_no_step)
{
    struct fake_shape shape = rig_shape();
    rig_open(&rig, &shape, 1);
    struct fake_options options = {.job = JOB_SCORE, .prompt_len = 1, .max_tokens = 1, .seed = 4};
    rig_add(&rig, &options);
    ck_assert_uint_eq(rig.ended[0], 1);
    ck_assert(!rig_submit(&rig));
    finish_and_close();
}
END_TEST

/* By one row, also where chunks, preemption or the cache's blocks cut the prompt. */
START_TEST(tokens_that_may_come_next_are_scored_behind_the_prompt)
{
    static const uint32_t lengths[] = {1, 2, 16, 17, 60};
    struct fake_shape shape = rig_shape();
    rig_open(&rig, &shape, 1);
    for (uint32_t i = 0; i < 5; i++) {
        struct fake_options options = {.job = JOB_SCORE,
                                       .prompt_len = lengths[i],
                                       .max_tokens = 1,
                                       .logprobs = i % 2 ? 3 : -1,
                                       .next = 1 + i,
                                       .seed = i + 1};
        rig_add(&rig, &options);
    }
    rig_finish(&rig);
    for (uint32_t i = 0; i < 5; i++) {
        ck_assert_uint_eq(rig.ended[i], 1);
        ck_assert_uint_eq(rig.seqs[i]->out_count, 1 + i);
    }
    finish_and_close();
}
END_TEST

START_TEST(prompts_whose_scores_do_not_fit_a_step_end_in_the_next)
{
    struct fake_shape shape = rig_shape();
    shape.scores_max = 4;
    rig_open(&rig, &shape, 1);
    for (uint32_t i = 0; i < 6; i++) {
        struct fake_options options = {.job = JOB_SCORE,
                                       .prompt_len = 1 + i,
                                       .max_tokens = 1,
                                       .logprobs = -1,
                                       .next = 3,
                                       .seed = i + 1};
        rig_add(&rig, &options);
    }
    rig_finish(&rig);
    for (uint32_t i = 0; i < 6; i++)
        ck_assert_int_eq(rig.seqs[i]->finish, FINISH_STOP);
    finish_and_close();
}
END_TEST

START_TEST(more_next_tokens_than_a_step_scores_are_refused)
{
    struct fake_shape shape = rig_shape();
    shape.scores_max = 2;
    rig_open(&rig, &shape, 1);
    struct fake_options options = {
        .job = JOB_SCORE, .prompt_len = 5, .max_tokens = 1, .logprobs = -1, .next = 3, .seed = 1};
    rig_add(&rig, &options);
    ck_assert_uint_eq(rig.ended[0], 1);
    ck_assert_int_eq(rig.seqs[0]->failure->code, ERR_TOO_LARGE);
    options.next = 2;
    rig_add(&rig, &options);
    rig_finish(&rig);
    ck_assert_int_eq(rig.seqs[1]->finish, FINISH_STOP);
    finish_and_close();
}
END_TEST

START_TEST(a_failed_device_ends_everything_once)
{
    struct fake_shape shape = rig_shape();
    rig_open(&rig, &shape, 1);
    struct error error = {.code = ERR_DEVICE};
    add(30, 20, 10);
    rig_submit(&rig);
    rig_submit(&rig);
    sched_end_all(&rig.sched, FINISH_ERROR, &error, rig.now_us);
    ck_assert_uint_eq(rig.ended_count, 30);
    for (uint32_t i = 0; i < 30; i++)
        ck_assert_int_eq(rig.seqs[i]->failure->code, ERR_DEVICE);
    ck_assert_str_eq(rig_check_answers(&rig, true), "");
    rig_close(&rig);
}
END_TEST

START_TEST(what_overflows_ends_with_an_error_and_the_others_go_on)
{
    static const struct fake_options jobs[] = {
        {.job = JOB_GENERATE, .prompt_len = 20, .max_tokens = 40, .logprobs = -1},
        {.job = JOB_SCORE, .prompt_len = 60, .max_tokens = 1},
        {.job = JOB_EMBED, .prompt_len = 60, .max_tokens = 1},
        {.job = JOB_GENERATE, .prompt_len = 20, .max_tokens = 10, .logprobs = -1},
        {.job = JOB_SCORE, .prompt_len = 30, .max_tokens = 1},
    };
    struct fake_shape shape = rig_shape();
    rig_open(&rig, &shape, 1);
    fake_knobs(rig.engine)->overflow_from = 40;
    for (uint32_t i = 0; i < 5; i++) {
        struct fake_options options = jobs[i];
        options.ignore_eos = true;
        options.seed = i + 1;
        rig_add(&rig, &options);
    }
    rig_finish(&rig);
    for (uint32_t i = 0; i < 5; i++) {
        const struct seq *seq = rig.seqs[i];
        ck_assert_uint_eq(rig.ended[i], 1);
        ck_assert_int_eq(seq->finish == FINISH_ERROR, i < 3);
        ck_assert(i > 2 || seq->failure->code == ERR_NOT_FINITE);
        ck_assert(i > 2 || strstr(seq->failure->text, "--dtype bf16"));
    }
    ck_assert_uint_eq(rig.seqs[0]->out_count, 21); /* behind positions 19 to 39, no token more */
    finish_and_close();
}
END_TEST

START_TEST(the_room_shrinks_by_what_was_added)
{
    struct fake_shape shape = rig_shape();
    rig_open(&rig, &shape, 1);
    struct replica_room before = sched_room(&rig.sched, rig.now_us);
    ck_assert(before.empty);
    ck_assert_uint_eq(before.sequences, shape.slots_max);
    ck_assert_uint_eq(before.kv_tokens, 64 * 8 * 8);
    add(3, 20, 10);
    struct replica_room after = sched_room(&rig.sched, rig.now_us);
    ck_assert(!after.empty);
    ck_assert_uint_eq(after.sequences, shape.slots_max - 3);
    ck_assert_uint_eq(after.kv_tokens, before.kv_tokens - 60);
    ck_assert_uint_eq(after.prefill_tokens, before.prefill_tokens - 60);
    finish_and_close();
}
END_TEST

static TCase *memory_case(void)
{
    TCase *tcase = tcase_create("memory");
    tcase_add_test(tcase, the_youngest_of_the_lowest_priority_gives_way);
    tcase_add_loop_test(tcase, a_slot_is_given_up_for_who_is_owed_one, 0,
                        (int)(sizeof(ways) / sizeof(ways[0])));
    tcase_add_test(tcase, blocks_are_given_up_for_who_is_owed_a_slot);
    tcase_add_test(tcase, the_last_one_running_is_never_preempted);
    tcase_add_test(tcase, idle_memory_goes_back_once_and_completely);
    tcase_add_loop_test(
        tcase, with_one_of_many_still_running_memory_falls_to_its_blocks_and_two_slabs, 0, 9);
    tcase_add_test(tcase, a_slab_is_asked_for_ahead_of_need);
    tcase_add_test(tcase, a_lone_sequence_without_memory_waits_and_then_fails);
    tcase_add_test(tcase, a_step_refused_for_scratch_is_made_smaller_and_loses_nothing);
    return tcase;
}

Suite *sched_suite(void)
{
    Suite *suite = suite_create("sched");
    TCase *tcase = tcase_create("steps");
    tcase_add_test(tcase, decode_rows_are_planned_ahead_of_the_token_they_read);
    tcase_add_loop_test(tcase, on_a_pipeline_decode_rows_take_turns, 0, 15);
    tcase_add_test(tcase, a_lone_sequence_on_a_pipeline_is_still_planned_ahead);
    tcase_add_test(tcase, on_a_pipeline_prompts_go_where_a_row_would_wait);
    tcase_add_test(tcase, max_tokens_wastes_no_row);
    tcase_add_test(tcase, an_end_token_wastes_at_most_one_row);
    tcase_add_test(tcase, a_step_without_decode_rows_is_full);
    tcase_add_test(tcase, decode_saturated_every_prompt_still_advances);
    tcase_add_loop_test(tcase, who_has_used_less_is_read_before_a_long_prompt, 0, 3);
    tcase_add_test(tcase, who_came_first_starts_first_within_a_priority);
    tcase_add_loop_test(tcase, a_cancel_at_any_moment_ends_it_at_once_and_for_good, 0, 70);
    tcase_add_test(tcase, the_score_of_one_token_needs_no_step);
    tcase_add_test(tcase, tokens_that_may_come_next_are_scored_behind_the_prompt);
    tcase_add_test(tcase, prompts_whose_scores_do_not_fit_a_step_end_in_the_next);
    tcase_add_test(tcase, more_next_tokens_than_a_step_scores_are_refused);
    tcase_add_test(tcase, a_failed_device_ends_everything_once);
    tcase_add_test(tcase, what_overflows_ends_with_an_error_and_the_others_go_on);
    tcase_add_test(tcase, the_room_shrinks_by_what_was_added);
    suite_add_tcase(suite, tcase);
    suite_add_tcase(suite, memory_case());
    return suite;
}
