#include "tests/daemon/daemon_suites.h"
#include "tests/daemon/rig/world.h"

#include <string.h>

#include "daemon/api/session.h"
static struct world world;
static struct client client, other;

static void setup(void)
{
    world_make(&world);
    world_ready(&world);
    client_open(&world, &client, 1000);
    client_open(&world, &other, 2000);
}

static void teardown(void)
{
    client_free(&client);
    client_free(&other);
    world_free(&world);
}

static const struct ask one = {
    .job = JOB_GENERATE, .id = 1, .count = 1, .length = 4, .max_tokens = 5, .first = 100};

static enum finish next_finish(struct client *of)
{
    struct frame frame;
    struct message_done done;
    struct error error;
    ck_assert(client_find(of, FRAME_DONE, &frame));
    ck_assert_int_eq(message_decode_done(&frame, &done, &error), 0);
    return done.finish;
}

static uint64_t next_accept(struct client *of)
{
    struct frame frame;
    struct error error;
    uint64_t request = 0;
    ck_assert(client_find(of, FRAME_ACCEPT, &frame));
    ck_assert_int_eq(message_decode_accept(&frame, &request, &error), 0);
    return request;
}

/* The session that a connection is of. */
static const struct session *session_of_conn(const struct conn *conn)
{
    return container_of(conn, struct session, conn);
}

START_TEST(tokens_come_in_order_and_the_end_tells_the_times)
{
    struct frame frame;
    struct message_done done = {0};
    struct message_tokens record;
    struct error error;
    int32_t expected = 101;
    client_ask(&client, &one);
    for (int i = 0; i < 5; i++)
        world_step(&world, 1);
    while (client_next(&client, &frame)) {
        size_t at = 0;
        if (frame.type == FRAME_TOKENS)
            while (message_next_tokens(&frame, &at, &record, &error) == 0)
                for (uint32_t i = 0; i < record.count; i++)
                    ck_assert_int_eq(record.tokens[i], expected++);
        if (frame.type == FRAME_DONE)
            ck_assert_int_eq(message_decode_done(&frame, &done, &error), 0);
    }
    ck_assert_int_eq(expected, 106);
    ck_assert_int_eq(done.finish, FINISH_LENGTH);
    ck_assert_uint_eq(done.prompt_tokens, 4);
    ck_assert_uint_eq(done.completion_tokens, 5);
    ck_assert_uint_gt(done.total_us, done.first_token_us);
}
END_TEST

START_TEST(without_streaming_all_is_told_at_the_end)
{
    struct ask ask = one;
    struct frame frame;
    struct message_tokens record;
    struct error error;
    size_t at = 0;
    ask.whole = true;
    client_ask(&client, &ask);
    for (int i = 0; i < 4; i++)
        world_step(&world, 1);
    ck_assert(!client_find(&client, FRAME_TOKENS, &frame));
    world_step(&world, 1);
    ck_assert(client_find(&client, FRAME_TOKENS, &frame));
    ck_assert_int_eq(message_next_tokens(&frame, &at, &record, &error), 0);
    ck_assert_uint_eq(record.count, 5);
}
END_TEST

START_TEST(logprobs_come_with_their_tokens)
{
    struct ask ask = one;
    struct frame frame;
    struct message_tokens record;
    struct error error;
    size_t at = 0;
    ask.logprobs = 3; /* of the chosen and of two */
    client_ask(&client, &ask);
    world_step(&world, 5);
    ck_assert(client_find(&client, FRAME_TOKENS, &frame));
    ck_assert_int_eq(message_next_tokens(&frame, &at, &record, &error), 0);
    ck_assert_uint_eq(record.flags, TOKENS_LOGPROBS | TOKENS_TOP);
    ck_assert_uint_eq(record.top_count, 2);
    ck_assert(record.logprobs[4] == -4.0f);
    ck_assert_int_eq(record.top[9].token, 1);
}
END_TEST

