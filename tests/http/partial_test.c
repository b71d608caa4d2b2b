/* Batches of which some prompts cannot be taken, in the daemon's own protocol. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/text/template/chat.h"
#include "tests/http/caller.h"
#include "tests/http/http_suites.h"

static struct site site;
static struct client client;

static void set_up(void)
{
    site_make(&site);
    site.world.server.models[0].context_max = 64;
    client_open(&site.world, &client, 5);
}

static void tear_down(void)
{
    client_free(&client);
    site_free(&site);
}

enum form { TOKENS, TEXTS };

/* Three prompts of two results each, the second of which is too long. */
static void submit(enum form form, bool partial, bool stream, enum job job)
{
    static unsigned char frame[1 << 16];
    static int32_t tokens[100];
    static char text[9000];
    struct message_prompt prompts[3];
    memset(text, 'K', sizeof(text));
    for (uint32_t i = 0; i < 100; i++)
        tokens[i] = 'K';
    for (uint32_t i = 0; i < 3; i++) {
        uint32_t length = i == 1 ? 100 : 1;
        prompts[i] = (struct message_prompt){.sampling = sampling_unset()};
        prompts[i].sampling.max_tokens = 3;
        prompts[i].sampling.n = 2;
        if (form == TOKENS) {
            prompts[i].tokens = tokens;
            prompts[i].token_count = length;
        } else {
            prompts[i].text = text;
            prompts[i].text_length = i == 1 ? sizeof(text) : 1; /* off the loop */
        }
    }
    const struct message_submit_out out = {.params.job = job,
                                           .params.stream = stream,
                                           .params.partial = partial,
                                           .params.normalize = true,
                                           .params.deadline_ms = 60000,
                                           .prompt_count = 3,
                                           .prompts = prompts};
    size_t length = message_encode_submit(frame, sizeof(frame), 7, &out);
    ck_assert_uint_gt(length, 0);
    client_put(&client, frame, length, 0);
    site_turn(&site);
}

/* How each sequence has ended: 0, or the error's code. */
static uint32_t ends(int codes[6], uint32_t *last)
{
    struct frame frame;
    struct error error;
    uint32_t count = 0;
    *last = 0;
    for (; client_next(&client, &frame);) {
        struct message_done done;
        struct message_error failed;
        if (frame.type == FRAME_DONE) {
            ck_assert_int_eq(message_decode_done(&frame, &done, &error), 0);
            ck_assert_uint_lt(done.sequence, 6);
            codes[done.sequence] = 0;
        } else if (frame.type == FRAME_ERROR) {
            ck_assert_int_eq(message_decode_error(&frame, &failed, &error), 0);
            ck_assert_uint_lt(failed.sequence, 6);
            codes[failed.sequence] = failed.error.code;
            ck_assert_ptr_nonnull(strstr(failed.error.text, "prompt 1: "));
        } else {
            continue;
        }
        count++;
        *last += (frame.flags & FRAME_FLAG_LAST) != 0;
    }
    return count;
}

static void check_nothing_left(void)
{
    const struct server *server = &site.world.server;
    ck_assert_uint_eq(server->live_requests, 0);
    ck_assert_uint_eq(server->live_sequences, 0);
    ck_assert_uint_eq(server->load.sequences, 0);
    ck_assert_uint_eq(server->load.tokens, 0);
    ck_assert_uint_eq(server->load.results, 0);
    ck_assert_uint_eq(server->load.input, 0);
}

START_TEST(a_prompt_that_is_too_long_ends_alone)
{
    int codes[6] = {-1, -1, -1, -1, -1, -1};
    uint32_t last;
    submit(_i & 1 ? TEXTS : TOKENS, true, _i & 2, JOB_GENERATE);
    site_finish(&site);
    ck_assert_uint_eq(ends(codes, &last), 6);
    ck_assert_uint_eq(last, 1);
    for (uint32_t i = 0; i < 6; i++)
        ck_assert_int_eq(codes[i], i / 2 == 1 ? ERR_TOO_LARGE : 0);
    check_nothing_left();
}
END_TEST

START_TEST(unless_the_batch_is_to_stand_or_fall_together)
{
    struct frame frame;
    submit(_i & 1 ? TEXTS : TOKENS, false, true, JOB_GENERATE);
    site_finish(&site);
    ck_assert_int_eq(client_error(&client), ERR_TOO_LARGE);
    ck_assert(!client_next(&client, &frame));
    ck_assert_uint_eq(site.world.server.counts.requests_total, 0);
    check_nothing_left();
}
END_TEST

