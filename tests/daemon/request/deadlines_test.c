#include "daemon/base/deadlines.h"

#include <stdbool.h>
#include <stdint.h>

#include "tests/daemon/daemon_suites.h"

#define ITEMS 500

static struct deadline items[ITEMS];

static uint32_t draw(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static void check_slots(const struct deadlines *deadlines)
{
    for (uint32_t i = 0; i < deadlines->count; i++) {
        ck_assert_uint_eq(deadlines->heap[i]->slot, i);
        if (i > 0)
            ck_assert_uint_le(deadlines->heap[(i - 1) / 2]->at_us, deadlines->heap[i]->at_us);
    }
}

START_TEST(the_earliest_comes_first_whatever_comes_and_goes)
{
    struct deadlines deadlines;
    struct error error;
    uint32_t state = (uint32_t)_i + 1;
    bool in[ITEMS] = {false};
    deadlines_init(&deadlines);
    for (int i = 0; i < ITEMS; i++)
        deadline_init(&items[i]);
    for (int step = 0; step < 4000; step++) {
        uint32_t pick = draw(&state) % ITEMS;
        if (in[pick]) {
            deadlines_remove(&deadlines, &items[pick]);
            ck_assert_uint_eq(items[pick].slot, DEADLINE_NONE);
        } else {
            ck_assert_int_eq(deadlines_reserve(&deadlines, 1, &error), 0);
            deadlines_add(&deadlines, &items[pick], 1 + draw(&state) % 1000);
        }
        in[pick] = !in[pick];
        if (step % 50 == 0)
            check_slots(&deadlines);
    }
    time_us last = 0;
    for (struct deadline *first; (first = deadlines_first(&deadlines));) {
        ck_assert_uint_ge(first->at_us, last);
        last = first->at_us;
        deadlines_remove(&deadlines, first);
    }
    deadlines_destroy(&deadlines);
}
END_TEST

START_TEST(removing_what_is_not_there_does_nothing)
{
    struct deadlines deadlines;
    deadlines_init(&deadlines);
    deadline_init(&items[0]);
    deadlines_remove(&deadlines, &items[0]);
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
