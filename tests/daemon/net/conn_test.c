#include "tests/daemon/daemon_suites.h"
#include "tests/daemon/rig/world.h"

#include <stdlib.h>
#include <string.h>

static struct world world;
static struct client client;

static void setup(void)
{
    world_make(&world);
    world_ready(&world);
}

static void teardown(void)
{
    world_free(&world);
}

/* HELLO, a generate, a score and an embed, CANCEL of nothing, HEALTH: one of each kind of frame. */
static size_t session(unsigned char *buffer, size_t size)
{
    const struct message_hello hello = {.version_min = 1, .version_max = 3, .client = "test"};
    const struct ask asks[] = {
        {.job = JOB_GENERATE, .id = 1, .count = 2, .length = 5, .max_tokens = 3, .first = 10},
        {.job = JOB_SCORE, .id = 2, .count = 1, .length = 4, .first = 20},
        {.job = JOB_EMBED, .id = 3, .count = 1, .length = 3, .first = 30}};
    size_t used = message_encode_hello(buffer, size, &hello);
    for (size_t i = 0; i < sizeof(asks) / sizeof(asks[0]); i++)
        used += ask_encode(&asks[i], buffer + used, size - used);
    used += message_encode_control(buffer + used, size - used, FRAME_HEALTH, 0, 4, "", 0);
    return used;
}

/* What the session's answers say, in a form that does not depend on how they were cut into frames.
 */
static void check_session(struct client *of)
{
    struct frame frame;
    struct error error;
    uint32_t welcomes = 0, accepts = 0, tokens = 0, results = 0, dones = 0, lasts = 0, health = 0;
    while (client_next(of, &frame)) {
        size_t at = 0;
        struct message_tokens record;
        struct message_result result;
        welcomes += frame.type == FRAME_WELCOME;
        accepts += frame.type == FRAME_ACCEPT;
        dones += frame.type == FRAME_DONE;
        lasts += frame.type == FRAME_DONE && frame.flags & FRAME_FLAG_LAST;
        health += frame.type == FRAME_HEALTH;
        ck_assert_uint_ne(frame.type, FRAME_ERROR);
        if (frame.type == FRAME_TOKENS)
            while (message_next_tokens(&frame, &at, &record, &error) == 0)
                for (uint32_t i = 0; i < record.count; i++, tokens++)
                    ck_assert_int_ge(record.tokens[i], 11);
        if (frame.type == FRAME_RESULT) {
            ck_assert_int_eq(message_decode_result(&frame, &result, &error), 0);
            ck_assert_uint_eq(result.count, result.kind == RESULT_SCORE ? 3 : 1);
            ck_assert_uint_eq(result.first, result.kind == RESULT_SCORE ? 1 : 0);
            results++;
        }
    }
    ck_assert_uint_eq(welcomes, 1);
    ck_assert_uint_eq(accepts, 3);
    ck_assert_uint_eq(tokens, 6);
    ck_assert_uint_eq(results, 2);
    ck_assert_uint_eq(dones, 4);
    ck_assert_uint_eq(lasts, 3);
    ck_assert_uint_eq(health, 1);
}

START_TEST(a_session_is_answered_alike_at_every_split)
{
    _Alignas(8) unsigned char bytes[4096];
    size_t length = session(bytes, sizeof(bytes));
    for (size_t split = 1; split < length; split++) {
        client_connect(&world, &client, 1000, false);
        client_put(&client, bytes, split, 0);
        world_turn(&world);
        client_put(&client, bytes + split, length - split, 0);
        world_finish(&world);
        world_turn(&world);
        check_session(&client);
        client_free(&client);
        world_turn(&world);
    }
    ck_assert_uint_eq(world.server.load.input, 0);
}
END_TEST

START_TEST(a_session_is_answered_alike_byte_by_byte)
{
    _Alignas(8) unsigned char bytes[4096];
    size_t length = session(bytes, sizeof(bytes));
    client_connect(&world, &client, 1000, false);
    for (size_t i = 0; i < length; i++) {
        client_put(&client, bytes + i, 1, 1);
        if (i % 7 == 0)
            world_turn(&world);
    }
    world_finish(&world);
    world_turn(&world);
    check_session(&client);
    client_free(&client);
}
END_TEST

