/* Texts and conversations from the program to the device and back: sluice against a real sluiced
 * that serves the demo model with a chat template, on the CPU. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <check.h>

#include "client/sluice.h"
#include "tests/client/program.h"
#include "tests/daemon/rig/demo_model.h"
#include "tests/daemon/rig/spawn.h"
#include "tests/runner.h"

/* Shows what it was given: the answer depends on the whole conversation. */
#define TEMPLATE                                                                                   \
    "{% if messages | length == 1 %}reverse {{ messages[0].content }}={% elif "                    \
    "messages[1].content == 'maerts' and messages[2].content == 'sum' %}417+385={% else "          \
    "%}{{ raise_exception('not what was said') }}{% endif %}"

static struct spawn spawn;
static char model[96], in_path[96];
static struct program program;

static void setup(void)
{
    const char *const arguments[] = {"--model",       model, "--device", "cpu",
                                     "--cpu-threads", "1",   NULL};
    spawn_make(&spawn);
    snprintf(model, sizeof(model), "%s/model", spawn.directory);
    snprintf(in_path, sizeof(in_path), "%s/in", spawn.directory);
    demo_model_make(model, TEMPLATE);
    setenv("SLUICE_SOCKET", spawn.socket, 1);
    spawn_start(&spawn, arguments, NULL);
    spawn_await_ready(&spawn);
}

static void teardown(void)
{
    kill(spawn.pid, SIGTERM);
    ck_assert_int_eq(spawn_wait(&spawn), 0);
    ck_assert_int_ne(access(spawn.socket, F_OK), 0);
    demo_model_remove(model);
    unlink(in_path);
    spawn_free(&spawn);
}

