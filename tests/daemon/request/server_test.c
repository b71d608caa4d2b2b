/* A request from its frame to its answers, and what is told of the daemon meanwhile. */
#include <string.h>

#include "tests/daemon/daemon_suites.h"
#include "tests/daemon/request/server_rig.h"

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
    server_rig_teardown();
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

static void expect_tokens(const char *figure)
{
    struct frame frame;
    client_control(&client, FRAME_STATS, 5, "{\"requests\":true}");
    world_turn(&world);
    ck_assert(client_find(&client, FRAME_STATS, &frame));
    ck_assert_msg(memmem(frame.head, frame.head_length, figure, strlen(figure)) != NULL, "%s",
                  figure);
}

START_TEST(tokens_of_running_requests_are_told_as_they_come)
{
    struct ask ask = {.job = JOB_GENERATE, .id = 1, .count = 2, .length = 4, .max_tokens = 9};
    client_ask(&client, &ask);
    expect_tokens("\"tokens\":0,");
    world_step(&world, 3);
    expect_tokens("\"tokens\":6,");
    world_step(&world, 1);
    expect_tokens("\"tokens\":8,");
    ask.id = 2;
    ask.max_tokens = 2; /* one that ends before the other */
    ask.count = 1;
    client_ask(&client, &ask);
    world_step(&world, 2);
    expect_tokens("\"tokens\":12,");
    world_finish(&world);
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

Suite *server_suite(void)
{
    Suite *suite = suite_create("server");
    TCase *tcase = tcase_create("server");
    tcase_add_checked_fixture(tcase, server_rig_setup, server_rig_teardown);
    tcase_add_test(tcase, tokens_come_in_order_and_the_end_tells_the_times);
    tcase_add_test(tcase, without_streaming_all_is_told_at_the_end);
    tcase_add_test(tcase, logprobs_come_with_their_tokens);
    tcase_add_test(tcase, each_of_n_results_is_its_own_sequence);
    tcase_add_test(tcase, a_number_in_use_is_refused_and_free_again_later);
    tcase_add_test(tcase, a_failed_device_fails_what_waits_with_a_status_worth_a_retry);
    tcase_add_test(tcase, while_the_model_loads_requests_wait);
    tcase_add_test(tcase, stats_are_those_of_the_worker_asked_now);
    tcase_add_test(tcase, stats_come_even_when_the_worker_does_not_answer);
    tcase_add_test(tcase, requests_are_listed_to_their_user_and_to_admins);
    tcase_add_test(tcase, tokens_of_running_requests_are_told_as_they_come);
    tcase_add_loop_test(tcase, a_request_that_cannot_be_is_refused_and_the_connection_goes_on, 0,
                        (int)(sizeof(refused) / sizeof(refused[0])));
    suite_add_tcase(suite, tcase);
    return suite;
}
