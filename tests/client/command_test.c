/* The program, run as its users do, against the stub. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu/kernels/step/null_rule.h"
#include "protocol/base/json.h"
#include "tests/client/command_suites.h"
#include "tests/client/program.h"
#include "tests/client/stub.h"

static struct stub *stub;
static struct program program;
static char file_name[] = "/tmp/sluice-batch-XXXXXX";

static void start(const struct stub_options *options)
{
    const char *path;
    stub = stub_start(options, &path);
    setenv("SLUICE_SOCKET", path, 1);
}

static void setup(void)
{
    start(&(struct stub_options){0});
}

static void teardown(void)
{
    stub_stop(stub);
}

static void restart(const struct stub_options *options)
{
    teardown();
    start(options);
}

/* The tokens that follow 1,2,3, as printed. */
static void expect_tokens(char *text, int count)
{
    uint64_t state = NULL_START;
    for (int32_t i = 1; i <= 3; i++)
        state = null_state(state, i);
    for (int i = 0; i < count; i++) {
        int32_t token = null_byte(state);
        text += sprintf(text, "%s%d", i ? "," : "", token);
        state = null_state(state, token);
    }
    strcpy(text, "\n");
}

static json *parse_line(const char *text)
{
    static const struct json_bounds bounds = {.bytes_max = 1 << 20, .depth_max = 16};
    struct error error = {0};
    json *document = NULL;
    ck_assert_msg(json_parse(text, strcspn(text, "\n"), bounds, &document, &error) == 0, "%s: %s",
                  error.text, text);
    return document;
}

static const char *write_lines(const char *text)
{
    strcpy(file_name + strlen(file_name) - 6, "XXXXXX");
    int fd = mkstemp(file_name);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    return file_name;
}

/* ---- results -----------------------------------------------------------------------------------
 */

START_TEST(tokens_are_printed_with_commas)
{
    char expected[256];
    expect_tokens(expected, 5);
    program_run(&program, "generate", "--tokens", "1,2,3", "--max-tokens", "5", "--ignore-eos",
                _i ? "--no-stream" : "--seed=5", NULL);
    ck_assert_str_eq(program.err_text, "");
    ck_assert_str_eq(program.out_text, expected);
    ck_assert_int_eq(program.status, 0);
}
END_TEST

START_TEST(text_is_printed_where_the_model_has_a_tokenizer)
{
    restart(&(struct stub_options){.text = true});
    program_run(&program, "generate", "--prompt", "12+30=", "--max-tokens", "7", "--ignore-eos",
                NULL);
    ck_assert_int_eq(program.status, 0);
    ck_assert_uint_eq(program.out_length, 8);
    ck_assert_uint_eq(strspn(program.out_text, "abcdefghijklmnopqrstuvwxyz"), 7);
}
END_TEST

START_TEST(a_text_without_a_tokenizer_is_told_so)
{
    program_run(&program, "generate", "--prompt", "hi", NULL);
    ck_assert_int_eq(program.status, 1);
    ck_assert_ptr_nonnull(strstr(program.err_text, "no tokenizer"));
    ck_assert_str_eq(program.out_text, "");
}
END_TEST

START_TEST(json_has_every_key_of_a_result)
{
    program_run(&program, "generate", "--json", "--tokens", "1,2,3", "--max-tokens", "4",
                "--ignore-eos", "--logprobs", "2", NULL);
    ck_assert_int_eq(program.status, 0);
    json *result = parse_line(program.out_text);
    ck_assert_int_eq((int)json_number(json_get(result, "index")), 0);
    ck_assert_uint_eq(json_count(json_get(result, "tokens")), 4);
    ck_assert(json_is_null(json_get(result, "text")));
    ck_assert_uint_eq(json_count(json_get(result, "logprobs")), 4);
    ck_assert_uint_eq(json_count(json_get(result, "top_tokens")), 4);
    ck_assert_uint_eq(json_count(json_child(json_get(result, "top_logprobs"))), 2);
    ck_assert_str_eq(json_string(json_get(result, "finish_reason")), "length");
    ck_assert_int_eq((int)json_number(json_get(json_get(result, "usage"), "completion_tokens")), 4);
    ck_assert_int_eq((int)json_number(json_get(json_get(result, "usage"), "prompt_tokens")), 3);
    ck_assert_int_eq((int)json_number(json_get(json_get(result, "timings"), "queued_us")), 1);
    ck_assert_int_eq((int)json_number(json_get(json_get(result, "timings"), "first_token_us")), 2);
    ck_assert_int_eq((int)json_number(json_get(json_get(result, "timings"), "total_us")), 3);
    json_free(result);
}
END_TEST