START_TEST(a_large_batch_in_pieces_is_whole)
{
    static _Alignas(8) unsigned char bytes[4u << 20];
    const struct ask ask = {
        .job = JOB_GENERATE, .id = 9, .count = 200, .length = 1000, .max_tokens = 2, .first = 1};
    size_t length = ask_encode(&ask, bytes, sizeof(bytes));
    client_open(&world, &client, 1000);
    client_put(&client, bytes, length, 4096);
    ck_assert_uint_eq(world.server.live_sequences, 200);
    world_finish(&world);
    ck_assert_uint_eq(world.server.load.input, 0);
    ck_assert_uint_eq(world.server.counts.finished_length_total, 200);
    client_free(&client);
}
END_TEST

START_TEST(a_short_request_is_answered_by_one_write)
{
    client_open(&world, &client, 1000);
    uint64_t writes = client.writes;
    client_ask(
        &client,
        &(struct ask){.job = JOB_GENERATE, .id = 1, .count = 1, .length = 32, .max_tokens = 1});
    world_turn(&world);
    ck_assert_uint_eq(world.replica.count, 1);
    ck_assert_uint_eq(client.writes, writes);
    world_step(&world, 1);
    ck_assert_uint_eq(client.writes, writes + 1);
    client_free(&client);
}
END_TEST

START_TEST(acceptance_is_told_soon_even_without_tokens)
{
    struct frame frame;
    client_open(&world, &client, 1000);
    client_ask(
        &client,
        &(struct ask){.job = JOB_GENERATE, .id = 1, .count = 1, .length = 3, .max_tokens = 1});
    world_turn(&world);
    ck_assert(!client_next(&client, &frame));
    ck_assert_uint_eq(server_due(&world.server), world.now_us - 1 + CONN_HOLD_US);
    world_pass(&world, CONN_HOLD_US);
    ck_assert(client_next(&client, &frame));
    ck_assert_uint_eq(frame.type, FRAME_ACCEPT);
    client_free(&client);
}
END_TEST

START_TEST(an_idle_server_waits_for_nothing)
{
    client_open(&world, &client, 1000);
    world_pass(&world, 10);
    ck_assert_uint_eq(server_due(&world.server), 0);
    ck_assert_ptr_null(client.conn->in.bytes);
    client_free(&client);
}
END_TEST

/* What breaks the stream: each is told once, with its reason, and the connection is closed. */
static const struct {
    const char *name;
    size_t at;
    unsigned char byte;
    int code;
} broken[] = {
    {"magic", 0, 'X', ERR_BAD_MAGIC},
    {"version", 4, 9, ERR_BAD_VERSION},
    {"flags", 7, 0x80, ERR_BAD_FRAME},
    {"head length", 16, 7, ERR_BAD_FRAME},
    {"payload over the limit", 23, 0x7f, ERR_TOO_LARGE},
};

START_TEST(a_broken_stream_is_refused_with_its_reason)
{
    _Alignas(8) unsigned char bytes[4096];
    const struct ask ask = {.job = JOB_GENERATE, .id = 1, .count = 1, .length = 2, .max_tokens = 1};
    size_t length = ask_encode(&ask, bytes, sizeof(bytes));
    bytes[broken[_i].at] = broken[_i].byte;
    client_open(&world, &client, 1000);
    client_put(&client, bytes, length, 0);
    world_turn(&world);
    int code = client_error(&client);
    ck_assert_msg(code == broken[_i].code, "%s: %d", broken[_i].name, code);
    ck_assert(client.closed);
    client_free(&client);
}
END_TEST

START_TEST(only_hello_may_come_first)
{
    client_connect(&world, &client, 1000, false);
    client_control(&client, FRAME_HEALTH, 1, "");
    world_turn(&world);
    ck_assert_int_eq(client_error(&client), ERR_BAD_STATE);
    ck_assert(client.closed);
    client_free(&client);
}
END_TEST

START_TEST(another_version_is_refused_by_both_numbers)
{
    const struct message_hello hello = {.version_min = 7, .version_max = 9, .client = "test"};
    unsigned char buffer[512];
    struct frame frame;
    struct message_error message;
    struct error error;
    client_connect(&world, &client, 1000, false);
    client_put(&client, buffer, message_encode_hello(buffer, sizeof(buffer), &hello), 0);
    world_turn(&world);
    ck_assert(client_find(&client, FRAME_ERROR, &frame));
    ck_assert_int_eq(message_decode_error(&frame, &message, &error), 0);
    ck_assert_int_eq(message.error.code, ERR_BAD_VERSION);
    ck_assert_ptr_nonnull(strstr(message.error.text, "7 to 9"));
    ck_assert_ptr_nonnull(strstr(message.error.text, "this daemon 1"));
    ck_assert(client.closed);
    client_free(&client);
}
END_TEST

