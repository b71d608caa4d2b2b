#include "daemon/base/replica_select.h"

#include "tests/daemon/replica_suites.h"

static const struct replica_room idle = {
    .ready = true, .sequences = 8, .kv_tokens = 1000, .prefill_tokens = 500, .empty = true};
static const struct replica_room busy = {
    .ready = true, .sequences = 2, .kv_tokens = 400, .prefill_tokens = 100, .wait_us = 50};
static const struct replica_room busier = {
    .ready = true, .sequences = 2, .kv_tokens = 900, .prefill_tokens = 100, .wait_us = 70};

static const struct replica_common nothing;

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
    ck_assert_uint_eq(
        replica_select(cases[_i].rooms, cases[_i].count, cases[_i].prompt_len, &nothing),
        cases[_i].want);
}
END_TEST

START_TEST(the_shortest_wait_comes_first_and_then_the_most_kv)
{
    struct replica_room rooms[3] = {busier, busy, idle};
    ck_assert_uint_eq(replica_select(rooms, 3, 100, &nothing), 2);
    ck_assert_uint_eq(replica_select(rooms, 2, 100, &nothing), 1);
    ck_assert_uint_eq(replica_select(rooms, 2, 500, &nothing), 0);
    rooms[0].wait_us = rooms[1].wait_us;
    ck_assert_uint_eq(replica_select(rooms, 2, 100, &nothing), 0);
    ck_assert_uint_eq(replica_select(rooms, 0, 100, &nothing), REPLICA_NONE);
}
END_TEST

/* Results of one prompt stay together while reading it elsewhere takes longer than to wait. */
START_TEST(the_same_prompt_is_read_elsewhere_only_where_that_pays)
{
    struct replica_room rooms[3] = {idle, busy, busier};
    struct replica_common common = {.had = {[1] = 384}};
    for (int i = 0; i < 3; i++)
        rooms[i].token_ns = 200;
    rooms[1].wait_us = 384 / 5;
    ck_assert_uint_eq(replica_select(rooms, 3, 400, &common), 1);
    rooms[1].wait_us = 384 / 5 + 1;
    ck_assert_uint_eq(replica_select(rooms, 3, 400, &common), 0);
    common.had[0] = 384;
    ck_assert_uint_eq(replica_select(rooms, 3, 400, &common), 0);
    rooms[1].wait_us = 0; /* nobody knows the cost: together */
    rooms[0].token_ns = rooms[2].token_ns = 0;
    common.had[0] = 0;
    ck_assert_uint_eq(replica_select(rooms, 3, 400, &common), 1);
    rooms[1].kv_tokens = 16; /* enough for what is left of the prompt */
    ck_assert_uint_eq(replica_select(rooms, 3, 400, &common), 1);
    rooms[1].kv_tokens = 15;
    ck_assert_uint_eq(replica_select(rooms, 3, 400, &common), 0);
}
END_TEST

/* What a replica has cached is weighed against its queue, token by token. */
START_TEST(more_of_the_prompt_cached_is_worth_as_long_a_wait)
{
    struct replica_room rooms[2] = {idle, busy};
    struct replica_common common = {.had = {100, 300}};
    rooms[0].token_ns = rooms[1].token_ns = 200;
    rooms[1].wait_us = 40;
    ck_assert_uint_eq(replica_select(rooms, 2, 400, &common), 1);
    rooms[1].wait_us = 41;
    ck_assert_uint_eq(replica_select(rooms, 2, 400, &common), 0);
}
END_TEST

/* What comes from host memory is worth less than what is on the device, and more than nothing. */
START_TEST(what_host_memory_holds_is_weighed_as_what_it_takes)
{
    struct replica_room rooms[2] = {busy, busy};
    struct replica_common common = {.had = {320, 320}, .host = {[1] = 300}};
    const struct replica_common turned = {.had = {320, 320}, .host = {300}};
    ck_assert_uint_eq(replica_select(rooms, 2, 400, &common), 0); /* nobody knows what it takes */
    ck_assert_uint_eq(replica_select(rooms, 2, 400, &turned), 1);
    for (int i = 0; i < 2; i++) {
        rooms[i].token_ns = 200;
        rooms[i].copy_ns = 20;
    }
    ck_assert_uint_eq(replica_select(rooms, 2, 400, &common), 0);
    rooms[0].wait_us = 50 + 6;
    ck_assert_uint_eq(replica_select(rooms, 2, 400, &common), 0);
    rooms[0].wait_us = 50 + 7;
    ck_assert_uint_eq(replica_select(rooms, 2, 400, &common), 1);
    rooms[0].wait_us = 50;
    common.had[0] = 0;
    rooms[1].wait_us = 50 + 64 - 6;
    ck_assert_uint_eq(replica_select(rooms, 2, 400, &common), 1);
    rooms[1].wait_us++;
    ck_assert_uint_eq(replica_select(rooms, 2, 400, &common), 0);
    rooms[0].sequences = 0;
    rooms[1].kv_tokens = 80 + 300; /* it lies on the device then */
    ck_assert_uint_eq(replica_select(rooms, 2, 400, &common), 1);
    rooms[1].kv_tokens--;
    ck_assert_uint_eq(replica_select(rooms, 2, 400, &common), REPLICA_NONE);
}
END_TEST

Suite *place_suite(void)
{
    Suite *suite = suite_create("place");
    TCase *tcase = tcase_create("rooms");
    tcase_add_loop_test(tcase, a_replica_takes_what_has_room, 0, sizeof(cases) / sizeof(cases[0]));
    tcase_add_test(tcase, the_shortest_wait_comes_first_and_then_the_most_kv);
    tcase_add_test(tcase, the_same_prompt_is_read_elsewhere_only_where_that_pays);
    tcase_add_test(tcase, more_of_the_prompt_cached_is_worth_as_long_a_wait);
    tcase_add_test(tcase, what_host_memory_holds_is_weighed_as_what_it_takes);
    suite_add_tcase(suite, tcase);
    return suite;
}
