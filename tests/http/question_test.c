/* TOKENIZE, DETOKENIZE and conversations in the daemon's own protocol. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/text/template/chat.h"
#include "tests/http/caller.h"
#include "tests/http/http_suites.h"

#define WAITING 16 /* TOKENIZE of one connection */

static struct site site;
static struct client client;
static unsigned char bytes[1 << 20];

static void set_up(void)
{
    static const char source[] = "{% for m in messages %}{{ m.content }}{% endfor %}"
                                 "{% if add_generation_prompt %}>{% endif %}";
    struct error error;
    site_make(&site);
    client_open(&site.world, &client, 5);
    ck_assert_msg(chat_template_load(source, sizeof(source) - 1, &site.model_text.chat, &error) ==
                      0,
                  "%s", error.text);
}

static void tear_down(void)
{
    client_free(&client);
    site_free(&site);
}

static void tokenize(uint64_t id, const char *text, size_t length, bool chat)
{
    const struct message_tokenize question = {
        .text = text, .length = (uint32_t)length, .chat = chat, .special = true};
    size_t used = message_encode_tokenize(bytes, sizeof(bytes), id, &question);
    ck_assert_uint_gt(used, 0);
    client_put(&client, bytes, used, 0);
    site_turn(&site);
}

static void detokenize(uint64_t id, const int32_t *tokens, uint32_t count)
{
    const struct message_detokenize question = {.tokens = tokens, .count = count, .special = true};
    size_t used = message_encode_detokenize(bytes, sizeof(bytes), id, &question);
    ck_assert_uint_gt(used, 0);
    client_put(&client, bytes, used, 0);
    site_turn(&site);
}

/* The next answer is these tokens, the bytes of the text. */
static void check_tokens(uint64_t id, const char *text)
{
    struct frame frame;
    struct error error;
    const int32_t *tokens;
    uint32_t count;
    ck_assert(client_next(&client, &frame));
    ck_assert_int_eq(frame.type, FRAME_TOKENIZE);
    ck_assert_uint_eq(frame.flags, FRAME_FLAG_LAST | FRAME_FLAG_ANSWER);
    ck_assert_uint_eq(frame.id, id);
    ck_assert_int_eq(message_decode_tokenized(&frame, &tokens, &count, &error), 0);
    ck_assert_uint_eq(count, strlen(text));
    for (uint32_t i = 0; i < count; i++)
        ck_assert_int_eq(tokens[i], (unsigned char)text[i]);
}

#define CHAT "{\"messages\":[{\"role\":\"user\",\"content\":\"A\"}]}"

START_TEST(texts_conversations_and_tokens_are_answered_at_once)
{
    static const int32_t hello[] = {'c', 0xc3, 0xa9, 256};
    struct frame frame;
    struct error error;
    const char *text;
    uint32_t length;
    tokenize(3, "caf\xc3\xa9", 5, false);
    check_tokens(3, "caf\xc3\xa9");
    tokenize(4, CHAT, strlen(CHAT), true);
    check_tokens(4, "A>");
    detokenize(5, hello, 4);
    ck_assert(client_next(&client, &frame));
    ck_assert_int_eq(frame.type, FRAME_DETOKENIZE);
    ck_assert_int_eq(message_decode_detokenized(&frame, &text, &length, &error), 0);
    ck_assert_uint_eq(length, 10);
    ck_assert_mem_eq(text, "c\xc3\xa9<|end|>", 10);
}
END_TEST

START_TEST(long_texts_and_conversations_are_answered_when_they_are_read)
{
    static char text[10001];
    site.world.server.models[0].context_max = 16384;
    memset(text, 'A', 10000);
    site.hold = true;
    tokenize(3, text, 10000, false);
    tokenize(4, CHAT, strlen(CHAT), true);
    tokenize(5, "at once", 7, false);
    ck_assert_uint_eq(site.held_count, 2);
    ck_assert_uint_ge(site.world.server.load.input, 10000);
    memset(bytes, 0, sizeof(bytes)); /* the frames are gone */
    check_tokens(5, "at once");
    site_work(&site);
    world_turn(&site.world);
    check_tokens(3, text);
    check_tokens(4, "A>");
    ck_assert_uint_eq(site.world.server.load.input, 0);
}
END_TEST