START_TEST(one_that_was_refused_may_be_cancelled_with_the_others_or_lose_its_client)
{
    struct frame frame;
    submit(TOKENS, true, true, JOB_GENERATE);
    ck_assert_uint_eq(site.world.server.live_sequences, 4);
    if (_i == 0) {
        client_control(&client, FRAME_CANCEL, 7, "");
        site_turn(&site);
        site_finish(&site);
        while (client_next(&client, &frame))
            continue;
    } else {
        conn_lost(client.conn, site.world.now_us);
    }
    site_turn(&site);
    check_nothing_left();
}
END_TEST

/* Scores and embeddings have other rooms for their results. */
START_TEST(every_job_may_have_such_prompts)
{
    static _Alignas(8) unsigned char frame[4096];
    static const int32_t tokens[65] = {65};
    const struct message_prompt prompts[2] = {
        {.sampling = sampling_unset(), .tokens = tokens, .token_count = 65},
        {.sampling = sampling_unset(), .tokens = tokens, .token_count = 2}};
    const struct message_submit_out out = {.params.job = _i ? JOB_EMBED : JOB_SCORE,
                                           .params.stream = true,
                                           .params.partial = true,
                                           .params.normalize = true,
                                           .prompt_count = 2,
                                           .prompts = prompts};
    int codes[6] = {0};
    uint32_t last;
    client_put(&client, frame, message_encode_submit(frame, sizeof(frame), 7, &out), 0);
    site_finish(&site);
    site_turn(&site);
    for (uint32_t count = 0; count < 1;) {
        struct frame next;
        struct message_error failed;
        struct error error;
        ck_assert(client_next(&client, &next));
        if (next.type != FRAME_ERROR)
            continue;
        ck_assert_int_eq(message_decode_error(&next, &failed, &error), 0);
        ck_assert_uint_eq(failed.sequence, 0);
        ck_assert_int_eq(failed.error.code, ERR_TOO_LARGE);
        count++;
    }
    ck_assert_uint_eq(ends(codes, &last), 1);
    check_nothing_left();
}
END_TEST

/* What a conversation holds that no template gets, what is none, and one that is right. */
START_TEST(conversations_fail_alone_too)
{
    static _Alignas(8) unsigned char frame[4096];
    static const char source[] = "{% for m in messages %}{{ m.content }}{% endfor %}";
    static const char *const chats[] = {
        "{\"messages\":[{\"role\":\"u\",\"content\":[{\"type\":\"image_url\"}]}]}", "[",
        "{\"messages\":[{\"role\":\"u\",\"content\":\"A\"}]}"};
    static const int codes[] = {ERR_UNSUPPORTED, ERR_BAD_HEAD};
    struct message_prompt prompts[3];
    uint32_t told = 0;
    struct frame next;
    struct error error;
    ck_assert_int_eq(chat_template_load(source, sizeof(source) - 1, &site.model_text.chat, &error),
                     0);
    for (uint32_t i = 0; i < 3; i++) {
        prompts[i] = (struct message_prompt){.sampling = sampling_unset(),
                                             .chat = chats[i],
                                             .chat_length = (uint32_t)strlen(chats[i])};
        prompts[i].sampling.max_tokens = 2;
    }
    const struct message_submit_out out = {.params.job = JOB_GENERATE,
                                           .params.stream = true,
                                           .params.partial = true,
                                           .params.normalize = true,
                                           .prompt_count = 3,
                                           .prompts = prompts};
    client_put(&client, frame, message_encode_submit(frame, sizeof(frame), 7, &out), 0);
    site_turn(&site);
    site_finish(&site);
    site_turn(&site);
    while (client_next(&client, &next)) {
        struct message_error failed;
        told += next.type == FRAME_DONE;
        if (next.type != FRAME_ERROR)
            continue;
        ck_assert_int_eq(message_decode_error(&next, &failed, &error), 0);
        ck_assert_uint_lt(failed.sequence, 2);
        ck_assert_int_eq(failed.error.code, codes[failed.sequence]);
        told += 10;
    }
    ck_assert_uint_eq(told, 21);
    check_nothing_left();
}
END_TEST

Suite *partial_suite(void)
{
    Suite *suite = suite_create("partial");
    TCase *tests = tcase_create("partial");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_loop_test(tests, a_prompt_that_is_too_long_ends_alone, 0, 4);
    tcase_add_loop_test(tests, unless_the_batch_is_to_stand_or_fall_together, 0, 2);
    tcase_add_loop_test(
        tests, one_that_was_refused_may_be_cancelled_with_the_others_or_lose_its_client, 0, 2);
    tcase_add_test(tests, conversations_fail_alone_too);
    tcase_add_loop_test(tests, every_job_may_have_such_prompts, 0, 2);
    suite_add_tcase(suite, tests);
    return suite;
}