/* The program with this as its standard input. */
static void through(const char *text, size_t length, const char *const *arguments)
{
    int in = open(in_path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ck_assert_int_ge(in, 0);
    ck_assert_int_eq(write(in, text, length), (ssize_t)length);
    ck_assert_int_eq(lseek(in, 0, SEEK_SET), 0);
    program_start(&program, in, arguments);
    close(in);
    program_finish(&program);
}

START_TEST(a_conversation_is_answered_and_remembered)
{
    static const char *const chat[] = {"chat", NULL};
    through("stream\nsum\n", 11, chat);
    ck_assert_str_eq(program.err_text, "");
    ck_assert_str_eq(program.out_text, "maerts\n802\n");
    ck_assert_int_eq(program.status, 0);
}
END_TEST

START_TEST(what_the_template_refuses_is_told_and_forgotten)
{
    static const char *const chat[] = {"chat", NULL};
    through("stream\nother\nsum\n", 17, chat);
    ck_assert_str_eq(program.out_text, "maerts\n802\n");
    ck_assert_ptr_nonnull(strstr(program.err_text, "not what was said"));
    ck_assert_int_eq(program.status, 1);
}
END_TEST

START_TEST(a_conversation_becomes_the_tokens_of_its_prompt)
{
    static const char *const tokenize[] = {"tokenize", "--chat", NULL};
    static const char chat[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"ab\"}]}]}";
    through(chat, sizeof(chat) - 1, tokenize);
    ck_assert_str_eq(program.err_text, "");
    ck_assert_str_eq(program.out_text, "279,406,314,32,97,98,61\n");
}
END_TEST

static const struct {
    const char *chat, *says;
} bad[] = {
    {"[]", "not an object"},
    {"{}", "messages is missing"},
    {"{\"messages\":[]}", "messages must be a list of messages"},
    {"{\"messages\":[{\"content\":\"x\"}]}", "an entry without a role"},
    {"{\"messages\":[{\"role\":\"user\",\"content\":5}]}", "content must be"},
    {"{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"tools\":1}", "tools must be a list"},
    {"{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"model\":\"x\"}", "unknown field"},
    {"{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]", "ends too early"},
    {"{\"messages\":[{\"role\":\"user\",\"content\":\"\\u0000\"}]}", "\\u0000 is not accepted"},
    {"{\"messages\":[{\"role\":\"user\",\"content\":\"x\",\"a\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]"
     "]]]]]]"
     "]]]]]]]]]]]]]]]]]]]]]]]]}]}",
     "nested deeper than 32"},
};

START_TEST(a_bad_conversation_is_refused_with_what_is_wrong)
{
    static const char *const tokenize[] = {"tokenize", "--chat", NULL};
    through(bad[_i].chat, strlen(bad[_i].chat), tokenize);
    ck_assert_msg(strstr(program.err_text, bad[_i].says) != NULL, "%s: %s", bad[_i].chat,
                  program.err_text);
    ck_assert_int_eq(program.status, 1);
}
END_TEST

START_TEST(texts_become_tokens_and_tokens_the_same_text)
{
    static const char *const tokenize[] = {"tokenize", NULL}, *const back[] = {"detokenize", NULL};
    static const char text[] = "caf\xc3\xa9 \xe6\x97\xa5\n12+30=\n";
    char tokens[512];
    through(text, sizeof(text) - 1, tokenize);
    ck_assert_str_eq(program.err_text, "");
    ck_assert_uint_lt(program.out_length, sizeof(tokens));
    strcpy(tokens, program.out_text);
    through(tokens, strlen(tokens), back);
    ck_assert_str_eq(program.out_text, text);
    ck_assert_int_eq(program.status, 0);
}
END_TEST

START_TEST(more_than_the_context_holds_is_refused_by_its_limit)
{
    static const char *const tokenize[] = {"tokenize", NULL}, *const back[] = {"detokenize", NULL},
                             *const chat[] = {"chat", NULL};
    const size_t length = 100000; /* off the loop */
    char *text = malloc(length);
    ck_assert_ptr_nonnull(text);
    for (size_t i = 0; i < length; i++)
        text[i] = i % 2 ? ' ' : '7';
    through(text, length, tokenize);
    ck_assert_ptr_nonnull(strstr(program.err_text, "more than 8192 tokens"));
    ck_assert_int_eq(program.status, 1);
    through(text, 18000, back);
    ck_assert_ptr_nonnull(strstr(program.err_text, "9000 tokens, more than the 8192"));
    through(text, 18000, chat);
    ck_assert_ptr_nonnull(strstr(program.err_text, "more than 8192 tokens"));
    ck_assert_int_eq(program.status, 1);
    free(text);
}
END_TEST

/* As a shell gives them, options before and after. */
START_TEST(a_prompt_is_an_argument_or_standard_input)
{
    static const char *const ways[][6] = {
        {"generate", "417+385=", "--max-tokens", "8", NULL},
        {"generate", "--max-tokens", "8", "417+385=", NULL},
        {"generate", "--max-tokens=8", "--", "417+385=", NULL},
        {"generate", "--prompt", "-", "--max-tokens", "8", NULL},
        {"generate", "-", NULL},
    };
    static const char *const tokenize[] = {"tokenize", "12", NULL}, *const in[] = {"tokenize", "-",
                                                                                   NULL};
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        through(i < 3 ? "" : "417+385=\n", i < 3 ? 0 : 9, ways[i]);
        ck_assert_str_eq(program.err_text, "");
        ck_assert_str_eq(program.out_text, "802\n");
        ck_assert_int_eq(program.status, 0);
    }
    through("", 0, tokenize);
    ck_assert_str_eq(program.out_text, "49,50\n");
    through("12\n\n", 4, in);
    ck_assert_str_eq(program.out_text, "49,50,10\n");
    through("a\0b", 3, ways[4]);
    ck_assert_ptr_nonnull(strstr(program.err_text, "zero byte"));
    ck_assert_int_eq(program.status, 2);
}
END_TEST

/* OpenAI's batches: each line has its answer in that form, and one that is none has its error. */
START_TEST(a_batch_of_requests_is_answered_in_its_form)
{
    static const char *const generate[] = {"generate", "--file", "-", NULL};
    static const char lines[] =
        "{\"custom_id\":\"sum\",\"method\":\"POST\",\"url\":\"/v1/"
        "completions\",\"body\":{\"model\":"
        "\"model\",\"prompt\":\"417+385=\",\"max_tokens\":8,\"stop\":\"x\",\"user\":\"u\"}}\n"
        "{\"custom_id\":\"chat\",\"method\":\"POST\",\"url\":\"/v1/chat/completions\",\"body\":{"
        "\"messages\":[{\"role\":\"user\",\"content\":\"stream\"}],\"max_completion_tokens\":9,"
        "\"temperature\":0}}\n"
        "{\"custom_id\":\"bad\",\"url\":\"/v1/"
        "completions\",\"body\":{\"prompt\":\"1\",\"best\":1}}\n"
        "{\"custom_id\":\"other\",\"url\":\"/v1/"
        "completions\",\"body\":{\"prompt\":\"1\",\"model\":\"x\"}}\n"
        "{\"custom_id\":\"numbers\",\"url\":\"/v1/"
        "completions\",\"body\":{\"prompt\":[52,49,55,43,51,56,53,"
        "61],\"max_tokens\":8,\"n\":2}}\n";
    static const char *const answers[][4] = {
        {"\"custom_id\":\"sum\",\"response\":{\"status_code\":200,",
         "\"object\":\"text_completion\"",
         "\"text\":\"802\",\"logprobs\":null,\"finish_reason\":\"stop\"}]",
         "\"usage\":{\"prompt_tokens\":8,\"completion_tokens\":4,\"total_tokens\":12}}},\"error\":"
         "null}"},
        {"\"custom_id\":\"chat\",", "\"object\":\"chat.completion\"",
         "\"message\":{\"role\":\"assistant\",\"content\":\"maerts\"}", "\"error\":null}"},
        {"\"custom_id\":\"bad\",\"response\":{\"status_code\":400,", "unknown field \\\"best\\\"",
         "\"error\":null}", ""},
        {"\"custom_id\":\"other\",\"response\":{\"status_code\":404,", "there is no model x here",
         "\"code\":\"not_found\"", ""},
        {"\"custom_id\":\"numbers\",", "\"index\":0,\"text\":\"802\"",
         "\"index\":1,\"text\":\"802\"", "\"completion_tokens\":8"},
    };
    through(lines, sizeof(lines) - 1, generate);
    const char *at = program.out_text;
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        const char *end = strchr(at, '\n');
        ck_assert_msg(end != NULL, "%zu: %s %s", i, program.out_text, program.err_text);
        for (size_t part = 0; part < 4; part++) {
            const char *found = strstr(at, answers[i][part]);
            ck_assert_msg(found && found < end, "%s not in %.*s", answers[i][part], (int)(end - at),
                          at);
        }
        at = end + 1;
    }
    ck_assert_str_eq(at, "");
    ck_assert_ptr_nonnull(strstr(program.err_text, ":3: unknown field"));
    ck_assert_int_eq(program.status, 2);
}
END_TEST