START_TEST(a_client_may_go_while_its_questions_are_read)
{
    site.hold = true;
    for (uint64_t id = 1; id <= 3; id++)
        tokenize(id, CHAT, strlen(CHAT), true);
    conn_lost(client.conn, site.world.now_us);
    world_turn(&site.world);
    site_work(&site);
    ck_assert_uint_eq(site.world.server.load.input, 0);
    ck_assert_uint_eq(site.world.server.encodings, 0);
}
END_TEST

START_TEST(a_connection_has_so_many_questions_and_no_more)
{
    site.hold = true;
    for (uint64_t id = 1; id <= WAITING; id++)
        tokenize(id, CHAT, strlen(CHAT), true);
    tokenize(99, CHAT, strlen(CHAT), true);
    ck_assert_int_eq(client_error(&client), ERR_BUSY);
    site_work(&site);
    world_turn(&site.world);
    for (uint64_t id = 1; id <= WAITING; id++)
        check_tokens(id, "A>");
    site.hold = false;
    tokenize(100, CHAT, strlen(CHAT), true);
    check_tokens(100, "A>");
}
END_TEST

START_TEST(an_answer_that_the_connection_can_never_hold_is_refused)
{
    static char text[40001];
    site.world.server.models[0].context_max = 1 << 16;
    world_set(&site.world, "output-max", "64KiB");
    memset(text, 'A', 40000);
    tokenize(3, text, 40000, false);
    ck_assert_int_eq(client_error(&client), ERR_TOO_LARGE);
    tokenize(4, "A", 1, false);
    check_tokens(4, "A");
}
END_TEST

START_TEST(what_cannot_be_answered_is_refused_by_name)
{
    static struct model_text none;
    static const int32_t nine[9] = {65};
    tokenize(0, "A", 1, false);
    ck_assert_int_eq(client_error(&client), ERR_BAD_FRAME);
    site.world.server.models[0].context_max = 8;
    tokenize(1, "123456789", 9, false);
    ck_assert_int_eq(client_error(&client), ERR_TOO_LARGE);
    detokenize(1, nine, 9);
    ck_assert_int_eq(client_error(&client), ERR_TOO_LARGE);
    chat_template_free(site.model_text.chat);
    site.model_text.chat = NULL;
    tokenize(1, CHAT, strlen(CHAT), true);
    ck_assert_int_eq(client_error(&client), ERR_UNSUPPORTED);
    ck_assert_int_eq(model_text_load(&none, "/nonexistent", NULL), 0);
    site.world.server.models[0].text = &none;
    tokenize(1, "A", 1, false);
    ck_assert_int_eq(client_error(&client), ERR_UNSUPPORTED);
    detokenize(1, nine, 1);
    ck_assert_int_eq(client_error(&client), ERR_UNSUPPORTED);
    model_text_free(&none);
    site.world.server.models[0].text = &site.model_text;
}
END_TEST

/* ---- SUBMIT of conversations -------------------------------------------------------------------
 */

static void submit(uint64_t id, const char *first, const char *second)
{
    struct message_prompt prompts[2] = {
        {.sampling = sampling_unset(), .chat = first, .chat_length = (uint32_t)strlen(first)}};
    prompts[0].sampling.max_tokens = 3;
    prompts[0].sampling.n = 1;
    prompts[1] = prompts[0];
    prompts[1].chat = second;
    prompts[1].chat_length = second ? (uint32_t)strlen(second) : 0;
    const struct message_submit_out out = {.params.job = JOB_GENERATE,
                                           .params.want_text = true,
                                           .params.normalize = true,
                                           .prompt_count = second ? 2 : 1,
                                           .prompts = prompts};
    size_t length = message_encode_submit(bytes, sizeof(bytes), id, &out);
    ck_assert_uint_gt(length, 0);
    client_put(&client, bytes, length, 0);
    memset(bytes, 0, sizeof(bytes));
    site_turn(&site);
}

