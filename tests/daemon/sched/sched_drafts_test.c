/* Guesses of next tokens: who brings any, how many, and what becomes of them. */
#include <stdlib.h>
#include <string.h>

#include "daemon/sched/sched_inner.h"
#include "tests/daemon/replica_suites.h"
#include "tests/daemon/sched/sched_rig.h"

static struct rig rig;

/* A device whose steps take `token_us` for each token and ten times as much each; it knows `words`
 * words. */
static void open_said(const struct fake_shape *shape, uint32_t drafts, uint32_t words,
                      uint32_t token_us)
{
    rig_open_guessing(&rig, shape, 1, NULL, drafts);
    fake_knobs(rig.engine)->words = words;
    rig_teach(&rig, token_us);
}

static void open_guessing(uint32_t drafts, uint32_t words, uint32_t token_us)
{
    struct fake_shape shape = rig_shape();
    open_said(&shape, drafts, words, token_us);
}

static void close_right(void)
{
    ck_assert_str_eq(rig_check_answers(&rig, true), "");
    ck_assert_str_eq(sched_check(&rig.sched), "");
    rig_close(&rig);
}

/* Until the row that is on its way has ended. */
static void run_to_drafts(uint32_t first)
{
    while (rig.seqs[first]->draft.in_flight == 0)
        if (!rig_submit(&rig))
            ck_assert(rig_complete(&rig));
}

START_TEST(what_repeats_takes_fewer_steps)
{
    open_guessing(4, 1, 1000);
    struct fake_options options = rig_generate(16, 100);
    uint64_t steps = rig.stats.steps_total;
    rig_add(&rig, &options);
    rig_finish(&rig);
    steps = rig.stats.steps_total - steps;
    ck_assert_uint_lt(steps, 100 / 2);
    ck_assert_uint_gt(rig.stats.tokens_accepted_total, 100 / 2);
    close_right();
}
END_TEST

START_TEST(without_the_option_nothing_is_guessed)
{
    open_guessing(0, 1, 1000);
    struct fake_options options = rig_generate(16, 100);
    rig_add(&rig, &options);
    rig_finish(&rig);
    ck_assert_uint_eq(rig.stats.tokens_drafted_total, 0);
    close_right();
}
END_TEST

/* One that asks for none has none, and is no hindrance to another; what each had is counted. */
START_TEST(who_asks_for_none_has_none)
{
    open_guessing(4, 1, 1000);
    struct fake_options options = rig_generate(16, 100);
    uint64_t stood = rig.stats.tokens_accepted_total, drafted = rig.stats.tokens_drafted_total;
    uint32_t first = rig_add(&rig, &options), second = rig_add(&rig, &options);
    rig.seqs[first]->params.no_drafts = true;
    rig_finish(&rig);
    ck_assert_uint_eq(rig.seqs[first]->drafted, 0);
    ck_assert_uint_gt(rig.seqs[second]->accepted, 100 / 2);
    ck_assert_uint_eq(rig.seqs[second]->accepted, rig.stats.tokens_accepted_total - stood);
    ck_assert_uint_eq(rig.seqs[second]->drafted, rig.stats.tokens_drafted_total - drafted);
    close_right();
}
END_TEST

/* Few words make runs that are found everywhere, and say nothing. */
START_TEST(what_does_not_stand_is_tried_less_and_less)
{
    open_guessing(4, 12, 1000);
    uint32_t early = 0;
    struct fake_options options = rig_generate(16, 230);
    uint64_t before = rig.stats.tokens_drafted_total;
    uint32_t first = rig_add(&rig, &options);
    while (rig.ended[first] == 0) {
        if (!rig_submit(&rig))
            ck_assert(rig_complete(&rig));
        if (atomic_load(&rig.seqs[first]->out_count) < 100)
            early = (uint32_t)(rig.stats.tokens_drafted_total - before);
    }
    uint64_t all = rig.stats.tokens_drafted_total - before;
    ck_assert_uint_lt(all, 230 / 4);
    ck_assert_uint_lt(all - early, early);
    close_right();
}
END_TEST

