#include "daemon/worker/worker.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "tests/daemon/replica_suites.h"
#include "tests/daemon/rig/fake_device.h"
#include "tests/daemon/sched/sched_rig.h"

#define SEQS_MAX 300
#define CACHE_US 5000000u /* cache-idle-release, where there is a cache */

static struct worker *worker;
static struct gpu_engine *engine;
static struct completion_queue completions;
static atomic_uint wakes;
static struct seq *seqs[SEQS_MAX];
static bool ended[SEQS_MAX];
static uint32_t seq_count, ended_count;
static unsigned told; /* controls so far */
static time_us now_us;

static void woken(void *context)
{
    (void)context;
    atomic_fetch_add(&wakes, 1);
}

static void open_shape(const struct fake_shape *shape, bool at_once)
{
    struct worker_options options = {.sched = {.chunk_every = 4,
                                               .kv_idle_release_us = 5000,
                                               .prefix_cache = shape->chunks_max > 0,
                                               .cache_idle_release_us = CACHE_US,
                                               .stall_us = UINT64_MAX},
                                     .step_timeout_us = 1000000};
    struct error error;
    engine = fake_create(shape, 1);
    fake_knobs(engine)->at_once = at_once;
    completion_init(&completions, woken, NULL);
    now_us = 1000000;
    int rc = worker_create(&fake_api, engine, fake_model(engine), fake_limits(engine), &options,
                           &completions, &worker, &error);
    ck_assert_int_eq(rc, 0);
    ck_assert_int_eq(worker_state(worker), WORKER_LOADING);
}

static void open_worker(bool at_once)
{
    struct fake_shape shape = rig_shape();
    shape.tokens_max = 128;
    open_shape(&shape, at_once);
}

static void close_worker(void)
{
    ck_assert_str_eq(fake_fault(engine), "");
    worker_destroy(worker);
    completion_destroy(&completions);
    for (uint32_t i = 0; i < seq_count; i++)
        fake_seq_free(seqs[i]);
}

static struct seq *send(uint32_t prompt_len, uint32_t max_tokens)
{
    struct fake_options options = {.job = JOB_GENERATE,
                                   .prompt_len = prompt_len,
                                   .max_tokens = max_tokens,
                                   .ignore_eos = true,
                                   .logprobs = 0,
                                   .seed = seq_count + 1};
    struct seq *seq = fake_seq(&options, now_us);
    seq->number = seq_count;
    seqs[seq_count++] = seq;
    worker_send(worker, seq);
    worker_wake(worker);
    return seq;
}

/* What the loop does with the completion queue. */
static void read_outbox(void)
{
    unsigned control, flags;
    struct mailbox_link *chain = completion_drain(&completions, &control);
    struct seq *seq;
    told |= control;
    while ((seq = completion_next(&chain, &flags)) != NULL) {
        if (!(flags & COMPLETION_ENDED) || (seq->cancel_sent && !(flags & COMPLETION_CANCEL_SEEN)))
            continue;
        ck_assert(!ended[seq->number]);
        ended[seq->number] = true;
        ended_count++;
    }
}

static bool turn(void)
{
    bool goes_on = worker_turn(worker, now_us);
    read_outbox();
    return goes_on;
}

static void run_until_ended(void)
{
    for (uint32_t i = 0; i < 10000 && ended_count < seq_count; i++) {
        turn();
        fake_run(engine);
        now_us += 10;
    }
    turn();
    ck_assert_uint_eq(ended_count, seq_count);
    for (uint32_t i = 0; i < seq_count; i++)
        ck_assert_str_eq(fake_check(engine, seqs[i]), "");
}

static void cancel(struct seq *seq)
{
    seq->cancel_reason = FINISH_CANCELLED;
    seq->cancel_sent = true;
    worker_cancel(worker, seq);
    worker_wake(worker);
}

