/* Results that nobody reads: what is kept of them, and what is not begun. */
#include <string.h>

#include "daemon/api/session.h"
#include "tests/daemon/daemon_suites.h"
#include "tests/daemon/request/server_rig.h"

/* The session that a connection is of. */
static const struct session *session_of_conn(const struct conn *conn)
{
    return container_of(conn, struct session, conn);
}

/* 64,000 bytes each. */
static const struct ask rows = {
    .job = JOB_EMBED, .pooling = POOLING_ALL, .id = 1, .count = 100, .length = 4000};
#define ROWS_BYTES (4000u * WORLD_HIDDEN * sizeof(float))
#define RESULTS_MAX (4u << 20)

static void check_results(uint64_t conn_max)
{
    ck_assert_uint_le(world.server.load.results, RESULTS_MAX);
    ck_assert_uint_le(session_of_conn(client.conn)->sink.results, conn_max);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < world.replica.count; i++)
        sum += world.replica.held[i]->result_bytes;
    ck_assert_uint_ge(world.server.load.results, sum);
}

START_TEST(who_does_not_read_gets_nothing_computed_that_cannot_be_kept)
{
    struct client second;
    world_set(&world, "results-max", "4MiB");
    client.takes = 0;
    client_ask(&client, &rows);
    for (int i = 0; i < 50; i++) {
        world_step(&world, 1000);
        check_results(RESULTS_MAX / 4);
    }
    uint64_t sent = world.replica.sent_total;
    /* What the connection may hold, and what it was told before it stopped. */
    ck_assert_uint_ge(sent, RESULTS_MAX / 4 / ROWS_BYTES - 1);
    ck_assert_uint_le(sent, RESULTS_MAX / 4 / ROWS_BYTES + 5);
    ck_assert_uint_gt(world.server.counts.results_waited_total, 0);
    ck_assert_uint_eq(world.replica.count, 0); /* what was sent has ended, and holds no KV */
    /* Others, and other connections of the same user, go on. */
    client_open(&world, &second, 1000);
    client_ask(&second, &rows);
    client_ask(&other, &rows);
    for (int i = 0; i < 500; i++)
        world_step(&world, 1000);
    ck_assert_uint_eq(done_count(&second), 100);
    ck_assert_uint_eq(done_count(&other), 100);
    ck_assert_uint_eq(world.replica.sent_total, sent + 200);
    /* It reads: the rest is computed. */
    client.takes = SIZE_MAX;
    for (int i = 0; i < 500; i++) {
        if (client.conn && client.writing)
            conn_writable(client.conn, world.now_us);
        world_step(&world, 1000);
    }
    ck_assert_uint_eq(done_count(&client), 100);
    ck_assert_uint_eq(world.server.load.results, 0);
    client_free(&second);
}
END_TEST

START_TEST(many_who_do_not_read_leave_room_for_one_who_does)
{
    static struct client idle[20];
    world_set(&world, "results-max", "4MiB");
    for (uint32_t i = 0; i < 20; i++) {
        client_open(&world, &idle[i], 3000 + i % 4); /* four users */
        idle[i].takes = 0;
        client_ask(&idle[i], &rows);
    }
    for (int i = 0; i < 50; i++) {
        world_step(&world, 1000);
        ck_assert_uint_le(world.server.load.results, RESULTS_MAX);
    }
    client_ask(&client, &rows);
    client_ask(&other, &rows);
    for (int i = 0; i < 500; i++)
        world_step(&world, 1000);
    ck_assert_uint_eq(done_count(&client), 100);
    ck_assert_uint_eq(done_count(&other), 100);
    world_pass(&world, CONN_HOLD_US); /* those that were told nothing yet are now */
    world_pass(&world, 31000000);     /* stall-timeout */
    for (uint32_t i = 0; i < 20; i++) {
        ck_assert_ptr_null(idle[i].conn);
        client_free(&idle[i]);
    }
    world_finish(&world);
    ck_assert_uint_eq(world.server.load.results, 0);
    ck_assert_uint_eq(world.server.live_requests, 0);
}
END_TEST

START_TEST(a_result_that_can_never_be_kept_is_refused)
{
    struct ask ask = one;
    struct frame frame;
    struct message_error message;
    struct error error;
    world_set(&world, "results-max", "4MiB");
    world.server.models[0].info.hidden = 1024; /* 16 MB */
    client_ask(&client, &rows);
    world_turn(&world);
    ck_assert(client_find(&client, FRAME_ERROR, &frame));
    ck_assert_int_eq(message_decode_error(&frame, &message, &error), 0);
    ck_assert_int_eq(message.error.code, ERR_TOO_LARGE);
    ck_assert_uint_eq(message.error.limit, RESULTS_MAX / 4);
    ck_assert_ptr_nonnull(strstr(message.error.text, "results-max"));
    world.server.models[0].info.hidden = WORLD_HIDDEN;
    client_ask(&client, &ask);
    world_finish(&world);
    ck_assert_int_eq(next_finish(&client), FINISH_LENGTH);
}
END_TEST

/* Cancelled, past their deadline, their client gone, in any state: what they held is given back. */
START_TEST(results_are_given_back_however_a_sequence_ends)
{
    struct ask ask = rows;
    world_set(&world, "results-max", "4MiB");
    client.takes = 0;
    client_ask(&client, &ask); /* some end unread, the rest is parked */
    ask.id = 2;
    ask.deadline_ms = 5;
    client_ask(&other, &ask);
    world_turn(&world); /* some are on the replica, the rest is parked */
    world.replica.room = world.replica.count;
    world_pass(&world, 6000);
    world_step(&world, 1000);
    ck_assert_uint_eq(done_count(&other), 100);
    if (_i == 0)
        conn_lost(client.conn, world.now_us);
    else if (_i == 1)
        client_control(&client, FRAME_CANCEL, 1, "");
    else
        world_pass(&world, 31000000);
    world_finish(&world);
    if (_i == 1) {
        client.takes = SIZE_MAX;
        for (int i = 0; i < 100 && client.writing; i++) {
            conn_writable(client.conn, world.now_us);
            world_turn(&world);
        }
    }
    ck_assert_uint_eq(world.server.load.results, 0);
    ck_assert_uint_eq(world.server.load.running, 0);
    ck_assert_uint_eq(world.server.live_requests, 0);
}
END_TEST

Suite *result_suite(void)
{
    Suite *suite = suite_create("result");
    TCase *tcase = tcase_create("result");
    tcase_add_checked_fixture(tcase, server_rig_setup, server_rig_teardown);
    tcase_add_test(tcase, who_does_not_read_gets_nothing_computed_that_cannot_be_kept);
    tcase_add_test(tcase, many_who_do_not_read_leave_room_for_one_who_does);
    tcase_add_test(tcase, a_result_that_can_never_be_kept_is_refused);
    tcase_add_loop_test(tcase, results_are_given_back_however_a_sequence_ends, 0, 3);
    suite_add_tcase(suite, tcase);
    return suite;
}