START_TEST(a_batch_of_conversations_is_answered)
{
    static const char other[] = "{\"messages\":[{\"role\":\"u\",\"content\":\"Q\"}]}";
    char texts[2][64] = {"", ""};
    struct frame frame;
    struct error error;
    site.hold = _i;
    submit(7, CHAT, other);
    ck_assert_uint_eq(site.held_count, (uint32_t)_i);
    site_work(&site);
    world_turn(&site.world);
    site_finish(&site);
    while (client_next(&client, &frame)) {
        struct message_tokens record;
        size_t at = 0;
        ck_assert_int_ne(frame.type, FRAME_ERROR);
        while (frame.type == FRAME_TOKENS && message_next_tokens(&frame, &at, &record, &error) == 0)
            strncat(texts[record.sequence], record.text, record.text_length);
    }
    /* By the rule: from the first token on. */
    ck_assert_str_eq(texts[0], "BCD");
    ck_assert_str_eq(texts[1], "RST");
}
END_TEST

START_TEST(a_bad_conversation_fails_its_batch_and_is_named)
{
    struct frame frame;
    struct error error;
    struct message_error message;
    submit(7, CHAT, "{\"messages\":[]}");
    ck_assert(client_find(&client, FRAME_ERROR, &frame));
    ck_assert_int_eq(message_decode_error(&frame, &message, &error), 0);
    ck_assert_int_eq(message.error.code, ERR_BAD_VALUE);
    ck_assert_str_eq(message.error.text, "prompt 1: messages must be a list of messages");
    ck_assert_uint_eq(site.world.server.live_requests, 0);
    chat_template_free(site.model_text.chat);
    site.model_text.chat = NULL;
    submit(8, CHAT, NULL);
    ck_assert_int_eq(client_error(&client), ERR_UNSUPPORTED);
}
END_TEST

START_TEST(a_conversation_may_be_cancelled_and_left_while_it_is_read)
{
    struct frame frame;
    struct error error;
    struct message_error message;
    site.hold = true;
    submit(7, CHAT, NULL);
    submit(8, CHAT, NULL);
    client_control(&client, FRAME_CANCEL, 7, "");
    if (_i == 1) {
        conn_lost(client.conn, site.world.now_us);
        world_turn(&site.world);
    }
    site_work(&site);
    world_turn(&site.world);
    site_finish(&site);
    ck_assert_uint_eq(site.world.server.live_requests, 0);
    ck_assert_uint_eq(site.world.server.load.input, 0);
    if (_i == 1)
        return;
    ck_assert(client_find(&client, FRAME_ERROR, &frame));
    ck_assert_int_eq(message_decode_error(&frame, &message, &error), 0);
    ck_assert_int_eq(message.error.code, ERR_CANCELLED);
    ck_assert_uint_eq(frame.id, 7);
    ck_assert(client_find(&client, FRAME_DONE, &frame));
    ck_assert_uint_eq(frame.id, 8);
}
END_TEST

Suite *question_suite(void)
{
    Suite *suite = suite_create("question");
    TCase *tests = tcase_create("question");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_test(tests, texts_conversations_and_tokens_are_answered_at_once);
    tcase_add_test(tests, long_texts_and_conversations_are_answered_when_they_are_read);
    tcase_add_test(tests, a_client_may_go_while_its_questions_are_read);
    tcase_add_test(tests, a_connection_has_so_many_questions_and_no_more);
    tcase_add_test(tests, an_answer_that_the_connection_can_never_hold_is_refused);
    tcase_add_test(tests, what_cannot_be_answered_is_refused_by_name);
    tcase_add_loop_test(tests, a_batch_of_conversations_is_answered, 0, 2);
    tcase_add_test(tests, a_bad_conversation_fails_its_batch_and_is_named);
    tcase_add_loop_test(tests, a_conversation_may_be_cancelled_and_left_while_it_is_read, 0, 2);
    suite_add_tcase(suite, tests);
    return suite;
}
