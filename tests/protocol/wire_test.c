/* Every example of wire.md: its values as the page says them, and the same bytes when encoded. */
#include <stdio.h>
#include <string.h>

#include "protocol/message_job.h"
#include "tests/protocol/protocol_suites.h"
#include "tests/protocol/wire_page.h"

static unsigned char out[WIRE_EXAMPLE_SIZE_MAX];
static struct error error;

static struct frame frame_named(const char *name, uint8_t type, uint16_t flags, uint64_t id)
{
    const struct wire_example *example = wire_named(name);
    struct frame frame;
    size_t used = 0;
    ck_assert_int_eq(
        frame_decode(example->bytes, example->length, WIRE_EXAMPLE_SIZE_MAX, &frame, &used, &error),
        FRAME_OK);
    ck_assert_uint_eq(used, example->length);
    ck_assert_uint_eq(frame.type, type);
    ck_assert_uint_eq(frame.flags, flags);
    ck_assert_uint_eq(frame.id, id);
    return frame;
}

static void assert_bytes(const char *name, size_t length)
{
    const struct wire_example *example = wire_named(name);
    ck_assert_uint_eq(length, example->length);
    ck_assert_mem_eq(out, example->bytes, length);
}

START_TEST(hello_stands_on_the_page)
{
    struct frame frame = frame_named("hello", FRAME_HELLO, 0, 0);
    struct message_hello hello;
    ck_assert_int_eq(message_decode_hello(&frame, &hello, &error), 0);
    ck_assert_uint_eq(hello.version_min, 1);
    ck_assert_uint_eq(hello.version_max, 1);
    ck_assert_str_eq(hello.client, "sluice 0.1.0");
    assert_bytes("hello", message_encode_hello(out, sizeof(out), &hello));
}
END_TEST

START_TEST(welcome_stands_on_the_page)
{
    struct frame frame = frame_named("welcome", FRAME_WELCOME, FRAME_FLAG_ANSWER, 0);
    struct message_welcome welcome;
    ck_assert_int_eq(message_decode_welcome(&frame, &welcome, &error), 0);
    ck_assert_uint_eq(welcome.version, 1);
    ck_assert_uint_eq(welcome.frame_max, 16777216);
    ck_assert_uint_eq(welcome.batch_max, 256);
    ck_assert_uint_eq(welcome.context_max, 4096);
    ck_assert_uint_eq(welcome.vocabulary, 32000);
    ck_assert_uint_eq(welcome.logprobs_max, 20);
    ck_assert_uint_eq(welcome.n_max, 16);
    ck_assert(welcome.text);
    ck_assert_str_eq(welcome.model, "demo");
    ck_assert_str_eq(welcome.device, "cpu");
    assert_bytes("welcome", message_encode_welcome(out, sizeof(out), &welcome));
}
END_TEST

static const struct message_limits limits = {.batch_max = 16,
                                             .n_max = 16,
                                             .logprobs_max = 20,
                                             .stop_max = 4,
                                             .json_depth_max = 6,
                                             .vocabulary = 32000};

/* Decodes an example whole; what was not given shows as sampling_unset(). */
static void decode_submit(const char *name, uint64_t id, struct message_submit *submit,
                          struct message_prompt *prompts)
{
    struct frame frame = frame_named(name, FRAME_SUBMIT, 0, id);
    struct sampling defaults = sampling_unset();
    defaults.n = 1;
    defaults.min_tokens = 0;
    ck_assert_int_eq(message_decode_submit(&frame, &limits, &defaults, submit, &error), 0);
    for (uint32_t i = 0; i < submit->prompt_count; i++) {
        ck_assert_int_eq(message_submit_prompt(submit, i, &prompts[i], &error), 0);
        ck_assert_uint_eq(prompts[i].sampling.n, 1);
        prompts[i].sampling.n = sampling_unset().n;
        prompts[i].sampling.min_tokens = sampling_unset().min_tokens;
    }
}

