/* The connection itself, byte by byte, with the test as the daemon. */
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/client/client_suites.h"
#include "tests/client/peer.h"
#include "tests/client/tally.h"

static struct peer peer;
static struct tally tally;
static const int32_t three[] = {1, 2, 3};
static sluice_prompt two_prompts[2] = {{.tokens = three, .token_count = 3},
                                       {.tokens = three, .token_count = 2}};

static uint64_t submit_two(void)
{
    sluice_batch batch;
    uint64_t id = 0;
    tally_batch(&tally, &batch, two_prompts, NULL);
    batch.prompt_count = 2;
    ck_assert_int_eq(sluice_submit(peer.client, &batch, &id), 0);
    return id;
}

static void setup(void)
{
    peer_open(&peer);
    peer_greet(&peer);
}

static void teardown(void)
{
    peer_close(&peer);
}

static void check_one_end_each(void)
{
    ck_assert_int_eq(tally.ends, 2);
    ck_assert_int_eq(tally.seqs[0].ends, 1);
    ck_assert_int_eq(tally.seqs[1].ends, 1);
    ck_assert_uint_eq(sluice_open_sequences(peer.client), 0);
}

START_TEST(hello_is_sent_first_and_nothing_before_it_is_answered)
{
    struct peer fresh;
    struct frame frame;
    struct message_hello hello;
    struct error error;
    peer_open(&fresh);
    ck_assert(peer_next(&fresh, &frame));
    ck_assert_int_eq(message_decode_hello(&frame, &hello, &error), 0);
    ck_assert_uint_eq(hello.version_min, 1);
    ck_assert(!peer_next(&fresh, &frame));
    ck_assert_int_eq(sluice_client_events(fresh.client), POLLIN);
    peer_close(&fresh);
}
END_TEST

START_TEST(a_conversation_may_come_in_any_pieces)
{
    unsigned char bytes[4096];
    uint64_t id = submit_two();
    size_t length = peer_conversation(bytes, sizeof(bytes), id);
    for (size_t i = 0; i < length; i++) {
        peer_send(&peer, bytes + i, 1);
        ck_assert_int_eq(sluice_client_process(peer.client), 0);
    }
    check_one_end_each();
    ck_assert_int_eq(tally.seqs[0].end.finish, SLUICE_FINISH_LENGTH);
    ck_assert_int_eq(tally.seqs[1].end.finish, SLUICE_FINISH_ERROR);
    ck_assert_int_eq(tally.seqs[1].end.error.code, SLUICE_E_DEVICE);
    ck_assert_int_eq(tally.seqs[1].end.error.retry, SLUICE_RETRY_LATER);
    ck_assert_int_eq(tally.seqs[0].tokens[0], 17);
    ck_assert_int_eq(tally.seqs[1].tokens[0], 18);
}
END_TEST

START_TEST(every_sequence_ends_once_wherever_the_connection_breaks)
{
    unsigned char bytes[4096];
    size_t length = peer_conversation(bytes, sizeof(bytes), submit_two());
    for (size_t cut = 0; cut < length; cut += cut < 64 || cut > length - 64 ? 1 : 7) {
        peer_close(&peer);
        setup();
        submit_two();
        peer_send(&peer, bytes, cut);
        close(peer.fd);
        peer.fd = -1;
        /* The end of the stream may take a turn of its own. */
        if (sluice_client_process(peer.client) == 0)
            ck_assert_int_eq(sluice_client_process(peer.client), -SLUICE_E_CLOSED);
        check_one_end_each();
        ck_assert_int_eq(tally.seqs[1].end.error.code, SLUICE_E_CLOSED);
        ck_assert_int_eq(sluice_client_process(peer.client), -SLUICE_E_CLOSED);
        ck_assert_int_eq(sluice_client_events(peer.client), 0);
        ck_assert_int_eq(tally.ends, 2);
    }
}
END_TEST

