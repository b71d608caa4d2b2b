/* The blocking calls, against a daemon on another thread. */
#include <string.h>

#include "gpu/kernels/step/null_rule.h"
#include "tests/client/client_suites.h"
#include "tests/client/stub.h"
#include "tests/client/tally.h"

#define LONG_MS 20000

static struct tally tally;
static struct stub *stub;
static sluice_client *client;
static sluice_params params;
static int32_t tokens[8] = {5, 6, 7, 8, 9, 10, 11, 12};
static sluice_prompt prompt = {.tokens = tokens, .token_count = 8};
static const char *path;

static void start(const struct stub_options *options)
{
    sluice_error error;
    stub = stub_start(options, &path);
    ck_assert_int_eq(sluice_connect(path, LONG_MS, &client, &error), 0);
    sluice_params_init(&params);
    tokens[0] = 5;
}

static void setup(void)
{
    start(&(struct stub_options){0});
}

static void teardown(void)
{
    sluice_close(client);
    stub_stop(stub);
}

START_TEST(answers_follow_the_rule)
{
    sluice_batch batch;
    sluice_prompt prompts[4];
    params.max_tokens = 20;
    params.ignore_eos = 1;
    params.logprobs = 2;
    tally_batch(&tally, &batch, prompts, &params);
    for (size_t i = 0; i < 4; i++)
        prompts[i] = (sluice_prompt){.tokens = tokens + i, .token_count = 8 - i};
    batch.prompt_count = 4;
    ck_assert_int_eq(sluice_run(client, &batch, LONG_MS), 0);
    ck_assert_int_eq(tally.ends, 4);
    for (size_t i = 0; i < 4; i++) {
        struct tally_seq *seq = &tally.seqs[i];
        ck_assert_uint_eq(seq->token_count, 20);
        ck_assert_uint_eq(seq->logprob_count, 20);
        ck_assert_uint_eq(seq->top_count, 40);
        ck_assert(tally_follows_rule(seq, tokens + i, 8 - i, true));
        ck_assert_int_eq(seq->end.finish, SLUICE_FINISH_LENGTH);
        ck_assert_uint_eq(seq->end.prompt_tokens, 8 - i);
        ck_assert_uint_eq(seq->end.completion_tokens, 20);
    }
}
END_TEST

START_TEST(answers_follow_the_rule_when_they_come_byte_by_byte)
{
    sluice_batch batch;
    teardown();
    start(&(struct stub_options){.split = true});
    params.max_tokens = 4;
    params.ignore_eos = 1;
    tally_batch(&tally, &batch, &prompt, &params);
    ck_assert_int_eq(sluice_run(client, &batch, LONG_MS), 0);
    ck_assert_uint_eq(tally.seqs[0].token_count, 4);
    ck_assert(tally_follows_rule(&tally.seqs[0], tokens, 8, true));
}
END_TEST

START_TEST(scores_follow_the_rule)
{
    sluice_batch batch;
    uint64_t state = NULL_START;
    tally_batch(&tally, &batch, &prompt, NULL);
    batch.job = SLUICE_SCORE;
    ck_assert_int_eq(sluice_run(client, &batch, LONG_MS), 0);
    ck_assert_uint_eq(tally.seqs[0].score_count, 7);
    for (size_t i = 0; i < 7; i++) {
        state = null_state(state, tokens[i]);
        ck_assert_float_eq(tally.seqs[0].scores[i].logprob, null_logprob(state, tokens[i + 1]));
        ck_assert_int_eq(tally.seqs[0].scores[i].top_token, null_top(state, 0));
    }
}
END_TEST

START_TEST(embeddings_follow_the_rule)
{
    sluice_batch batch;
    uint64_t state = NULL_START;
    tally_batch(&tally, &batch, &prompt, NULL);
    batch.job = SLUICE_EMBED;
    batch.pooling = _i ? SLUICE_POOL_ALL : SLUICE_POOL_LAST;
    ck_assert_int_eq(sluice_run(client, &batch, LONG_MS), 0);
    ck_assert_uint_eq(tally.seqs[0].width, NULL_HIDDEN);
    ck_assert_uint_eq(tally.seqs[0].row_count, _i ? 8 : 1);
    for (size_t i = 0; i < 8; i++)
        state = null_state(state, tokens[i]);
    const float *last = tally.seqs[0].rows + (tally.seqs[0].row_count - 1) * NULL_HIDDEN;
    for (uint32_t i = 0; i < NULL_HIDDEN; i++)
        ck_assert_float_eq(last[i], null_hidden(state, i));
}
END_TEST

