/* Texts on their way to a thread: whose turn it is, and that those who are late, gone or too many
 * are told at once. The threads are the test's own hand. */
#include "daemon/request/errand.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/text/template/chat.h"
#include "tests/daemon/daemon_suites.h"
#include "tests/daemon/rig/world.h"

#define THREADS_MAX 8
#define FLOOD 20000

static struct world world;
static struct model_text model_text;
static struct background background;
static struct client client, other;
static struct task *running[THREADS_MAX];
static uint32_t running_count, run_total;
static bool no_memory;

static int run(struct background *of, struct task *task)
{
    ck_assert_uint_lt(running_count, of->threads);
    if (no_memory)
        return -ERR_NO_MEMORY;
    running[running_count++] = task;
    run_total++;
    return 0;
}

static void setup(void)
{
    static const char source[] = "{% for m in messages %}{{ m.content }}{% endfor %}";
    struct error error;
    world_make(&world);
    ck_assert_int_eq(model_text_load(&model_text, "synthetic:null", NULL), 0);
    chat_template_free(model_text.chat); /* of its own there is another */
    model_text.chat = NULL;
    ck_assert_msg(chat_template_load(source, sizeof(source) - 1, &model_text.chat, &error) == 0,
                  "%s", error.text);
    background = (struct background){.run = run, .threads = 1};
    running_count = run_total = 0;
    no_memory = false;
    world.server.models[0].text = &model_text;
    world.server.background = &background;
    world_ready(&world);
    client_open(&world, &client, 5);
    client_open(&world, &other, 6);
}

/* The oldest of those that run is done. */
static void work(void)
{
    ck_assert_uint_gt(running_count, 0);
    struct task *task = running[0];
    memmove(running, running + 1, --running_count * sizeof(running[0]));
    task->work(task);
    task->done(task, world.now_us);
}

static void work_all(void)
{
    while (running_count > 0)
        work();
    world_turn(&world);
}

static void teardown(void)
{
    client_free(&client);
    client_free(&other);
    work_all();
    ck_assert_uint_eq(world.server.encodings, 0);
    ck_assert_uint_eq(world.server.backlog.waiting_count, 0);
    world_free(&world);
    model_text_free(&model_text);
}