START_TEST(scores_have_one_entry_per_token_from_the_second_on)
{
    program_run(&program, "score", "--json", "--tokens", "1,2,3", NULL);
    ck_assert_int_eq(program.status, 0);
    json *result = parse_line(program.out_text);
    uint64_t state = null_state(NULL_START, 1);
    const json *first = json_child(json_get(result, "logprobs"));
    ck_assert_uint_eq(json_count(json_get(result, "logprobs")), 2);
    ck_assert_float_eq((float)json_number(first), null_logprob(state, 2));
    ck_assert_int_eq((int)json_number(json_child(json_get(result, "top_tokens"))),
                     null_top(state, 0));
    ck_assert_uint_eq(json_count(json_get(result, "top_logprobs")), 2);
    json_free(result);
    program_run(&program, "score", "--tokens", "1,2,3", NULL);
    ck_assert_int_eq(strncmp(program.out_text, "1\t", 2), 0);
    ck_assert_ptr_nonnull(strstr(program.out_text, "\n2\t"));
}
END_TEST

START_TEST(embeddings_are_rows)
{
    program_run(&program, "embed", "--json", "--tokens", "1,2,3", NULL);
    ck_assert_int_eq(program.status, 0);
    json *result = parse_line(program.out_text);
    ck_assert_uint_eq(json_count(json_get(result, "embedding")), NULL_HIDDEN);
    json_free(result);
    program_run(&program, "embed", "--json", "--pooling", "all", "--tokens", "1,2,3", NULL);
    result = parse_line(program.out_text);
    ck_assert_uint_eq(json_count(json_get(result, "embedding")), 3);
    json_free(result);
    program_run(&program, "embed", "--pooling", "best", "--tokens", "1,2,3", NULL);
    ck_assert_int_eq(program.status, 2);
}
END_TEST

START_TEST(several_results_per_prompt_have_lines_of_their_own)
{
    program_run(&program, "generate", "--json", "--tokens", "1,2,3", "--n", "3", "--max-tokens",
                "2", "--ignore-eos", NULL);
    ck_assert_int_eq(program.status, 0);
    const char *line = program.out_text;
    for (int i = 0; i < 3; i++, line = strchr(line, '\n') + 1) {
        json *result = parse_line(line);
        ck_assert_int_eq((int)json_number(json_get(result, "index")), i);
        json_free(result);
    }
    ck_assert_str_eq(line, "");
}
END_TEST

/* ---- files -------------------------------------------------------------------------------------
 */

#define LINES 3000