/* With log-probabilities, tokens called by their texts, and where these are none by their numbers.
 */
START_TEST(a_batch_of_requests_tells_log_probabilities)
{
    static const char *const generate[] = {"generate", "--file", "-", NULL};
    static const char lines[] =
        "{\"custom_id\":\"a\",\"url\":\"/v1/completions\",\"body\":{\"prompt\":\"417+385=\","
        "\"max_tokens\":8,\"logprobs\":2}}\n"
        "{\"custom_id\":\"b\",\"url\":\"/v1/chat/completions\",\"body\":{\"messages\":[{\"role\":"
        "\"user\",\"content\":\"stream\"}],\"max_tokens\":9,\"logprobs\":true}}\n"
        "{\"custom_id\":\"c\",\"url\":\"/v1/chat/completions\",\"body\":{\"messages\":[{\"role\":"
        "\"user\",\"content\":\"stream\"}],\"max_tokens\":1,\"logprobs\":true,\"top_logprobs\":20}"
        "}\n"
        "{\"custom_id\":\"d\",\"url\":\"/v1/completions\",\"body\":{\"prompt\":\"7+1=\","
        "\"max_tokens\":1,\"logprobs\":0}}\n";
    static const char *const answers[][4] = {
        {"\"text\":\"802\",\"logprobs\":{\"tokens\":[\"8\",\"0\",\"2\",\"<|end|>\"],\"token_"
         "logprobs\":[",
         "\"top_logprobs\":[{\"8\":", "\"text_offset\":[0,1,2,3]}", "\"finish_reason\":\"stop\""},
        {"\"content\":\"maerts\"},\"logprobs\":{\"content\":[{\"token\":\"m\",\"logprob\":",
         "\"bytes\":[109],\"top_logprobs\":[]},{\"token\":\"a\",",
         "\"bytes\":[115],\"top_logprobs\":[]}],", "\"refusal\":null},\"finish_reason\":\"stop\""},
        {"\"top_logprobs\":[{\"token\":\"m\",", "\"bytes\":[109]}", "},{\"token\":\"", ""},
        {"{\"tokens\":[\"8\"],\"token_logprobs\":[", "\"top_logprobs\":null,",
         "\"text_offset\":[0]}", ""},
    };
    through(lines, sizeof(lines) - 1, generate);
    const char *at = program.out_text;
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        const char *end = strchr(at, '\n');
        ck_assert_msg(end != NULL, "%zu: %s %s", i, program.out_text, program.err_text);
        for (size_t part = 0; part < 4; part++) {
            const char *found = strstr(at, answers[i][part]);
            ck_assert_msg(found && found < end, "%s not in %.*s", answers[i][part], (int)(end - at),
                          at);
        }
        at = end + 1;
    }
    ck_assert_int_eq(program.status, 0);
}
END_TEST