static void assert_encodes_again(const char *name, uint64_t id, const struct message_submit *submit,
                                 const struct message_prompt *prompts)
{
    struct message_submit_out again = {
        .params = submit->params, .prompt_count = submit->prompt_count, .prompts = prompts};
    assert_bytes(name, message_encode_submit(out, sizeof(out), id, &again));
    ck_assert_uint_eq(message_submit_size_bound(&again), wire_named(name)->length);
}

START_TEST(submit_of_tokens_stands_on_the_page)
{
    static const int32_t first[] = {1, 2, 3}, second[] = {10, 11};
    struct message_submit submit;
    struct message_prompt prompts[2];
    decode_submit("submit", 7, &submit, prompts);
    ck_assert_int_eq(submit.params.job, JOB_GENERATE);
    ck_assert_int_eq(submit.params.priority, 2);
    ck_assert_uint_eq(submit.params.deadline_ms, 5000);
    ck_assert(submit.params.stream && !submit.params.want_text);
    ck_assert_uint_eq(submit.prompt_count, 2);
    ck_assert_uint_eq(prompts[0].token_count, 3);
    ck_assert_mem_eq(prompts[0].tokens, first, sizeof(first));
    ck_assert_uint_eq(prompts[1].token_count, 2);
    ck_assert_mem_eq(prompts[1].tokens, second, sizeof(second));
    for (int i = 0; i < 2; i++) {
        ck_assert_ptr_null(prompts[i].text);
        ck_assert_uint_eq(prompts[i].sampling.max_tokens, 16);
        ck_assert(prompts[i].sampling.sampler.temperature == 0);
    }
    assert_encodes_again("submit", 7, &submit, prompts);
    message_submit_free(&submit);
}
END_TEST

START_TEST(submit_of_texts_stands_on_the_page)
{
    struct message_submit submit;
    struct message_prompt prompts[2];
    decode_submit("submit_texts", 8, &submit, prompts);
    ck_assert_int_eq(submit.params.job, JOB_GENERATE);
    ck_assert(!submit.params.stream && submit.params.want_text);
    ck_assert_uint_eq(submit.prompt_count, 2);
    ck_assert_str_eq(prompts[0].text, "12+30=");
    ck_assert_uint_eq(prompts[0].text_length, 6);
    ck_assert_ptr_null(prompts[0].tokens);
    ck_assert_uint_eq(prompts[0].sampling.max_tokens, 4);
    ck_assert(!prompts[0].sampling.seed_given);
    ck_assert_uint_eq(prompts[0].stop_count, 0);
    ck_assert_str_eq(prompts[1].text, "caf\xc3\xa9");
    ck_assert_uint_eq(prompts[1].sampling.max_tokens, 8);
    ck_assert(prompts[1].sampling.sampler.temperature == 0.5f);
    ck_assert(prompts[1].sampling.seed_given && prompts[1].sampling.seed == 42);
    ck_assert_uint_eq(prompts[1].stop_count, 1);
    ck_assert_uint_eq(prompts[1].stop_length[0], 1);
    ck_assert_str_eq(prompts[1].stop[0], "\n");
    assert_encodes_again("submit_texts", 8, &submit, prompts);
    message_submit_free(&submit);
}
END_TEST

START_TEST(submit_of_chats_stands_on_the_page)
{
    struct message_submit submit;
    struct message_prompt prompt;
    decode_submit("submit_chats", 10, &submit, &prompt);
    ck_assert_ptr_null(prompt.text);
    ck_assert_ptr_null(prompt.tokens);
    ck_assert_uint_eq(prompt.chat_length, 49);
    ck_assert_mem_eq(prompt.chat + 12, "[{\"role\":", 9);
    ck_assert_int_eq((int)json_number(message_submit_chats(&submit)), 49);
    assert_encodes_again("submit_chats", 10, &submit, &prompt);
    message_submit_free(&submit);
}
END_TEST

START_TEST(submit_to_embed_stands_on_the_page)
{
    struct message_submit submit;
    struct message_prompt prompt;
    decode_submit("submit_embed", 9, &submit, &prompt);
    ck_assert_int_eq(submit.params.job, JOB_EMBED);
    ck_assert_int_eq(submit.params.pooling, POOLING_MEAN);
    ck_assert(submit.params.normalize);
    ck_assert_uint_eq(prompt.token_count, 3);
    assert_encodes_again("submit_embed", 9, &submit, &prompt);
    message_submit_free(&submit);
}
END_TEST