START_TEST(a_file_longer_than_the_queue_comes_back_whole_and_in_order)
{
    static char text[LINES * 64];
    size_t used = 0;
    restart(&(struct stub_options){.queue_max = 16});
    for (int i = 0; i < LINES; i++)
        used += (size_t)sprintf(text + used,
                                "{\"tokens\":[%d,%d],\"max_tokens\":%d,\"ignore_eos\":true}\n",
                                i % 200, i / 200, 1 + i % 3);
    program_run(&program, "generate", "--json", "--file", write_lines(text), NULL);
    unlink(file_name);
    ck_assert_str_eq(program.err_text, "");
    ck_assert_int_eq(program.status, 0);
    const char *line = program.out_text;
    for (int i = 0; i < LINES; i++, line = strchr(line, '\n') + 1) {
        json *result = parse_line(line);
        uint64_t state = null_state(null_state(NULL_START, i % 200), i / 200);
        ck_assert_int_eq((int)json_number(json_get(result, "index")), i);
        ck_assert_uint_eq(json_count(json_get(result, "tokens")), (size_t)(1 + i % 3));
        ck_assert_int_eq((int)json_number(json_child(json_get(result, "tokens"))),
                         null_byte(state));
        json_free(result);
    }
    ck_assert_str_eq(line, "");
    ck_assert_uint_gt(atomic_load(&stub_counts(stub)->refused), 0);
    ck_assert_uint_eq(atomic_load(&stub_counts(stub)->accepted), LINES);
    ck_assert_uint_le(atomic_load(&stub_counts(stub)->open_most), 16);
}
END_TEST

START_TEST(a_line_of_a_file_overrides_the_command_line)
{
    const char *lines = "{\"tokens\":[1,2,3],\"ignore_eos\":true}\n"
                        "\n"
                        "  {\"tokens\":[1,2,3],\"max_tokens\":2,\"ignore_eos\":true}";
    char expected[512];
    expect_tokens(expected, 4);
    expect_tokens(expected + strlen(expected), 2);
    program_run(&program, "generate", "--max-tokens", "4", "--file", write_lines(lines), NULL);
    unlink(file_name);
    ck_assert_str_eq(program.out_text, expected);
    ck_assert_int_eq(program.status, 0);
}
END_TEST

START_TEST(standard_input_is_read_as_it_comes)
{
    const char *const arguments[] = {"generate", "--file", "-", NULL};
    const char *line = "{\"tokens\":[1,2,3],\"max_tokens\":2,\"ignore_eos\":true}\n";
    char expected[256];
    int ends[2];
    expect_tokens(expected, 2);
    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    program_start(&program, ends[0], arguments);
    ck_assert_int_eq(write(ends[1], line, strlen(line)), (ssize_t)strlen(line));
    program_await(&program, expected); /* before its input has ended */
    close(ends[1]);
    program_finish(&program);
    ck_assert_str_eq(program.out_text, expected);
    ck_assert_int_eq(program.status, 0);
    close(ends[0]);
}
END_TEST