/* A chat whose one message is `text`, `times` over. */
static void chat(struct client *from, uint64_t id, const char *text, uint32_t times,
                 uint64_t deadline_ms)
{
    static _Alignas(8) unsigned char frame[1 << 20];
    static char conversation[1 << 18];
    static const char head[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"";
    size_t length = sizeof(head) - 1, each = strlen(text);
    memcpy(conversation, head, length);
    for (uint32_t i = 0; i < times; i++, length += each)
        memcpy(conversation + length, text, each);
    memcpy(conversation + length, "\"}]}", 4);
    struct message_prompt prompt = {
        .sampling = sampling_unset(), .chat = conversation, .chat_length = (uint32_t)length + 4};
    prompt.sampling.max_tokens = 1;
    const struct message_submit_out submit = {.params.job = JOB_GENERATE,
                                              .params.deadline_ms = deadline_ms,
                                              .params.stream = true,
                                              .params.normalize = true,
                                              .prompt_count = 1,
                                              .prompts = &prompt};
    size_t size = message_encode_submit(frame, sizeof(frame), id, &submit);
    ck_assert_uint_gt(size, 0);
    client_put(from, frame, size, 0);
}

static void tokenize(struct client *from, uint64_t id)
{
    static _Alignas(8) unsigned char frame[4096];
    static const char text[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"A\"}]}";
    const struct message_tokenize question = {
        .text = text, .length = sizeof(text) - 1, .chat = true, .special = true};
    client_put(from, frame, message_encode_tokenize(frame, sizeof(frame), id, &question), 0);
}

/* The next ERROR is about this request, and has this code. */
static void expect_error(struct client *from, uint64_t id, int code)
{
    struct frame frame;
    struct message_error message;
    struct error error;
    world_turn(&world);
    ck_assert_msg(client_find(from, FRAME_ERROR, &frame), "no ERROR for %llu",
                  (unsigned long long)id);
    ck_assert_int_eq(message_decode_error(&frame, &message, &error), 0);
    ck_assert_uint_eq(frame.id, id);
    ck_assert(frame.flags & FRAME_FLAG_LAST);
    ck_assert_msg(message.error.code == code, "%s", message.error.text);
    ck_assert(code != ERR_BUSY || message.error.retry_after_ms > 0);
}

static uint64_t accepted(struct client *from)
{
    struct frame frame;
    world_pass(&world, CONN_HOLD_US);
    return client_find(from, FRAME_ACCEPT, &frame) ? frame.id : 0;
}

START_TEST(a_deadline_is_answered_while_the_text_waits_and_it_is_never_read)
{
    chat(&client, 1, "A", 1, 0);
    chat(&other, 2, "B", 1, 300);
    world_turn(&world);
    ck_assert_uint_le(server_due(&world.server), world.now_us + 300000);
    world_pass(&world, 290000);
    ck_assert_int_eq(client_error(&other), 0);
    world_pass(&world, 10000);
    expect_error(&other, 2, ERR_DEADLINE);
    ck_assert_uint_eq(world.server.encodings, 1);
    work_all();
    ck_assert_uint_eq(run_total, 1);
    ck_assert_uint_eq(accepted(&client), 1);
    ck_assert_uint_eq(world.server.counts.texts_deadline_total, 1);
    ck_assert_uint_eq(world.server.counts.texts_dropped_total, 1);
    ck_assert_uint_eq(world.server.counts.refused_final_total, 0);
}
END_TEST

START_TEST(a_deadline_is_answered_while_the_text_is_read_and_its_result_is_thrown_away)
{
    chat(&client, 1, "A", 1, 50);
    world_turn(&world);
    ck_assert_int_eq(halt_code(&running[0]->halt), 0);
    world_pass(&world, 50000);
    expect_error(&client, 1, ERR_DEADLINE);
    ck_assert_int_eq(halt_code(&running[0]->halt), ERR_DEADLINE);
    ck_assert_uint_eq(world.server.counts.texts_stopped_total, 1);
    chat(&client, 1, "A", 1, 0); /* its number is free */
    ck_assert_int_eq(client_error(&client), 0);
    work();
    ck_assert_uint_eq(accepted(&client), 0);
    ck_assert_uint_eq(world.server.live_requests, 0);
    work();
    world_turn(&world);
    ck_assert_uint_eq(accepted(&client), 1);
}
END_TEST

START_TEST(what_is_cancelled_does_not_start)
{
    chat(&client, 1, "A", 1, 0);
    chat(&client, 2, "A", 1, 0);
    chat(&client, 3, "A", 1, 0);
    client_control(&client, FRAME_CANCEL, 2, "");
    world_turn(&world);
    expect_error(&client, 2, ERR_CANCELLED);
    client_control(&client, FRAME_CANCEL, 1, "");
    world_turn(&world);
    expect_error(&client, 1, ERR_CANCELLED);
    ck_assert_int_eq(halt_code(&running[0]->halt), ERR_CANCELLED);
    work_all();
    ck_assert_uint_eq(run_total, 2);
    ck_assert_uint_eq(accepted(&client), 3);
    ck_assert_uint_eq(world.server.counts.texts_cancelled_total, 2);
}
END_TEST

START_TEST(what_was_asked_by_somebody_gone_does_not_start)
{
    for (uint64_t id = 1; id <= 10; id++)
        chat(&client, id, "A", 1, 0);
    for (uint64_t id = 11; id <= 15; id++)
        tokenize(&client, id);
    chat(&other, 1, "A", 1, 0);
    ck_assert_uint_eq(world.server.encodings, 16);
    conn_lost(client.conn, world.now_us);
    ck_assert_int_ne(halt_code(&running[0]->halt), 0);
    ck_assert_uint_eq(world.server.encodings, 2);
    work_all();
    ck_assert_uint_eq(run_total, 2);
    ck_assert_uint_eq(accepted(&other), 1);
}
END_TEST

START_TEST(anothers_chat_comes_third_at_the_latest_whoever_floods)
{
    for (uint64_t id = 1; id <= 50; id++)
        chat(&client, id, "A", _i ? 70000 : 1, 0);
    chat(&other, 1, "B", 1, 0);
    for (int i = 0; i < 3; i++) /* the one that ran, perhaps one more, and it */
        work();
    world_turn(&world);
    ck_assert_uint_eq(accepted(&other), 1);
    for (uint64_t id = 1; id <= 50; id++)
        client_control(&client, FRAME_CANCEL, id, "");
    work_all();
}
END_TEST

START_TEST(a_flood_is_refused_before_it_is_read)
{
    struct frame frame;
    uint32_t busy = 0;
    world_set(&world, "queue-sequences", "100");
    world_set(&world, "output-max", "16MiB");
    world_set(&world, "output-high", "16MiB");
    for (uint64_t id = 1; id <= FLOOD; id++)
        chat(&client, id, "A", 1, 0);
    world_turn(&world);
    ck_assert_uint_eq(world.server.load.sequences, 50); /* half of it is a user's */
    ck_assert_uint_eq(world.server.encodings, 50);
    while (client_next(&client, &frame)) {
        struct message_error message;
        struct error error;
        ck_assert_uint_eq(frame.type, FRAME_ERROR);
        ck_assert_int_eq(message_decode_error(&frame, &message, &error), 0);
        ck_assert_int_eq(message.error.code, ERR_BUSY);
        ck_assert_uint_gt(message.error.retry_after_ms, 0);
        ck_assert_uint_eq(message.error.limit, 50);
        busy++;
    }
    ck_assert_uint_eq(busy, FLOOD - 50);
    ck_assert_uint_eq(world.server.counts.refused_busy_total, FLOOD - 50);
    tokenize(&client, FLOOD + 1);
    expect_error(&client, FLOOD + 1, ERR_BUSY);
    /* Nor are they read that are short enough for the loop, or tokens. */
    client_ask(&client, &(struct ask){.id = FLOOD + 2, .count = 1, .length = 1, .max_tokens = 1});
    expect_error(&client, FLOOD + 2, ERR_BUSY);
    chat(&other, 1, "B", 1, 0); /* the other half is not touched */
    work_all();
    ck_assert_uint_eq(run_total, 51);
    ck_assert_uint_eq(accepted(&other), 1);
    world_finish(&world);
    world_turn(&world);
    ck_assert_uint_eq(world.server.load.sequences, 0);
    ck_assert_uint_eq(world.server.counts.finished_length_total, 51);
}
END_TEST

START_TEST(results_of_a_batch_have_their_places_while_its_texts_wait)
{
    static _Alignas(8) unsigned char frame[4096];
    static const char head[] = "{\"job\":\"generate\",\"chats\":[3,3],\"n\":2,\"max_tokens\":1,"
                               "\"each\":[{\"n\":5},{}]}";
    char padded[256];
    size_t length = (sizeof(head) - 1 + 7) / 8 * 8;
    memset(padded, ' ', sizeof(padded));
    memcpy(padded, head, sizeof(head) - 1);
    frame_encode_header(frame, FRAME_SUBMIT, 0, 1, (uint32_t)length, 8);
    memcpy(frame + FRAME_HEADER_SIZE, padded, length);
    memcpy(frame + FRAME_HEADER_SIZE + length, "{} {} \0\0", 8);
    client_put(&client, frame, FRAME_HEADER_SIZE + length + 8, 0);
    ck_assert_uint_eq(world.server.load.sequences, 7);
    work_all();
    expect_error(&client, 1, ERR_BAD_VALUE); /* {} is no conversation */
    ck_assert_uint_eq(world.server.load.sequences, 0);
}
END_TEST

START_TEST(draining_refuses_at_once_what_is_not_accepted_yet)
{
    chat(&client, 1, "A", 1, 0);
    chat(&client, 2, "A", 1, 0);
    tokenize(&client, 3);
    server_drain(&world.server);
    world_turn(&world);
    expect_error(&client, 1, ERR_DRAINING);
    expect_error(&client, 2, ERR_DRAINING);
    ck_assert_int_ne(halt_code(&running[0]->halt), 0);
    ck_assert_uint_eq(world.server.encodings, 2); /* the first, and the question */
    server_cancel_all(&world.server, world.now_us);
    expect_error(&client, 3, ERR_DRAINING);
    ck_assert_uint_eq(world.server.encodings, 1);
    ck_assert(!server_idle(&world.server));
    work_all();
    ck_assert(server_idle(&world.server));
    server_resume(&world.server);
    chat(&client, 4, "A", 1, 0);
    work_all();
    ck_assert_uint_eq(accepted(&client), 4);
}
END_TEST

START_TEST(a_failed_device_answers_texts_that_wait)
{
    struct error error;
    chat(&client, 1, "A", 1, 0);
    chat(&client, 2, "A", 1, 0);
    error_set(&error, ERR_DEVICE, "broken");
    server_fail(&world.server, &error, world.now_us);
    world_turn(&world);
    expect_error(&client, 1, ERR_DEVICE);
    expect_error(&client, 2, ERR_DEVICE);
    ck_assert_uint_eq(world.server.encodings, 1);
}
END_TEST

START_TEST(without_memory_for_a_thread_it_is_refused)
{
    no_memory = true;
    chat(&client, 1, "A", 1, 0);
    world_turn(&world);
    expect_error(&client, 1, ERR_NO_MEMORY);
    tokenize(&client, 2);
    world_turn(&world);
    expect_error(&client, 2, ERR_NO_MEMORY);
    ck_assert_uint_eq(world.server.encodings, 0);
    ck_assert_uint_eq(world.server.load.input, 0);
}
END_TEST

/* Times are written down in order, or what is behind a later one would be found too late. */
START_TEST(an_accept_is_held_from_when_its_text_was_read)
{
    chat(&client, 1, "A", 1, 0);
    world.now_us += 5000;
    work();
    ck_assert(!list_empty(&world.server.conns.held));
    const struct conn *conn = container_of(world.server.conns.held.next, struct conn, held_link);
    ck_assert_uint_eq(conn->held_us, world.now_us);
    world_turn(&world);
}
END_TEST

START_TEST(stats_say_what_waits_for_a_thread)
{
    struct frame frame;
    char text[32768];
    for (uint64_t id = 1; id <= 3; id++)
        chat(&client, id, "A", 1, 0);
    client_control(&other, FRAME_STATS, 9, "");
    world_turn(&world);
    ck_assert(client_find(&other, FRAME_STATS, &frame));
    memcpy(text, frame.head, frame.head_length);
    text[frame.head_length] = '\0';
    ck_assert_ptr_nonnull(strstr(text, "\"texts_waiting\":2"));
    ck_assert_ptr_nonnull(strstr(text, "\"texts_running\":1"));
}
END_TEST

Suite *errand_suite(void)
{
    Suite *suite = suite_create("errand");
    TCase *tcase = tcase_create("errand");
    tcase_set_timeout(tcase, 120); /* a flood, under a sanitizer on a busy machine */
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, a_deadline_is_answered_while_the_text_waits_and_it_is_never_read);
    tcase_add_test(tcase,
                   a_deadline_is_answered_while_the_text_is_read_and_its_result_is_thrown_away);
    tcase_add_test(tcase, what_is_cancelled_does_not_start);
    tcase_add_test(tcase, what_was_asked_by_somebody_gone_does_not_start);
    tcase_add_loop_test(tcase, anothers_chat_comes_third_at_the_latest_whoever_floods, 0, 2);
    tcase_add_test(tcase, a_flood_is_refused_before_it_is_read);
    tcase_add_test(tcase, results_of_a_batch_have_their_places_while_its_texts_wait);
    tcase_add_test(tcase, draining_refuses_at_once_what_is_not_accepted_yet);
    tcase_add_test(tcase, a_failed_device_answers_texts_that_wait);
    tcase_add_test(tcase, without_memory_for_a_thread_it_is_refused);
    tcase_add_test(tcase, stats_say_what_waits_for_a_thread);
    tcase_add_test(tcase, an_accept_is_held_from_when_its_text_was_read);
    suite_add_tcase(suite, tcase);
    return suite;
}