/* After a row of which nothing stands its sequence waits for 4, 8, up to 256 tokens. */
START_TEST(what_falls_brings_a_pause)
{
    open_guessing(4, 12, 1000);
    uint32_t pause = 4, until = 0, fell = 0, longest = 0;
    for (int run = 0; run < 4; run++, until = 0, pause = 4) {
        struct fake_options options = rig_generate(16, 230);
        options.seed = 50u + (uint32_t)run;
        uint32_t first = rig_add(&rig, &options);
        while (rig.ended[first] == 0) {
            struct seq *seq = rig.seqs[first];
            uint32_t said = atomic_load(&seq->out_count);
            uint64_t stood = rig.stats.tokens_accepted_total;
            if (rig_submit(&rig)) {
                if (seq->draft.in_flight > 0)
                    ck_assert_uint_ge(said, until);
                continue;
            }
            bool guessed = seq->draft.in_flight > 0;
            ck_assert(rig_complete(&rig));
            if (!guessed || rig.ended[first])
                continue;
            if (rig.stats.tokens_accepted_total > stood) {
                pause = 4;
                continue;
            }
            fell++;
            until = said + 1 + pause;
            pause = pause < 128 ? 2 * pause : 256;
            longest = pause > longest ? pause : longest;
        }
    }
    ck_assert_uint_gt(fell, 8);
    ck_assert_uint_ge(longest, 32);
    close_right();
}
END_TEST

/* A turn reads no more of texts than so much, however many sequences there are. */
START_TEST(long_texts_are_read_a_part_at_a_time)
{
    open_guessing(4, 1, 1000);
    struct fake_options options = rig_generate(200, 50);
    uint32_t first = rig_add(&rig, &options);
    while (rig.seqs[first]->phase != PHASE_DECODE)
        if (!rig_submit(&rig))
            ck_assert(rig_complete(&rig));
    struct seq *seq = rig.seqs[first];
    const struct lookup *lookup = &rig.sched.lookups[seq->slot];
    while (rig_complete(&rig))
        continue;
    lookup_clear(&rig.sched.lookups[seq->slot]);
    seq->draft.waits = false;
    sched_drafts_begin(&rig.sched);
    rig.sched.lookup_left = 150;
    sched_draft_guess(&rig.sched, seq);
    ck_assert_uint_eq(seq->draft.next, 0);
    ck_assert_uint_eq(lookup->read, 150);
    sched_draft_guess(&rig.sched, seq);
    ck_assert_uint_eq(lookup->read, 150);
    sched_drafts_begin(&rig.sched);
    sched_draft_guess(&rig.sched, seq);
    ck_assert_uint_eq(lookup->read, 200 + atomic_load(&seq->out_count) - 1);
    rig_finish(&rig);
    close_right();
}
END_TEST

/* What is left of the memory when another sequence's next token needs a block. */
START_TEST(guesses_leave_a_block_for_each_that_goes_on)
{
    enum { GUESSES = 4, SIZE = 2 };
    struct fake_shape shape = rig_shape();
    uint32_t taken[512], some = 0, cut = 0;
    shape.block_tokens = SIZE;
    for (uint32_t left = 2; left < 12; left++) {
        open_said(&shape, GUESSES, 1, 1000);
        struct fake_options options = rig_generate(16, 100);
        uint32_t first = rig_add(&rig, &options), second = rig_add(&rig, &options);
        run_to_drafts(first);
        while (rig_complete(&rig))
            continue;
        const struct kv_table *table = &rig.sched.tables[rig.seqs[first]->slot];
        fake_knobs(rig.engine)->slabs_max = 1; /* no more than there are */
        uint32_t count = 0, held = table->group[0].end;
        while (rig.sched.kv.group[0].free > left)
            taken[count++] = kv_take(&rig.sched.kv, 0);
        ck_assert_uint_eq(rig.sched.kv.group[0].free, left);
        ck_assert(rig_submit(&rig));
        const struct gpu_row *row = rig_row(&rig, first), *other = rig_row(&rig, second);
        ck_assert(row != NULL && other != NULL);
        uint32_t own = row->position / SIZE + 1, all = table->group[0].end;
        if (all > own && all > held) {
            ck_assert_uint_ge(left, all - held + 2);
            some++;
        }
        cut += row->drafts < GUESSES;
        while (count > 0)
            kv_put_back(&rig.sched.kv, 0, taken[--count]);
        fake_knobs(rig.engine)->slabs_max = UINT32_MAX;
        rig_finish(&rig);
        close_right();
    }
    ck_assert_uint_gt(some, 0);
    ck_assert_uint_gt(cut, 0);
}
END_TEST