START_TEST(texts_are_taken_and_given)
{
    sluice_prompt text = {.text = "12+30=", .text_length = 6};
    sluice_batch batch;
    teardown();
    start(&(struct stub_options){.text = true});
    ck_assert_int_eq(sluice_client_info(client)->text, 1);
    params.max_tokens = 5;
    params.ignore_eos = 1;
    tally_batch(&tally, &batch, &text, &params);
    batch.want_text = 1;
    ck_assert_int_eq(sluice_run(client, &batch, LONG_MS), 0);
    ck_assert_uint_eq(tally.seqs[0].text_length, 5);
    ck_assert_int_eq(tally.seqs[0].text[4], 'a' + tally.seqs[0].tokens[4] % 26);
    ck_assert_uint_eq(tally.seqs[0].end.prompt_tokens, 6);
}
END_TEST

START_TEST(a_failed_sequence_leaves_the_others_alone)
{
    const int32_t fails[] = {STUB_FAIL_TOKEN};
    sluice_prompt prompts[2] = {{.tokens = fails, .token_count = 1}, prompt};
    sluice_batch batch;
    params.max_tokens = 3;
    params.ignore_eos = 1;
    tally_batch(&tally, &batch, prompts, &params);
    batch.prompt_count = 2;
    ck_assert_int_eq(sluice_run(client, &batch, LONG_MS), 0);
    ck_assert_int_eq(tally.ends, 2);
    ck_assert_int_eq(tally.seqs[0].end.finish, SLUICE_FINISH_ERROR);
    ck_assert_int_eq(tally.seqs[0].end.error.code, SLUICE_E_DEVICE);
    ck_assert_int_eq(tally.seqs[1].end.finish, SLUICE_FINISH_LENGTH);
}
END_TEST

START_TEST(a_daemon_that_dies_in_the_middle_ends_what_was_open)
{
    sluice_batch batch;
    tokens[0] = STUB_KILL_TOKEN;
    tally_batch(&tally, &batch, &prompt, NULL);
    ck_assert_int_eq(sluice_run(client, &batch, LONG_MS), -SLUICE_E_CLOSED);
    ck_assert_int_eq(tally.ends, 1);
    ck_assert_int_eq(tally.seqs[0].end.error.code, SLUICE_E_CLOSED);
    ck_assert_uint_eq(tally.seqs[0].token_count, 1);
}
END_TEST

START_TEST(a_run_that_takes_too_long_is_cancelled)
{
    sluice_batch batch;
    const char *json;
    tokens[0] = STUB_HANG_TOKEN;
    tally_batch(&tally, &batch, &prompt, NULL);
    ck_assert_int_eq(sluice_run(client, &batch, 5), -SLUICE_E_TIMEOUT);
    ck_assert_int_eq(tally.ends, 1);
    /* What was sent before a question has been seen by the time of its answer. */
    ck_assert_int_eq(sluice_control(client, SLUICE_HEALTH, NULL, LONG_MS, &json), 0);
    ck_assert_uint_eq(atomic_load(&stub_counts(stub)->cancelled), 1);
    ck_assert_int_eq(tally.ends, 1);
}
END_TEST

START_TEST(another_connection_cancels_by_the_daemons_number)
{
    sluice_client *other;
    sluice_error error;
    sluice_batch batch;
    uint64_t id, number = 0;
    tokens[0] = STUB_HANG_TOKEN;
    tally_batch(&tally, &batch, &prompt, NULL);
    ck_assert_int_eq(sluice_submit(client, &batch, &id), 0);
    while (number == 0) {
        ck_assert_int_eq(sluice_wait(client, LONG_MS), 0);
        number = sluice_request_number(client, id);
    }
    ck_assert_uint_eq(number, STUB_REQUEST_FIRST);
    ck_assert_int_eq(sluice_connect(path, LONG_MS, &other, &error), 0);
    ck_assert_int_eq(sluice_cancel_request(other, number + 1, LONG_MS), -SLUICE_E_NOT_FOUND);
    ck_assert_int_eq(sluice_cancel_request(other, 0, LONG_MS), -SLUICE_E_NOT_FOUND);
    ck_assert_int_eq(sluice_cancel_request(other, number, LONG_MS), 0);
    while (tally.ends == 0)
        ck_assert_int_eq(sluice_wait(client, LONG_MS), 0);
    ck_assert_int_eq(tally.seqs[0].end.finish, SLUICE_FINISH_CANCELLED);
    sluice_close(other);
}
END_TEST

