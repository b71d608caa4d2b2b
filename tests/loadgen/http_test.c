/* The HTTP side against a server that stamps what it does: both use one clock, so that the order of
 * the stamps is certain, however slow the machine is. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/bench/api_key.h"
#include "client/bench/openai.h"
#include "client/bench/run.h"
#include "tests/loadgen/http_stub.h"
#include "tests/loadgen/loadgen_suites.h"

#define COUNT 20u

static struct workload workload;
static struct recorder recorder, probes;
static struct transport *transport;
static struct transport_info info;
static struct error error;

static const char *key = "";

static bool never(void)
{
    return false;
}

static void run_load(const char *path, double rate, double cancel_rate)
{
    struct bench_options options;
    char url[128];
    bench_options_init(&options);
    options.num_prompts = COUNT;
    options.request_rate = rate;
    options.input_len = 4;
    options.output_len = 3;
    options.cancel_rate = cancel_rate;
    snprintf(url, sizeof(url), "unix:%s", path);
    ck_assert_int_eq(workload_make(&options, &workload, &error), 0);
    workload.vocabulary = 100;
    ck_assert_int_eq(openai_open(url, NULL, key, &transport, &info, &error), 0);
    ck_assert_str_eq(info.model, "stub-model");
    const struct run run = {
        .load = &workload, .transports = &transport, .threads = 1, .open_max = 1, .stopped = never};
    ck_assert_int_eq(run_all(&run, &recorder, &probes, &error), 0);
    transport->close(transport);
}

static void clean_up(void)
{
    free(recorder.records);
    recorder_free(&recorder);
    workload_free(&workload);
}

/* The driver's stamps count from a start that only it knows: the first request of all bounds it. */
START_TEST(its_stamps_agree_with_the_servers_own)
{
    const char *path;
    const struct http_stamps *stamps;
    struct http_stub *stub = http_stub_start(0, &path);
    run_load(path, INFINITY, 0);
    http_stub_stop(stub);
    ck_assert_uint_eq(http_stub_stamps(stub, &stamps), COUNT);
    /* One at a time, so that they are in the same order on both sides. */
    int64_t low = INT64_MIN, high = INT64_MAX;
    for (uint32_t i = 0; i < COUNT; i++) {
        const struct record *record = &recorder.records[i];
        ck_assert_int_eq(record->outcome, OUTCOME_OK);
        ck_assert_uint_eq(record->output_tokens, 3);
        ck_assert_uint_ge(record->chunks, 1);
        ck_assert_uint_le(record->chunks, 3);
        /* sent <= heard, and what the server wrote is seen after it began to write it. */
        int64_t start_most = (int64_t)stamps[i].heard_us - (int64_t)record->sent_us;
        int64_t start_least = (int64_t)stamps[i].before_us[0] - (int64_t)record->first_us;
        int64_t end_least = (int64_t)stamps[i].before_us[2] - (int64_t)record->last_us;
        high = start_most < high ? start_most : high;
        low = start_least > low ? start_least : low;
        low = end_least > low ? end_least : low;
    }
    /* There is one start that satisfies all of them. */
    ck_assert_int_le(low, high);
    http_stub_free(stub);
    clean_up();
}
END_TEST

START_TEST(refusals_are_failures_with_what_the_server_says)
{
    const char *path;
    struct http_stub *stub = http_stub_start(2, &path);
    run_load(path, INFINITY, 0);
    http_stub_stop(stub);
    http_stub_free(stub);
    ck_assert_uint_eq(recorder.failure_count, 1);
    ck_assert_uint_eq(recorder.failures[0].count, COUNT / 2);
    ck_assert_int_eq(recorder.failures[0].code, ERR_BUSY);
    ck_assert_str_eq(recorder.failures[0].text, "HTTP 429: no room");
    clean_up();
}
END_TEST

START_TEST(cancelled_requests_end_as_such)
{
    const char *path;
    struct http_stub *stub = http_stub_start(0, &path);
    run_load(path, INFINITY, 1);
    http_stub_stop(stub);
    http_stub_free(stub);
    for (uint32_t i = 0; i < COUNT; i++)
        ck_assert(recorder.records[i].outcome == OUTCOME_CANCELLED ||
                  recorder.records[i].outcome == OUTCOME_OK);
    ck_assert_int_eq(recorder.failure_count, 0);
    clean_up();
}
END_TEST