/* A step so short that the host's turn behind it takes longer than what is won. */
START_TEST(short_steps_have_no_guesses)
{
    open_guessing(4, 1, 1);
    struct fake_options options = rig_generate(16, 100);
    rig_add(&rig, &options);
    rig_finish(&rig);
    ck_assert_uint_eq(rig.stats.tokens_drafted_total, 0);
    close_right();
}
END_TEST

START_TEST(nobody_guesses_while_others_wait_to_be_read)
{
    struct fake_shape shape = rig_shape();
    shape.tokens_max = 16;
    open_said(&shape, 4, 1, 1000);
    struct fake_options options = rig_generate(16, 200), other = rig_generate(200, 4);
    uint32_t first = rig_add(&rig, &options), turns = 0;
    run_to_drafts(first);
    rig_add(&rig, &other);
    uint64_t before = rig.stats.tokens_drafted_total;
    for (; rig.sched.waiting_count > 0 || !list_empty(&rig.sched.prefill); turns++) {
        ck_assert_uint_eq(rig.stats.tokens_drafted_total, before);
        if (!rig_submit(&rig))
            ck_assert(rig_complete(&rig));
    }
    ck_assert_uint_gt(turns, 200 / 16);
    rig_finish(&rig);
    ck_assert_uint_gt(rig.stats.tokens_drafted_total, before);
    close_right();
}
END_TEST

START_TEST(a_row_never_guesses_beyond_the_last_token)
{
    open_guessing(GPU_DRAFTS_MAX, 1, 1000);
    rig.sched.options.drafts_always = true;
    for (uint32_t tokens = 1; tokens < 24; tokens++) {
        struct fake_options options = rig_generate(20, tokens);
        uint32_t index = rig_add(&rig, &options);
        while (rig.ended[index] == 0)
            if (rig_submit(&rig)) {
                const struct gpu_row *row = rig_row(&rig, index);
                ck_assert(row == NULL || row->position + row->q_len <= 20 + tokens - 1);
            } else {
                ck_assert(rig_complete(&rig));
            }
    }
    ck_assert_uint_gt(rig.stats.tokens_accepted_total, 0);
    close_right();
}
END_TEST

START_TEST(who_is_cancelled_amid_guesses_ends_once)
{
    open_guessing(4, 1, 1000);
    struct fake_options options = rig_generate(16, 100);
    uint32_t first = rig_add(&rig, &options);
    run_to_drafts(first);
    sched_cancel(&rig.sched, rig.seqs[first], FINISH_CANCELLED, rig.now_us);
    uint64_t wasted = rig.stats.wasted_rows_total;
    rig_finish(&rig);
    while (rig_complete(&rig))
        continue;
    ck_assert_uint_eq(rig.stats.wasted_rows_total, wasted + 1);
    ck_assert_uint_eq(rig.ended[first], 1);
    close_right();
}
END_TEST

START_TEST(who_gives_way_amid_guesses_keeps_those_that_stand)
{
    open_guessing(4, 1, 1000);
    struct fake_options options = rig_generate(16, 100);
    rig_add(&rig, &options); /* the last one never gives way */
    uint32_t second = rig_add(&rig, &options);
    run_to_drafts(second);
    ck_assert(sched_preempt_youngest(&rig.sched));
    ck_assert_int_eq(rig.seqs[second]->phase, PHASE_PREEMPTED);
    uint64_t stood = rig.stats.tokens_accepted_total;
    while (rig.seqs[second]->phase == PHASE_PREEMPTED)
        ck_assert(rig_complete(&rig));
    ck_assert_uint_gt(rig.stats.tokens_accepted_total, stood);
    rig_finish(&rig);
    close_right();
}
END_TEST