static const struct {
    const char *line, *word;
} bad_lines[] = {
    {"{\"tokens\":[1],\"max_token\":2}", "unknown field \"max_token\""},
    {"{\"tokens\":[1],\"socket\":\"x\"}", "unknown field \"socket\""},
    {"{\"tokens\":[1],\"max_tokens\":1.5}", "max-tokens must be"},
    {"{\"tokens\":[1],\"max_tokens\":\"5\"}", "max-tokens must be"},
    {"{\"tokens\":[-1]}", "a token is"},
    {"{\"tokens\":\"1,2\"}", "not a list"},
    {"{\"tokens\":[]}", "empty"},
    {"{\"prompt\":\"x\",\"tokens\":[1]}", "both"},
    {"{}", "neither"},
    {"{\"tokens\":[1],\"id\":[1]}", "id: not a string"},
    {"{\"tokens\":[1],\"messages\":[]}", "both a prompt and messages"},
    {"{\"custom_id\":\"a\",\"url\":\"/v1/other\",\"body\":{}}", "url: must be"},
    {"{\"custom_id\":\"a\",\"url\":\"/v1/completions\"}", "body: not an object"},
    {"{\"url\":\"/v1/completions\",\"body\":{\"prompt\":[1]}}", "custom_id is missing"},
    {"{\"custom_id\":1,\"method\":\"GET\",\"url\":\"/v1/completions\",\"body\":{}}", "POST"},
    {"{\"custom_id\":1,\"url\":\"/v1/embeddings\",\"body\":{\"input\":[1]}}",
     "not of this command"},
    {"{\"custom_id\":1,\"url\":\"/v1/completions\",\"body\":{\"prompt\":[1],\"x\":1}}",
     "unknown field \"x\""},
    {"{\"custom_id\":1,\"url\":\"/v1/completions\",\"body\":{\"prompt\":[1],\"stream\":true}}",
     "stream: must be false"},
    {"{\"custom_id\":1,\"url\":\"/v1/chat/completions\",\"body\":{}}", "messages is missing"},
    {"{\"custom_id\":1,\"url\":\"/v1/completions\",\"body\":{\"prompt\":[1],\"logprobs\":21}}",
     "logprobs must be"},
    {"{\"custom_id\":1,\"url\":\"/v1/chat/completions\",\"body\":{\"logprobs\":1}}",
     "logprobs: must be true or false"},
    {"{\"custom_id\":1,\"url\":\"/v1/chat/completions\",\"body\":{\"top_logprobs\":1}}",
     "top_logprobs: only with logprobs"},
    {"{\"custom_id\":1,\"url\":\"/v1/chat/completions\",\"body\":{\"logprobs\":true,"
     "\"top_logprobs\":21}}",
     "top_logprobs: must be an integer"},
    {"[1]", "not a JSON object"},
    {"{\"tokens\":[1]", "byte"},
    {"{\"prompt\":\"\\u0000\"}", "byte"},
    {"{\"tokens\":[1],\"stop\":\"x\"}", "not a list of strings"},
    {"{\"tokens\":[1],\"ignore_eos\":1}", "not true or false"},
    {"{\"tokens\":[1],\"priority\":8}", "priority must be"},
};

START_TEST(a_bad_line_is_named_and_the_others_run)
{
    static const char good[] = "{\"tokens\":[1,2,3],\"max_tokens\":2,\"ignore_eos\":true}\n";
    char text[512], place[64];
    snprintf(text, sizeof(text), "%s%s\n%s", good, bad_lines[_i].line, good);
    program_run(&program, "generate", "--file", write_lines(text), NULL);
    unlink(file_name);
    expect_tokens(text, 2);
    snprintf(place, sizeof(place), "%s:2: ", file_name);
    size_t length = strlen(text);
    const char *own = program.out_text + length; /* empty, or an answer in OpenAI's form */
    ck_assert_int_eq(strncmp(program.out_text, text, length), 0);
    ck_assert_ptr_nonnull(strchr(own, '\n'));
    ck_assert_str_eq(strchr(own, '\n') + 1, text);
    ck_assert(own[0] == '\n' || strstr(own, "\"status_code\":400"));
    ck_assert_msg(strstr(program.err_text, place) && strstr(program.err_text, bad_lines[_i].word),
                  "%s", program.err_text);
    ck_assert_int_eq(program.status, 2);
}
END_TEST

START_TEST(a_failed_line_has_its_object_and_its_message)
{
    const char *lines = "{\"tokens\":[251],\"max_tokens\":2}\n{\"tokens\":[999],\"max_tokens\":2}\n"
                        "{\"tokens\":[1,2,3],\"max_tokens\":2,\"ignore_eos\":true}\n";
    program_run(&program, "generate", "--json", "--file", write_lines(lines), NULL);
    unlink(file_name);
    json *first = parse_line(program.out_text);
    ck_assert_str_eq(json_string(json_get(first, "finish_reason")), "error");
    ck_assert_str_eq(json_string(json_get(json_get(first, "error"), "code")), "device");
    json_free(first);
    ck_assert_ptr_nonnull(strstr(program.out_text, "\"bad_token\""));
    ck_assert_ptr_nonnull(strstr(program.out_text, "\"length\""));
    ck_assert_ptr_nonnull(strstr(program.err_text, "line 1: device"));
    ck_assert_ptr_nonnull(strstr(program.err_text, "line 2: bad_token"));
    ck_assert_int_eq(program.status, 4); /* of the first that failed */
}
END_TEST