START_TEST(sequences_go_in_and_come_back_answered)
{
    open_worker(_i != 0);
    ck_assert_int_eq(worker_open(worker), 0);
    ck_assert_int_eq(worker_state(worker), WORKER_READY);
    for (uint32_t i = 0; i < 40; i++)
        send(1 + i, 1 + i % 7);
    run_until_ended();
    ck_assert(told & COMPLETION_READY);
    close_worker();
}
END_TEST

START_TEST(an_idle_worker_waits_for_ever_once_memory_is_back)
{
    open_worker(false);
    worker_open(worker);
    turn();
    ck_assert_uint_eq(worker_wait_us(worker, now_us), WORKER_FOREVER);
    send(10, 3);
    turn();
    ck_assert_uint_eq(worker_wait_us(worker, now_us), 100000); /* a step is in flight */
    run_until_ended();
    while (fake_run(engine))
        turn();
    ck_assert_uint_gt(worker_wait_us(worker, now_us), 0);
    ck_assert_uint_le(worker_wait_us(worker, now_us), 5000);
    now_us += 5000;
    turn();
    ck_assert_uint_eq(fake_counts(engine).trims, 1);
    ck_assert_uint_eq(fake_counts(engine).slabs, 0);
    ck_assert_uint_eq(worker_wait_us(worker, now_us), WORKER_FOREVER);
    close_worker();
}
END_TEST

START_TEST(no_plan_after_a_cancel_contains_the_sequence)
{
    open_worker(false);
    worker_open(worker);
    struct seq *seq = send(10, 100);
    for (int i = 0; i < 5; i++) {
        turn();
        fake_run(engine);
    }
    uint64_t rows = fake_counts(engine).rows;
    cancel(seq);
    turn();
    ck_assert_uint_eq(ended_count, 1);
    ck_assert_int_eq(seq->finish, FINISH_CANCELLED);
    while (fake_run(engine))
        turn();
    ck_assert_uint_eq(fake_counts(engine).rows, rows);
    ck_assert_str_eq(fake_check(engine, seq), "");
    close_worker();
}
END_TEST

/* The cancel is sent after the worker ended the sequence, before the loop saw that. */
START_TEST(a_cancel_that_crosses_the_end_is_answered)
{
    open_worker(false);
    worker_open(worker);
    struct seq *seq = send(10, 1);
    worker_turn(worker, now_us);
    fake_run(engine);
    worker_turn(worker, now_us);
    cancel(seq);
    read_outbox();
    ck_assert_uint_eq(ended_count, 0); /* its cancel link is still in a mailbox */
    turn();
    ck_assert_uint_eq(ended_count, 1);
    ck_assert_int_eq(seq->finish, FINISH_LENGTH);
    close_worker();
}
END_TEST

START_TEST(a_cancel_that_comes_with_its_sequence_ends_it)
{
    open_worker(false);
    worker_open(worker);
    cancel(send(10, 5));
    turn();
    ck_assert_uint_eq(ended_count, 1);
    ck_assert_uint_eq(fake_counts(engine).submitted, 0);
    close_worker();
}
END_TEST

START_TEST(the_room_counts_what_is_on_its_way)
{
    open_worker(false);
    ck_assert(!worker_room(worker).ready);
    worker_open(worker);
    struct replica_room room = worker_room(worker);
    ck_assert(room.ready && room.empty);
    ck_assert_uint_eq(room.sequences, 16);
    for (int i = 0; i < 16; i++)
        send(10, 5);
    ck_assert_uint_eq(worker_room(worker).sequences, 0);
    ck_assert_uint_eq(worker_room(worker).kv_tokens, room.kv_tokens - 160);
    ck_assert(!worker_room(worker).empty);
    run_until_ended();
    ck_assert_uint_eq(worker_room(worker).sequences, 16);
    ck_assert(worker_room(worker).empty);
    close_worker();
}
END_TEST