START_TEST(a_request_larger_than_the_socket_takes_is_sent_in_turns)
{
    enum { COUNT = 50000 };
    static int32_t tokens[COUNT];
    static unsigned char got[COUNT * 4 + 1024];
    const sluice_prompt prompt = {.tokens = tokens, .token_count = COUNT};
    struct error error;
    struct frame frame;
    sluice_batch batch;
    size_t used = 0, taken;
    int small = 4096, turns = 0;
    for (int32_t i = 0; i < COUNT; i++)
        tokens[i] = i;
    setsockopt(sluice_client_fd(peer.client), SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
    tally_batch(&tally, &batch, (sluice_prompt *)&prompt, NULL);
    ck_assert_int_eq(sluice_submit(peer.client, &batch, NULL), 0);
    ck_assert_int_eq(sluice_client_events(peer.client), POLLIN | POLLOUT);
    while (sluice_client_events(peer.client) & POLLOUT) {
        ssize_t count = recv(peer.fd, got + used, sizeof(got) - used, MSG_DONTWAIT);
        used += count > 0 ? (size_t)count : 0;
        ck_assert_int_eq(sluice_client_process(peer.client), 0);
        ck_assert_int_lt(turns++, 1000);
    }
    used += (size_t)recv(peer.fd, got + used, sizeof(got) - used, MSG_DONTWAIT);
    ck_assert_int_eq(frame_decode(got, used, sizeof(got), &frame, &taken, &error), FRAME_OK);
    ck_assert_uint_eq(taken, used);
    ck_assert_int_gt(turns, 1);
    ck_assert_mem_eq(frame.payload, tokens, sizeof(tokens));
}
END_TEST

START_TEST(an_error_about_the_connection_ends_everything_with_its_own_reason)
{
    unsigned char bytes[1024];
    struct message_error message = {MESSAGE_NO_SEQUENCE, {0}};
    submit_two();
    error_set(&message.error, ERR_SLOW_READER, "read faster");
    peer_send(&peer, bytes, message_encode_error(bytes, sizeof(bytes), 0, 1, &message));
    ck_assert_int_eq(sluice_client_process(peer.client), -(int)ERR_SLOW_READER);
    check_one_end_each();
    ck_assert_str_eq(tally.seqs[0].end.error.text, "read faster");
    ck_assert_str_eq(sluice_client_error(peer.client)->text, "read faster");
    ck_assert_int_eq(sluice_submit(peer.client, &(sluice_batch){0}, NULL), -(int)ERR_SLOW_READER);
}
END_TEST

START_TEST(a_daemon_that_speaks_with_the_code_of_a_timeout_harms_no_blocking_call)
{
    unsigned char bytes[1024];
    const char *answer;
    sluice_batch batch;
    struct message_error message = {MESSAGE_NO_SEQUENCE, {0}};
    tally_batch(&tally, &batch, two_prompts, NULL);
    error_set(&message.error, ERR_TIMEOUT, "too slow");
    peer_send(&peer, bytes, message_encode_error(bytes, sizeof(bytes), 0, 1, &message));
    ck_assert_int_eq(sluice_run(peer.client, &batch, 10000), -SLUICE_E_TIMEOUT);
    ck_assert_int_eq(tally.ends, 1);
    ck_assert_int_eq(sluice_run(peer.client, &batch, 10000), -SLUICE_E_TIMEOUT);
    ck_assert_int_eq(tally.ends, 1);
    ck_assert_int_eq(sluice_control(peer.client, SLUICE_HEALTH, NULL, 10000, &answer),
                     -SLUICE_E_TIMEOUT);
}
END_TEST

/* Bytes that no daemon sends after a request of two sequences with this id. */
static size_t nonsense(int which, unsigned char *out, size_t size, uint64_t id)
{
    const struct message_done third = {.sequence = 2, .finish = FINISH_STOP};
    const int32_t token = 1;
    const float row[2] = {0, 0};
    struct message_tokens record = {.sequence = 9, .count = 1, .tokens = &token};
    struct message_result result = {
        .sequence = 0, .kind = RESULT_EMBED, .count = 1, .width = 2, .rows = row};
    size_t length;
    switch (which) {
    case 0:
        memset(out, 'x', 64);
        return 64;
    case 1:
        return message_encode_done(out, size, id, 0, &third);
    case 2:
        length = message_put_tokens(out + FRAME_HEADER_SIZE, size, &record);
        frame_encode_header(out, FRAME_TOKENS, 0, id, 0, (uint32_t)length);
        return FRAME_HEADER_SIZE + length;
    case 3:
        return message_encode_accept(out, size, id + 100, 5);
    case 4:
        return message_encode_control(out, size, FRAME_SUBMIT, 0, id, "{}", 2);
    case 5:
        return message_encode_control(out, size, FRAME_DONE, 0, id, "{\"sequence\":-1}", 15);
    case 6:
        return message_encode_result(out, size, id, &result);
    case 7:
        return peer_welcome(out, size);
    default:
        frame_encode_header(out, FRAME_TOKENS, 0, id, 0, UINT32_MAX & ~7u);
        return FRAME_HEADER_SIZE;
    }
}
#define NONSENSE 9

START_TEST(a_daemon_that_leaves_the_protocol_is_left)
{
    unsigned char bytes[2048];
    size_t length = nonsense(_i, bytes, sizeof(bytes), submit_two());
    peer_send(&peer, bytes, length);
    ck_assert_int_lt(sluice_client_process(peer.client), 0);
    check_one_end_each();
    ck_assert_int_ne(sluice_client_error(peer.client)->text[0], 0);
}
END_TEST

START_TEST(the_last_word_on_a_request_ends_what_it_left_open)
{
    unsigned char bytes[1024];
    const struct message_done done = {.sequence = 1, .finish = FINISH_STOP};
    uint64_t id = submit_two();
    peer_send(&peer, bytes, message_encode_done(bytes, sizeof(bytes), id, 1, &done));
    ck_assert_int_eq(sluice_client_process(peer.client), 0);
    check_one_end_each();
    ck_assert_int_eq(tally.seqs[1].end.finish, SLUICE_FINISH_STOP);
    ck_assert_int_eq(tally.seqs[0].end.finish, SLUICE_FINISH_ERROR);
}
END_TEST

START_TEST(a_refused_batch_ends_with_limit_and_hint)
{
    unsigned char bytes[1024];
    struct message_error message = {MESSAGE_NO_SEQUENCE, {0}};
    uint64_t id = submit_two();
    error_limit(&message.error, ERR_BUSY, 8, 9, "full");
    message.error.retry_after_ms = 40;
    peer_send(&peer, bytes, message_encode_error(bytes, sizeof(bytes), id, 1, &message));
    ck_assert_int_eq(sluice_client_process(peer.client), 0);
    check_one_end_each();
    const sluice_error *error = &tally.seqs[1].end.error;
    ck_assert_int_eq(error->code, SLUICE_E_BUSY);
    ck_assert_uint_eq(error->retry_after_ms, 40);
    ck_assert_uint_eq(error->limit, 8);
    ck_assert_uint_eq(error->value, 9);
    ck_assert_str_eq(sluice_error_name(error->code), "busy");
}
END_TEST

/* Its texts were not read yet: there is no sequence of the daemon's to tell of. */
START_TEST(a_batch_that_was_cancelled_or_late_before_it_was_accepted_ends_so)
{
    unsigned char bytes[1024];
    struct message_error message = {MESSAGE_NO_SEQUENCE, {0}};
    uint64_t id = submit_two();
    error_set(&message.error, _i ? ERR_DEADLINE : ERR_CANCELLED, "before the text was read");
    peer_send(&peer, bytes, message_encode_error(bytes, sizeof(bytes), id, 1, &message));
    ck_assert_int_eq(sluice_client_process(peer.client), 0);
    check_one_end_each();
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(tally.seqs[i].end.finish,
                         _i ? SLUICE_FINISH_DEADLINE : SLUICE_FINISH_CANCELLED);
}
END_TEST

START_TEST(a_cancel_names_the_request_until_its_end)
{
    unsigned char bytes[4096];
    struct frame frame;
    uint64_t id = submit_two();
    ck_assert(peer_next(&peer, &frame));
    ck_assert_uint_eq(frame.type, FRAME_SUBMIT);
    ck_assert_uint_eq(sluice_request_number(peer.client, id), 0);
    ck_assert_int_eq(sluice_cancel(peer.client, id), 0);
    ck_assert(peer_next(&peer, &frame));
    ck_assert_uint_eq(frame.type, FRAME_CANCEL);
    ck_assert_uint_eq(frame.id, id);
    size_t length = peer_conversation(bytes, sizeof(bytes), id);
    peer_send(&peer, bytes, 24 + 24);
    ck_assert_int_eq(sluice_client_process(peer.client), 0);
    ck_assert_uint_eq(sluice_request_number(peer.client, id), 1001);
    peer_send(&peer, bytes + 48, length - 48);
    ck_assert_int_eq(sluice_client_process(peer.client), 0);
    ck_assert_int_eq(sluice_cancel(peer.client, id), -SLUICE_E_NOT_FOUND);
}
END_TEST

static void submit_again(void *context, uint32_t sequence, const sluice_end *end)
{
    sluice_batch batch;
    (void)context;
    (void)end;
    tally.ends++;
    tally.seqs[sequence].ends++;
    if (sequence != 1)
        return;
    sluice_batch_init(&batch);
    batch.prompts = two_prompts;
    batch.prompt_count = 1;
    tally.seqs[2].ends = sluice_submit(peer.client, &batch, NULL);
    tally.seqs[3].ends = sluice_wait(peer.client, 0);
    tally.seqs[4].ends = sluice_client_process(peer.client);
    tally.seqs[5].ends = sluice_run(peer.client, &batch, 1000);
}

START_TEST(a_callback_may_submit_but_not_wait)
{
    unsigned char bytes[4096];
    struct frame frame;
    sluice_batch batch;
    uint64_t id;
    tally_batch(&tally, &batch, two_prompts, NULL);
    batch.prompt_count = 2;
    batch.callbacks = (sluice_callbacks){.end = submit_again};
    ck_assert_int_eq(sluice_submit(peer.client, &batch, &id), 0);
    ck_assert(peer_next(&peer, &frame));
    peer_send(&peer, bytes, peer_conversation(bytes, sizeof(bytes), id));
    ck_assert_int_eq(sluice_client_process(peer.client), 0);
    ck_assert_int_eq(tally.ends, 2);
    ck_assert_int_eq(tally.seqs[2].ends, 0);
    ck_assert_int_eq(tally.seqs[3].ends, -SLUICE_E_USAGE);
    ck_assert_int_eq(tally.seqs[4].ends, -SLUICE_E_USAGE);
    ck_assert_int_eq(tally.seqs[5].ends, -SLUICE_E_USAGE);
    ck_assert(peer_next(&peer, &frame));
    ck_assert_uint_eq(frame.type, FRAME_SUBMIT);
    ck_assert_uint_eq(sluice_open_sequences(peer.client), 1);
}
END_TEST

START_TEST(what_does_not_end_in_time_is_cancelled_and_its_late_answer_tells_nobody)
{
    unsigned char bytes[4096];
    struct frame frame;
    sluice_batch batch;
    tally_batch(&tally, &batch, two_prompts, NULL);
    batch.prompt_count = 2;
    ck_assert_int_eq(sluice_run(peer.client, &batch, 1), -SLUICE_E_TIMEOUT);
    check_one_end_each();
    ck_assert_int_eq(tally.seqs[0].end.error.code, SLUICE_E_TIMEOUT);
    ck_assert(peer_next(&peer, &frame));
    ck_assert(peer_next(&peer, &frame));
    ck_assert_uint_eq(frame.type, FRAME_CANCEL);
    peer_send(&peer, bytes, peer_conversation(bytes, sizeof(bytes), frame.id));
    ck_assert_int_eq(sluice_client_process(peer.client), 0);
    ck_assert_int_eq(tally.ends, 2);
    ck_assert_uint_eq(tally.seqs[0].token_count, 0);
}
END_TEST

static sluice_error answer_error;
static char answer_text[256];
static void keep_answer(void *context, const char *text, const sluice_error *error)
{
    ++*(int *)context;
    if (text)
        strncpy(answer_text, text, sizeof(answer_text) - 1);
    else
        answer_error = *error;
}

START_TEST(a_question_is_answered_by_its_own_id)
{
    unsigned char bytes[1024];
    struct frame frame;
    int answers = 0;
    uint64_t ids[2];
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(sluice_ask(peer.client, SLUICE_STATS, i ? "{\"requests\":true}" : NULL,
                                    keep_answer, &answers),
                         0);
        ck_assert(peer_next(&peer, &frame));
        ck_assert_uint_eq(frame.type, FRAME_STATS);
        ids[i] = frame.id;
    }
    ck_assert_mem_eq(frame.head, "{\"requests\":true}", 17);
    struct message_error refusal = {MESSAGE_NO_SEQUENCE, {0}};
    error_set(&refusal.error, ERR_DENIED, "no");
    peer_send(&peer, bytes, message_encode_error(bytes, sizeof(bytes), ids[1], 1, &refusal));
    ck_assert_int_eq(sluice_client_process(peer.client), 0);
    ck_assert_int_eq(answers, 1);
    ck_assert_int_eq(answer_error.code, SLUICE_E_DENIED);
    peer_send(&peer, bytes,
              message_encode_control(bytes, sizeof(bytes), FRAME_STATS, 3, ids[0], "{\"a\":1}", 7));
    ck_assert_int_eq(sluice_client_process(peer.client), 0);
    ck_assert_int_eq(answers, 2);
    ck_assert_str_eq(answer_text, "{\"a\":1}");
}
END_TEST

