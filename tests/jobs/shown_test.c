/* sluice timeline: what ran on a daemon, as its user sees it. */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "protocol/base/json.h"
#include "protocol/message_job.h"
#include "tests/client/program.h"
#include "tests/daemon/rig/spawn.h"
#include "tests/jobs/service_suites.h"

static struct spawn spawn;
static struct program program;
static char state_dir[80], svg[96], trace[96];

static void setup(void)
{
    const char *const environment[] = {state_dir, NULL};
    const char *const arguments[] = {"--program", AFFINE_CPU,      "--device", "cpu",
                                     "--job-lanes", "3", "--cpu-threads", "2", NULL};
    spawn_make(&spawn);
    setenv("SLUICE_SOCKET", spawn.socket, 1);
    snprintf(state_dir, sizeof(state_dir), "STATE_DIRECTORY=%s", spawn.directory);
    snprintf(svg, sizeof(svg), "%s/svg", spawn.directory);
    snprintf(trace, sizeof(trace), "%s/trace", spawn.directory);
    spawn_start(&spawn, arguments, environment);
    spawn_await_ready(&spawn);
}

static void teardown(void)
{
    unlink(svg);
    unlink(trace);
    spawn_free(&spawn);
}

static void run_job(struct wire *wire, uint64_t id)
{
    static const char head[] = "{\"program\":\"affine\",\"items\":[{\"inputs\":{\"x\":{\"dtype\":\"f32\","
                               "\"shape\":[2]}}}]} ";
    _Alignas(8) unsigned char buffer[256] = {0};
    const size_t length = frame_pad(sizeof(head) - 1);
    frame_encode_header(buffer, FRAME_JOB, 0, id, (uint32_t)length, 8);
    memset(buffer + FRAME_HEADER_SIZE, ' ', length);
    memcpy(buffer + FRAME_HEADER_SIZE, head, sizeof(head) - 1);
    wire_send(wire, buffer, FRAME_HEADER_SIZE + length + 8);
    ck_assert_int_eq(wire_done(wire).finish, FINISH_STOP);
}

/* One job after the other, until the program has ended. */
static void run_jobs(void)
{
    struct wire wire;
    uint64_t id = 0;
    struct pollfd end = {.fd = program.out, .events = POLLIN};
    wire_open(&wire, &spawn);
    while (poll(&end, 1, 1) == 0)
        run_job(&wire, ++id);
    wire_close(&wire);
    program_finish(&program);
}

static json *read_json(const char *text)
{
    const struct json_bounds bounds = {.bytes_max = 1 << 20, .depth_max = 8};
    struct error error;
    json *document = NULL;
    ck_assert_msg(json_parse(text, strlen(text), bounds, &document, &error) == 0, "%s", error.text);
    return document;
}

static void read_file(const char *path, char *text, size_t size)
{
    FILE *file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    text[fread(text, 1, size - 1, file)] = '\0';
    fclose(file);
}

START_TEST(chunks_of_a_daemon_are_shown_with_their_times)
{
    static char text[1 << 16];
    const char *const arguments[] = {"timeline", "--chunks", "9",       "--seconds", "60", "--json",
                                     "--svg",    svg,        "--trace", trace,       NULL};
    program_start(&program, -1, arguments);
    run_jobs();
    ck_assert_msg(program.status == 0, "%s", program.err_text);
    json *document = read_json(program.out_text);
    ck_assert_uint_eq(json_count(json_get(document, "chunks")), 9);
    double end_ns = 0; /* they were sent one after the other, so they ran so */
    for (const json *at = json_child(json_get(document, "chunks")); at; at = json_next(at)) {
        ck_assert(json_number(json_child(json_get(at, "in"))) >= end_ns);
        end_ns = json_number(json_next(json_child(json_get(at, "out"))));
        ck_assert(json_number(json_get(at, "bytes_out")) >= 8);
    }
    ck_assert(json_number(json_get(document, "at_once")) < 1.0001);
    json_free(document);
    read_file(trace, text, sizeof(text));
    document = read_json(text);
    ck_assert_uint_gt(json_count(json_get(document, "traceEvents")), 27);
    json_free(document);
    read_file(svg, text, sizeof(text));
    ck_assert_ptr_nonnull(strstr(text, "</svg>"));
    kill(spawn.pid, SIGTERM);
    ck_assert_int_eq(spawn_wait(&spawn), 0);
}
END_TEST

START_TEST(a_timeline_of_nothing_says_so)
{
    program_run(&program, "timeline", "--seconds", "1", NULL);
    ck_assert_int_eq(program.status, 4);
    ck_assert_ptr_nonnull(strstr(program.err_text, "no job ran within 1 s"));
    kill(spawn.pid, SIGTERM);
    ck_assert_int_eq(spawn_wait(&spawn), 0);
}
END_TEST

Suite *shown_suite(void)
{
    Suite *suite = suite_create("shown");
    TCase *tests = tcase_create("shown");
    tcase_set_timeout(tests, 120);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, chunks_of_a_daemon_are_shown_with_their_times);
    tcase_add_test(tests, a_timeline_of_nothing_says_so);
    suite_add_tcase(suite, tests);
    return suite;
}