static void expect_failure(void)
{
    ck_assert_int_eq(worker_state(worker), WORKER_FAILED);
    ck_assert(told & COMPLETION_FAILED);
    ck_assert_int_eq(worker_failure(worker)->code, ERR_DEVICE);
    ck_assert(!worker_healthy(worker, now_us));
    struct seq *late = send(5, 5); /* before the loop knew */
    cancel(late);
    turn();
    turn();
    ck_assert_uint_eq(ended_count, seq_count);
    for (uint32_t i = 0; i < seq_count; i++) {
        ck_assert_int_eq(seqs[i]->finish, FINISH_ERROR);
        ck_assert_int_eq(seqs[i]->failure->code, ERR_DEVICE);
    }
    ck_assert_uint_eq(worker_wait_us(worker, now_us), WORKER_FOREVER);
}

START_TEST(a_failed_submission_ends_everything_with_a_retryable_error)
{
    open_worker(false);
    worker_open(worker);
    fake_knobs(engine)->fail_step = 1 + (uint64_t)_i;
    for (int i = 0; i < 30; i++)
        send(20, 20);
    for (int i = 0; i < 10; i++) {
        turn();
        fake_run(engine);
    }
    expect_failure();
    close_worker();
}
END_TEST

START_TEST(a_step_that_never_ends_is_asked_about_and_then_counts_as_stuck)
{
    open_worker(false);
    worker_open(worker);
    send(10, 5);
    turn();
    now_us += worker_wait_us(worker, now_us) - 1;
    turn();
    ck_assert_uint_eq(fake_counts(engine).queries, 0);
    now_us += 1;
    turn();
    ck_assert_uint_eq(fake_counts(engine).queries, 1); /* busy: goes on waiting */
    ck_assert_int_eq(worker_state(worker), WORKER_READY);
    ck_assert(worker_healthy(worker, now_us));
    now_us += 1000000;
    ck_assert(!worker_healthy(worker, now_us));
    fake_knobs(engine)->dead = true;
    turn();
    expect_failure();
    close_worker();
}
END_TEST

/* Of a model that wakes: its own time begins when the last of its weights are there. */
START_TEST(a_step_that_waits_for_weights_is_no_step_that_is_stuck)
{
    open_worker(false);
    fake_knobs(engine)->weights_come = true;
    worker_open(worker);
    send(10, 5);
    turn();
    ck_assert(worker_healthy(worker, now_us + WORKER_WEIGHTS_US));
    ck_assert(!worker_healthy(worker, now_us + WORKER_WEIGHTS_US + 1));
    now_us += WORKER_WEIGHTS_US;
    turn();
    ck_assert(worker_healthy(worker, now_us));
    fake_knobs(engine)->weights_come = false;
    ck_assert(worker_healthy(worker, now_us));
    turn();
    ck_assert(worker_healthy(worker, now_us + 1000000));
    ck_assert(!worker_healthy(worker, now_us + 1000001));
    run_until_ended();
    ck_assert(worker_healthy(worker, now_us + 10000000));
    close_worker();
}
END_TEST

/* A worker whose cached blocks are being copied to host memory, and nothing else goes on. */
static void open_copying(void)
{
    struct fake_shape shape = rig_shape();
    shape.chunk_blocks = 4;
    shape.chunks_max = 20;
    open_shape(&shape, true);
    worker_open(worker);
    struct fake_options options = {.job = JOB_GENERATE,
                                   .prompt_len = 60,
                                   .max_tokens = 4,
                                   .ignore_eos = true,
                                   .logprobs = 0,
                                   .seed = 1};
    struct seq *seq = fake_seq(&options, now_us);
    fake_seq_cache(seq, fake_model(engine), "salt");
    seq->number = seq_count;
    seqs[seq_count++] = seq;
    worker_send(worker, seq);
    run_until_ended();
    now_us += CACHE_US;
    turn(); /* asks for a chunk, which is made at once, and then copies, and asks for another */
    turn();
    ck_assert_uint_eq(fake_counts(engine).chunks, 2);
}

START_TEST(a_copy_that_never_ends_counts_as_stuck)
{
    open_copying();
    ck_assert(worker_healthy(worker, now_us));
    ck_assert_uint_ne(worker_wait_us(worker, now_us), WORKER_FOREVER);
    now_us += worker_wait_us(worker, now_us);
    turn();
    ck_assert_uint_eq(fake_counts(engine).queries, 1);
    now_us += 1000001;
    ck_assert(!worker_healthy(worker, now_us));
    fake_knobs(engine)->dead = true;
    turn();
    ck_assert_int_eq(worker_state(worker), WORKER_FAILED);
    close_worker();
}
END_TEST