START_TEST(an_answer_counts_though_what_comes_behind_it_loses_the_connection)
{
    unsigned char bytes[1024];
    const int32_t *tokens;
    const char *told;
    size_t count, used = 0;
    uint64_t id = peer.client->next_id;
    if (_i == 0)
        used = message_encode_control(bytes, sizeof(bytes), FRAME_HEALTH, 3, id, "{}", 2);
    else
        used = message_encode_tokenized(bytes, sizeof(bytes), id, three, 3);
    used += nonsense(0, bytes + used, sizeof(bytes) - used, id);
    peer_send(&peer, bytes, used);
    if (_i == 0) {
        ck_assert_int_eq(sluice_control(peer.client, SLUICE_HEALTH, NULL, 10000, &told), 0);
        ck_assert_str_eq(told, "{}");
    } else {
        const sluice_prompt prompt = {.text = "abc", .text_length = 3};
        ck_assert_int_eq(sluice_tokenize(peer.client, &prompt, 1, 10000, &tokens, &count), 0);
        ck_assert_uint_eq(count, 3);
    }
    ck_assert_int_lt(sluice_control(peer.client, SLUICE_HEALTH, NULL, 10000, &told), 0);
}
END_TEST

START_TEST(questions_fail_with_the_connection)
{
    int answers = 0;
    ck_assert_int_eq(sluice_ask(peer.client, SLUICE_HEALTH, NULL, keep_answer, &answers), 0);
    close(peer.fd);
    peer.fd = -1;
    ck_assert_int_eq(sluice_client_process(peer.client), -SLUICE_E_CLOSED);
    ck_assert_int_eq(answers, 1);
    ck_assert_int_eq(answer_error.code, SLUICE_E_CLOSED);
    ck_assert_int_eq(sluice_ask(peer.client, SLUICE_HEALTH, NULL, keep_answer, &answers),
                     -SLUICE_E_CLOSED);
}
END_TEST