START_TEST(each_of_n_results_is_its_own_sequence)
{
    struct ask ask = one;
    ask.count = 2;
    ask.n = 3;
    client_ask(&client, &ask);
    world_turn(&world);
    ck_assert_uint_eq(world.replica.count, 6);
    for (uint32_t i = 0; i < 6; i++) {
        ck_assert_uint_eq(world.replica.held[i]->number, i);
        for (uint32_t j = 0; j < i; j++)
            ck_assert_uint_ne(world.replica.held[i]->sampling.seed,
                              world.replica.held[j]->sampling.seed);
    }
    world_finish(&world);
    for (int i = 0; i < 6; i++)
        ck_assert_int_eq(next_finish(&client), FINISH_LENGTH);
}
END_TEST

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

START_TEST(users_take_turns_and_priority_goes_first)
{
    struct ask ask = one;
    world_set(&world, "priority-max", "3");
    world.replica.room = 0;
    for (uint64_t i = 1; i <= 4; i++) {
        ask.id = i;
        client_ask(&client, &ask);
    }
    ask.id = 9;
    client_ask(&other, &ask);
    ask.id = 10;
    ask.priority = 3;
    client_ask(&other, &ask);
    world.replica.room = 1;
    world_finish(&world);
    const uint64_t users[] = {2000, 1000, 2000, 1000, 1000, 1000};
    ck_assert_uint_eq(world.replica.sent_total, 6);
    /* The order of sending is that of the ends, one by one: read from the counters of frames. */
    uint64_t ended[6];
    uint32_t count = 0;
    struct frame frame;
    while (client_find(&client, FRAME_DONE, &frame))
        ended[count++] = frame.id;
    ck_assert_uint_eq(count, 4);
    for (uint32_t i = 0; i < 4; i++)
        ck_assert_uint_eq(ended[i], i + 1);
    ck_assert(client_find(&other, FRAME_DONE, &frame));
    ck_assert_uint_eq(frame.id, 10);
    for (uint32_t i = 0; i < 6; i++)
        ck_assert_uint_eq(world.replica.first_user[i], users[i]);
}
END_TEST

START_TEST(a_full_queue_is_busy_with_a_hint_and_a_user_has_half_of_it)
{
    struct ask ask = one;
    struct frame frame;
    struct message_error message;
    struct error error;
    world_set(&world, "queue-sequences", "8");
    world.replica.room = 0;
    ask.count = 3;
    client_ask(&client, &ask);
    ask.id = 2;
    client_ask(&client, &ask); /* 6 > 4 */
    world_turn(&world);
    ck_assert(client_find(&client, FRAME_ERROR, &frame));
    ck_assert_uint_eq(frame.id, 2);
    ck_assert_int_eq(message_decode_error(&frame, &message, &error), 0);
    ck_assert_int_eq(message.error.code, ERR_BUSY);
    ck_assert_uint_eq(message.error.limit, 4);
    ck_assert_uint_eq(message.error.value, 3);
    ck_assert_uint_gt(message.error.retry_after_ms, 0);
    ask.count = 5;
    ask.id = 3;
    client_ask(&client, &ask); /* never */
    world_turn(&world);
    ck_assert_int_eq(client_error(&client), ERR_TOO_LARGE);
    ask.count = 4;
    client_ask(&other, &ask); /* the other half */
    world_turn(&world);
    ck_assert_uint_eq(world.server.waiting.count, 7);
    world.replica.room = 100;
    world_finish(&world);
}
END_TEST

START_TEST(a_number_in_use_is_refused_and_free_again_later)
{
    client_ask(&client, &one);
    client_ask(&client, &one);
    world_turn(&world);
    ck_assert_int_eq(client_error(&client), ERR_BAD_STATE);
    world_finish(&world);
    client_ask(&client, &one);
    world_finish(&world);
    ck_assert_uint_eq(world.server.counts.finished_length_total, 2);
}
END_TEST

START_TEST(a_failed_device_fails_what_waits_with_a_status_worth_a_retry)
{
    struct error error;
    struct frame frame;
    struct message_error message;
    world.replica.room = 0;
    client_ask(&client, &one);
    world_turn(&world);
    error_set(&error, ERR_DEVICE, "the device is gone");
    server_fail(&world.server, &error, world.now_us);
    world_turn(&world);
    ck_assert(client_find(&client, FRAME_ERROR, &frame));
    ck_assert_int_eq(message_decode_error(&frame, &message, &error), 0);
    ck_assert_uint_eq(message.sequence, 0);
    ck_assert_int_eq(message.error.code, ERR_DEVICE);
    ck_assert_int_eq(error_retry(message.error.code), RETRY_LATER);
    client_ask(&client, &one);
    world_turn(&world);
    ck_assert_int_eq(client_error(&client), ERR_DEVICE);
    ck_assert(server_idle(&world.server));
}
END_TEST

