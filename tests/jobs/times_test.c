/* When the stages of chunks ran: in their order, on one clock for all lanes, and only of chunks that
 * ask. */
#include <string.h>
#include <unistd.h>

#include "gpu/jobs/module.h"
#include "gpu/lanes/lane_times.h"
#include "protocol/base/list.h"
#include "tests/jobs/bench.h"

static const struct gpu_jobs_options usual = {.lanes = 3,
                                              .ring = 2,
                                              .chunk_bytes = 256 << 10,
                                              .stream_count = 2,
                                              .event_count = 1};

static void check_order(const struct gpu_chunk_times *times)
{
    ck_assert_uint_gt(times->in.begin_ns, 0);
    ck_assert_uint_le(times->in.begin_ns, times->in.end_ns);
    ck_assert_uint_le(times->in.end_ns, times->kernels.begin_ns);
    ck_assert_uint_le(times->kernels.begin_ns, times->kernels.end_ns);
    ck_assert_uint_le(times->kernels.end_ns, times->out.begin_ns);
    ck_assert_uint_le(times->out.begin_ns, times->out.end_ns);
}

START_TEST(test_stages_of_a_chunk_are_timed_where_it_asks)
{
    int wake_fd;
    uint64_t state = (uint64_t)_i + 1, lanes = 0;
    bench_setup(_i == 0 ? EMU_THREADS : _i == 1 ? EMU_STREAM_THREAD : EMU_STEPPER, (uint64_t)_i);
    struct program program = bench_program(&bench_staged);
    struct gpu_jobs *jobs = bench_open(&usual, &wake_fd);
    struct error error;
    uint32_t sent = 0, ended = 0, timed = 0;
    while (ended < 60) {
        if (sent < 60 && gpu_jobs.room(jobs) > 0) {
            struct bench_chunk *chunk = bench_chunk(&program, &state, 3, 700);
            chunk->base.timed = sent >= 20 && bench_draw(&state, 2);
            timed += chunk->base.timed;
            ck_assert_msg(!gpu_jobs.submit(jobs, &chunk->base, &error), "%s", error.text);
            sent++;
            continue;
        }
        struct bench_chunk *chunk =
            container_of(bench_wait(jobs, wake_fd), struct bench_chunk, base);
        const struct gpu_chunk_times *times = &chunk->base.times;
        ck_assert(bench_right(chunk));
        if (chunk->base.timed) {
            check_order(times);
            ck_assert_uint_gt(times->bytes_in, times->bytes_out); /* the table of items goes along */
            ck_assert_uint_lt(times->lane, usual.lanes);
            lanes |= UINT64_C(1) << times->lane;
            timed--;
        } else {
            ck_assert_uint_eq(times->in.begin_ns + times->out.end_ns + times->bytes_in, 0);
        }
        if (sent < 20)
            ck_assert_uint_eq(emu_calls(EMU_cudaEventElapsedTime), 0);
        bench_free(chunk);
        ended++;
    }
    ck_assert_uint_eq(timed, 0);
    /* With threads one lane may run all that are timed, while the others' have no turn. */
    ck_assert(_i < 2 ? lanes > 0 : (lanes & (lanes - 1)) > 0);
    gpu_jobs.stop(jobs);
    gpu_jobs.close(jobs);
    close(wake_fd);
    ck_assert_uint_eq(emu_live().events, 0);
}
END_TEST

/* ---- the clock ---------------------------------------------------------------------------------
 */

static void record(struct lane_times *times, cudaStream_t stream)
{
    const cudaEvent_t events[] = {times->in_first,   times->in_last,   times->begun[0],
                                  times->through[0], times->out_first, times->out_last};
    for (int i = 0; i < 6; i++)
        ck_assert_int_eq(cudaEventRecord(events[i], stream), cudaSuccess);
    ck_assert_int_eq(cudaStreamSynchronize(stream), cudaSuccess);
}

/* renew_ms 0: each chunk's first event is the next one's origin; else the first one stays. */
START_TEST(test_the_clock_goes_on_whatever_its_origin)
{
    struct lane_clock clock;
    struct lane_times slots[2] = {{.streams = 0}};
    struct gpu_chunk_times read = {.out.end_ns = 0};
    cudaStream_t stream;
    struct error error;
    bench_setup(EMU_THREADS, 0);
    ck_assert_int_eq(lane_clock_open(&clock, &error), 0);
    ck_assert_int_eq(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0), cudaSuccess);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(lane_times_open(&slots[i], 1, &error), 0);
    clock.renew_ms = _i ? 1e9f : 0;
    for (int i = 0; i < 20; i++) {
        const cudaEvent_t origin = clock.origin;
        const uint64_t before_ns = read.out.end_ns;
        usleep(1000);
        record(&slots[i % 2], stream);
        ck_assert_int_eq(lane_times_read(&slots[i % 2], &clock, 1, &read, &error), 0);
        check_order(&read);
        if (i > 0) /* at least the millisecond, less what a float cannot tell */
            ck_assert_uint_gt(read.in.begin_ns, before_ns + 900000);
        ck_assert(clock.origin == origin || i == 0 || _i == 0);
        ck_assert(clock.origin != origin || (i > 0 && _i == 1));
    }
    for (int i = 0; i < 2; i++)
        lane_times_close(&slots[i]);
    lane_clock_close(&clock);
    ck_assert_int_eq(cudaStreamDestroy(stream), cudaSuccess);
    ck_assert_uint_eq(emu_live().events, 0);
}
END_TEST

Suite *times_suite(void)
{
    Suite *suite = suite_create("times");
    TCase *tests = tcase_create("times");
    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, test_stages_of_a_chunk_are_timed_where_it_asks, 0, 6);
    tcase_add_loop_test(tests, test_the_clock_goes_on_whatever_its_origin, 0, 2);
    suite_add_tcase(suite, tests);
    return suite;
}
