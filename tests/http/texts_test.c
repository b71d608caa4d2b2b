/* Texts in the daemon's own protocol. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/http/caller.h"
#include "tests/http/http_suites.h"

static struct site site;
static struct client client;

static void set_up(void)
{
    site_make(&site);
    client_open(&site.world, &client, 5);
}

static void tear_down(void)
{
    client_free(&client);
    site_free(&site);
}

/* A SUBMIT of texts; stop NULL: none. */
static void submit(uint64_t id, const char *text, const char *stop, uint32_t max_tokens,
                   bool stream)
{
    static unsigned char frame[1 << 20];
    struct message_prompt prompt = {.sampling = sampling_unset(),
                                    .text = text,
                                    .text_length = strlen(text),
                                    .stop_count = stop ? 1 : 0};
    prompt.sampling.max_tokens = max_tokens;
    prompt.sampling.n = 1;
    if (stop) {
        prompt.stop[0] = stop;
        prompt.stop_length[0] = (uint32_t)strlen(stop);
    }
    const struct message_submit_out out = {.params.job = JOB_GENERATE,
                                           .params.stream = stream,
                                           .params.want_text = true,
                                           .params.normalize = true,
                                           .prompt_count = 1,
                                           .prompts = &prompt};
    size_t length = message_encode_submit(frame, sizeof(frame), id, &out);
    ck_assert_uint_gt(length, 0);
    client_put(&client, frame, length, 0);
    world_turn(&site.world);
}

/* All TOKENS that came up to the DONE: their text, and how it ended. */
static struct message_done finish(char *text, uint32_t *tokens)
{
    struct message_done done = {0};
    struct frame frame;
    struct error error;
    *text = '\0';
    *tokens = 0;
    world_turn(&site.world);
    site_finish(&site);
    while (client_next(&client, &frame)) {
        struct message_tokens record;
        size_t at = 0;
        while (frame.type == FRAME_TOKENS &&
               message_next_tokens(&frame, &at, &record, &error) == 0) {
            strncat(text, record.text, record.text_length);
            *tokens += record.count;
        }
        if (frame.type == FRAME_DONE)
            ck_assert_int_eq(message_decode_done(&frame, &done, &error), 0);
    }
    return done;
}

struct talk {
    const char *text, *stop;
    uint32_t max_tokens;
    const char *answer;
    uint32_t tokens;
    enum finish finish;
};

static const struct talk talks[] = {
    {"A", NULL, 4, "BCDE", 4, FINISH_LENGTH},  {"A", "E", 9, "BCD", 4, FINISH_STOP},
    {"A", "CD", 9, "B", 3, FINISH_STOP},       {"A", "B", 9, "", 1, FINISH_STOP},
    {"A", "Ex", 5, "BCDEF", 5, FINISH_LENGTH}, {"A", "EFx", 5, "BCDEF", 5, FINISH_LENGTH},
};

START_TEST(a_text_is_answered_by_text)
{
    const struct talk *talk = &talks[_i / 2];
    char text[256];
    uint32_t tokens;
    submit(1, talk->text, talk->stop, talk->max_tokens, _i % 2);
    struct message_done done = finish(text, &tokens);
    ck_assert_str_eq(text, talk->answer);
    ck_assert_uint_eq(tokens, talk->tokens);
    ck_assert_int_eq(done.finish, talk->finish);
    ck_assert_uint_eq(done.completion_tokens, talk->tokens);
}
END_TEST

START_TEST(a_long_text_leaves_the_loop_and_may_be_cancelled_there)
{
    static char text[10001];
    char answer[256];
    uint32_t tokens;
    site.world.server.models[0].context_max = 16384;
    memset(text, 'A', 10000);
    site.hold = true;
    submit(1, text, NULL, 2, true);
    ck_assert_uint_eq(site.held_count, 1);
    /* Its number is taken, and the connection goes on. */
    submit(1, "A", NULL, 2, true);
    ck_assert_int_eq(client_error(&client), ERR_BAD_STATE);
    if (_i == 1)
        client_control(&client, FRAME_CANCEL, 1, "");
    site_work(&site);
    world_turn(&site.world);
    if (_i == 1) { /* nothing was begun of it */
        ck_assert_int_eq(client_error(&client), ERR_CANCELLED);
        ck_assert_uint_eq(site.world.server.counts.requests_total, 0);
        return;
    }
    struct message_done done = finish(answer, &tokens);
    ck_assert_int_eq(done.finish, FINISH_LENGTH);
    ck_assert_str_eq(answer, "BC");
}
END_TEST

START_TEST(a_client_may_go_while_its_text_is_read)
{
    static char text[10001];
    memset(text, 'A', 10000);
    site.hold = true;
    submit(1, text, NULL, 2, true);
    conn_lost(client.conn, site.world.now_us);
    world_turn(&site.world);
    site_work(&site);
    ck_assert_uint_eq(site.world.server.live_requests, 0);
    ck_assert_uint_eq(site.world.server.load.input, 0);
}
END_TEST

START_TEST(without_a_tokenizer_texts_are_refused_by_name)
{
    static struct model_text none;
    ck_assert_int_eq(model_text_load(&none, "/nonexistent", NULL), 0);
    site.world.server.models[0].text = &none;
    submit(1, "A", NULL, 2, true);
    ck_assert_int_eq(client_error(&client), ERR_UNSUPPORTED);
    model_text_free(&none);
    site.world.server.models[0].text = &site.model_text;
}
END_TEST

START_TEST(a_text_over_the_context_is_refused)
{
    site.world.server.models[0].context_max = 8;
    submit(1, "123456789", NULL, 1, true);
    ck_assert_int_eq(client_error(&client), ERR_TOO_LARGE);
}
END_TEST

/* Characters of several bytes come whole, whatever the pieces. */
START_TEST(no_character_is_cut)
{
    char answer[256];
    uint32_t tokens;
    /* By the rule, the bytes c3 c4 ...: each is the start of a character that is not finished. */
    submit(1, "\xc3\x83", NULL, 3, true);
    finish(answer, &tokens);
    ck_assert_str_eq(answer, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
}
END_TEST

Suite *texts_suite(void)
{
    Suite *suite = suite_create("texts");
    TCase *tests = tcase_create("texts");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_loop_test(tests, a_text_is_answered_by_text, 0, 2 * sizeof(talks) / sizeof(talks[0]));
    tcase_add_loop_test(tests, a_long_text_leaves_the_loop_and_may_be_cancelled_there, 0, 2);
    tcase_add_test(tests, a_client_may_go_while_its_text_is_read);
    tcase_add_test(tests, without_a_tokenizer_texts_are_refused_by_name);
    tcase_add_test(tests, a_text_over_the_context_is_refused);
    tcase_add_test(tests, no_character_is_cut);
    suite_add_tcase(suite, tests);
    return suite;
}
