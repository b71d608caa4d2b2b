/* The worker of jobs on the emulated runtime, turn by turn: every job ends once, right to the bit
 * whatever stood beside it, also when it was cancelled, its program failed or the device is lost.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/base/seq.h"
#include "daemon/jobs/job_worker.h"
#include "daemon/jobs/record.h"
#include "gpu/jobs/module.h"
#include "tests/jobs/bench.h"
#include "tests/jobs/daemon_suites.h"

#define JOBS 300
#define TIMEOUT_US 5000000u

struct one {
    struct seq seq;
    struct tensor_job job;
    struct error failure;
    float *x, *y;
    bool sent, cancelled, ended;
    uint32_t ends;
};

static struct {
    struct job_programs programs;
    struct completion_queue completions;
    struct job_worker *worker;
    struct one jobs[JOBS];
    unsigned control;
    time_us now_us;
    char folder[64];
} world;

static uint64_t a_mebibyte(const struct sluice_item *item)
{
    (void)item;
    return 1 << 20;
}

static void wake(void *context)
{
    (void)context;
}

static void add_program(const struct sluice_program *said)
{
    struct job_program *program = &world.programs.list[world.programs.count++];
    struct error error;
    if (said)
        program->program = bench_program(said);
    else
        ck_assert_msg(!module_load(AFFINE_CPU, "cpu", &program->program, &error), "%s", error.text);
    record_name(world.folder, program->program.name, program->record, sizeof(program->record));
}

static uint64_t copy_rate; /* of the next world */