START_TEST(what_is_idle_goes_to_host_memory_and_then_the_worker_waits_for_ever)
{
    open_copying();
    for (uint32_t i = 0; i < 1000 && worker_wait_us(worker, now_us) != WORKER_FOREVER; i++) {
        bool copied = fake_run_copies(engine, GPU_TO_HOST);
        now_us += copied ? 0 : worker_wait_us(worker, now_us);
        turn();
    }
    ck_assert_uint_eq(worker_wait_us(worker, now_us), WORKER_FOREVER);
    ck_assert(worker_healthy(worker, now_us + 10000000));
    ck_assert_uint_eq(fake_counts(engine).slabs, 0);
    ck_assert_uint_eq(fake_counts(engine).chunks, 2);
    worker_ask_stats(worker);
    turn();
    ck_assert_uint_eq(worker_snapshot(worker)->host_blocks, 7);
    ck_assert_uint_eq(worker_snapshot(worker)->host_blocks_out_total, 7);
    worker_trim(worker); /* asked to give back what is idle it gives that back, too */
    for (int i = 0; i < 5; i++)
        turn();
    ck_assert_uint_eq(fake_counts(engine).chunks, 0);
    close_worker();
}
END_TEST

static int descriptors(void)
{
    int count = 0;
    for (int fd = 0; fd < 256; fd++)
        count += fcntl(fd, F_GETFD) != -1;
    return count;
}

START_TEST(a_model_that_does_not_load_is_told)
{
    int before = descriptors();
    open_worker(false);
    fake_knobs(engine)->dead = true;
    ck_assert_int_lt(worker_open(worker), 0);
    read_outbox();
    ck_assert(told & COMPLETION_FAILED);
    ck_assert_int_eq(worker_failure(worker)->code, ERR_BAD_MODEL);
    ck_assert(!worker_room(worker).ready);
    close_worker();
    ck_assert_int_eq(descriptors(), before); /* the next may be tried for ever */
}
END_TEST

START_TEST(figures_are_copied_when_asked_for)
{
    open_worker(true);
    worker_open(worker);
    for (int i = 0; i < 10; i++)
        send(10, 4);
    run_until_ended();
    ck_assert_ptr_null(worker_snapshot(worker));
    worker_ask_stats(worker);
    ck_assert_ptr_null(worker_snapshot(worker));
    turn();
    ck_assert(told & COMPLETION_STATS);
    const struct stats_worker *stats = worker_snapshot(worker);
    ck_assert_uint_eq(stats->generated_tokens_total, 40);
    ck_assert_uint_eq(stats->prompt_tokens_total, 100);
    ck_assert_uint_eq(stats->time_to_first_token.count, 10);
    ck_assert_uint_eq(stats->inter_token_latency.count, 30);
    ck_assert_uint_eq(stats->time_per_output_token.count, 10);
    ck_assert_uint_eq(stats->end_to_end.count, 10);
    ck_assert_uint_eq(stats->queue_time.count, 10);
    ck_assert_uint_eq(stats->steps_total, fake_counts(engine).submitted);
    ck_assert_uint_eq(stats->step_compute.count, stats->steps_total);
    ck_assert_uint_eq(stats->running, 0);
    close_worker();
}
END_TEST

START_TEST(stopping_ends_what_is_left)
{
    open_worker(false);
    worker_open(worker);
    for (int i = 0; i < 30; i++)
        send(10, 50);
    turn();
    worker_stop(worker);
    ck_assert(!turn());
    ck_assert(told & COMPLETION_STOPPED);
    ck_assert_uint_eq(ended_count, 30);
    ck_assert_int_eq(seqs[7]->finish, FINISH_CANCELLED);
    close_worker();
}
END_TEST