START_TEST(a_client_that_ends_its_input_still_gets_its_answers)
{
    unsigned char bytes[4096], none;
    struct frame frame;
    int answers = 0;
    uint64_t id = submit_two();
    ck_assert_int_eq(sluice_end_input(peer.client), 0);
    ck_assert(peer_next(&peer, &frame));
    ck_assert_uint_eq(frame.type, FRAME_SUBMIT);
    ck_assert_int_eq(recv(peer.fd, &none, 1, MSG_DONTWAIT), 0);
    sluice_batch batch;
    tally_batch(&tally, &batch, two_prompts, NULL);
    ck_assert_int_eq(sluice_submit(peer.client, &batch, NULL), -SLUICE_E_USAGE);
    ck_assert_int_eq(sluice_cancel(peer.client, id), -SLUICE_E_USAGE);
    ck_assert_int_eq(sluice_ask(peer.client, SLUICE_HEALTH, NULL, keep_answer, &answers),
                     -SLUICE_E_USAGE);
    peer_send(&peer, bytes, peer_conversation(bytes, sizeof(bytes), id));
    ck_assert_int_eq(sluice_client_process(peer.client), 0);
    check_one_end_each();
    ck_assert_int_eq(tally.seqs[0].end.finish, SLUICE_FINISH_LENGTH);
    close(peer.fd);
    peer.fd = -1;
    ck_assert_int_eq(sluice_client_process(peer.client), -SLUICE_E_CLOSED);
    ck_assert_int_eq(answers, 0);
}
END_TEST

