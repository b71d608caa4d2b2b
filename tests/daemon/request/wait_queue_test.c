#include "daemon/request/wait_queue.h"

#include <string.h>

#include "daemon/request/request.h"
#include "tests/daemon/daemon_suites.h"

#define SEQS 16384
#define USERS 3
#define CONNS 2 /* of each user */

static struct waiting waiting;
static struct waiting_user users[USERS];
static struct waiting_conn conns[USERS][CONNS];
static struct seq seqs[SEQS];
static int owner[SEQS];
static uint32_t cost[SEQS];
static int used;

static void setup(void)
{
    waiting_init(&waiting);
    for (int i = 0; i < USERS; i++)
        waiting_user_init(&users[i]);
    memset(conns, 0, sizeof(conns));
    memset(seqs, 0, sizeof(seqs));
    used = 0;
}

/* A sequence of so many tokens. */
static struct seq *push_heavy(int user, int conn, int32_t priority, uint32_t tokens)
{
    ck_assert_int_lt(used, SEQS);
    struct seq *seq = &seqs[used];
    owner[used] = 10 * user + conn;
    cost[used++] = tokens;
    seq->priority = priority;
    waiting_push(&waiting, &users[user], &conns[user][conn], seq);
    return seq;
}

static struct seq *push(int user, int32_t priority)
{
    return push_heavy(user, 0, priority, 1);
}

/* The next sequence, taken and paid for; NULL at the end. */
static struct seq *take_seq(void)
{
    struct seq *seq = waiting_first(&waiting);
    if (seq)
        waiting_take(&waiting, seq, cost[seq - seqs]);
    return seq;
}

/* The next sequence's owner as a digit, or '-' at the end. */
static char take(void)
{
    struct seq *seq = take_seq();
    return seq ? (char)('0' + owner[seq - seqs] / 10) : '-';
}

static void expect(const char *order)
{
    for (; *order; order++)
        ck_assert_int_eq(take(), *order);
    ck_assert_int_eq(take(), '-');
    ck_assert_uint_eq(waiting.count, 0);
    ck_assert_uint_eq(waiting.level_bits, 0);
}

/* Takes `count` sequences, and tells how many tokens each user's had. */
static void take_many(uint32_t count, uint64_t tokens[USERS])
{
    memset(tokens, 0, USERS * sizeof(*tokens));
    for (uint32_t i = 0; i < count; i++) {
        struct seq *seq = take_seq();
        ck_assert_ptr_nonnull(seq);
        tokens[owner[seq - seqs] / 10] += cost[seq - seqs];
    }
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
    waiting_remove(&waiting, later);
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
        waiting_remove(&waiting, mine[i]);
    expect("1");
}
END_TEST

START_TEST(turns_go_by_tokens_and_not_by_sequences)
{
    uint64_t tokens[USERS];
    for (int i = 0; i < 2000; i++)
        push_heavy(0, 0, 0, 1);
    for (int i = 0; i < 20; i++)
        push_heavy(1, 0, 0, 100);
    take_many(1010, tokens);
    ck_assert_uint_ge(tokens[0] + 100, tokens[1]);
    ck_assert_uint_ge(tokens[1] + 100, tokens[0]);
}
END_TEST

/* By what was charged, prompts and tokens that come later; whatever each takes at a time. */
START_TEST(users_get_parts_as_their_weights_are)
{
    uint64_t tokens[USERS];
    waiting_weigh(&waiting, &users[1], 300);
    waiting_weigh(&waiting, &users[2], 33);
    for (uint32_t i = 0; i < 1200; i++) {
        push_heavy(0, 0, 0, 7);
        if (i % 2 == 0)
            push_heavy(1, 0, 0, 1 + i % 100);
        if (i % 10 == 0)
            push_heavy(2, 0, 0, 40);
    }
    take_many(900, tokens);
    ck_assert_double_eq_tol((double)tokens[1] / (double)tokens[0], 3, 0.05);
    ck_assert_double_eq_tol((double)tokens[2] / (double)tokens[0], 0.33, 0.02);
    waiting_weigh(&waiting, &users[1], 100); /* while it waits */
    take_many(500, tokens);
    ck_assert_double_eq_tol((double)tokens[1] / (double)tokens[0], 1, 0.05);
}
END_TEST