/* A block is kept under its name when all its tokens stand; another that begins alike finds it. */
START_TEST(what_is_cached_was_not_guessed)
{
    struct fake_shape shape = rig_shape();
    rig_open_guessing(&rig, &shape, 1, "salt", 5);
    fake_knobs(rig.engine)->words = 2;
    rig.sched.options.drafts_always = true;
    struct fake_options options = rig_generate(16, 100);
    for (uint32_t i = 0; i < 32; i++) {
        options.penalty = i % 2;
        options.max_tokens = 100 + i;
        uint32_t first = rig_add(&rig, &options);
        rig_finish(&rig);
        /* All that was computed when it ended: as much as without guesses. */
        const struct seq *seq = rig.seqs[first];
        ck_assert_uint_eq(seq->cache.named, (16 + options.max_tokens - 1) / shape.block_tokens);
    }
    ck_assert_uint_gt(rig.stats.cache_hits_total, 0);
    ck_assert_uint_gt(rig.stats.tokens_accepted_total, 0);
    ck_assert_uint_gt(rig.stats.tokens_drafted_total, rig.stats.tokens_accepted_total);
    close_right();
}
END_TEST

/* With a draft model, of whose guesses one in `wrong_every` falls. */
static void open_drafting(uint32_t drafts, uint32_t wrong_every, uint32_t token_us)
{
    struct fake_shape shape = rig_shape();
    shape.drafter = true;
    open_said(&shape, drafts, 0, token_us);
    fake_knobs(rig.engine)->guess_wrong_every = wrong_every;
}

START_TEST(a_draft_model_guesses_where_no_text_repeats)
{
    open_drafting(4, 0, 1000);
    struct fake_options options = rig_generate(16, 100);
    uint64_t steps = rig.stats.steps_total;
    uint32_t first = rig_add(&rig, &options);
    rig_finish(&rig);
    ck_assert_uint_lt(rig.stats.steps_total - steps, 100 / 3);
    ck_assert_uint_eq(rig.seqs[first]->accepted, rig.seqs[first]->drafted);
    close_right();
}
END_TEST

START_TEST(a_draft_model_that_is_wrong_is_asked_less_and_less)
{
    open_drafting(4, 1, 1000);
    struct fake_options options = rig_generate(16, 230);
    uint32_t first = rig_add(&rig, &options);
    rig_finish(&rig);
    ck_assert_uint_gt(rig.seqs[first]->drafted, 0);
    ck_assert_uint_eq(rig.seqs[first]->accepted, 0);
    ck_assert_uint_lt(rig.seqs[first]->drafted, 230 / 8);
    close_right();
}
END_TEST

/* The device checks what the model is told to read: of a row whose guesses all stand the last one,
 * and whatever was said while nobody guessed. */
START_TEST(a_draft_model_reads_what_was_said_without_it)
{
    open_drafting(3, 0, 1000);
    struct fake_options options = rig_generate(16, 200);
    uint32_t first = rig_add(&rig, &options), unread = 0;
    rig.seqs[first]->params.no_drafts = true;
    while (rig.ended[first] == 0) {
        struct seq *seq = rig.seqs[first];
        seq->params.no_drafts = atomic_load(&seq->out_count) < 50;
        if (!rig_submit(&rig)) {
            ck_assert(rig_complete(&rig));
            continue;
        }
        const struct gpu_row *row = rig_row(&rig, first);
        if (row == NULL || row->drafts == 0)
            continue;
        ck_assert_uint_eq(row->want & GPU_DRAFT, GPU_DRAFT);
        if (unread == 0)
            ck_assert_uint_ge(row->unread, 50);
        else
            ck_assert_uint_eq(row->unread, 1);
        unread += row->unread;
    }
    ck_assert_uint_gt(unread, 60);
    close_right();
}
END_TEST