START_TEST(accept_stands_on_the_page)
{
    struct frame frame = frame_named("accept", FRAME_ACCEPT, 0, 7);
    uint64_t request = 0;
    ck_assert_int_eq(message_decode_accept(&frame, &request, &error), 0);
    ck_assert_uint_eq(request, 1001);
    assert_bytes("accept", message_encode_accept(out, sizeof(out), 7, request));
}
END_TEST

START_TEST(tokens_stands_on_the_page)
{
    struct frame frame = frame_named("tokens", FRAME_TOKENS, 0, 7);
    struct message_tokens record;
    size_t offset = 0, written = FRAME_HEADER_SIZE;
    ck_assert_int_eq(message_next_tokens(&frame, &offset, &record, &error), 0);
    ck_assert_uint_eq(record.sequence, 0);
    ck_assert_uint_eq(record.count, 2);
    ck_assert_uint_eq(record.flags, 0);
    ck_assert_int_eq(record.tokens[0], 17);
    ck_assert_int_eq(record.tokens[1], 18);
    written += message_put_tokens(out + written, sizeof(out) - written, &record);
    ck_assert_int_eq(message_next_tokens(&frame, &offset, &record, &error), 0);
    ck_assert_uint_eq(record.sequence, 1);
    ck_assert_uint_eq(record.count, 1);
    ck_assert_uint_eq(record.flags, TOKENS_LOGPROBS | TOKENS_TOP | TOKENS_TEXT);
    ck_assert_int_eq(record.tokens[0], 17);
    ck_assert(record.logprobs[0] == -0.5f);
    ck_assert_uint_eq(record.top_count, 2);
    ck_assert(record.top[0].token == 17 && record.top[0].logprob == -0.5f);
    ck_assert(record.top[1].token == 4 && record.top[1].logprob == -1.5f);
    ck_assert_uint_eq(record.text_length, 2);
    ck_assert_mem_eq(record.text, "42", 2);
    ck_assert_uint_eq(message_tokens_size(&record), 48);
    written += message_put_tokens(out + written, sizeof(out) - written, &record);
    ck_assert_int_eq(message_next_tokens(&frame, &offset, &record, &error), 1);
    frame_encode_header(out, FRAME_TOKENS, 0, 7, 0, (uint32_t)(written - FRAME_HEADER_SIZE));
    assert_bytes("tokens", written);
}
END_TEST

START_TEST(results_stand_on_the_page)
{
    struct frame frame = frame_named("result_score", FRAME_RESULT, 0, 9);
    struct message_result result;
    ck_assert_int_eq(message_decode_result(&frame, &result, &error), 0);
    ck_assert_uint_eq(result.sequence, 0);
    ck_assert_uint_eq(result.kind, RESULT_SCORE);
    ck_assert_uint_eq(result.first, 1);
    ck_assert_uint_eq(result.count, 1);
    ck_assert(result.scores[0].logprob == -2.0f && result.scores[0].top_token == 3);
    ck_assert(result.scores[0].top_logprob == -0.25f);
    assert_bytes("result_score", message_encode_result(out, sizeof(out), 9, &result));

    frame = frame_named("result_embed", FRAME_RESULT, 0, 9);
    ck_assert_int_eq(message_decode_result(&frame, &result, &error), 0);
    ck_assert_uint_eq(result.kind, RESULT_EMBED);
    ck_assert_uint_eq(result.count, 1);
    ck_assert_uint_eq(result.width, 3);
    ck_assert(result.rows[0] == 1.0f && result.rows[1] == 0.0f && result.rows[2] == -0.5f);
    assert_bytes("result_embed", message_encode_result(out, sizeof(out), 9, &result));
}
END_TEST