START_TEST(what_was_generated_counts)
{
    struct seq *first = push(0, 0);
    push(0, 0);
    push(1, 0);
    push(1, 0);
    push(1, 0);
    ck_assert_ptr_eq(take_seq(), first);
    waiting_charge(&waiting, first, 2);
    expect("1110");
}
END_TEST

/* Of users whose turns are long ones: it is before all of them, once for each time it comes. */
START_TEST(who_asks_now_and_then_is_next)
{
    for (int i = 0; i < 40; i++) {
        push_heavy(0, 0, 0, 4000);
        push_heavy(1, 0, 0, 3000);
    }
    for (int turn = 0; turn < 20; turn++) {
        for (int i = 0; i < 2 + turn % 3; i++)
            ck_assert_int_ne(take(), '2');
        push_heavy(2, 0, 0, 10);
        ck_assert_int_eq(take(), '2');
    }
}
END_TEST

/* Nor does it get more by that than who always waits. */
START_TEST(who_comes_one_at_a_time_gets_no_more_than_its_part)
{
    uint64_t tokens[USERS] = {0};
    for (int i = 0; i < 300; i++)
        push_heavy(0, 0, 0, 40);
    push_heavy(1, 0, 0, 30);
    for (int i = 0; i < 500; i++) {
        struct seq *seq = take_seq();
        int user = owner[seq - seqs] / 10;
        tokens[user] += cost[seq - seqs];
        if (user == 1)
            push_heavy(1, 0, 0, 30);
    }
    ck_assert_uint_le(tokens[1], tokens[0] + 100);
    ck_assert_uint_ge(tokens[1], tokens[0] * 9 / 10);
}
END_TEST

START_TEST(who_stays_away_saves_nothing_up)
{
    for (int i = 0; i < 100; i++)
        push(0, 0);
    for (int i = 0; i < 50; i++)
        take();
    for (int i = 0; i < 4; i++)
        push(1, 0);
    /* Turn by turn from now on, and not four in a row. */
    uint64_t tokens[USERS];
    take_many(4, tokens);
    ck_assert_uint_ge(tokens[0], 1);
    ck_assert_uint_ge(tokens[1], 2);
}
END_TEST

START_TEST(connections_of_a_user_take_turns)
{
    for (int i = 0; i < 1000; i++)
        push_heavy(0, 0, 0, 50);
    for (int i = 0; i < 10; i++)
        take();
    struct seq *second = push_heavy(0, 1, 0, 50);
    uint32_t before = 0;
    while (take_seq() != second)
        before++;
    ck_assert_uint_le(before, 1);
}
END_TEST

START_TEST(two_connections_get_no_more_than_one)
{
    uint64_t tokens[USERS];
    for (int i = 0; i < 200; i++) {
        push_heavy(0, 0, 0, 10);
        push_heavy(0, 1, 0, 10);
        push_heavy(1, 0, 0, 10);
    }
    take_many(200, tokens);
    ck_assert_uint_eq(tokens[0], 1000);
    ck_assert_uint_eq(tokens[1], 1000);
}
END_TEST

static const uint32_t shares[] = {1, 5, 20, 50};

START_TEST(lower_priorities_get_their_share_under_a_flood)
{
    uint64_t tokens[USERS];
    waiting.share = shares[_i];
    for (int i = 0; i < 2000; i++)
        push_heavy(0, 0, WAITING_PRIORITY_MAX, 7);
    for (int i = 0; i < 1000; i++)
        push_heavy(1, 0, 0, 11);
    for (int i = 0; i < 1000; i++)
        push_heavy(2, 0, WAITING_PRIORITY_MIN, 3);
    take_many(1500, tokens);
    uint64_t all = tokens[0] + tokens[1] + tokens[2], low = tokens[1] + tokens[2];
    ck_assert_uint_ge(100 * (low + 11), all * shares[_i]);
    ck_assert_uint_le(100 * (low - 11), all * shares[_i]);
    /* And each priority of them its part. */
    ck_assert_uint_le(tokens[1], tokens[2] + 11);
    ck_assert_uint_le(tokens[2], tokens[1] + 11);
}
END_TEST