/* A head makes guesses of its own states, and reads the model's where they stand. */
START_TEST(a_head_reads_what_stands_of_its_guesses)
{
    struct fake_shape shape = rig_shape();
    shape.drafter = shape.rereads = true;
    open_said(&shape, 3, 0, 1000);
    fake_knobs(rig.engine)->guess_wrong_every = 5;
    struct fake_options options = rig_generate(16, 200);
    uint32_t first = rig_add(&rig, &options), last = 0, most = 0;
    while (rig.ended[first] == 0) {
        if (!rig_submit(&rig)) {
            ck_assert(rig_complete(&rig));
            continue;
        }
        const struct gpu_row *row = rig_row(&rig, first);
        if (row == NULL || row->drafts == 0)
            continue;
        if (last > 0)
            ck_assert_uint_eq(row->unread, row->position - last);
        last = row->position + 1;
        most = row->unread > most ? row->unread : most;
    }
    ck_assert_uint_ge(most, 3); /* all of a row */
    close_right();
}
END_TEST

/* What it would have to read first is more than a step takes. */
START_TEST(who_is_too_far_behind_goes_without_guesses)
{
    struct fake_shape shape = rig_shape();
    shape.drafter = true;
    shape.tokens_max = 32;
    open_said(&shape, 3, 0, 1000);
    struct fake_options options = rig_generate(16, 100);
    uint32_t first = rig_add(&rig, &options);
    rig.seqs[first]->params.no_drafts = true;
    while (rig.ended[first] == 0) {
        rig.seqs[first]->params.no_drafts = atomic_load(&rig.seqs[first]->out_count) < 40;
        if (!rig_submit(&rig))
            ck_assert(rig_complete(&rig));
    }
    ck_assert_uint_eq(rig.seqs[first]->drafted, 0);
    close_right();
}
END_TEST

/* What its steps take is measured, and counts: it is as dear as the steps that it spares. */
START_TEST(a_slow_draft_model_is_not_asked)
{
    open_drafting(4, 0, 1000);
    rig.sched.draft_share = 1;
    struct fake_options options = rig_generate(16, 100);
    uint32_t first = rig_add(&rig, &options);
    rig_finish(&rig);
    ck_assert_uint_eq(rig.seqs[first]->drafted, 0);
    rig.sched.draft_share = 0.3;
    first = rig_add(&rig, &options);
    rig_finish(&rig);
    ck_assert(rig.sched.draft_share < 0.2); /* one token's time of eleven */
    close_right();
}
END_TEST

Suite *sched_drafts_suite(void)
{
    Suite *suite = suite_create("sched, guesses");
    TCase *tcase = tcase_create("guesses");
    tcase_add_test(tcase, what_repeats_takes_fewer_steps);
    tcase_add_test(tcase, without_the_option_nothing_is_guessed);
    tcase_add_test(tcase, who_asks_for_none_has_none);
    tcase_add_test(tcase, what_does_not_stand_is_tried_less_and_less);
    tcase_add_test(tcase, what_falls_brings_a_pause);
    tcase_add_test(tcase, long_texts_are_read_a_part_at_a_time);
    tcase_add_test(tcase, guesses_leave_a_block_for_each_that_goes_on);
    tcase_add_test(tcase, short_steps_have_no_guesses);
    tcase_add_test(tcase, nobody_guesses_while_others_wait_to_be_read);
    tcase_add_test(tcase, a_row_never_guesses_beyond_the_last_token);
    tcase_add_test(tcase, who_is_cancelled_amid_guesses_ends_once);
    tcase_add_test(tcase, who_gives_way_amid_guesses_keeps_those_that_stand);
    tcase_add_test(tcase, what_is_cached_was_not_guessed);
    tcase_add_test(tcase, a_draft_model_guesses_where_no_text_repeats);
    tcase_add_test(tcase, a_draft_model_that_is_wrong_is_asked_less_and_less);
    tcase_add_test(tcase, a_draft_model_reads_what_was_said_without_it);
    tcase_add_test(tcase, a_head_reads_what_stands_of_its_guesses);
    tcase_add_test(tcase, who_is_too_far_behind_goes_without_guesses);
    tcase_add_test(tcase, a_slow_draft_model_is_not_asked);
    suite_add_tcase(suite, tcase);
    return suite;
}