START_TEST(while_the_model_loads_requests_wait)
{
    struct client early;
    struct frame frame;
    teardown();
    world_make(&world); /* not ready yet */
    client_open(&world, &early, 1000);
    client_control(&early, FRAME_HEALTH, 1, "");
    client_ask(&early, &one);
    world_turn(&world);
    ck_assert(client_find(&early, FRAME_HEALTH, &frame));
    ck_assert_ptr_nonnull(memmem(frame.head, frame.head_length, "\"status\":\"loading\"", 18));
    ck_assert_ptr_nonnull(memmem(frame.head, frame.head_length, "\"progress\":0.25", 15));
    ck_assert_uint_eq(world.replica.sent_total, 0);
    world_set(&world, "fail-if-loading", "yes");
    struct ask more = one;
    more.id = 2;
    client_ask(&early, &more);
    world_turn(&world);
    ck_assert_int_eq(client_error(&early), ERR_LOADING);
    world_ready(&world);
    world_finish(&world);
    ck_assert_int_eq(next_finish(&early), FINISH_LENGTH);
    client_free(&early);
    client_open(&world, &client, 1000);
    client_open(&world, &other, 2000);
}
END_TEST

START_TEST(stats_are_those_of_the_worker_asked_now)
{
    struct frame frame;
    world.replica.figures.steps_total = 4711;
    client_control(&client, FRAME_STATS, 5, "");
    world_turn(&world);
    ck_assert(client_find(&client, FRAME_STATS, &frame));
    ck_assert_uint_eq(frame.id, 5);
    ck_assert(frame.flags & FRAME_FLAG_ANSWER);
    ck_assert_ptr_nonnull(memmem(frame.head, frame.head_length, "\"steps_total\":4711", 18));
    json *document;
    struct error error;
    const struct json_bounds bounds = {.bytes_max = 1u << 20, .depth_max = 8};
    ck_assert_int_eq(json_parse(frame.head, frame.head_length, bounds, &document, &error), 0);
    json_free(document);
}
END_TEST

START_TEST(stats_come_even_when_the_worker_does_not_answer)
{
    struct frame frame;
    world.replica.silent_stats = true;
    client_control(&client, FRAME_STATS, 5, "");
    client_control(&other, FRAME_STATS, 6, "");
    world_turn(&world);
    ck_assert(!client_find(&client, FRAME_STATS, &frame));
    conn_lost(other.conn, world.now_us);
    world_pass(&world, SERVER_STATS_US);
    ck_assert(client_find(&client, FRAME_STATS, &frame));
}
END_TEST

START_TEST(requests_are_listed_to_their_user_and_to_admins)
{
    struct client root;
    struct frame frame;
    client_open(&world, &root, 0);
    client_ask(&client, &one);
    world_step(&world, 1);
    client_control(&client, FRAME_STATS, 5, "{\"requests\":true}");
    client_control(&other, FRAME_STATS, 5, "{\"requests\":true}");
    client_control(&root, FRAME_STATS, 5, "{\"requests\":true}");
    world_turn(&world);
    ck_assert(client_find(&client, FRAME_STATS, &frame));
    ck_assert_ptr_nonnull(memmem(frame.head, frame.head_length, "\"uid\":1000", 10));
    ck_assert(client_find(&root, FRAME_STATS, &frame));
    ck_assert_ptr_nonnull(memmem(frame.head, frame.head_length, "\"uid\":1000", 10));
    ck_assert(client_find(&other, FRAME_STATS, &frame));
    ck_assert_ptr_null(memmem(frame.head, frame.head_length, "\"uid\":1000", 10));
    client_free(&root);
}
END_TEST