START_TEST(who_never_says_hello_is_closed_in_time)
{
    client_connect(&world, &client, 1000, false);
    world_pass(&world, world.options->handshake_timeout - 10);
    ck_assert(!client.closed);
    world_pass(&world, 20);
    ck_assert_int_eq(client_error(&client), ERR_TIMEOUT);
    ck_assert(client.closed);
    client_free(&client);
}
END_TEST

START_TEST(a_half_frame_held_open_is_closed_in_time)
{
    _Alignas(8) unsigned char bytes[4096];
    const struct ask ask = {.job = JOB_GENERATE, .id = 1, .count = 1, .length = 2, .max_tokens = 1};
    size_t length = ask_encode(&ask, bytes, sizeof(bytes));
    client_open(&world, &client, 1000);
    for (size_t i = 0; i + 1 < length; i++) {
        /* A byte now and then does not make it last longer. */
        client_put(&client, bytes + i, 1, 0);
        if (client.conn)
            world_pass(&world, world.options->frame_timeout / (length / 2));
    }
    ck_assert_int_eq(client_error(&client), ERR_TIMEOUT);
    ck_assert(client.closed);
    client_free(&client);
}
END_TEST

/* Piece by piece: until it is closed, or all is there. */
static void put_slowly(const unsigned char *bytes, size_t length, time_us every_us)
{
    for (size_t at = 0; at < length && client.conn && !client.closed; at += 4096) {
        client_put(&client, bytes + at, length - at < 4096 ? length - at : 4096, 0);
        world_pass(&world, every_us);
    }
}

START_TEST(who_sends_a_megabit_a_second_is_never_late)
{
    static _Alignas(8) unsigned char bytes[1u << 20];
    struct client silent;
    const struct ask ask = {
        .job = JOB_GENERATE, .id = 1, .count = 100, .length = 500, .max_tokens = 1, .first = 3};
    size_t length = ask_encode(&ask, bytes, sizeof(bytes));
    world_set(&world, "frame-timeout", "1s");
    client_open(&world, &client, 1000);
    client_open(&world, &silent, 2000);
    client_put(&client, bytes, 4096, 0);
    client_put(&silent, bytes, 4096, 0);
    time_us begun_us = world.now_us;
    put_slowly(bytes + 4096, length - 4096, 32000);
    ck_assert_uint_gt(world.now_us - begun_us, 1500000);
    ck_assert(!client.closed);
    ck_assert_uint_eq(world.server.live_sequences, 100);
    ck_assert_int_eq(client_error(&silent), ERR_TIMEOUT); /* its own time was over meanwhile */
    /* At half of that what comes gives half a second for each. */
    begun_us = world.now_us;
    put_slowly(bytes, length, 65536);
    ck_assert_int_eq(client_error(&client), ERR_TIMEOUT);
    ck_assert_uint_gt(world.now_us - begun_us, 1900000);
    ck_assert_uint_lt(world.now_us - begun_us, 2200000);
    client_free(&silent);
    client_free(&client);
}
END_TEST

/* It stood still, or had something else to do, and what came meanwhile it has only just read. */
START_TEST(nobody_is_late_because_the_daemon_was)
{
    static _Alignas(8) unsigned char bytes[1u << 16];
    struct client silent;
    const struct ask ask = {
        .job = JOB_GENERATE, .id = 1, .count = 1, .length = 500, .max_tokens = 1, .first = 3};
    size_t length = ask_encode(&ask, bytes, sizeof(bytes));
    client_open(&world, &client, 1000);
    client_open(&world, &silent, 2000);
    client_put(&client, bytes, 8, 0);
    client_put(&silent, bytes, 8, 0);
    world_turn(&world);
    world.now_us += 10 * world.options->frame_timeout;
    client_put(&client, bytes + 8, 8, 0);
    world_turn(&world);
    ck_assert_int_eq(client_error(&silent), ERR_TIMEOUT);
    ck_assert(!client.closed);
    world_pass(&world, world.options->frame_timeout - 1000);
    client_put(&client, bytes + 16, length - 32, 0);
    ck_assert(!client.closed);
    /* From then on it is. */
    world_pass(&world, 1000000);
    ck_assert_int_eq(client_error(&client), ERR_TIMEOUT);
    client_free(&silent);
    client_free(&client);
}
END_TEST

