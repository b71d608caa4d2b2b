/* Requests that end before they are done: cancelled, late, or given up by a client that goes. */
#include <string.h>

#include "daemon/service/self_test.h"
#include "tests/daemon/daemon_suites.h"
#include "tests/daemon/request/server_rig.h"

START_TEST(waiting_work_is_cancelled_at_once)
{
    world.replica.room = 0;
    client_ask(&client, &one);
    world_pass(&world, CONN_HOLD_US);
    client_control(&client, FRAME_CANCEL, 1, "");
    world_turn(&world);
    ck_assert_int_eq(next_finish(&client), FINISH_CANCELLED);
    ck_assert_uint_eq(world.replica.sent_total, 0);
    ck_assert_uint_eq(world.server.live_requests, 0);
}
END_TEST

START_TEST(running_work_is_cancelled_through_its_replica)
{
    client_ask(&client, &one);
    world_step(&world, 2);
    client_control(&client, FRAME_CANCEL, 1, "");
    world_turn(&world);
    ck_assert_int_eq(next_finish(&client), FINISH_CANCELLED);
    ck_assert_uint_eq(world.replica.count, 0);
    ck_assert_uint_eq(world.server.live_requests, 0);
}
END_TEST

START_TEST(a_cancel_that_crosses_the_end_is_waited_for)
{
    client_ask(&client, &one);
    world_turn(&world);
    struct seq *seq = world.replica.held[0];
    /* The worker ends it, but the loop has not looked when the cancel comes. */
    world.replica.count = 0;
    seq->finish = FINISH_STOP;
    seq->stamps.ended_us = world.now_us;
    completion_visit(&world.completions, seq, COMPLETION_ENDED);
    seq->cancel_sent = true; /* and its cancel is still in the worker's mailbox */
    world_turn(&world);
    ck_assert_uint_eq(world.server.live_sequences, 1);
    completion_visit(&world.completions, seq, COMPLETION_CANCEL_SEEN);
    world_turn(&world);
    ck_assert_int_eq(next_finish(&client), FINISH_STOP);
    ck_assert_uint_eq(world.server.live_requests, 0);
}
END_TEST

/* An admin can, by its number: then nothing was seen to work. */
START_TEST(a_self_test_that_is_cancelled_was_not_answered)
{
    static struct self_test probe;
    struct client root;
    char head[64];
    client_open(&world, &root, 0);
    self_test_ask(&probe, &world.server, world.now_us);
    world_turn(&world);
    ck_assert_uint_eq(world.replica.count, 1);
    snprintf(head, sizeof(head), "{\"request\":%llu}",
             (unsigned long long)world.replica.held[0]->request->id);
    if (_i == 1)
        client_control(&root, FRAME_CANCEL, 5, head);
    for (int i = 0; i < 3; i++)
        world_step(&world, 1);
    ck_assert_int_eq(probe.state, _i == 1 ? SELF_TEST_REFUSED : SELF_TEST_ANSWERED);
    ck_assert(_i == 0 || probe.error.code == ERR_BUSY); /* so it is asked again */
    self_test_close(&probe, world.now_us);
    world_turn(&world);
    client_free(&root);
}
END_TEST

START_TEST(a_request_is_cancelled_by_number_from_another_connection_of_its_user)
{
    struct client second;
    struct frame frame;
    char head[64];
    client_open(&world, &second, 1000);
    client_ask(&client, &one);
    world_step(&world, 1);
    snprintf(head, sizeof(head), "{\"request\":%llu}", (unsigned long long)next_accept(&client));
    client_control(&second, FRAME_CANCEL, 77, head);
    world_turn(&world);
    ck_assert(client_find(&second, FRAME_CANCEL, &frame));
    ck_assert_uint_eq(frame.id, 77);
    ck_assert_int_eq(next_finish(&client), FINISH_CANCELLED);
    client_free(&second);
}
END_TEST