START_TEST(a_key_goes_with_every_request_and_a_401_says_what_it_wants)
{
    static const struct {
        const char *key, *says;
    } wrong[] = {{"", "wants a key: give --api-key-file FILE, or set OPENAI_API_KEY"},
                 {"other", "does not know the key that was sent"}};
    const char *path;
    char url[128];
    struct http_stub *stub = http_stub_start(0, &path);
    http_stub_ask_key(stub, "secret");
    snprintf(url, sizeof(url), "unix:%s", path);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(openai_open(url, NULL, wrong[i].key, &transport, &info, &error),
                         -ERR_DENIED);
        ck_assert_msg(strstr(error.text, wrong[i].says) != NULL, "%s", error.text);
    }
    key = "secret";
    run_load(path, INFINITY, 0);
    key = "";
    http_stub_stop(stub);
    http_stub_free(stub);
    ck_assert_uint_eq(recorder.failure_count, 0);
    for (uint32_t i = 0; i < COUNT; i++)
        ck_assert_int_eq(recorder.records[i].outcome, OUTCOME_OK);
    clean_up();
}
END_TEST

static const struct {
    const char *file, *key; /* key NULL: refused */
} key_files[] = {
    {"secret\n", "secret"},
    {"web secret", "secret"},
    {"# of the web\n\n \tweb   secret \r\nother more\n", "secret"},
    {"", NULL},
    {"# nothing\n", NULL},
    {"web se\x01cret\n", NULL},
};

START_TEST(a_key_is_read_from_a_file_or_the_environment)
{
    char path[] = "/tmp/sluice-key-XXXXXX", found[API_KEY_MAX];
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    for (size_t i = 0; i < sizeof(key_files) / sizeof(key_files[0]); i++) {
        size_t length = strlen(key_files[i].file);
        ck_assert_int_eq(ftruncate(fd, 0), 0);
        ck_assert_int_eq(pwrite(fd, key_files[i].file, length, 0), (ssize_t)length);
        int rc = api_key_read(path, found, &error);
        ck_assert_int_eq(rc, key_files[i].key ? 0 : -ERR_USAGE);
        if (key_files[i].key)
            ck_assert_str_eq(found, key_files[i].key);
    }
    close(fd);
    unlink(path);
    ck_assert_int_eq(api_key_read(path, found, &error), -ERR_USAGE);
    setenv("OPENAI_API_KEY", "of-the-environment", 1);
    ck_assert_int_eq(api_key_read(NULL, found, &error), 0);
    ck_assert_str_eq(found, "of-the-environment");
    setenv("OPENAI_API_KEY", "two\nlines", 1);
    ck_assert_int_eq(api_key_read(NULL, found, &error), -ERR_USAGE);
    unsetenv("OPENAI_API_KEY");
    ck_assert_int_eq(api_key_read(NULL, found, &error), 0);
    ck_assert_str_eq(found, "");
}
END_TEST

START_TEST(a_server_that_is_not_there_is_said_so)
{
    static const char *const urls[] = {"unix:/nonexistent/socket", "ftp://x", "nonsense"};
    static const int codes[] = {ERR_CONNECT, ERR_USAGE, ERR_USAGE};
    ck_assert_int_eq(openai_open(urls[_i], NULL, "", &transport, &info, &error), -codes[_i]);
}
END_TEST

Suite *http_suite(void)
{
    Suite *suite = suite_create("http");
    TCase *cases = tcase_create("http");
    tcase_set_timeout(cases, 60);
    tcase_add_test(cases, its_stamps_agree_with_the_servers_own);
    tcase_add_test(cases, refusals_are_failures_with_what_the_server_says);
    tcase_add_test(cases, cancelled_requests_end_as_such);
    tcase_add_test(cases, a_key_goes_with_every_request_and_a_401_says_what_it_wants);
    tcase_add_test(cases, a_key_is_read_from_a_file_or_the_environment);
    tcase_add_loop_test(cases, a_server_that_is_not_there_is_said_so, 0, 3);
    suite_add_tcase(suite, cases);
    return suite;
}