static void make_world(int turn)
{
    struct sluice_program hungry = bench_staged;
    hungry.name = "hungry";
    hungry.scratch = a_mebibyte;
    const struct job_worker_options options = {.lanes = {.lanes = 2,
                                                         .ring = 2,
                                                         .chunk_bytes = 64 << 10,
                                                         .stream_count = 2,
                                                         .event_count = 1},
                                               .timeout_us = TIMEOUT_US,
                                               .idle_release_us = 100000,
                                               .copy_rate = copy_rate};
    struct error error;
    bench_setup(turn == 0 ? EMU_THREADS : EMU_STEPPER, (uint64_t)turn + 1);
    snprintf(world.folder, sizeof(world.folder), "/tmp/sluice-jobs-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(world.folder));
    world.now_us = 1;
    add_program(NULL);
    add_program(&bench_staged);
    add_program(&bench_failing);
    add_program(&hungry);
    completion_init(&world.completions, wake, NULL);
    ck_assert_msg(!job_worker_make(&gpu_jobs, &world.programs, &options, &world.completions,
                                   &world.worker, &error),
                  "%s", error.text);
    ck_assert_int_eq(job_worker_open(world.worker), 0);
}

static void free_world(bool failed)
{
    for (unsigned i = 0; i < world.programs.count; i++)
        unlink(world.programs.list[i].record);
    rmdir(world.folder);
    job_worker_free(world.worker);
    completion_destroy(&world.completions);
    for (uint32_t i = 0; i < JOBS; i++) {
        free(world.jobs[i].x);
        free(world.jobs[i].y);
    }
    if (failed)
        return; /* a lost device's things go with the process */
    struct emu_live live = emu_live();
    ck_assert_uint_eq(live.streams + live.events + live.pools + live.host_ranges, 0);
}

static void send_job(uint32_t number, uint32_t program, uint32_t length, uint64_t *state)
{
    struct one *one = &world.jobs[number];
    struct replica *replica = job_worker_replica(world.worker);
    one->x = malloc(length * sizeof(float));
    one->y = malloc(length * sizeof(float));
    for (uint32_t i = 0; i < length; i++)
        one->x[i] = (float)bench_draw(state, 2000) / 7 - 100;
    memset(one->y, 0x5a, length * sizeof(float));
    one->job = (struct tensor_job){.program = &world.programs.list[program],
                                   .sizes = {length},
                                   .inputs = {one->x},
                                   .outputs = {one->y}};
    one->job.values[0].number = bench_draw(state, 100) / 3.0;
    one->job.values[1].number = bench_draw(state, 100) / 9.0;
    one->seq.job = &one->job;
    one->seq.failure = &one->failure;
    one->sent = true;
    replica->api->send(replica, &one->seq);
}

static void cancel_job(struct one *one)
{
    struct replica *replica = job_worker_replica(world.worker);
    one->cancelled = true;
    one->seq.cancel_reason = FINISH_CANCELLED;
    replica->api->cancel(replica, &one->seq);
}

/* As the loop does. */
static uint32_t take_ends(void)
{
    unsigned control, flags;
    uint32_t count = 0;
    struct mailbox_link *chain = completion_drain(&world.completions, &control);
    struct seq *seq;
    world.control |= control;
    while ((seq = completion_next(&chain, &flags))) {
        struct one *one = container_of(seq, struct one, seq);
        bool owned =
            flags & COMPLETION_ENDED && (!one->cancelled || flags & COMPLETION_CANCEL_SEEN);
        if (!owned)
            continue;
        one->ended = true;
        one->ends++;
        count++;
    }
    return count;
}

static bool turn(void)
{
    while (emu_step())
        continue;
    world.now_us += 10;
    return job_worker_turn(world.worker, world.now_us);
}

/* Turns until so many have ended. */
static void await(uint32_t *ended, uint32_t all)
{
    for (uint32_t i = 0; *ended < all && i < 200000; i++) {
        turn();
        *ended += take_ends();
        if (i > 1000)
            usleep(100); /* the threads' device */
    }
    ck_assert_uint_eq(*ended, all);
}

static bool right(const struct one *one)
{
    for (uint64_t i = 0; i < one->job.sizes[0]; i++) {
        volatile float product = (float)one->job.values[0].number * one->x[i];
        volatile float sum = product + (float)one->job.values[1].number;
        if (sum != one->y[i])
            return false;
    }
    return true;
}

static void check_end(const struct one *one)
{
    ck_assert_uint_eq(one->ends, 1);
    if (one->seq.finish == FINISH_CANCELLED) {
        ck_assert(one->cancelled);
    } else if (one->job.program == &world.programs.list[2]) {
        ck_assert_int_eq(one->seq.finish, FINISH_ERROR);
        ck_assert_int_eq(one->failure.code, ERR_PROGRAM);
    } else {
        ck_assert_int_eq(one->seq.finish, FINISH_STOP);
        ck_assert(right(one));
    }
}

START_TEST(every_job_ends_once_and_right_whatever_stands_beside_it)
{
    uint64_t state = (uint64_t)_i + 1;
    uint32_t ended = 0, cancelled = 0;
    make_world(_i);
    for (uint32_t i = 0; i < JOBS; i++) {
        uint32_t program = bench_draw(&state, 10);
        /* Of affine some are longer than a chunk. */
        uint32_t most = program < 5 && bench_draw(&state, 10) == 0 ? 60000 : 900;
        send_job(i, program < 5 ? 0 : program < 9 ? 1 : 2, 1 + bench_draw(&state, most), &state);
        struct one *other = &world.jobs[i - bench_draw(&state, i < 6 ? i + 1 : 6)];
        if (bench_draw(&state, 4) == 0 && !other->ended && !other->cancelled) {
            cancel_job(other);
            cancelled++;
        }
        if (bench_draw(&state, 4) == 0)
            turn();
        ended += take_ends();
    }
    await(&ended, JOBS);
    ck_assert_uint_gt(cancelled, 10);
    for (uint32_t i = 0; i < JOBS; i++)
        check_end(&world.jobs[i]);
    ck_assert_uint_eq(job_worker_wait_us(world.worker, world.now_us), 100000);
    world.now_us += 100000;
    turn();
    struct gpu_jobs_memory memory;
    struct gpu_jobs_counters counters;
    job_worker_figures(world.worker, &memory, &counters);
    ck_assert_uint_eq(memory.used + memory.held, 0);
    ck_assert_uint_gt(counters.overlapped, 0);
    ck_assert_uint_eq(counters.synchronizes + counters.allocations + counters.pageable_copies, 0);
    ck_assert_uint_eq(job_worker_wait_us(world.worker, world.now_us), JOB_WORKER_FOREVER);
    job_worker_stop(world.worker);
    ck_assert(!turn());
    (void)take_ends();
    ck_assert(world.control & COMPLETION_STOPPED);
    ck_assert(!(world.control & COMPLETION_FAILED));
    free_world(false);
}
END_TEST

/* How long so many chunks take, none of which is waited for by the device. */
static time_us take_through(uint64_t rate, uint32_t chunks)
{
    uint64_t state = 1;
    uint32_t ended = 0;
    copy_rate = rate;
    make_world(1);
    copy_rate = 0;
    world.now_us = 1000000;
    const time_us begin_us = world.now_us;
    for (uint32_t i = 0; i < chunks; i++)
        send_job(i, 0, 16384, &state); /* 64 KiB, which is a chunk */
    turn();
    if (rate > 0)
        ck_assert_uint_le(job_worker_wait_us(world.worker, world.now_us), UINT64_C(65536000000) / rate);
    await(&ended, chunks);
    job_worker_stop(world.worker);
    (void)turn();
    (void)take_ends();
    free_world(false);
    return world.now_us - begin_us;
}

/* 64 KiB a millisecond; two of them may have been saved up. */
START_TEST(copies_of_chunks_keep_to_the_rate)
{
    ck_assert_uint_lt(take_through(0, 40), 10000);
    const time_us took_us = take_through(65536000, 40);
    ck_assert_uint_ge(took_us, 37000);
    ck_assert_uint_lt(took_us, 40000);
}
END_TEST

/* Whoever asks gets the chunks that are enqueued until the question is too long ago. */
START_TEST(chunks_are_timed_while_somebody_asks)
{
    uint64_t state = 1;
    uint32_t ended = 0;
    make_world(1);
    struct timeline *timeline = job_worker_timeline(world.worker);
    for (uint32_t i = 0; i < 30; i++) {
        if (i == 10)
            timeline_ask(timeline, world.now_us);
        if (i == 20)
            world.now_us += TIMELINE_LEASE_US;
        send_job(i, i % 3, 1 + bench_draw(&state, 900), &state);
        await(&ended, i + 1);
    }
    static struct timeline_chunk told[100];
    uint64_t first;
    ck_assert_uint_eq(timeline_read(timeline, 0, 100, told, &first), 10);
    for (int i = 0; i < 10; i++) {
        ck_assert_ptr_eq(told[i].program, &world.programs.list[(10 + i) % 3]);
        ck_assert_uint_eq(told[i].pieces, 1);
        ck_assert_uint_lt(told[i].times.in.begin_ns, told[i].times.out.end_ns);
        ck_assert_uint_eq(told[i].times.bytes_out == 0, (10 + i) % 3 == 2); /* it failed */
    }
    job_worker_stop(world.worker);
    ck_assert(!turn());
    (void)take_ends();
    free_world(false);
}
END_TEST

START_TEST(a_stop_ends_what_is_there_as_cancelled)
{
    uint64_t state = 1;
    uint32_t ended = 0;
    make_world(1);
    for (uint32_t i = 0; i < 50; i++)
        send_job(i, 0, 1 + bench_draw(&state, 9000), &state);
    (void)job_worker_turn(world.worker, ++world.now_us); /* some are on the device now */
    job_worker_stop(world.worker);
    ck_assert(!turn());
    ended = take_ends();
    ck_assert_uint_eq(ended, 50);
    for (uint32_t i = 0; i < 50; i++)
        ck_assert(world.jobs[i].ends == 1 && world.jobs[i].seq.finish != FINISH_ERROR);
    free_world(false);
}
END_TEST

START_TEST(memory_that_the_device_refuses_delays_or_fails_jobs_and_nothing_else)
{
    uint64_t state = 1;
    uint32_t ended = 0;
    make_world(1);
    emu_memory_limit(0);
    send_job(0, 0, 100, &state);
    await(&ended, 1);
    ck_assert_int_eq(world.jobs[0].seq.finish, FINISH_ERROR);
    ck_assert_int_eq(world.jobs[0].failure.code, ERR_DEVICE_MEMORY);
    emu_memory_limit(4 << 20); /* a few at a time, and not all of the hungry in one chunk */
    for (uint32_t i = 1; i < 20; i++)
        send_job(i, i % 3 ? 3 : 0, 1 + bench_draw(&state, 900), &state);
    await(&ended, 20);
    for (uint32_t i = 1; i < 20; i++)
        check_end(&world.jobs[i]);
    emu_memory_limit(UINT64_MAX);
    job_worker_stop(world.worker);
    (void)turn();
    free_world(false);
}
END_TEST

static void check_lost(uint32_t sent, const bool off[3])
{
    char reason[JOB_REASON_MAX];
    ck_assert(world.control & COMPLETION_FAILED);
    ck_assert_int_eq(job_worker_state(world.worker), JOB_WORKER_FAILED);
    ck_assert_int_eq(job_worker_failure(world.worker)->code, ERR_DEVICE);
    for (uint32_t i = 0; i < sent; i++) {
        ck_assert_uint_eq(world.jobs[i].ends, 1);
        if (world.jobs[i].seq.finish == FINISH_ERROR && world.jobs[i].failure.code != ERR_PROGRAM)
            ck_assert_int_eq(world.jobs[i].failure.code, ERR_DEVICE);
    }
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(record_read(world.programs.list[i].record, reason), off[i]);
    for (int i = 0; i < 3; i++)
        unlink(world.programs.list[i].record);
    rmdir(world.folder);
}

START_TEST(a_lost_device_ends_every_job_and_records_what_was_on_it)
{
    static const bool off[] = {false, true, false};
    uint64_t state = 1;
    uint32_t ended = 0;
    make_world(1);
    send_job(0, 0, 100, &state);
    await(&ended, 1); /* affine was there, and is through */
    for (uint32_t i = 1; i < 30; i++)
        send_job(i, 1, 1 + bench_draw(&state, 900), &state);
    emu_fault_set(EMU_cudaMemcpyAsync, 3, cudaErrorIllegalAddress);
    await(&ended, 30);
    check_lost(30, off);
    send_job(30, 0, 100, &state); /* the loop does not know yet */
    await(&ended, 31);
    ck_assert_int_eq(world.jobs[30].failure.code, ERR_DEVICE);
    struct replica *replica = job_worker_replica(world.worker);
    ck_assert(!replica->api->healthy(replica, world.now_us));
    job_worker_stop(world.worker);
    ck_assert(!turn());
}
END_TEST

START_TEST(a_job_past_its_timeout_is_recorded_alone)
{
    static const bool off[] = {false, true, false};
    uint64_t state = 1;
    make_world(1); /* the stepped device: nothing runs unless it is stepped */
    send_job(0, 1, 100, &state);
    ck_assert(job_worker_turn(world.worker, world.now_us));
    world.now_us += 1000;
    send_job(1, 0, 100, &state);
    ck_assert(job_worker_turn(world.worker, world.now_us));
    ck_assert_uint_eq(take_ends(), 0);
    ck_assert_uint_le(job_worker_wait_us(world.worker, world.now_us), TIMEOUT_US);
    world.now_us += TIMEOUT_US - 1001;
    ck_assert(job_worker_turn(world.worker, world.now_us));
    ck_assert_uint_eq(take_ends(), 0);
    world.now_us += 1;
    ck_assert(job_worker_turn(world.worker, world.now_us));
    ck_assert_uint_eq(take_ends(), 2);
    check_lost(2, off);
    ck_assert_ptr_nonnull(strstr(job_worker_failure(world.worker)->text, "staged"));
}
END_TEST

Suite *worker_suite(void)
{
    Suite *suite = suite_create("worker");
    TCase *tests = tcase_create("worker");
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, every_job_ends_once_and_right_whatever_stands_beside_it, 0, 8);
    tcase_add_test(tests, copies_of_chunks_keep_to_the_rate);
    tcase_add_test(tests, chunks_are_timed_while_somebody_asks);
    tcase_add_test(tests, a_stop_ends_what_is_there_as_cancelled);
    tcase_add_test(tests, memory_that_the_device_refuses_delays_or_fails_jobs_and_nothing_else);
    tcase_add_test(tests, a_lost_device_ends_every_job_and_records_what_was_on_it);
    tcase_add_test(tests, a_job_past_its_timeout_is_recorded_alone);
    suite_add_tcase(suite, tests);
    return suite;
}