/* Requests that cannot be, by their head: each has its own code, and the connection goes on. */
static const struct {
    const char *head;
    int code;
} refused[] = {
    {"{\"job\":\"generate\",\"lengths\":[2],\"max_tokens\":5000}", ERR_TOO_LARGE},
    {"{\"job\":\"generate\",\"lengths\":[2],\"n\":129}", ERR_BAD_VALUE},
    {"{\"job\":\"generate\",\"lengths\":[2],\"surprise\":1}", ERR_UNKNOWN_FIELD},
    {"{\"job\":\"generate\",\"lengths\":[0]}", ERR_EMPTY},
    {"{\"job\":\"generate\",\"lengths\":[2],\"stop\":[\"x\"]}", ERR_UNSUPPORTED},
    {"{\"job\":\"generate\",\"lengths\":[2],\"text\":true}", ERR_UNSUPPORTED},
    {"{\"job\":\"generate\",\"lengths\":[2],\"lengths\":[2]}", ERR_BAD_HEAD},
    {"{\"job\":\"generate\"", ERR_BAD_HEAD},
};

START_TEST(a_request_that_cannot_be_is_refused_and_the_connection_goes_on)
{
    _Alignas(8) unsigned char frame[512] = {0};
    size_t length = strlen(refused[_i].head), head = frame_pad(length);
    frame_encode_header(frame, FRAME_SUBMIT, 0, 7, (uint32_t)head, 8);
    memset(frame + FRAME_HEADER_SIZE, ' ', head);
    memcpy(frame + FRAME_HEADER_SIZE, refused[_i].head, length);
    client_put(&client, frame, FRAME_HEADER_SIZE + head + 8, 0);
    world_turn(&world);
    int code = client_error(&client);
    if (refused[_i].code == ERR_BAD_VALUE)
        ck_assert(code == ERR_BAD_VALUE || code == ERR_TOO_LARGE);
    else
        ck_assert_msg(code == refused[_i].code, "%s: %s", refused[_i].head, error_name(code));
    ck_assert_uint_eq(world.server.live_requests, 0);
    client_ask(&client, &one);
    world_finish(&world);
    ck_assert_int_eq(next_finish(&client), FINISH_LENGTH);
}
END_TEST

/* ---- shares ------------------------------------------------------------------------------------
 */

/* So many requests of one sequence each, numbered from `id` on. */
static void ask_many(struct client *of, struct ask ask, uint64_t id, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        ask.id = id + i;
        client_ask(of, &ask);
    }
}

static uint32_t done_count(struct client *of)
{
    struct frame frame;
    uint32_t count = 0;
    while (client_find(of, FRAME_DONE, &frame))
        count++;
    return count;
}

START_TEST(a_priority_above_what_the_user_may_ask_for_is_refused)
{
    struct client root;
    struct ask ask = one;
    ask.priority = 1;
    client_ask(&client, &ask);
    world_turn(&world);
    ck_assert_int_eq(client_error(&client), ERR_DENIED);
    ck_assert_uint_eq(world.server.live_requests, 0);
    ask.priority = -8; /* lower is anybody's */
    client_ask(&client, &ask);
    world_finish(&world);
    ck_assert_int_eq(next_finish(&client), FINISH_LENGTH);
    world_set(&world, "users", "1000:priority=4, root:priority=2");
    ask.priority = 4;
    client_ask(&client, &ask);
    client_ask(&other, &ask);
    ask.priority = 5;
    ask.id = 2;
    client_ask(&client, &ask);
    client_open(&world, &root, 0);
    ask.priority = 7; /* who may drain may that */
    client_ask(&root, &ask);
    world_finish(&world);
    ck_assert_int_eq(next_finish(&client), FINISH_LENGTH);
    ck_assert_int_eq(next_finish(&root), FINISH_LENGTH);
    ck_assert_int_eq(client_error(&other), ERR_DENIED);
    client_free(&root);
}
END_TEST

