#include "tests/daemon/daemon_suites.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/worker/trace.h"
#include "protocol/base/json.h"
#include "protocol/message.h"
#include "tests/daemon/rig/spawn.h"

#define STEPS 100u
#define DEVICE_AHEAD_NS 7000000000u /* of the host's clock */
#define LATE_NS 2000u               /* the host hears of each step after that */

static struct trace *trace;
static struct spawn spawn;
static struct error error;

/* Steps of 1 ms, 3 us apart on compute, each submitted while the one before it runs; but every
 * tenth is submitted half a millisecond after the device ran out of work. */
static struct gpu_profile step_at(uint32_t number)
{
    uint64_t begin = 1000000u + number * 1003000u + number / 10 * 500000u;
    bool late = number % 10 == 0;
    struct gpu_profile step = {.rows = 4, .tokens = 8, .slabs = number == 7};
    step.enqueue.begin_ns = begin - (late ? 20000 : 900000);
    step.enqueue.end_ns = step.enqueue.begin_ns + 5000;
    step.lanes[GPU_COPY_IN] =
        (struct gpu_span){step.enqueue.begin_ns + 2000, step.enqueue.begin_ns + 4000};
    step.lanes[GPU_COMPUTE] = (struct gpu_span){begin, begin + 1000000};
    step.lanes[GPU_COPY_OUT] = (struct gpu_span){begin + 1000000, begin + 1001000};
    step.told_ns = begin + 1001000 + LATE_NS;
    for (int lane = 0; lane < GPU_NOTIFY; lane++) {
        if (step.lanes[lane].end_ns == 0)
            continue;
        step.lanes[lane].begin_ns += DEVICE_AHEAD_NS;
        step.lanes[lane].end_ns += DEVICE_AHEAD_NS;
    }
    return step;
}

static void fill(uint32_t ranks)
{
    const int devices[] = {3, 5};
    ck_assert_int_eq(trace_make(STEPS, ranks, &trace, &error), 0);
    trace_name(trace, 1, devices);
    for (uint32_t i = 0; i < STEPS; i++) {
        ck_assert(!trace_full(trace));
        for (uint32_t rank = 0; rank < ranks; rank++) {
            struct gpu_profile step = step_at(i);
            trace_take(trace, rank, &step);
        }
    }
    ck_assert(trace_full(trace));
    trace_close(trace);
    ck_assert(trace_closed(trace));
}

START_TEST(busy_times_overlap_and_gaps_are_those_of_the_lanes)
{
    struct trace_summary sum;
    fill(1);
    ck_assert(trace_summarise(trace, 0, &sum));
    ck_assert_uint_eq(sum.steps, STEPS);
    ck_assert_uint_eq(sum.busy_ns[GPU_COMPUTE], STEPS * 1000000u);
    ck_assert_uint_eq(sum.busy_ns[GPU_COPY_IN], STEPS * 2000u);
    ck_assert_uint_eq(sum.busy_ns[GPU_COPY_OUT], STEPS * 1000u);
    ck_assert_uint_eq(sum.busy_ns[GPU_BULK_IN] + sum.busy_ns[GPU_BULK_OUT], 0);
    /* Both bounds of the clocks' distance are 2 us off, in opposite directions. */
    ck_assert_uint_eq(sum.busy_ns[GPU_NOTIFY], STEPS * LATE_NS);
    uint64_t elapsed = step_at(STEPS - 1).told_ns - step_at(0).enqueue.begin_ns - 2000u;
    ck_assert_uint_eq(sum.elapsed_ns, elapsed);
    double overlap = (double)(STEPS * (1000000u + 2000u + 1000u + LATE_NS)) / (double)elapsed;
    ck_assert_double_eq_tol(sum.overlap, overlap, 1e-9);
    ck_assert_uint_eq(sum.gaps, STEPS - STEPS / 10);
    ck_assert_uint_eq(sum.gap_max_ns, 3000);
    ck_assert_uint_ge(sum.gap_p50_ns, 2900);
    trace_free(trace);
}
END_TEST

START_TEST(a_step_more_than_asked_for_is_ignored_and_none_at_all_gives_no_figures)
{
    struct trace_summary sum;
    struct gpu_profile step = step_at(STEPS);
    fill(1);
    trace_take(trace, 0, &step);
    ck_assert(trace_summarise(trace, 0, &sum));
    ck_assert_uint_eq(sum.steps, STEPS);
    trace_free(trace);
    ck_assert_int_eq(trace_make(STEPS, 2, &trace, &error), 0);
    ck_assert(!trace_summarise(trace, 1, &sum));
    trace_free(trace);
}
END_TEST