START_TEST(done_stands_on_the_page)
{
    struct frame frame = frame_named("done", FRAME_DONE, FRAME_FLAG_LAST, 7);
    struct message_done done;
    ck_assert_int_eq(message_decode_done(&frame, &done, &error), 0);
    ck_assert_uint_eq(done.sequence, 1);
    ck_assert_int_eq(done.finish, FINISH_LENGTH);
    ck_assert_uint_eq(done.prompt_tokens, 2);
    ck_assert_uint_eq(done.completion_tokens, 16);
    ck_assert_uint_eq(done.queued_us, 85);
    ck_assert_uint_eq(done.first_token_us, 1200);
    ck_assert_uint_eq(done.total_us, 20450);
    ck_assert_uint_eq(done.cached_tokens, 0);
    assert_bytes("done", message_encode_done(out, sizeof(out), 7, FRAME_FLAG_LAST, &done));
}
END_TEST

START_TEST(done_tells_what_was_cached)
{
    struct message_done sent = {.prompt_tokens = 9, .cached_tokens = 8}, got;
    struct frame frame;
    size_t used, size = message_encode_done(out, sizeof(out), 7, 0, &sent);
    ck_assert_int_eq(frame_decode(out, size, size, &frame, &used, &error), FRAME_OK);
    ck_assert_int_eq(message_decode_done(&frame, &got, &error), 0);
    ck_assert_uint_eq(got.cached_tokens, 8);
}
END_TEST

START_TEST(errors_stand_on_the_page)
{
    struct frame frame = frame_named("error", FRAME_ERROR, FRAME_FLAG_LAST, 7);
    struct message_error message;
    ck_assert_int_eq(message_decode_error(&frame, &message, &error), 0);
    ck_assert_uint_eq(message.sequence, MESSAGE_NO_SEQUENCE);
    ck_assert_int_eq(message.error.code, ERR_BUSY);
    ck_assert_str_eq(message.error.text, "1024 sequences wait, no more are taken");
    ck_assert_uint_eq(message.error.limit, 1024);
    ck_assert_uint_eq(message.error.value, 1024);
    ck_assert_uint_eq(message.error.retry_after_ms, 50);
    assert_bytes("error", message_encode_error(out, sizeof(out), 7, FRAME_FLAG_LAST, &message));

    frame = frame_named("error_sequence", FRAME_ERROR, 0, 7);
    ck_assert_int_eq(message_decode_error(&frame, &message, &error), 0);
    ck_assert_uint_eq(message.sequence, 1);
    ck_assert_int_eq(message.error.code, ERR_BAD_TOKEN);
    assert_bytes("error_sequence", message_encode_error(out, sizeof(out), 7, 0, &message));
}
END_TEST

START_TEST(cancels_stand_on_the_page)
{
    struct frame frame = frame_named("cancel", FRAME_CANCEL, 0, 7);
    uint64_t request = 99;
    ck_assert_int_eq(message_decode_cancel(&frame, &request, &error), 0);
    ck_assert_uint_eq(request, 0);
    assert_bytes("cancel", message_encode_cancel(out, sizeof(out), 7, 0));
    frame = frame_named("cancel_request", FRAME_CANCEL, 0, 0);
    ck_assert_int_eq(message_decode_cancel(&frame, &request, &error), 0);
    ck_assert_uint_eq(request, 1001);
    assert_bytes("cancel_request", message_encode_cancel(out, sizeof(out), 0, 1001));
}
END_TEST