/* By name, in the order of lines: of results, of failures, and of what was no prompt. */
START_TEST(a_line_s_names_come_back_with_its_results)
{
    static const char *const names[] = {"\"id\":7,\"custom_id\":\"a\"", "\"id\":\"b\"",
                                        "\"custom_id\":\"c\"", "\"custom_id\":\"c\""};
    const char *lines = "{\"tokens\":[1,2],\"max_tokens\":2,\"id\":7,\"custom_id\":\"a\"}\n"
                        "{\"id\":\"b\",\"tokens\":[1],\"what\":1}\n"
                        "{\"tokens\":[1,2],\"max_tokens\":2,\"n\":2,\"custom_id\":\"c\"}\n";
    program_run(&program, "generate", "--json", "--file", write_lines(lines), NULL);
    unlink(file_name);
    const char *at = program.out_text;
    for (int i = 0; i < 4; i++) {
        char index[32];
        const char *end = strchr(at, '\n'), *name = strstr(at, names[i]);
        ck_assert_ptr_nonnull(end);
        ck_assert_msg(name && name < end, "%s not in %s", names[i], at);
        snprintf(index, sizeof(index), "{\"index\":%d,", i);
        ck_assert_int_eq(strncmp(at, index, strlen(index)), 0);
        at = end + 1;
    }
    ck_assert_str_eq(at, "");
    ck_assert_ptr_nonnull(strstr(program.out_text, "unknown field"));
    ck_assert_int_eq(program.status, 2);
}
END_TEST

START_TEST(many_failures_are_not_told_one_by_one)
{
    static char lines[100 * 20];
    size_t used = 0;
    int count = 0;
    for (int i = 0; i < 100; i++)
        used += (size_t)sprintf(lines + used, "{\"tokens\":[999]}\n");
    program_run(&program, "generate", "--json", "--file", write_lines(lines), NULL);
    unlink(file_name);
    for (const char *at = program.err_text; (at = strchr(at, '\n')); at++)
        count++;
    ck_assert_int_eq(count, 21);
    ck_assert_ptr_nonnull(strstr(program.err_text, "80 more failed"));
    ck_assert_int_eq(program.status, 1);
}
END_TEST

START_TEST(a_daemon_that_goes_away_leaves_every_line_its_object)
{
    const char *lines = "{\"tokens\":[1,2,3],\"max_tokens\":1,\"ignore_eos\":true}\n"
                        "{\"tokens\":[250]}\n{\"tokens\":[252]}\n{\"tokens\":[250]}\n";
    int count = 0;
    program_run(&program, "generate", "--json", "--file", write_lines(lines), NULL);
    unlink(file_name);
    for (const char *at = program.out_text; (at = strstr(at, "\"finish_reason\"")); at++)
        count++;
    ck_assert_int_eq(count, 4);
    ck_assert_ptr_nonnull(strstr(program.err_text, "line 4: closed"));
    ck_assert_int_eq(program.status, 4);
}
END_TEST

/* ---- exit status and usage ---------------------------------------------------------------------
 */

