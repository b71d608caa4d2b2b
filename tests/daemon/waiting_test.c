#include "daemon/waiting.h"

#include <string.h>

#include "daemon/request.h"
#include "tests/daemon/daemon_suites.h"

#define SEQS 24

static struct waiting waiting;
static struct waiting_user users[3];
static struct seq seqs[SEQS];
static int owner[SEQS];
static int used;

static void setup(void)
{
    waiting_init(&waiting);
    for (int i = 0; i < 3; i++)
        waiting_user_init(&users[i]);
    memset(seqs, 0, sizeof(seqs));
    used = 0;
}

static struct seq *push(int user, int32_t priority)
{
    struct seq *seq = &seqs[used];
    owner[used++] = user;
    seq->priority = priority;
    waiting_push(&waiting, &users[user], seq);
    return seq;
}

/* The next sequence's owner as a digit, or '-' at the end. */
static char take(void)
{
    struct seq *seq = waiting_first(&waiting);
    if (!seq)
        return '-';
    int user = owner[seq - seqs];
    waiting_remove(&waiting, &users[user], seq);
    return (char)('0' + user);
}

static void expect(const char *order)
{
    for (; *order; order++)
        ck_assert_int_eq(take(), *order);
    ck_assert_int_eq(take(), '-');
    ck_assert_uint_eq(waiting.count, 0);
    ck_assert_uint_eq(waiting.levels, 0);
}

START_TEST(users_take_turns_whatever_each_has_queued)
{
    for (int i = 0; i < 5; i++)
        push(0, 0);
    push(1, 0);
    push(1, 0);
    push(2, 0);
    expect("01201000");
}
END_TEST

START_TEST(one_users_work_keeps_its_order)
{
    struct seq *first = push(0, 0), *second = push(0, 0);
    ck_assert_ptr_eq(waiting_first(&waiting), first);
    take();
    ck_assert_ptr_eq(waiting_first(&waiting), second);
    take();
}
END_TEST

START_TEST(the_highest_priority_goes_first)
{
    push(0, WAITING_PRIORITY_MIN);
    push(0, 0);
    push(1, WAITING_PRIORITY_MAX);
    push(2, 3);
    push(2, WAITING_PRIORITY_MAX);
    expect("12200");
}
END_TEST

START_TEST(removal_from_the_middle_costs_nobody_a_turn)
{
    push(0, 0);
    struct seq *later = push(0, 0);
    push(1, 0);
    waiting_remove(&waiting, &users[0], later);
    expect("01");
}
END_TEST

START_TEST(a_user_that_comes_back_queues_behind)
{
    push(0, 0);
    push(1, 0);
    push(1, 0);
    ck_assert_int_eq(take(), '0');
    push(0, 0);
    expect("101");
}
END_TEST

START_TEST(removal_of_all_of_a_user_leaves_no_turn_behind)
{
    struct seq *mine[3] = {push(0, 2), push(0, 2), push(0, 5)};
    push(1, 2);
    for (int i = 0; i < 3; i++)
        waiting_remove(&waiting, &users[0], mine[i]);
    expect("1");
}
END_TEST

Suite *waiting_suite(void)
{
    Suite *suite = suite_create("waiting");
    TCase *tcase = tcase_create("waiting");
    tcase_add_checked_fixture(tcase, setup, NULL);
    tcase_add_test(tcase, users_take_turns_whatever_each_has_queued);
    tcase_add_test(tcase, one_users_work_keeps_its_order);
    tcase_add_test(tcase, the_highest_priority_goes_first);
    tcase_add_test(tcase, removal_from_the_middle_costs_nobody_a_turn);
    tcase_add_test(tcase, a_user_that_comes_back_queues_behind);
    tcase_add_test(tcase, removal_of_all_of_a_user_leaves_no_turn_behind);
    suite_add_tcase(suite, tcase);
    return suite;
}