/* A byte that is no whole character. */
START_TEST(a_token_without_a_text_is_told_by_its_number)
{
    static const char *const generate[] = {"generate", "--file", "-", "--regex", "\xd0\xb6", NULL};
    static const char lines[] =
        "{\"custom_id\":\"a\",\"url\":\"/v1/completions\",\"body\":{\"prompt\":\"417+385=\","
        "\"max_tokens\":8,\"logprobs\":0}}\n"
        "{\"custom_id\":\"b\",\"url\":\"/v1/chat/completions\",\"body\":{\"messages\":[{\"role\":"
        "\"user\",\"content\":\"stream\"}],\"max_tokens\":8,\"logprobs\":true}}\n";
    static const char *const parts[] = {
        "\"text\":\"\xd0\xb6\",\"logprobs\":{\"tokens\":[\"token_id:208\",\"token_id:182\",",
        "\"content\":[{\"token\":\"token_id:208\",\"logprob\":", ",\"bytes\":null,"};
    through(lines, sizeof(lines) - 1, generate);
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        ck_assert_msg(strstr(program.out_text, parts[i]) != NULL, "%s not in %s %s", parts[i],
                      program.out_text, program.err_text);
}
END_TEST

static void take_end(void *context, uint32_t sequence, const sluice_end *end)
{
    ((int *)context)[sequence] = end->finish == SLUICE_FINISH_ERROR ? end->error.code : 0;
}

/* In C: the others of its batch run, unless it is to stand or fall together. */
START_TEST(a_prompt_that_is_too_long_ends_alone_in_its_batch)
{
    static char text[9000];
    int codes[3] = {-1, -1, -1};
    sluice_client *client;
    sluice_batch batch;
    sluice_error error;
    memset(text, '7', sizeof(text));
    const sluice_prompt prompts[3] = {{.text = "417+385=", .text_length = 8},
                                      {.text = text, .text_length = sizeof(text)},
                                      {.text = "12+30=", .text_length = 6}};
    ck_assert_int_eq(sluice_connect(NULL, 5000, &client, &error), 0);
    sluice_batch_init(&batch);
    batch.prompts = prompts;
    batch.prompt_count = 3;
    batch.all_or_nothing = _i;
    batch.callbacks.end = take_end;
    batch.context = codes;
    ck_assert_int_eq(sluice_run(client, &batch, 60000), 0);
    ck_assert_int_eq(codes[0], _i ? SLUICE_E_TOO_LARGE : 0);
    ck_assert_int_eq(codes[1], SLUICE_E_TOO_LARGE);
    ck_assert_int_eq(codes[2], _i ? SLUICE_E_TOO_LARGE : 0);
    sluice_close(client);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("texts, end to end");
    TCase *tcase = tcase_create("program, daemon, demo model");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, a_conversation_is_answered_and_remembered);
    tcase_add_test(tcase, what_the_template_refuses_is_told_and_forgotten);
    tcase_add_test(tcase, a_conversation_becomes_the_tokens_of_its_prompt);
    tcase_add_loop_test(tcase, a_bad_conversation_is_refused_with_what_is_wrong, 0,
                        sizeof(bad) / sizeof(bad[0]));
    tcase_add_test(tcase, a_prompt_is_an_argument_or_standard_input);
    tcase_add_test(tcase, a_batch_of_requests_is_answered_in_its_form);
    tcase_add_test(tcase, a_batch_of_requests_tells_log_probabilities);
    tcase_add_test(tcase, a_token_without_a_text_is_told_by_its_number);
    tcase_add_loop_test(tcase, a_prompt_that_is_too_long_ends_alone_in_its_batch, 0, 2);
    tcase_add_test(tcase, texts_become_tokens_and_tokens_the_same_text);
    tcase_add_test(tcase, more_than_the_context_holds_is_refused_by_its_limit);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    return runner_run(runner);
}