START_TEST(questions_are_answered_while_work_is_open)
{
    sluice_batch batch;
    const char *json;
    tokens[0] = STUB_HANG_TOKEN;
    tally_batch(&tally, &batch, &prompt, NULL);
    ck_assert_int_eq(sluice_submit(client, &batch, NULL), 0);
    ck_assert_int_eq(sluice_control(client, SLUICE_HEALTH, NULL, LONG_MS, &json), 0);
    ck_assert_str_eq(json, "{\"status\":\"ok\",\"ready\":true}");
    ck_assert_int_eq(sluice_control(client, SLUICE_MODEL, NULL, LONG_MS, &json), 0);
    ck_assert_ptr_nonnull(strstr(json, "synthetic:null"));
    ck_assert_int_eq(sluice_control(client, 99, NULL, LONG_MS, &json), -SLUICE_E_USAGE);
    ck_assert_uint_eq(sluice_open_sequences(client), 1);
}
END_TEST

START_TEST(nothing_to_hear_is_a_timeout)
{
    ck_assert_int_eq(sluice_wait(client, 5), -SLUICE_E_TIMEOUT);
    ck_assert_int_eq(sluice_client_error(client)->code, SLUICE_E_TIMEOUT);
}
END_TEST

START_TEST(a_draining_daemon_refuses_until_it_resumes)
{
    sluice_batch batch;
    const char *json;
    params.max_tokens = 2;
    tally_batch(&tally, &batch, &prompt, &params);
    ck_assert_int_eq(sluice_control(client, SLUICE_DRAIN, NULL, LONG_MS, &json), 0);
    ck_assert_int_eq(sluice_run(client, &batch, LONG_MS), 0);
    ck_assert_int_eq(tally.seqs[0].end.error.code, SLUICE_E_DRAINING);
    ck_assert_int_eq(sluice_control(client, SLUICE_RESUME, NULL, LONG_MS, &json), 0);
    tally_batch(&tally, &batch, &prompt, &params);
    ck_assert_int_eq(sluice_run(client, &batch, LONG_MS), 0);
    ck_assert_int_ne(tally.seqs[0].end.finish, SLUICE_FINISH_ERROR);
}
END_TEST

START_TEST(texts_become_tokens_and_tokens_texts)
{
    const int32_t *ids;
    const char *text;
    size_t count;
    sluice_prompt asked = {.text = "caf\xc3\xa9", .text_length = 5};
    sluice_close(client);
    stub_stop(stub);
    start(&(struct stub_options){.text = true, .split = _i == 1});
    ck_assert_int_eq(sluice_tokenize(client, &asked, 1, LONG_MS, &ids, &count), 0);
    ck_assert_uint_eq(count, 5);
    ck_assert(ids[0] == 'c' && ids[3] == 0xc3 && ids[4] == 0xa9);
    int32_t kept[5];
    memcpy(kept, ids, sizeof(kept));
    ck_assert_int_eq(sluice_detokenize(client, kept, 5, 1, LONG_MS, &text, &count), 0);
    ck_assert_uint_eq(count, 5);
    ck_assert_str_eq(text, asked.text);
    ck_assert_int_eq(sluice_detokenize(client, kept, 0, 0, LONG_MS, &text, &count), 0);
    ck_assert_uint_eq(count, 0);
    ck_assert_str_eq(text, "");
    asked = (sluice_prompt){.chat = "{}", .chat_length = 2};
    ck_assert_int_eq(sluice_tokenize(client, &asked, 1, LONG_MS, &ids, &count), 0);
    ck_assert(count == 2 && ids[1] == '}');
}
END_TEST

