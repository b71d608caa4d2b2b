/* From the program to the device and back: sluice against a real sluiced that serves synthetic:null
 * on the CPU, with a queue far smaller than what is asked of it. */
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <check.h>

#include "gpu/kernels/step/null_rule.h"
#include "protocol/base/json.h"
#include "tests/client/program.h"
#include "tests/daemon/rig/spawn.h"
#include "tests/runner.h"

static struct spawn spawn;
static struct program program;

static void setup(void)
{
    static const char *const arguments[] = {
        "--model", "synthetic:null",  "--device", "cpu",           "--queue-sequences",
        "64",      "--sequences-max", "16",       "--cpu-threads", "1",
        NULL};
    spawn_make(&spawn);
    setenv("SLUICE_SOCKET", spawn.socket, 1);
    spawn_start(&spawn, arguments, NULL);
    spawn_await_ready(&spawn);
}

static void teardown(void)
{
    kill(spawn.pid, SIGTERM);
    ck_assert_int_eq(spawn_wait(&spawn), 0);
    ck_assert_int_ne(access(spawn.socket, F_OK), 0);
    spawn_free(&spawn);
}

static json *parse_line(const char *text)
{
    static const struct json_bounds bounds = {.bytes_max = 1 << 20, .depth_max = 16};
    json *document = NULL;
    ck_assert_msg(json_parse(text, strcspn(text, "\n"), bounds, &document, NULL) == 0, "%s", text);
    return document;
}

static double gauge(const char *name)
{
    program_run(&program, "stats", "--json", NULL);
    ck_assert_msg(program.status == 0, "%s", program.err_text);
    json *stats = parse_line(program.out_text);
    const json *value = json_get(json_get(stats, "gauges"), name);
    ck_assert_msg(value != NULL, "no gauge %s", name);
    double number = json_number(value);
    json_free(stats);
    return number;
}

#define LINES 2000

static void check_line(const char *line, int number)
{
    json *result = parse_line(line);
    uint64_t state = null_state(null_state(NULL_START, number % 256), number / 256);
    const json *token = json_child(json_get(result, "tokens"));
    ck_assert_int_eq((int)json_number(json_get(result, "index")), number);
    ck_assert_uint_eq(json_count(json_get(result, "tokens")), (size_t)(1 + number % 7));
    for (; token; token = json_next(token)) {
        ck_assert_int_eq((int)json_number(token), null_byte(state));
        state = null_state(state, null_byte(state));
    }
    json_free(result);
}

START_TEST(a_file_longer_than_the_queue_is_answered_in_order_by_the_rule)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/batch.jsonl", spawn.directory);
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    for (int i = 0; i < LINES; i++)
        fprintf(file, "{\"tokens\":[%d,%d],\"max_tokens\":%d,\"ignore_eos\":true}\n", i % 256,
                i / 256, 1 + i % 7);
    fclose(file);
    program_run(&program, "generate", "--json", "--file", path, NULL);
    unlink(path);
    ck_assert_str_eq(program.err_text, "");
    ck_assert_int_eq(program.status, 0);
    const char *line = program.out_text;
    for (int i = 0; i < LINES; i++, line = strchr(line, '\n') + 1)
        check_line(line, i);
    ck_assert_str_eq(line, "");
    ck_assert_double_eq(gauge("live_sequences"), 0);
}
END_TEST

START_TEST(every_job_answers_by_the_rule)
{
    uint64_t state = null_state(NULL_START, 9);
    program_run(&program, "score", "--json", "--tokens", "9,8,7", NULL);
    ck_assert_int_eq(program.status, 0);
    json *result = parse_line(program.out_text);
    ck_assert_uint_eq(json_count(json_get(result, "logprobs")), 2);
    ck_assert_float_eq((float)json_number(json_child(json_get(result, "logprobs"))),
                       null_logprob(state, 8));
    json_free(result);
    program_run(&program, "embed", "--json", "--pooling", "all", "--no-normalize", "--tokens", "9",
                NULL);
    ck_assert_int_eq(program.status, 0);
    result = parse_line(program.out_text);
    const json *value = json_child(json_child(json_get(result, "embedding")));
    for (uint32_t i = 0; i < NULL_HIDDEN; i++, value = json_next(value))
        ck_assert_float_eq((float)json_number(value), null_hidden(state, i));
    json_free(result);
}
END_TEST

/* How many of the 40 tokens of the prompt the daemon had computed before. */
static int cached_of(const char *option, const char *value)
{
    char prompt[41];
    memset(prompt, 'x', 40);
    prompt[40] = 0;
    program_run(&program, "generate", "--json", "--max-tokens", "1", "--prompt", prompt, option,
                value, NULL);
    ck_assert_msg(program.status == 0, "%s", program.err_text);
    json *result = parse_line(program.out_text);
    const json *cached = json_get(json_get(result, "usage"), "cached_tokens");
    int count = cached ? (int)json_number(cached) : 0;
    json_free(result);
    return count;
}

/* A line of a file: the field is called as the protocols call it. */
static bool line_finds(const char *fields)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/line.jsonl", spawn.directory);
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fprintf(file, "{\"prompt\":\"%040d\",\"max_tokens\":1%s}\n", 7, fields);
    fclose(file);
    program_run(&program, "generate", "--json", "--file", path, NULL);
    unlink(path);
    ck_assert_msg(program.status == 0, "%s", program.err_text);
    return strstr(program.out_text, "cached_tokens") != NULL;
}