START_TEST(a_share_is_not_saved_up)
{
    waiting.share = 5;
    for (int i = 0; i < 3000; i++)
        push_heavy(0, 0, 3, 10);
    push_heavy(1, 0, 0, 10);
    for (int i = 0; i < 1000; i++)
        take(); /* the lower one is among them, and there was no other */
    for (int i = 0; i < 100; i++)
        push_heavy(1, 0, 0, 10);
    uint64_t tokens[USERS];
    take_many(20, tokens);
    ck_assert_uint_le(tokens[1], 20);
}
END_TEST

START_TEST(who_comes_one_at_a_time_gets_no_more_than_the_share)
{
    uint64_t tokens[USERS], low = 0;
    waiting.share = 10;
    for (int i = 0; i < 1000; i++)
        push_heavy(0, 0, 3, 10);
    for (int i = 0; i < 500; i++) {
        if (waiting.levels[8].root == NULL)
            push_heavy(1, 0, 0, 10);
        take_many(1, tokens);
        low += tokens[1];
    }
    ck_assert_uint_le(low, 510);
    ck_assert_uint_ge(low, 490);
}
END_TEST

/* One above that always comes in time for the next place, and goes with it. */
START_TEST(who_comes_above_one_at_a_time_starves_nobody_below)
{
    uint32_t before = 0;
    waiting.share = shares[_i];
    struct seq *low = push_heavy(1, 0, 0, 10);
    do {
        push_heavy(0, 0, 3, 10);
        ck_assert_uint_le(++before, 100 / shares[_i] + 1);
    } while (take_seq() != low);
}
END_TEST

/* It is never the highest when the share is due, and the share goes to one below it. */
START_TEST(who_is_between_two_that_come_and_go_is_not_starved)
{
    uint32_t before = 0;
    waiting.share = 5;
    struct seq *middle = push_heavy(1, 0, 0, 10);
    for (struct seq *taken = NULL; taken != middle; taken = take_seq()) {
        bool due = waiting.low_used < waiting.top_used;
        push_heavy(due ? 2 : 0, 0, due ? -3 : 3, 10);
        ck_assert_uint_le(++before, 5);
    }
}
END_TEST

#define NEWCOMERS 15000

static struct waiting_conn newcomers[NEWCOMERS];

static void push_newcomer(uint32_t number)
{
    ck_assert_uint_lt(number, NEWCOMERS);
    struct seq *seq = &seqs[used];
    cost[used++] = 1;
    seq->priority = 0;
    waiting_push(&waiting, &users[0], &newcomers[number], seq);
}

/* A connection that has used much and still wants something, and another one always waits that is
 * new and starts where nobody has used anything: as each request of HTTP is. */
START_TEST(who_owes_something_waits_no_longer_than_newcomers_take_as_much)
{
    struct seq *first = push_heavy(0, 0, 0, 1);
    uint32_t next = 0;
    memset(newcomers, 0, sizeof(newcomers));
    ck_assert_ptr_eq(take_seq(), first);
    push_newcomer(next++);
    waiting_charge(&waiting, first, 500);
    struct seq *second = push_heavy(0, 0, 0, 1);
    do
        push_newcomer(next++);
    while (take_seq() != second);
    ck_assert_uint_ge(next, 500); /* but it is what it owes */
}
END_TEST

START_TEST(without_a_share_the_highest_goes_first_always)
{
    waiting.share = 0;
    for (int i = 0; i < 100; i++)
        push(0, 1);
    push(1, 0);
    for (int i = 0; i < 100; i++)
        ck_assert_int_eq(take(), '0');
    expect("1");
}
END_TEST