START_TEST(what_waits_to_be_sent_is_sent_before_the_input_ends)
{
    static int32_t many[100000];
    static unsigned char bytes[1 << 16];
    sluice_prompt prompt = {.tokens = many, .token_count = 100000};
    sluice_batch batch;
    size_t sent = 0;
    ssize_t got = 0;
    setsockopt(sluice_client_fd(peer.client), SOL_SOCKET, SO_SNDBUF, &(int){4096}, sizeof(int));
    tally_batch(&tally, &batch, &prompt, NULL);
    ck_assert_int_eq(sluice_submit(peer.client, &batch, NULL), 0);
    ck_assert_int_eq(sluice_end_input(peer.client), 0);
    ck_assert(sluice_client_events(peer.client) & POLLOUT);
    for (int i = 0; i < 10000; i++) {
        while ((got = recv(peer.fd, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0)
            sent += (size_t)got;
        if (got == 0)
            break;
        ck_assert_int_eq(sluice_client_process(peer.client), 0);
    }
    ck_assert_int_eq(got, 0);
    ck_assert_uint_gt(sent, sizeof(many));
}
END_TEST

START_TEST(closing_tells_nobody)
{
    submit_two();
    peer_close(&peer);
    ck_assert_int_eq(tally.ends, 0);
    setup();
}
END_TEST

Suite *connection_suite(void)
{
    Suite *suite = suite_create("connection");
    TCase *tcase = tcase_create("pair");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, hello_is_sent_first_and_nothing_before_it_is_answered);
    tcase_add_test(tcase, a_conversation_may_come_in_any_pieces);
    tcase_add_test(tcase, every_sequence_ends_once_wherever_the_connection_breaks);
    tcase_add_test(tcase, a_request_larger_than_the_socket_takes_is_sent_in_turns);
    tcase_add_test(tcase, an_error_about_the_connection_ends_everything_with_its_own_reason);
    tcase_add_test(tcase, a_daemon_that_speaks_with_the_code_of_a_timeout_harms_no_blocking_call);
    tcase_add_loop_test(tcase, a_daemon_that_leaves_the_protocol_is_left, 0, NONSENSE);
    tcase_add_test(tcase, the_last_word_on_a_request_ends_what_it_left_open);
    tcase_add_test(tcase, a_refused_batch_ends_with_limit_and_hint);
    tcase_add_loop_test(tcase, a_batch_that_was_cancelled_or_late_before_it_was_accepted_ends_so, 0,
                        2);
    tcase_add_test(tcase, a_cancel_names_the_request_until_its_end);
    tcase_add_test(tcase, a_callback_may_submit_but_not_wait);
    tcase_add_test(tcase, what_does_not_end_in_time_is_cancelled_and_its_late_answer_tells_nobody);
    tcase_add_test(tcase, a_question_is_answered_by_its_own_id);
    tcase_add_loop_test(tcase, an_answer_counts_though_what_comes_behind_it_loses_the_connection, 0,
                        2);
    tcase_add_test(tcase, questions_fail_with_the_connection);
    tcase_add_test(tcase, a_client_that_ends_its_input_still_gets_its_answers);
    tcase_add_test(tcase, what_waits_to_be_sent_is_sent_before_the_input_ends);
    tcase_add_test(tcase, closing_tells_nobody);
    suite_add_tcase(suite, tcase);
    return suite;
}