START_TEST(what_cannot_become_tokens_is_told)
{
    const int32_t *ids;
    const char *text;
    size_t count = 77;
    const sluice_prompt bad = {.text = "\xff", .text_length = 1};
    const sluice_prompt good = {.text = "a", .text_length = 1}, nothing = {0};
    int rc = sluice_tokenize(client, &bad, 1, LONG_MS, &ids, &count);
    ck_assert_int_eq(rc, -SLUICE_E_BAD_VALUE);
    rc = sluice_tokenize(client, &good, 1, LONG_MS, &ids, &count);
    ck_assert_int_eq(rc, -SLUICE_E_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(sluice_client_error(client)->text, "no tokenizer"));
    ck_assert_int_eq(sluice_tokenize(client, &prompt, 1, LONG_MS, &ids, &count), -SLUICE_E_USAGE);
    rc = sluice_tokenize(client, &nothing, 1, LONG_MS, &ids, &count);
    ck_assert_int_eq(rc, -SLUICE_E_USAGE);
    tokens[0] = 256;
    rc = sluice_detokenize(client, tokens, 1, 1, LONG_MS, &text, &count);
    ck_assert_int_eq(rc, -SLUICE_E_BAD_TOKEN);
    rc = sluice_detokenize(client, tokens, (size_t)1 << 20, 1, LONG_MS, &text, &count);
    ck_assert_int_eq(rc, -SLUICE_E_TOO_LARGE);
    ck_assert_uint_eq(count, 77);
    const char *json;
    ck_assert_int_eq(sluice_control(client, SLUICE_HEALTH, NULL, LONG_MS, &json), 0);
}
END_TEST

START_TEST(conversations_are_prompts_of_their_own_kind)
{
    static const char chat[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}";
    sluice_batch batch;
    sluice_prompt prompts[2] = {{.chat = chat, .chat_length = sizeof(chat) - 1},
                                {.chat = "{}", .chat_length = 2}};
    int32_t bytes[sizeof(chat)];
    params.max_tokens = 5;
    params.ignore_eos = 1;
    tally_batch(&tally, &batch, prompts, &params);
    batch.prompt_count = 2;
    ck_assert_int_eq(sluice_run(client, &batch, LONG_MS), 0);
    ck_assert_int_eq(tally.ends, 2);
    for (size_t i = 0; i < sizeof(chat) - 1; i++)
        bytes[i] = (unsigned char)chat[i];
    ck_assert(tally_follows_rule(&tally.seqs[0], bytes, sizeof(chat) - 1, true));
    ck_assert_uint_eq(tally.seqs[1].end.prompt_tokens, 2);
    prompts[1] = (sluice_prompt){.text = "a", .text_length = 1};
    ck_assert_int_eq(sluice_submit(client, &batch, NULL), -SLUICE_E_USAGE);
    prompts[1] = (sluice_prompt){.chat = "", .chat_length = 0};
    ck_assert_int_eq(sluice_submit(client, &batch, NULL), -SLUICE_E_EMPTY);
}
END_TEST

Suite *blocking_suite(void)
{
    Suite *suite = suite_create("blocking");
    TCase *tcase = tcase_create("stub");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, answers_follow_the_rule);
    tcase_add_test(tcase, answers_follow_the_rule_when_they_come_byte_by_byte);
    tcase_add_test(tcase, scores_follow_the_rule);
    tcase_add_loop_test(tcase, embeddings_follow_the_rule, 0, 2);
    tcase_add_test(tcase, texts_are_taken_and_given);
    tcase_add_loop_test(tcase, texts_become_tokens_and_tokens_texts, 0, 2);
    tcase_add_test(tcase, what_cannot_become_tokens_is_told);
    tcase_add_test(tcase, conversations_are_prompts_of_their_own_kind);
    tcase_add_test(tcase, a_failed_sequence_leaves_the_others_alone);
    tcase_add_test(tcase, a_daemon_that_dies_in_the_middle_ends_what_was_open);
    tcase_add_test(tcase, a_run_that_takes_too_long_is_cancelled);
    tcase_add_test(tcase, another_connection_cancels_by_the_daemons_number);
    tcase_add_test(tcase, questions_are_answered_while_work_is_open);
    tcase_add_test(tcase, nothing_to_hear_is_a_timeout);
    tcase_add_test(tcase, a_draining_daemon_refuses_until_it_resumes);
    suite_add_tcase(suite, tcase);
    return suite;
}