/* Who stops it to let its model sleep would take the memory for free. */
START_TEST(a_device_that_fails_while_it_stops_is_told)
{
    open_worker(false);
    worker_open(worker);
    send(10, 50);
    turn();
    fake_knobs(engine)->keeps_memory = true;
    worker_stop(worker);
    ck_assert(!turn());
    ck_assert(told & COMPLETION_STOPPED);
    ck_assert(told & COMPLETION_FAILED);
    ck_assert_int_eq(worker_state(worker), WORKER_FAILED);
    ck_assert_int_eq(worker_failure(worker)->code, ERR_DEVICE);
    ck_assert_str_eq(worker_failure(worker)->text, "memory was not freed");
    ck_assert_int_eq(seqs[0]->finish, FINISH_CANCELLED);
    close_worker();
}
END_TEST

/* ---- with its thread --------------------------------------------------------------------------
 */

static atomic_bool device_stops;

static void *device_main(void *argument)
{
    while (!atomic_load(&device_stops))
        if (!fake_run(argument))
            sched_yield();
    return NULL;
}

START_TEST(the_thread_serves_loop_and_device)
{
    pthread_t device;
    struct error error;
    open_worker(_i != 0);
    ck_assert_int_eq(worker_start(worker, &error), 0);
    ck_assert_int_eq(pthread_create(&device, NULL, device_main, engine), 0);
    while (worker_state(worker) == WORKER_LOADING)
        sched_yield();
    while (ended_count < SEQS_MAX) {
        if (seq_count < SEQS_MAX && worker_room(worker).sequences > 0) {
            struct seq *seq = send(1 + seq_count % 40, 1 + seq_count % 9);
            if (seq_count % 5 == 0)
                cancel(seq);
        }
        if (seq_count % 50 == 0)
            worker_ask_stats(worker);
        read_outbox();
    }
    for (uint32_t i = 0; i < seq_count; i++)
        ck_assert_str_eq(fake_check(engine, seqs[i]), "");
    ck_assert_uint_gt(atomic_load(&wakes), 0);
    worker_stop(worker);
    worker_join(worker);
    atomic_store(&device_stops, true);
    pthread_join(device, NULL);
    read_outbox();
    ck_assert(told & COMPLETION_STOPPED);
    close_worker();
}
END_TEST

Suite *worker_suite(void)
{
    Suite *suite = suite_create("worker");
    TCase *turns = tcase_create("turns"), *threads = tcase_create("thread");
    tcase_add_loop_test(turns, sequences_go_in_and_come_back_answered, 0, 2);
    tcase_add_test(turns, an_idle_worker_waits_for_ever_once_memory_is_back);
    tcase_add_test(turns, no_plan_after_a_cancel_contains_the_sequence);
    tcase_add_test(turns, a_cancel_that_crosses_the_end_is_answered);
    tcase_add_test(turns, a_cancel_that_comes_with_its_sequence_ends_it);
    tcase_add_test(turns, the_room_counts_what_is_on_its_way);
    tcase_add_loop_test(turns, a_failed_submission_ends_everything_with_a_retryable_error, 0, 6);
    tcase_add_test(turns, a_step_that_never_ends_is_asked_about_and_then_counts_as_stuck);
    tcase_add_test(turns, a_step_that_waits_for_weights_is_no_step_that_is_stuck);
    tcase_add_test(turns, a_copy_that_never_ends_counts_as_stuck);
    tcase_add_test(turns, what_is_idle_goes_to_host_memory_and_then_the_worker_waits_for_ever);
    tcase_add_test(turns, a_model_that_does_not_load_is_told);
    tcase_add_test(turns, figures_are_copied_when_asked_for);
    tcase_add_test(turns, stopping_ends_what_is_left);
    tcase_add_test(turns, a_device_that_fails_while_it_stops_is_told);
    tcase_set_timeout(threads, 60);
    tcase_add_loop_test(threads, the_thread_serves_loop_and_device, 0, 2);
    suite_add_tcase(suite, turns);
    suite_add_tcase(suite, threads);
    return suite;
}