START_TEST(what_was_computed_is_found_by_who_asks_alike)
{
    ck_assert_int_eq(cached_of("--no-cache", NULL), 0);
    ck_assert_int_eq(cached_of("--no-cache", NULL), 0);
    ck_assert_int_eq(cached_of("--cache-salt", "a"), 0);
    ck_assert_int_eq(cached_of("--cache-salt", "a"), 32);
    ck_assert_int_eq(cached_of("--cache-salt", "b"), 0);
    ck_assert_int_eq(cached_of("--priority", "0"), 0);
    ck_assert_int_eq(cached_of("--priority", "0"), 32);
    ck_assert_int_eq(cached_of("--no-cache", NULL), 0);
    ck_assert(!line_finds(""));
    ck_assert(line_finds(",\"cache\":true"));
    ck_assert(!line_finds(",\"cache\":false"));
    ck_assert(!line_finds(",\"cache_salt\":\"c\""));
    ck_assert(line_finds(",\"cache_salt\":\"c\""));
    program_run(&program, "generate", "--tokens", "1", "--cache-salt", "", NULL);
    ck_assert_int_eq(program.status, 2);
    ck_assert_ptr_nonnull(strstr(program.err_text, "cache_salt must have 1 to 256 bytes"));
}
END_TEST

START_TEST(a_text_is_answered_by_a_text)
{
    static const char prompt[] = "12+30=";
    uint64_t state = NULL_START;
    for (const char *at = prompt; *at; at++)
        state = null_state(state, (unsigned char)*at);
    program_run(&program, "generate", "--json", "--prompt", prompt, "--max-tokens", "1",
                "--ignore-eos", NULL);
    ck_assert_int_eq(program.status, 0);
    json *result = parse_line(program.out_text);
    ck_assert_int_eq((int)json_number(json_child(json_get(result, "tokens"))), null_byte(state));
    ck_assert(json_is_string(json_get(result, "text")));
    json_free(result);
    program_run(&program, "generate", "--prompt", prompt, "--max-tokens", "8", "--ignore-eos",
                NULL);
    ck_assert_int_eq(program.status, 0);
    ck_assert_uint_gt(program.out_length, 1);
}
END_TEST

START_TEST(an_interrupted_program_leaves_nothing_running)
{
    const char *const arguments[] = {"generate",      "--tokens", "1,2",
                                     "--max-tokens",  "8000",     "--ignore-eos",
                                     "--deadline-ms", "600000",   NULL};
    program_start(&program, -1, arguments);
    program_await(&program, ",");
    kill(program.pid, SIGINT);
    program_finish(&program);
    /* It may have been too fast for the signal. */
    ck_assert(program.status == 130 || program.status == 0);
    ck_assert_double_eq(gauge("live_sequences"), 0);
    ck_assert_double_eq(gauge("kv_blocks_used"), 0);
}
END_TEST

START_TEST(refusals_have_their_status)
{
    program_run(&program, "generate", "--tokens", "1", "--max-tokens", "8000", "--ignore-eos",
                "--deadline-ms", "1", NULL);
    ck_assert_int_eq(program.status, 5);
    program_run(&program, "generate", "--tokens", "257", NULL);
    ck_assert_int_eq(program.status, 1);
    ck_assert_ptr_nonnull(strstr(program.err_text, "bad_token"));
    program_run(&program, "generate", "--tokens", "1", "--max-tokens", "9000", NULL);
    ck_assert_int_eq(program.status, 1);
    ck_assert_ptr_nonnull(strstr(program.err_text, "too_large"));
    program_run(&program, "generate", "--tokens", "1", "--n", "100", NULL);
    ck_assert_int_eq(program.status, 1);
    ck_assert_ptr_nonnull(strstr(program.err_text, "100 sequences"));
    ck_assert_ptr_eq(strchr(program.err_text, '\n'),
                     program.err_text + program.err_length - 1); /* said once */
}
END_TEST

START_TEST(draining_refuses_and_resuming_takes_work_again)
{
    program_run(&program, "drain", NULL);
    ck_assert_int_eq(program.status, 0);
    program_run(&program, "health", NULL);
    ck_assert_int_eq(program.status, 4);
    program_run(&program, "generate", "--tokens", "1", NULL);
    ck_assert_int_eq(program.status, 4);
    program_run(&program, "resume", NULL);
    program_run(&program, "generate", "--tokens", "1", "--max-tokens", "1", NULL);
    ck_assert_int_eq(program.status, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("end to end");
    TCase *tcase = tcase_create("synthetic:null");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, a_file_longer_than_the_queue_is_answered_in_order_by_the_rule);
    tcase_add_test(tcase, every_job_answers_by_the_rule);
    tcase_add_test(tcase, what_was_computed_is_found_by_who_asks_alike);
    tcase_add_test(tcase, a_text_is_answered_by_a_text);
    tcase_add_test(tcase, an_interrupted_program_leaves_nothing_running);
    tcase_add_test(tcase, refusals_have_their_status);
    tcase_add_test(tcase, draining_refuses_and_resuming_takes_work_again);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    return runner_run(runner);
}