START_TEST(another_users_request_cannot_be_cancelled)
{
    char head[64];
    client_ask(&client, &one);
    world_step(&world, 1);
    snprintf(head, sizeof(head), "{\"request\":%llu}", (unsigned long long)next_accept(&client));
    client_control(&other, FRAME_CANCEL, 1, head);
    client_control(&other, FRAME_CANCEL, 2, "{\"request\":4711}");
    world_turn(&world);
    ck_assert_int_eq(client_error(&other), ERR_DENIED);
    ck_assert_int_eq(client_error(&other), ERR_NOT_FOUND);
    world_finish(&world);
    ck_assert_int_eq(next_finish(&client), FINISH_LENGTH);
    client_control(&other, FRAME_CANCEL, 3, head); /* it has ended: no mistake */
    world_turn(&world);
    ck_assert_int_eq(client_error(&other), 0);
}
END_TEST

START_TEST(draining_is_for_admins)
{
    struct client root;
    struct frame frame;
    client_control(&client, FRAME_DRAIN, 1, "");
    client_control(&client, FRAME_RESUME, 2, "");
    world_turn(&world);
    ck_assert_int_eq(client_error(&client), ERR_DENIED);
    ck_assert_int_eq(client_error(&client), ERR_DENIED);
    client_ask(&client, &one);
    client_open(&world, &root, 0);
    client_control(&root, FRAME_DRAIN, 1, "");
    world_turn(&world);
    ck_assert(client_find(&root, FRAME_DRAIN, &frame));
    ck_assert_ptr_nonnull(memmem(frame.head, frame.head_length, "draining", 8));
    client_ask(&other, &one);
    world_turn(&world);
    ck_assert_int_eq(client_error(&other), ERR_DRAINING);
    ck_assert(!server_idle(&world.server));
    world_finish(&world); /* what was accepted goes on */
    world_turn(&world);
    ck_assert_int_eq(next_finish(&client), FINISH_LENGTH);
    ck_assert(server_idle(&world.server));
    client_control(&root, FRAME_RESUME, 2, "");
    client_ask(&other, &one);
    world_finish(&world);
    ck_assert_int_eq(next_finish(&other), FINISH_LENGTH);
    client_free(&root);
}
END_TEST

START_TEST(who_vanishes_has_its_work_cancelled)
{
    struct ask ask = one;
    ask.count = 3;
    world.replica.room = 1;
    client_ask(&client, &ask);
    world_step(&world, 1);
    conn_lost(client.conn, world.now_us);
    world_turn(&world);
    ck_assert_uint_eq(world.server.live_requests, 0);
    ck_assert_uint_eq(world.server.counts.finished_cancelled_total, 3);
    ck_assert_uint_eq(world.server.load.sequences, 0);
    ck_assert_uint_eq(world.server.load.tokens, 0);
}
END_TEST

/* ---- clients that end their side ---------------------------------------------------------------
 */

START_TEST(who_says_no_more_gets_every_answer_and_then_the_end)
{
    struct ask ask = one;
    ask.count = 3;
    world.replica.room = 1;
    client_ask(&client, &ask);
    ask.id = 2;
    ask.whole = true;
    client_ask(&client, &ask);
    client_control(&client, FRAME_STATS, 3, "");
    conn_ended(client.conn, world.now_us);
    world_turn(&world);
    ck_assert(!client.reading);
    world_finish(&world);
    struct frame frame;
    uint32_t done = 0, answers = 0;
    while (client_next(&client, &frame)) {
        done += frame.type == FRAME_DONE;
        answers += frame.type == FRAME_STATS;
    }
    ck_assert_uint_eq(done, 6);
    ck_assert_uint_eq(answers, 1);
    ck_assert(client.closed);
    ck_assert_uint_eq(world.server.counts.finished_cancelled_total, 0);
    ck_assert_uint_eq(world.server.load.connections, 1);
}
END_TEST

START_TEST(who_says_no_more_and_asked_for_nothing_is_closed)
{
    conn_ended(client.conn, world.now_us);
    world_turn(&world);
    ck_assert(client.closed);
    struct client fresh; /* it has said nothing at all */
    client_connect(&world, &fresh, 1000, false);
    conn_ended(fresh.conn, world.now_us);
    world_turn(&world);
    ck_assert(fresh.closed);
    ck_assert_uint_eq(fresh.got_length, 0);
    client_free(&fresh);
    ck_assert_uint_eq(world.server.load.connections, 1);
}
END_TEST