static const struct {
    int status;
    const char *word;
    const char *arguments[8];
} usages[] = {
    {2, "unknown option --bogus", {"generate", "--bogus"}},
    {2, "unknown option -x", {"generate", "-x"}},
    {2, "needs a value", {"generate", "--tokens"}},
    {2, "takes no value", {"generate", "--json=1"}},
    {2, "unknown option --max-tokens", {"score", "--max-tokens", "3"}},
    {2, "unknown option --prompt", {"stats", "--prompt", "3"}},
    {2, "max-tokens must be", {"generate", "--tokens", "1", "--max-tokens", "-1"}},
    {2, "max-tokens must be", {"generate", "--tokens", "1", "--max-tokens", "1x"}},
    {2, "temperature must be", {"generate", "--tokens", "1", "--temperature", "nan"}},
    {2, "request-rate must be at least 0.000001 ", {"bench", "--request-rate", "0"}},
    {2, "duration must be 0.001 to 1000000 ", {"bench", "--duration", "-1"}},
    {2, "random-range-ratio must be 0 to 0.999999 ", {"bench", "--random-range-ratio", "1"}},
    {2, "seed must be a whole number, 0 to 9007199254740992 ", {"generate", "--seed", "-1"}},
    {2, "commas", {"generate", "--tokens", "1,,2"}},
    {2, "commas", {"generate", "--tokens", ""}},
    {2, "a token is", {"generate", "--tokens", "99999999999"}},
    {2, "give one of", {"generate"}},
    {2, "give one of", {"generate", "--tokens", "1", "--file", "x"}},
    {2, "the prompt hello, and another", {"generate", "--tokens", "1", "hello"}},
    {2, "put it in quotes", {"generate", "two", "--max-tokens", "2", "words"}},
    {2, "the prompt -, and another", {"score", "-", "--file", "x"}},
    {2, "the prompt is empty", {"generate", "-"}},
    {2, "/nonexistent: ", {"generate", "--file", "/nonexistent"}},
    {2, "is a directory", {"generate", "--file", "/tmp"}},
    {2, "unknown command frob", {"frob"}},
    {2, "no request's number", {"cancel", "x"}},
    {2, "which request", {"cancel"}},
    {2, "takes no argument", {"health", "now"}},
    {2, "one of --socket and", {"health", "-i", "a", "--socket", "b"}},
    {2, "not a path", {"health", "-i", "../a"}},
    {3, "/nonexistent/s: no such socket", {"health", "--socket", "/nonexistent/s"}},
    {2, "--socket: the path is empty", {"health", "--socket", ""}},
    {2, "--instance: the name is empty", {"health", "-i", ""}},
    {2, "--instance: the name is empty", {"bench", "-i", ""}},
    {3, "/run/sluice/none.sock", {"health", "-i", "none"}},
    {3, "/run/sluice/none.sock", {"-i", "none", "health"}},
    {3, "/run/sluice/none.sock", {"--instance=none", "health"}},
    {2, "--instance was given twice", {"-i", "none", "health", "-i", "other"}},
    {2, "--instance was given twice", {"health", "-i", "a", "--instance", "a"}},
    {2, "--socket was given twice", {"--socket", "/a", "health", "--socket", "/a"}},
    {2, "--tokens was given twice", {"generate", "--tokens", "1", "--tokens", "2"}},
    {2, "--max-tokens was given twice", {"generate", "--max-tokens", "1", "--max-tokens=1"}},
    {2, "--json was given twice", {"stats", "--json", "--json"}},
    {3, "/run/sluice/none.sock", {"bench", "-i", "none"}},
    {2, "not a path", {"bench", "-i", "../a"}},
    {2, "one of --socket and", {"-i", "a", "health", "--socket", "b"}},
    {2, "unknown option --json", {"--json", "health"}},
    {2, "needs a value", {"-i"}},
    {2, "unknown command frob", {"-i", "none", "frob"}},
    {1, "bad_token", {"generate", "--tokens", "999"}},
    {1, "not_found", {"cancel", "77"}},
    {4, "device", {"generate", "--tokens", "251"}},
    {4, "closed", {"generate", "--tokens", "252"}},
};

START_TEST(the_exit_status_says_what_went_wrong)
{
    const char *arguments[9] = {0};
    memcpy(arguments, usages[_i].arguments, sizeof(usages[_i].arguments));
    program_start(&program, -1, arguments);
    program_finish(&program);
    ck_assert_msg(program.status == usages[_i].status, "%d: %s", program.status, program.err_text);
    ck_assert_msg(strstr(program.err_text, usages[_i].word) != NULL, "%s", program.err_text);
    ck_assert_int_eq(strncmp(program.err_text, "sluice: ", 8), 0);
}
END_TEST