START_TEST(input_of_one_user_leaves_room_for_another)
{
    static _Alignas(8) unsigned char bytes[1u << 20];
    struct client greedy[4], other;
    const struct ask ask = {
        .job = JOB_GENERATE, .id = 1, .count = 100, .length = 500, .max_tokens = 1, .first = 3};
    size_t length = ask_encode(&ask, bytes, sizeof(bytes));
    world_set(&world, "frame-max", "256KiB");
    world_set(&world, "input-max", "512KiB");
    for (int i = 0; i < 4; i++) {
        client_open(&world, &greedy[i], 1000);
        client_put(&greedy[i], bytes, length - 8, 4096);
    }
    ck_assert_uint_le(world.server.load.input, world.options->input_max);
    bool starved = false;
    for (int i = 0; i < 4; i++)
        starved |= greedy[i].conn->starved;
    ck_assert(starved);
    client_open(&world, &other, 2000);
    client_put(&other, bytes, length, 4096);
    ck_assert_uint_eq(world.server.live_sequences, 100);
    /* When the greedy ones go, nothing of theirs is left. */
    for (int i = 0; i < 4; i++)
        client_free(&greedy[i]);
    world_finish(&world);
    ck_assert_uint_eq(world.server.load.input, 0);
    client_free(&other);
}
END_TEST

START_TEST(who_waits_for_room_goes_on_when_there_is_some)
{
    static _Alignas(8) unsigned char bytes[1u << 20];
    struct client first, second;
    const struct ask ask = {
        .job = JOB_GENERATE, .id = 1, .count = 100, .length = 500, .max_tokens = 1, .first = 3};
    size_t length = ask_encode(&ask, bytes, sizeof(bytes));
    world_set(&world, "frame-max", "256KiB");
    world_set(&world, "input-max", "512KiB");
    client_open(&world, &first, 1000);
    client_open(&world, &second, 1000);
    client_put(&first, bytes, length - 8, 4096);
    size_t put = 0;
    while (second.reading && put < length) {
        client_put(&second, bytes + put, 4096, 0);
        put += 4096;
    }
    ck_assert(second.conn->starved);
    client_put(&first, bytes + length - 8, 8, 0);
    world_turn(&world);
    ck_assert(!second.conn->starved);
    ck_assert(second.reading);
    client_put(&second, bytes + put, length - put, 4096);
    ck_assert_uint_eq(world.server.live_sequences, 200);
    world_finish(&world);
    client_free(&first);
    client_free(&second);
}
END_TEST

START_TEST(a_slow_reader_is_not_read_and_keeps_its_answers)
{
    struct frame frame;
    uint32_t tokens = 0, dones = 0;
    world_set(&world, "output-high", "4KiB");
    client_open(&world, &client, 1000);
    client.takes = 0;
    client_ask(
        &client,
        &(struct ask){
            .job = JOB_GENERATE, .id = 1, .count = 8, .length = 2, .max_tokens = 3000, .first = 5});
    for (int i = 0; i < 100; i++)
        world_step(&world, 30);
    ck_assert(!client.reading);
    ck_assert(client.writing);
    ck_assert_uint_lt(conn_unsent(client.conn), 128u << 10);
    while (client.conn && (client.writing || !client.reading)) {
        client.takes = 1000;
        conn_writable(client.conn, world.now_us);
        world_turn(&world);
    }
    ck_assert_ptr_nonnull(client.conn);
    while (client_next(&client, &frame)) {
        size_t at = 0;
        struct message_tokens record;
        struct error error;
        dones += frame.type == FRAME_DONE;
        if (frame.type == FRAME_TOKENS)
            while (message_next_tokens(&frame, &at, &record, &error) == 0)
                tokens += record.count;
    }
    ck_assert_uint_eq(tokens, 8 * 3000);
    ck_assert_uint_eq(dones, 8);
    client_free(&client);
}
END_TEST

START_TEST(who_reads_nothing_is_disconnected_and_its_work_cancelled)
{
    client_open(&world, &client, 1000);
    client.takes = 0;
    client_ask(
        &client,
        &(struct ask){
            .job = JOB_GENERATE, .id = 1, .count = 1, .length = 2, .max_tokens = 3000, .first = 5});
    world_step(&world, 1);
    world_pass(&world, world.options->stall_timeout - 100);
    ck_assert(!client.closed);
    world_pass(&world, 200);
    ck_assert(client.closed);
    world_turn(&world); /* the replica's word of the cancel */
    ck_assert_uint_eq(world.server.live_sequences, 0);
    ck_assert_uint_eq(world.server.counts.finished_cancelled_total, 1);
    ck_assert_uint_eq(world.server.counts.slow_readers_total, 1);
    client_free(&client);
}
END_TEST