START_TEST(control_stands_on_the_page)
{
    static const char question[] = "{\"requests\":true}";
    static const char answer[] =
        "{\"status\":\"ok\",\"ready\":true,\"progress\":1,\"uptime_us\":5000000,\"version\":"
        "\"0.1.0\",\"model\":\"demo\",\"device\":\"cpu\"}";
    struct frame frame = frame_named("stats", FRAME_STATS, 0, 11);
    struct message_stats stats = {0};
    ck_assert_int_eq(message_decode_stats(&frame, &stats, &error), 0);
    ck_assert(stats.requests && !stats.buckets && !stats.prometheus);
    assert_bytes("stats", message_encode_control(out, sizeof(out), FRAME_STATS, 0, 11, question,
                                                 strlen(question)));
    frame = frame_named("health", FRAME_HEALTH, 0, 12);
    ck_assert_uint_eq(frame.head_length, 0);
    assert_bytes("health", message_encode_control(out, sizeof(out), FRAME_HEALTH, 0, 12, NULL, 0));
    uint16_t flags = FRAME_FLAG_LAST | FRAME_FLAG_ANSWER;
    frame = frame_named("health_answer", FRAME_HEALTH, flags, 12);
    ck_assert_mem_eq(frame.head, answer, strlen(answer));
    assert_bytes("health_answer", message_encode_control(out, sizeof(out), FRAME_HEALTH, flags, 12,
                                                         answer, strlen(answer)));
}
END_TEST

START_TEST(texts_stand_on_the_page)
{
    const uint16_t flags = FRAME_FLAG_LAST | FRAME_FLAG_ANSWER;
    struct message_tokenize tokenize;
    struct message_detokenize detokenize;
    const int32_t *tokens;
    const char *text;
    uint32_t count;
    struct frame frame = frame_named("tokenize", FRAME_TOKENIZE, 0, 13);
    ck_assert_int_eq(message_decode_tokenize(&frame, &tokenize, &error), 0);
    ck_assert_uint_eq(tokenize.length, 6);
    ck_assert_mem_eq(tokenize.text, "12+30=", 6);
    ck_assert(!tokenize.chat && tokenize.special);
    assert_bytes("tokenize", message_encode_tokenize(out, sizeof(out), 13, &tokenize));
    frame = frame_named("tokenize_answer", FRAME_TOKENIZE, flags, 13);
    ck_assert_int_eq(message_decode_tokenized(&frame, &tokens, &count, &error), 0);
    ck_assert(count == 6 && tokens[0] == 49 && tokens[5] == 61);
    assert_bytes("tokenize_answer", message_encode_tokenized(out, sizeof(out), 13, tokens, count));

    frame = frame_named("detokenize", FRAME_DETOKENIZE, 0, 14);
    ck_assert_int_eq(message_decode_detokenize(&frame, 53, &detokenize, &error), 0);
    ck_assert(detokenize.count == 2 && detokenize.tokens[0] == 52 && !detokenize.special);
    ck_assert_int_eq(message_decode_detokenize(&frame, 52, &detokenize, &error), -ERR_BAD_TOKEN);
    assert_bytes("detokenize", message_encode_detokenize(out, sizeof(out), 14, &detokenize));
    frame = frame_named("detokenize_answer", FRAME_DETOKENIZE, flags, 14);
    ck_assert_int_eq(message_decode_detokenized(&frame, &text, &count, &error), 0);
    ck_assert_uint_eq(count, 2);
    ck_assert_mem_eq(text, "42", 2);
    assert_bytes("detokenize_answer",
                 message_encode_detokenized(out, sizeof(out), 14, text, count));
}
END_TEST

static struct message_item wire_item;

static const struct message_item *item_at(void *context, uint32_t index)
{
    (void)context;
    ck_assert_uint_eq(index, 0);
    return &wire_item;
}

/* Reads it, and writes it again with the same payload behind it. */
static void check_job(const char *name, uint64_t id, struct message_job *job)
{
    struct frame frame = frame_named(name, FRAME_JOB, 0, id);
    ck_assert_msg(!message_decode_job(&frame, 1, job, &error), "%s", error.text);
    ck_assert_msg(!message_job_item(job, &wire_item, &error), "%s", error.text);
    ck_assert_int_eq(message_job_end(job, &error), 0);
    struct message_job_out again = {.program = job->program,
                                    .priority = job->params.priority,
                                    .deadline_ms = job->params.deadline_ms,
                                    .input_memory = job->input_memory,
                                    .output_memory = job->output_memory,
                                    .item_count = 1,
                                    .item = item_at,
                                    .payload_length = frame.payload_length};
    size_t length = message_encode_job(out, sizeof(out), id, &again);
    if (frame.payload_length > 0)
        memcpy(out + length, frame.payload, frame.payload_length);
    assert_bytes(name, length + frame.payload_length);
}