START_TEST(a_busy_daemon_is_worth_a_retry_and_a_single_prompt_is_not_kept_waiting)
{
    restart(&(struct stub_options){.refuse = true});
    program_run(&program, "generate", "--tokens", "1", NULL);
    ck_assert_int_eq(program.status, 4);
    restart(&(struct stub_options){.queue_max = 1});
    program_run(&program, "generate", "--tokens", "1", "--n", "2", NULL);
    ck_assert_int_eq(program.status, 4);
    ck_assert_ptr_nonnull(strstr(program.err_text, "busy"));
}
END_TEST

START_TEST(an_interrupt_cancels_the_work)
{
    const char *const single[] = {"generate", "--tokens", "250,1", NULL};
    const char *lines = "{\"tokens\":[250]}\n{\"tokens\":[250]}\n";
    const char *const many[] = {"generate", "--file", write_lines(lines), NULL};
    program_start(&program, -1, _i ? many : single);
    while (atomic_load(&stub_counts(stub)->accepted) < (_i ? 2u : 1u))
        usleep(1000);
    kill(program.pid, SIGINT);
    program_finish(&program);
    unlink(file_name);
    ck_assert_int_eq(program.status, 130);
    ck_assert_uint_eq(atomic_load(&stub_counts(stub)->cancelled), _i ? 2 : 1);
}
END_TEST

START_TEST(a_result_is_printed_before_it_is_whole)
{
    const char *const arguments[] = {"generate", "--tokens", "250,1", NULL};
    char first[32];
    program_start(&program, -1, arguments);
    sprintf(first, "%d", null_next(null_state(null_state(NULL_START, 250), 1)));
    program_await(&program, first);
    ck_assert_int_eq(strncmp(program.out_text, first, strlen(first)), 0);
    kill(program.pid, SIGINT);
    program_finish(&program);
    ck_assert_int_eq(program.status, 130);
}
END_TEST

Suite *command_suite(void)
{
    Suite *suite = suite_create("command");
    TCase *tcase = tcase_create("stub");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, tokens_are_printed_with_commas, 0, 2);
    tcase_add_test(tcase, text_is_printed_where_the_model_has_a_tokenizer);
    tcase_add_test(tcase, a_text_without_a_tokenizer_is_told_so);
    tcase_add_test(tcase, json_has_every_key_of_a_result);
    tcase_add_test(tcase, scores_have_one_entry_per_token_from_the_second_on);
    tcase_add_test(tcase, embeddings_are_rows);
    tcase_add_test(tcase, several_results_per_prompt_have_lines_of_their_own);
    tcase_add_test(tcase, a_file_longer_than_the_queue_comes_back_whole_and_in_order);
    tcase_add_test(tcase, a_line_of_a_file_overrides_the_command_line);
    tcase_add_test(tcase, standard_input_is_read_as_it_comes);
    tcase_add_loop_test(tcase, a_bad_line_is_named_and_the_others_run, 0,
                        sizeof(bad_lines) / sizeof(bad_lines[0]));
    tcase_add_test(tcase, a_failed_line_has_its_object_and_its_message);
    tcase_add_test(tcase, a_line_s_names_come_back_with_its_results);
    tcase_add_test(tcase, many_failures_are_not_told_one_by_one);
    tcase_add_test(tcase, a_daemon_that_goes_away_leaves_every_line_its_object);
    tcase_add_loop_test(tcase, the_exit_status_says_what_went_wrong, 0,
                        sizeof(usages) / sizeof(usages[0]));
    tcase_add_test(tcase, a_busy_daemon_is_worth_a_retry_and_a_single_prompt_is_not_kept_waiting);
    tcase_add_loop_test(tcase, an_interrupt_cancels_the_work, 0, 2);
    tcase_add_test(tcase, a_result_is_printed_before_it_is_whole);
    suite_add_tcase(suite, tcase);
    return suite;
}