/* Counts the events of a trace, by thread; every one must be whole. */
struct counts {
    uint32_t spans[16][GPU_LANES + 1], names;
    double last_us; /* end of the last one */
};

static struct counts count_events(const char *text, size_t length)
{
    struct counts counts = {.names = 0};
    json *document;
    int rc = json_parse(text, length, (struct json_bounds){.bytes_max = 16u << 20, .depth_max = 8},
                        &document, &error);
    ck_assert_msg(rc == 0, "%s", error.text);
    const json *event = json_child(json_get(document, "traceEvents"));
    for (; event; event = json_next(event)) {
        const char *kind = json_string(json_get(event, "ph"));
        int process = (int)json_number(json_get(event, "pid"));
        int thread = (int)json_number(json_get(event, "tid"));
        counts.names += strcmp(json_string(json_get(event, "name")), "process_name") == 0;
        if (strcmp(kind, "X") != 0)
            continue;
        double begin = json_number(json_get(event, "ts")), us = json_number(json_get(event, "dur"));
        ck_assert(process >= 0 && process < 16 && thread >= 0 && thread <= GPU_LANES);
        ck_assert(begin >= 0 && us >= 0);
        ck_assert_double_gt(json_number(json_get(json_get(event, "args"), "step")), 0);
        counts.spans[process][thread]++;
        counts.last_us = begin + us > counts.last_us ? begin + us : counts.last_us;
    }
    json_free(document);
    return counts;
}

START_TEST(the_file_has_a_process_per_device_and_a_thread_per_lane)
{
    char *text = NULL;
    size_t length = 0;
    fill(2);
    FILE *file = open_memstream(&text, &length);
    trace_write(&trace, 1, file);
    fclose(file);
    struct counts counts = count_events(text, length);
    ck_assert_uint_eq(counts.names, 2);
    for (uint32_t process = 0; process < 2; process++)
        for (int thread = 0; thread <= GPU_LANES; thread++)
            ck_assert_uint_eq(
                counts.spans[process][thread],
                thread == GPU_BULK_IN || thread == GPU_BULK_OUT || thread == GPU_PEER ? 0 : STEPS);
    double all_us = (double)(step_at(STEPS - 1).told_ns - step_at(0).enqueue.begin_ns) / 1e3;
    ck_assert_double_eq_tol(counts.last_us, all_us, 0.01);
    ck_assert_ptr_nonnull(strstr(text, "\"replica 1, rank 1, device 5\""));
    free(text);
    trace_free(trace);
}
END_TEST

/* The event that ties a step's copies to the device's clock was recorded 50 us late, as on a
 * machine whose cores are busy: the copies seem to have begun before the step was enqueued. */
START_TEST(nothing_begins_before_it_is_enqueued_though_clocks_contradict_each_other)
{
    char *text = NULL;
    size_t length = 0;
    ck_assert_int_eq(trace_make(STEPS, 1, &trace, &error), 0);
    for (uint32_t i = 0; i < STEPS; i++) {
        struct gpu_profile step = step_at(i);
        if (i == (uint32_t)_i) {
            step.lanes[GPU_COPY_IN].begin_ns -= 50000;
            step.lanes[GPU_COPY_IN].end_ns -= 50000;
        }
        trace_take(trace, 0, &step);
    }
    FILE *file = open_memstream(&text, &length);
    trace_write(&trace, 1, file);
    fclose(file);
    struct counts counts = count_events(text, length); /* looks for what begins before the trace */
    ck_assert_uint_eq(counts.spans[0][GPU_COPY_IN], STEPS);
    free(text);
    trace_free(trace);
}
END_TEST

/* ---- of a daemon -------------------------------------------------------------------------------
 */

static void serve_requests(const char *steps, const char *path, const char *way)
{
    const char *const arguments[] = {"--model",
                                     "synthetic:tiny",
                                     "--device",
                                     "cpu",
                                     "--cpu-devices",
                                     "2",
                                     way,
                                     "2",
                                     "--dp",
                                     "1",
                                     "--profile-steps",
                                     steps,
                                     path,
                                     NULL};
    static const int32_t tokens[] = {1, 2, 3};
    static _Alignas(8) unsigned char buffer[4096];
    struct message_prompt prompt = {
        .sampling = sampling_unset(), .tokens = tokens, .token_count = 3};
    prompt.sampling.max_tokens = 40;
    prompt.sampling.ignore_eos = true;
    const struct message_submit_out submit = {.params.job = JOB_GENERATE,
                                              .params.normalize = true,
                                              .prompt_count = 1,
                                              .prompts = &prompt};
    struct wire wire;
    struct frame frame;
    spawn_start(&spawn, arguments, NULL);
    spawn_await_ready(&spawn);
    wire_open(&wire, &spawn);
    wire_send(&wire, buffer, message_encode_submit(buffer, sizeof(buffer), 1, &submit));
    wire_find(&wire, FRAME_DONE, &frame);
    wire_close(&wire);
}