START_TEST(a_parked_connection_holds_up_nobody_and_loses_nothing)
{
    struct seq *first = push_heavy(0, 0, 0, 1);
    push_heavy(0, 1, 0, 1);
    push(1, 0);
    waiting_park(&waiting, first);
    push_heavy(0, 0, 0, 1); /* joins it there */
    const char *order = "01";
    for (; *order; order++)
        ck_assert_int_eq(take(), *order);
    ck_assert_ptr_null(waiting_first(&waiting));
    ck_assert_uint_eq(waiting.count, 2);
    waiting_unpark(&waiting);
    ck_assert_ptr_eq(waiting_first(&waiting), first);
    waiting_park(&waiting, first);
    waiting_remove(&waiting, first); /* cancelled meanwhile */
    waiting_unpark(&waiting);
    expect("0");
}
END_TEST

/* Random pushes, takings, removals and parkings against a plain list: nothing is lost, and the
 * order is that of the least counter. */
START_TEST(a_random_queue_loses_nothing)
{
    uint64_t random = (uint64_t)_i + 1;
    static bool there[SEQS];
    uint32_t count = 0;
    waiting.share = (uint32_t)_i * 7 % 50;
    memset(there, 0, sizeof(there));
    for (int round = 0; round < 6000; round++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        uint32_t draw = (uint32_t)(random >> 40);
        int pick = used > 0 ? (int)(draw >> 4) % used : 0;
        struct seq *seq = NULL;
        if (draw % 16 < 9 && used < SEQS) {
            push_heavy((int)(draw >> 5) % USERS, (int)(draw >> 8) % CONNS,
                       (int32_t)((draw >> 10) % 3), draw >> 12 & 63);
            there[used - 1] = true;
            count++;
        } else if (draw % 16 < 13) {
            seq = take_seq();
        } else if (draw % 16 == 13 && used > 0 && there[pick]) {
            seq = &seqs[pick];
            waiting_remove(&waiting, seq);
        } else if (draw % 16 == 14 && (seq = waiting_first(&waiting))) {
            waiting_park(&waiting, seq);
            seq = NULL;
        } else if (draw % 16 == 15) {
            waiting_unpark(&waiting);
        }
        if (seq) {
            ck_assert(there[seq - seqs]);
            there[seq - seqs] = false;
            count--;
        }
        ck_assert_uint_eq(waiting.count, count);
    }
    waiting_unpark(&waiting);
    for (; count > 0; count--)
        ck_assert_ptr_nonnull(take_seq());
    ck_assert_ptr_null(take_seq());
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
    tcase_add_test(tcase, turns_go_by_tokens_and_not_by_sequences);
    tcase_add_test(tcase, users_get_parts_as_their_weights_are);
    tcase_add_test(tcase, what_was_generated_counts);
    tcase_add_test(tcase, who_asks_now_and_then_is_next);
    tcase_add_test(tcase, who_comes_one_at_a_time_gets_no_more_than_its_part);
    tcase_add_test(tcase, who_stays_away_saves_nothing_up);
    tcase_add_test(tcase, connections_of_a_user_take_turns);
    tcase_add_test(tcase, two_connections_get_no_more_than_one);
    tcase_add_loop_test(tcase, lower_priorities_get_their_share_under_a_flood, 0,
                        (int)(sizeof(shares) / sizeof(shares[0])));
    tcase_add_loop_test(tcase, who_comes_above_one_at_a_time_starves_nobody_below, 0,
                        (int)(sizeof(shares) / sizeof(shares[0])));
    tcase_add_test(tcase, who_is_between_two_that_come_and_go_is_not_starved);
    tcase_add_test(tcase, who_owes_something_waits_no_longer_than_newcomers_take_as_much);
    tcase_add_test(tcase, a_share_is_not_saved_up);
    tcase_add_test(tcase, who_comes_one_at_a_time_gets_no_more_than_the_share);
    tcase_add_test(tcase, without_a_share_the_highest_goes_first_always);
    tcase_add_test(tcase, a_parked_connection_holds_up_nobody_and_loses_nothing);
    tcase_add_loop_test(tcase, a_random_queue_loses_nothing, 0, 20);
    suite_add_tcase(suite, tcase);
    return suite;
}