START_TEST(who_says_no_more_may_read_slowly)
{
    struct ask ask = one;
    ask.max_tokens = 400;
    client.takes = 0;
    client_ask(&client, &ask);
    conn_ended(client.conn, world.now_us);
    world_finish(&world);
    for (int i = 0; !client.closed; i++) {
        ck_assert_int_lt(i, 10000);
        client.takes = 7;
        if (client.writing)
            conn_writable(client.conn, world.now_us);
        world_turn(&world);
    }
    ck_assert_int_eq(next_finish(&client), FINISH_LENGTH);
    ck_assert_uint_eq(client.read_at, client.got_length);
}
END_TEST

START_TEST(who_says_no_more_and_then_vanishes_has_its_work_cancelled)
{
    client_ask(&client, &one);
    world_step(&world, 1);
    conn_ended(client.conn, world.now_us);
    world_turn(&world);
    ck_assert_uint_eq(world.server.live_requests, 1);
    conn_lost(client.conn, world.now_us);
    world_turn(&world);
    ck_assert_uint_eq(world.server.live_requests, 0);
    ck_assert_uint_eq(world.server.counts.finished_cancelled_total, 1);
}
END_TEST

START_TEST(who_ends_within_a_message_is_told)
{
    unsigned char half[FRAME_HEADER_SIZE] = {0};
    client_ask(&client, &one);
    frame_encode_header(half, FRAME_HEALTH, 0, 2, 8, 0);
    client_put(&client, half, sizeof(half), 0);
    conn_ended(client.conn, world.now_us);
    world_turn(&world);
    ck_assert_int_eq(client_error(&client), ERR_BAD_FRAME);
    ck_assert(client.closed);
    world_turn(&world);
    ck_assert_uint_eq(world.server.live_requests, 0);
}
END_TEST

START_TEST(deadlines_hold_while_waiting_and_while_running)
{
    struct ask ask = one;
    ask.deadline_ms = 5;
    world.replica.room = 1;
    client_ask(&client, &ask);
    client_ask(&other, &ask);
    world_step(&world, 1);
    ck_assert_uint_eq(world.replica.count, 1);
    world_pass(&world, 4000);
    ck_assert_uint_eq(world.server.live_sequences, 2);
    world_pass(&world, 2000);
    ck_assert_int_eq(next_finish(&client), FINISH_DEADLINE);
    ck_assert_int_eq(next_finish(&other), FINISH_DEADLINE);
    ck_assert_uint_eq(world.server.live_sequences, 0);
    ck_assert_uint_eq(world.server.deadlines.count, 0);
}
END_TEST

Suite *cancel_suite(void)
{
    Suite *suite = suite_create("cancel");
    TCase *tcase = tcase_create("cancel");
    tcase_add_checked_fixture(tcase, server_rig_setup, server_rig_teardown);
    tcase_add_test(tcase, waiting_work_is_cancelled_at_once);
    tcase_add_test(tcase, running_work_is_cancelled_through_its_replica);
    tcase_add_test(tcase, a_cancel_that_crosses_the_end_is_waited_for);
    tcase_add_loop_test(tcase, a_self_test_that_is_cancelled_was_not_answered, 0, 2);
    tcase_add_test(tcase, a_request_is_cancelled_by_number_from_another_connection_of_its_user);
    tcase_add_test(tcase, another_users_request_cannot_be_cancelled);
    tcase_add_test(tcase, draining_is_for_admins);
    tcase_add_test(tcase, who_vanishes_has_its_work_cancelled);
    tcase_add_test(tcase, who_says_no_more_gets_every_answer_and_then_the_end);
    tcase_add_test(tcase, who_says_no_more_and_asked_for_nothing_is_closed);
    tcase_add_test(tcase, who_says_no_more_may_read_slowly);
    tcase_add_test(tcase, who_says_no_more_and_then_vanishes_has_its_work_cancelled);
    tcase_add_test(tcase, who_ends_within_a_message_is_told);
    tcase_add_test(tcase, deadlines_hold_while_waiting_and_while_running);
    suite_add_tcase(suite, tcase);
    return suite;
}
