#include "daemon/deadline.h"

#include <stdint.h>

#include "daemon/request.h"
#include "tests/daemon/daemon_suites.h"

#define SEQS 500

static struct seq seqs[SEQS];

static uint32_t draw(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static void check_slots(const struct deadlines *deadlines)
{
    for (uint32_t i = 0; i < deadlines->count; i++) {
        ck_assert_uint_eq(deadlines->heap[i]->deadline_slot, i);
        if (i > 0)
            ck_assert_uint_le(deadlines->heap[(i - 1) / 2]->deadline_us,
                              deadlines->heap[i]->deadline_us);
    }
}

START_TEST(the_earliest_comes_first_whatever_comes_and_goes)
{
    struct deadlines deadlines;
    struct error error;
    uint32_t state = (uint32_t)_i + 1;
    bool in[SEQS] = {false};
    deadlines_init(&deadlines);
    for (int i = 0; i < SEQS; i++)
        seqs[i] = (struct seq){.deadline_slot = DEADLINE_NONE};
    for (int step = 0; step < 4000; step++) {
        uint32_t pick = draw(&state) % SEQS;
        if (in[pick]) {
            deadlines_remove(&deadlines, &seqs[pick]);
            ck_assert_uint_eq(seqs[pick].deadline_slot, DEADLINE_NONE);
        } else {
            ck_assert_int_eq(deadlines_reserve(&deadlines, 1, &error), 0);
            seqs[pick].deadline_us = 1 + draw(&state) % 1000;
            deadlines_add(&deadlines, &seqs[pick]);
        }
        in[pick] = !in[pick];
        if (step % 50 == 0)
            check_slots(&deadlines);
    }
    time_us last = 0;
    for (struct seq *seq; (seq = deadlines_first(&deadlines));) {
        ck_assert_uint_ge(seq->deadline_us, last);
        last = seq->deadline_us;
        deadlines_remove(&deadlines, seq);
    }
    deadlines_destroy(&deadlines);
}
END_TEST

START_TEST(removing_what_is_not_there_does_nothing)
{
    struct deadlines deadlines;
    deadlines_init(&deadlines);
    seqs[0] = (struct seq){.deadline_slot = DEADLINE_NONE};
    deadlines_remove(&deadlines, &seqs[0]);
    ck_assert_ptr_null(deadlines_first(&deadlines));
    deadlines_destroy(&deadlines);
}
END_TEST

Suite *deadline_suite(void)
{
    Suite *suite = suite_create("deadline");
    TCase *tcase = tcase_create("deadline");
    tcase_add_loop_test(tcase, the_earliest_comes_first_whatever_comes_and_goes, 0, 8);
    tcase_add_test(tcase, removing_what_is_not_there_does_nothing);
    suite_add_tcase(suite, tcase);
    return suite;
}