START_TEST(a_flood_of_the_highest_priority_leaves_others_their_share)
{
    struct ask ask = one;
    world_set(&world, "priority-max", "7");
    world_set(&world, "min-share", "10");
    world.replica.room = 0;
    ask.priority = 7;
    ask_many(&client, ask, 1, 200);
    ask.priority = 0;
    ask_many(&other, ask, 1, 50);
    world.replica.room = 1;
    while (world.replica.sent_total < 64)
        world_step(&world, 64);
    uint32_t low = 0;
    for (uint32_t i = 0; i < 64; i++)
        low += world.replica.first_user[i] == 2000;
    ck_assert_uint_ge(low, 6);
    ck_assert_uint_le(low, 7);
}
END_TEST

START_TEST(a_second_connection_is_not_behind_what_the_first_has_asked_for)
{
    struct client second;
    struct ask ask = one;
    world.replica.room = 1;
    ask.count = 1000;
    client_ask(&client, &ask);
    world_step(&world, 1);
    client_open(&world, &second, 1000);
    client_ask(&second, &one);
    for (int i = 0; i < 5; i++)
        world_step(&world, 64);
    ck_assert_uint_eq(done_count(&second), 1);
    ck_assert_uint_gt(world.server.live_sequences, 900);
    client_free(&second);
}
END_TEST

START_TEST(who_goes_and_comes_back_still_owes_what_it_used)
{
    struct ask ask = one;
    world.replica.room = 1;
    ask.max_tokens = 500;
    ask_many(&other, one, 1, 1);
    ask_many(&client, ask, 1, 1);
    ask_many(&other, one, 2, 200);
    while (done_count(&client) == 0)
        world_step(&world, 600);
    conn_lost(client.conn, world.now_us);
    world_turn(&world);
    client_free(&client);
    client_open(&world, &client, 1000);
    client_ask(&client, &one);
    /* The other one's 9 tokens a time: some 50 of them until what was used is even. */
    uint64_t before = world.replica.sent_total;
    while (done_count(&client) == 0)
        world_step(&world, 600);
    ck_assert_uint_ge(world.replica.sent_total - before, 40);
    ck_assert_uint_le(world.replica.sent_total - before, 60);
}
END_TEST

/* The replica is full of the first client's, which go on for long. */
static void fill(uint32_t slots)
{
    struct ask ask = one;
    ask.count = 10 * slots;
    ask.max_tokens = 1000;
    world.replica.room = slots;
    client_ask(&client, &ask);
    world_step(&world, 1);
    ck_assert_uint_eq(world.replica.count, slots);
}

START_TEST(a_full_replica_makes_way_for_a_user_that_has_nothing_there)
{
    fill(8);
    client_ask(&other, &one);
    world_step(&world, 1); /* tokens come: the first has used more */
    ck_assert_uint_eq(world.replica.count, 9);
    const struct seq *seq = world.replica.held[8];
    ck_assert_uint_eq(seq->user_id, 2000);
    ck_assert(seq->owed);
    ck_assert_int_eq(seq->priority, WAITING_PRIORITY_OWED);
    ck_assert_uint_eq(seq->way_audience, session_of_conn(client.conn)->sink.number);
    ck_assert_uint_eq(seq->way_user, 1000);
    /* The next one waits for its turn: a user is owed its part, and no more. */
    struct ask more = one;
    more.id = 2;
    client_ask(&other, &more);
    world_turn(&world);
    ck_assert_uint_eq(world.replica.count, 9);
    ck_assert_uint_eq(world.server.counts.owed_total, 1);
    world_step(&world, 5);
    ck_assert_int_eq(next_finish(&other), FINISH_LENGTH);
}
END_TEST

START_TEST(a_full_replica_makes_way_for_a_connection_that_has_nothing_there)
{
    struct client second;
    fill(8);
    client_open(&world, &second, 1000);
    client_ask(&second, &one);
    world_step(&world, 1); /* tokens come: the first has used more */
    world_turn(&world);
    ck_assert_uint_eq(world.replica.count, 9);
    ck_assert_uint_eq(world.server.counts.owed_total, 1);
    client_free(&second);
}
END_TEST

START_TEST(without_a_share_nobody_makes_way)
{
    world_set(&world, "min-share", "0");
    fill(8);
    client_ask(&other, &one);
    for (int i = 0; i < 10; i++)
        world_step(&world, 1);
    ck_assert_uint_eq(world.server.counts.owed_total, 0);
    ck_assert_uint_eq(world.server.waiting.count, 73);
}
END_TEST