START_TEST(jobs_stand_on_the_page)
{
    struct message_job job;
    char enable[TENSOR_NAME_MAX + 1];
    check_job("job", 15, &job);
    ck_assert_str_eq(job.program, "affine");
    ck_assert(job.params.priority == 2 && job.params.deadline_ms == 5000);
    ck_assert(wire_item.inputs[0].dtype == TENSOR_F32 && wire_item.inputs[0].shape[0] == 3);
    ck_assert(wire_item.value_count == 2 && wire_item.values[1].integer == -1);
    message_job_free(&job);
    check_job("job_memory", 16, &job);
    ck_assert(job.input_memory == 4000000 && job.output_memory == 4000000);
    message_job_free(&job);
    struct frame frame = frame_named("tensors", FRAME_TENSORS, 0, 15);
    struct message_tensors tensors;
    ck_assert_int_eq(message_decode_tensors(&frame, &tensors, &error), 0);
    ck_assert(tensors.bytes == 12 && tensors.at == 0 && tensors.sequence == 0 && tensors.output == 0);
    assert_bytes("tensors", message_encode_tensors(out, sizeof(out), 15, &tensors));
    frame = frame_named("programs_enable", FRAME_PROGRAMS, 0, 17);
    ck_assert_int_eq(message_decode_programs(&frame, enable, &error), 0);
    ck_assert_str_eq(enable, "affine");
    uint64_t from;
    frame = frame_named("timeline", FRAME_TIMELINE, 0, 18);
    ck_assert_int_eq(message_decode_timeline(&frame, &from, &error), 0);
    ck_assert_uint_eq(from, 400);
}
END_TEST

START_TEST(the_page_has_no_other_example)
{
    ck_assert_uint_eq(wire_count(), 27);
}
END_TEST

START_TEST(the_page_lists_every_error)
{
    static const char *const retries[] = {"never", "later", "fix"};
    static char page[1 << 16];
    FILE *file = fopen("protocol/wire.md", "r");
    ck_assert_ptr_nonnull(file);
    page[fread(page, 1, sizeof(page) - 1, file)] = 0;
    fclose(file);
#define ERROR(name, number, retry, text)                                                           \
    {                                                                                              \
        char row[256];                                                                             \
        snprintf(row, sizeof(row), "| `%s` | %d | %s | %s |\n", error_name(number), number,        \
                 retries[RETRY_##retry], text);                                                    \
        ck_assert_msg(strstr(page, row) != NULL, "wire.md lacks the row %s", row);                 \
    }
#include "protocol/base/error.def"
#undef ERROR
}
END_TEST

Suite *wire_suite(void)
{
    Suite *suite = suite_create("wire");
    TCase *tcase = tcase_create("wire");
    tcase_add_test(tcase, hello_stands_on_the_page);
    tcase_add_test(tcase, welcome_stands_on_the_page);
    tcase_add_test(tcase, submit_of_tokens_stands_on_the_page);
    tcase_add_test(tcase, submit_of_texts_stands_on_the_page);
    tcase_add_test(tcase, submit_of_chats_stands_on_the_page);
    tcase_add_test(tcase, submit_to_embed_stands_on_the_page);
    tcase_add_test(tcase, accept_stands_on_the_page);
    tcase_add_test(tcase, tokens_stands_on_the_page);
    tcase_add_test(tcase, results_stand_on_the_page);
    tcase_add_test(tcase, done_stands_on_the_page);
    tcase_add_test(tcase, done_tells_what_was_cached);
    tcase_add_test(tcase, errors_stand_on_the_page);
    tcase_add_test(tcase, cancels_stand_on_the_page);
    tcase_add_test(tcase, control_stands_on_the_page);
    tcase_add_test(tcase, texts_stand_on_the_page);
    tcase_add_test(tcase, jobs_stand_on_the_page);
    tcase_add_test(tcase, the_page_has_no_other_example);
    tcase_add_test(tcase, the_page_lists_every_error);
    suite_add_tcase(suite, tcase);
    return suite;
}