START_TEST(questions_without_reading_answers_are_held_back)
{
    world_set(&world, "output-high", "4KiB");
    client_open(&world, &client, 1000);
    client.takes = 0;
    for (int i = 0; i < 10000 && client.reading; i++) {
        client_control(&client, FRAME_HEALTH, 1, "");
        if (i % 10 == 0)
            world_turn(&world);
    }
    ck_assert(!client.reading);
    ck_assert_uint_lt(conn_unsent(client.conn), 16u << 10);
    client.takes = SIZE_MAX;
    conn_writable(client.conn, world.now_us);
    world_turn(&world);
    ck_assert(client.reading);
    ck_assert_uint_eq(conn_unsent(client.conn), 0);
    client_free(&client);
}
END_TEST

START_TEST(frames_that_came_together_wait_for_room_for_their_answers)
{
    unsigned char one[64], many[64 * 400];
    size_t length = message_encode_control(one, sizeof(one), FRAME_HEALTH, 0, 1, "", 0);
    struct frame frame;
    uint32_t answers = 0;
    world_set(&world, "output-high", "4KiB");
    client_open(&world, &client, 1000);
    for (int i = 0; i < 400; i++)
        memcpy(many + (size_t)i * length, one, length);
    client.takes = 0;
    client_put(&client, many, 400 * length, 0);
    ck_assert_uint_lt(conn_unsent(client.conn), 16u << 10);
    client.takes = SIZE_MAX;
    world_turn(&world);
    while (client_next(&client, &frame))
        answers += frame.type == FRAME_HEALTH;
    ck_assert_uint_eq(answers, 400);
    client_free(&client);
}
END_TEST

START_TEST(connections_over_the_limit_are_told_so)
{
    struct client more;
    world_set(&world, "connections-max", "1");
    client_open(&world, &client, 1000);
    client_connect(&world, &more, 1000, false);
    ck_assert_ptr_null(more.conn);
    ck_assert_int_eq(client_error(&more), ERR_BUSY);
    ck_assert(more.closed);
    client_free(&more);
    client_free(&client);
}
END_TEST

Suite *conn_suite(void)
{
    Suite *suite = suite_create("conn");
    TCase *tcase = tcase_create("conn");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, a_session_is_answered_alike_at_every_split);
    tcase_add_test(tcase, a_session_is_answered_alike_byte_by_byte);
    tcase_add_test(tcase, a_large_batch_in_pieces_is_whole);
    tcase_add_test(tcase, a_short_request_is_answered_by_one_write);
    tcase_add_test(tcase, acceptance_is_told_soon_even_without_tokens);
    tcase_add_test(tcase, an_idle_server_waits_for_nothing);
    tcase_add_loop_test(tcase, a_broken_stream_is_refused_with_its_reason, 0,
                        (int)(sizeof(broken) / sizeof(broken[0])));
    tcase_add_test(tcase, only_hello_may_come_first);
    tcase_add_test(tcase, another_version_is_refused_by_both_numbers);
    tcase_add_test(tcase, who_never_says_hello_is_closed_in_time);
    tcase_add_test(tcase, a_half_frame_held_open_is_closed_in_time);
    tcase_add_test(tcase, who_sends_a_megabit_a_second_is_never_late);
    tcase_add_test(tcase, nobody_is_late_because_the_daemon_was);
    tcase_add_test(tcase, input_of_one_user_leaves_room_for_another);
    tcase_add_test(tcase, who_waits_for_room_goes_on_when_there_is_some);
    tcase_add_test(tcase, a_slow_reader_is_not_read_and_keeps_its_answers);
    tcase_add_test(tcase, who_reads_nothing_is_disconnected_and_its_work_cancelled);
    tcase_add_test(tcase, questions_without_reading_answers_are_held_back);
    tcase_add_test(tcase, frames_that_came_together_wait_for_room_for_their_answers);
    tcase_add_test(tcase, connections_over_the_limit_are_told_so);
    suite_add_tcase(suite, tcase);
    return suite;
}