/* What an owed sequence costs others is paid for: asking again and again does not get more. */
START_TEST(making_way_is_paid_for)
{
    fill(8);
    for (int i = 0; i < 400; i++)
        world_step(&world, 1);
    struct ask ask = one;
    ask.max_tokens = 1;
    for (uint64_t id = 1; id <= 100; id++) {
        ask.id = id;
        client_ask(&other, &ask);
        world_step(&world, 1);
    }
    /* Each takes 400 tokens from the others, which come to 8 a step. */
    ck_assert_uint_ge(world.server.counts.owed_total, 2);
    ck_assert_uint_le(world.server.counts.owed_total, 12);
}
END_TEST

/* ---- results -----------------------------------------------------------------------------------
 */

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
    world.server.model.hidden = 1024; /* 16 MB */
    client_ask(&client, &rows);
    world_turn(&world);
    ck_assert(client_find(&client, FRAME_ERROR, &frame));
    ck_assert_int_eq(message_decode_error(&frame, &message, &error), 0);
    ck_assert_int_eq(message.error.code, ERR_TOO_LARGE);
    ck_assert_uint_eq(message.error.limit, RESULTS_MAX / 4);
    ck_assert_ptr_nonnull(strstr(message.error.text, "results-max"));
    world.server.model.hidden = WORLD_HIDDEN;
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

Suite *server_suite(void)
{
    Suite *suite = suite_create("server");
    TCase *tcase = tcase_create("server");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, tokens_come_in_order_and_the_end_tells_the_times);
    tcase_add_test(tcase, without_streaming_all_is_told_at_the_end);
    tcase_add_test(tcase, logprobs_come_with_their_tokens);
    tcase_add_test(tcase, each_of_n_results_is_its_own_sequence);
    tcase_add_test(tcase, waiting_work_is_cancelled_at_once);
    tcase_add_test(tcase, running_work_is_cancelled_through_its_replica);
    tcase_add_test(tcase, a_cancel_that_crosses_the_end_is_waited_for);
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
    tcase_add_test(tcase, users_take_turns_and_priority_goes_first);
    tcase_add_test(tcase, a_full_queue_is_busy_with_a_hint_and_a_user_has_half_of_it);
    tcase_add_test(tcase, a_number_in_use_is_refused_and_free_again_later);
    tcase_add_test(tcase, a_failed_device_fails_what_waits_with_a_status_worth_a_retry);
    tcase_add_test(tcase, while_the_model_loads_requests_wait);
    tcase_add_test(tcase, stats_are_those_of_the_worker_asked_now);
    tcase_add_test(tcase, stats_come_even_when_the_worker_does_not_answer);
    tcase_add_test(tcase, requests_are_listed_to_their_user_and_to_admins);
    tcase_add_loop_test(tcase, a_request_that_cannot_be_is_refused_and_the_connection_goes_on, 0,
                        (int)(sizeof(refused) / sizeof(refused[0])));
    tcase_add_test(tcase, a_priority_above_what_the_user_may_ask_for_is_refused);
    tcase_add_test(tcase, a_flood_of_the_highest_priority_leaves_others_their_share);
    tcase_add_test(tcase, a_second_connection_is_not_behind_what_the_first_has_asked_for);
    tcase_add_test(tcase, who_goes_and_comes_back_still_owes_what_it_used);
    tcase_add_test(tcase, a_full_replica_makes_way_for_a_user_that_has_nothing_there);
    tcase_add_test(tcase, a_full_replica_makes_way_for_a_connection_that_has_nothing_there);
    tcase_add_test(tcase, without_a_share_nobody_makes_way);
    tcase_add_test(tcase, making_way_is_paid_for);
    tcase_add_test(tcase, who_does_not_read_gets_nothing_computed_that_cannot_be_kept);
    tcase_add_test(tcase, many_who_do_not_read_leave_room_for_one_who_does);
    tcase_add_test(tcase, a_result_that_can_never_be_kept_is_refused);
    tcase_add_loop_test(tcase, results_are_given_back_however_a_sequence_ends, 0, 3);
    suite_add_tcase(suite, tcase);
    return suite;
}
