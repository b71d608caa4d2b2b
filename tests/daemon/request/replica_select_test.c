#include "daemon/request/replica_select.h"

#include "tests/daemon/replica_suites.h"

static const struct replica_room idle = {
    .ready = true, .sequences = 8, .kv_tokens = 1000, .prefill_tokens = 500, .empty = true};
static const struct replica_room busy = {
    .ready = true, .sequences = 2, .kv_tokens = 400, .prefill_tokens = 100, .wait_us = 50};
static const struct replica_room busier = {
    .ready = true, .sequences = 2, .kv_tokens = 900, .prefill_tokens = 100, .wait_us = 70};

static const struct {
    struct replica_room rooms[3];
    uint32_t count, prompt_len, want;
} cases[] = {
    {{{.ready = false, .sequences = 8, .empty = true}}, 1, 1, REPLICA_NONE},
    {{{.ready = true, .sequences = 0, .empty = true}}, 1, 1, REPLICA_NONE},
    {{{.ready = true, .sequences = 1, .kv_tokens = 10, .prefill_tokens = 5}}, 1, 11, REPLICA_NONE},
    {{{.ready = true, .sequences = 1, .kv_tokens = 11, .prefill_tokens = 5}}, 1, 11, 0},
    {{{.ready = true, .sequences = 1, .kv_tokens = 11, .prefill_tokens = 0}}, 1, 1, REPLICA_NONE},
    /* An empty one takes whatever admission let in. */
    {{{.ready = true, .sequences = 1, .empty = true}}, 1, 100000, 0},
};

START_TEST(a_replica_takes_what_has_room)
{
    ck_assert_uint_eq(replica_select(cases[_i].rooms, cases[_i].count, cases[_i].prompt_len),
                      cases[_i].want);
}
END_TEST

START_TEST(the_shortest_wait_comes_first_and_then_the_most_kv)
{
    struct replica_room rooms[3] = {busier, busy, idle};
    ck_assert_uint_eq(replica_select(rooms, 3, 100), 2);
    ck_assert_uint_eq(replica_select(rooms, 2, 100), 1);
    ck_assert_uint_eq(replica_select(rooms, 2, 500), 0);
    rooms[0].wait_us = rooms[1].wait_us;
    ck_assert_uint_eq(replica_select(rooms, 2, 100), 0);
    ck_assert_uint_eq(replica_select(rooms, 0, 100), REPLICA_NONE);
}
END_TEST

Suite *place_suite(void)
{
    Suite *suite = suite_create("place");
    TCase *tcase = tcase_create("rooms");
    tcase_add_loop_test(tcase, a_replica_takes_what_has_room, 0, sizeof(cases) / sizeof(cases[0]));
    tcase_add_test(tcase, the_shortest_wait_comes_first_and_then_the_most_kv);
    suite_add_tcase(suite, tcase);
    return suite;
}