static void end_daemon(void)
{
    kill(spawn.pid, SIGTERM);
    ck_assert_int_eq(spawn_wait(&spawn), 0);
}

static struct counts read_trace(const char *path)
{
    static char text[1u << 20];
    FILE *file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    size_t length = fread(text, 1, sizeof(text), file);
    fclose(file);
    return count_events(text, length);
}

/* 20 steps are full before the request has ended, 500 never are. */
/* Shared by two devices, or by two stages, of which the first hands on. */
START_TEST(a_daemon_writes_its_first_steps_when_it_has_them_and_at_its_end_at_the_latest)
{
    static const char *const steps[] = {"20", "500"};
    bool stages = _i >= 2;
    char path[128];
    spawn_make(&spawn);
    snprintf(path, sizeof(path), "%s/trace", spawn.directory);
    serve_requests(steps[_i % 2], path, stages ? "--pp" : "--tp");
    while (_i % 2 == 0 && !spawn_logged(&spawn, "trace is written"))
        usleep(1000);
    end_daemon();
    ck_assert(spawn_logs(&spawn, "replica 0, device 1: "));
    ck_assert(spawn_logs(&spawn, "overlap"));
    struct counts counts = read_trace(path);
    ck_assert_uint_eq(counts.names, 2);
    for (uint32_t process = 0; process < 2; process++) {
        uint32_t count = counts.spans[process][GPU_COMPUTE];
        ck_assert(_i % 2 == 0 ? count == 20 : count >= 40 && count < 60);
        ck_assert_uint_eq(counts.spans[process][GPU_NOTIFY], count);
        ck_assert_uint_eq(counts.spans[process][GPU_PEER], stages && process == 0 ? count : 0);
    }
    unlink(path);
    spawn_free(&spawn);
}
END_TEST

START_TEST(options_that_are_read_again_leave_the_path_as_it_was)
{
    char path[128];
    spawn_make(&spawn);
    snprintf(path, sizeof(path), "%s/trace", spawn.directory);
    serve_requests("500", path, "--tp");
    kill(spawn.pid, SIGHUP);
    while (!spawn_logged(&spawn, "options were read again"))
        usleep(1000);
    end_daemon();
    ck_assert_uint_eq(read_trace(path).names, 2);
    unlink(path);
    spawn_free(&spawn);
}
END_TEST

START_TEST(a_path_that_cannot_be_written_ends_the_daemon_before_it_serves)
{
    const char *const arguments[] = {
        "--model", "synthetic:null",     "--device", "cpu", "--profile-steps",
        "20",      "/nonexistent/trace", NULL};
    spawn_make(&spawn);
    spawn_start(&spawn, arguments, NULL);
    ck_assert_int_eq(spawn_wait(&spawn), 78);
    ck_assert(spawn_logged(&spawn, "profile-file: cannot write /nonexistent/trace: "));
    spawn_free(&spawn);
}
END_TEST

START_TEST(a_full_disk_is_told_and_ends_nothing)
{
    spawn_make(&spawn);
    serve_requests("20", "/dev/full", "--tp");
    end_daemon();
    ck_assert(spawn_logs(&spawn, "/dev/full is not whole: No space left on device"));
    ck_assert(!spawn_logged(&spawn, "/dev/full is written"));
    spawn_free(&spawn);
}
END_TEST

Suite *trace_suite(void)
{
    Suite *suite = suite_create("trace");
    TCase *tcase = tcase_create("trace");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, busy_times_overlap_and_gaps_are_those_of_the_lanes);
    tcase_add_test(tcase, a_step_more_than_asked_for_is_ignored_and_none_at_all_gives_no_figures);
    tcase_add_test(tcase, the_file_has_a_process_per_device_and_a_thread_per_lane);
    tcase_add_loop_test(
        tcase, nothing_begins_before_it_is_enqueued_though_clocks_contradict_each_other, 0, 2);
    tcase_add_loop_test(
        tcase, a_daemon_writes_its_first_steps_when_it_has_them_and_at_its_end_at_the_latest, 0, 4);
    tcase_add_test(tcase, options_that_are_read_again_leave_the_path_as_it_was);
    tcase_add_test(tcase, a_path_that_cannot_be_written_ends_the_daemon_before_it_serves);
    tcase_add_test(tcase, a_full_disk_is_told_and_ends_nothing);
    suite_add_tcase(suite, tcase);
    return suite;
}
