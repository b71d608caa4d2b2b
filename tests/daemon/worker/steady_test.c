/* Worker and engine together: synthetic:null on the CPU device, served as the daemon does it.
 * Answers follow the rule, steady turns make no heap call, and memory comes back. */
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/service/log_writer.h"
#include "daemon/worker/worker.h"
#include "gpu/emu/emu.h"
#include "gpu/kernels/step/null_rule.h"
#include "protocol/base/log.h"
#include "tests/daemon/rig/fake_device.h"
#include "tests/daemon/worker/steady_suite.h"
#include "tests/heap.h"

/* Records that the emulated runtime makes of allocations are a driver's matter, not the worker's.
 */
static uint64_t counted;

static int api_submit(struct gpu_engine *of, uint32_t rank, const struct gpu_plan *plan,
                      struct error *error)
{
    uint64_t before = heap_calls;
    int rc = gpu_module.submit(of, rank, plan, error);
    heap_calls = before;
    counted++;
    return rc;
}

static int api_kv_grow(struct gpu_engine *of, uint32_t group, uint32_t *ret_slab,
                       struct error *error)
{
    uint64_t before = heap_calls;
    int rc = gpu_module.kv_grow(of, group, ret_slab, error);
    heap_calls = before;
    return rc;
}

#define SEQS 64

static struct gpu_api api;
static struct worker *worker;
static struct gpu_engine *engine;
static struct gpu_model model;
static struct completion_queue completions;
static struct seq *seqs[SEQS];
static uint32_t seq_count, ended_count;
static time_us now_us;

static void woken(void *context)
{
    (void)context;
}

static void open_worker(uint64_t kv_max)
{
    struct emu_options emu = {.engine = EMU_THREADS,
                              .memory_bytes = 512u << 20,
                              .team_threads = 1,
                              .poison = true,
                              .strict = true};
    struct gpu_options gpu = {
        .model = "synthetic:null", .slots_max = SEQS, .slab_bytes = 8u << 10, .kv_max = kv_max};
    struct worker_options options = {.sched = {.ttft_target_us = 150000,
                                               .itl_target_us = 40000,
                                               .chunk_every = 4,
                                               .kv_idle_release_us = 20000,
                                               .stall_us = UINT64_MAX},
                                     .step_timeout_us = 60000000};
    struct gpu_limits limits;
    struct error error = {.code = 0};
    ck_assert_int_eq(emu_setup(&emu), cudaSuccess);
    int rc = gpu_module.open(&gpu, &engine, &model, &limits, &error);
    ck_assert_msg(rc == 0, "%s", error.text);
    completion_init(&completions, woken, NULL);
    api = gpu_module;
    api.submit = api_submit;
    api.kv_grow = api_kv_grow;
    rc = worker_create(&api, engine, &model, &limits, &options, &completions, &worker, &error);
    ck_assert_msg(rc == 0, "%s", error.text);
    ck_assert_int_eq(worker_open(worker), 0);
    now_us = 1000000;
    seq_count = ended_count = 0;
}

static void close_worker(void)
{
    worker_destroy(worker);
    completion_destroy(&completions);
    for (uint32_t i = 0; i < seq_count; i++)
        fake_seq_free(seqs[i]);
}

static void send(uint32_t prompt_len, uint32_t max_tokens, bool ignore_eos)
{
    struct fake_options options = {.job = JOB_GENERATE,
                                   .prompt_len = prompt_len,
                                   .max_tokens = max_tokens,
                                   .ignore_eos = ignore_eos,
                                   .logprobs = 0,
                                   .seed = seq_count + 1};
    struct seq *seq = fake_seq(&options, now_us);
    for (uint32_t i = 0; i < prompt_len; i++)
        ((int32_t *)seq->prompt)[i] %= NULL_END;
    seqs[seq_count++] = seq;
    worker_send(worker, seq);
    worker_wake(worker);
}

/* One wait and one turn; returns how many heap calls the turn made. */
static uint64_t turn(void)
{
    uint64_t drained, before;
    unsigned control, flags;
    struct pollfd poll_fd = {.fd = worker_fd(worker), .events = POLLIN};
    if (poll(&poll_fd, 1, ended_count < seq_count ? 10000 : 0) > 0)
        ck_assert_int_eq(read(worker_fd(worker), &drained, sizeof(drained)), sizeof(drained));
    now_us += 100;
    before = heap_calls;
    worker_turn(worker, now_us);
    uint64_t made = heap_calls - before;
    struct mailbox_link *chain = completion_drain(&completions, &control);
    while (completion_next(&chain, &flags) != NULL)
        ended_count += (flags & COMPLETION_ENDED) != 0;
    return made;
}

static void check_answers(void)
{
    for (uint32_t i = 0; i < seq_count; i++) {
        const struct seq *seq = seqs[i];
        uint64_t state = NULL_START;
        for (uint32_t p = 0; p < seq->prompt_len; p++)
            state = null_state(state, seq->prompt[p]);
        for (uint32_t n = 0; n < atomic_load(&seq->out_count); n++) {
            int32_t token = null_sample(state, !seq->sampling.ignore_eos);
            ck_assert_msg(seq->out_tokens[n] == token, "sequence %u, token %u", i, n);
            ck_assert_float_eq(seq->out_logprobs[n], null_logprob(state, token));
            state = null_state(state, token);
        }
    }
}

START_TEST(from_the_10th_to_the_1000th_step_no_turn_makes_a_heap_call)
{
    struct gpu_counters counters;
    uint64_t calls = 0, steps = 0;
    open_worker(0);
    for (uint32_t i = 0; i < SEQS; i++)
        send(1 + i * 5, 1100 - i, true);
    while (steps < 1000) {
        gpu_module.counters(engine, 0, &counters);
        steps = counters.steps;
        uint64_t made = turn();
        calls += steps >= 10 && steps < 1000 ? made : 0;
    }
    ck_assert_uint_eq(calls, 0);
    ck_assert_uint_ge(counted, 1000);
    gpu_module.counters(engine, 0, &counters);
    ck_assert_uint_eq(counters.synchronizes, 0);
    ck_assert_uint_eq(counters.pageable_copies, 0);
    while (ended_count < seq_count)
        turn();
    check_answers();
    close_worker();
}
END_TEST

START_TEST(with_too_little_kv_everything_is_answered_all_the_same)
{
    open_worker(128u << 10);
    for (uint32_t i = 0; i < SEQS; i++)
        send(100 + i * 10, 100 + i * 3, i % 2 == 0);
    while (ended_count < seq_count)
        turn();
    check_answers();
    worker_ask_stats(worker);
    turn();
    ck_assert_ptr_nonnull(worker_snapshot(worker));
    ck_assert_uint_gt(worker_snapshot(worker)->preemptions_total, 0);
    close_worker();
}
END_TEST

START_TEST(memory_follows_the_load_down)
{
    struct gpu_memory memory, before;
    open_worker(0);
    gpu_module.memory(engine, 0, &before);
    for (uint32_t i = 0; i < SEQS; i++)
        send(600, i == 40 ? 7000 : 20, true);
    uint64_t most = 0;
    while (ended_count < SEQS - 1) {
        turn();
        gpu_module.memory(engine, 0, &memory);
        most = memory.kv_used > most ? memory.kv_used : most;
    }
    for (uint32_t i = 0; i < 1500; i++)
        turn();
    ck_assert_uint_lt(ended_count, SEQS);
    gpu_module.memory(engine, 0, &memory);
    uint64_t slab = model.groups[0].slab_blocks * model.groups[0].block_bytes;
    uint64_t held = (600 + atomic_load(&seqs[40]->out_count)) / model.block_tokens + 1;
    ck_assert_uint_gt(most, 8 * slab);
    ck_assert_uint_le(memory.kv_used, held * model.groups[0].block_bytes + 2 * slab);
    while (ended_count < SEQS)
        turn();
    for (uint32_t i = 0; i < 400; i++)
        turn();
    gpu_module.memory(engine, 0, &memory);
    ck_assert_uint_eq(memory.kv_used, 0);
    ck_assert_uint_le(memory.kv_held, before.kv_held);
    ck_assert_uint_eq(worker_wait_us(worker, now_us), WORKER_FOREVER);
    check_answers();
    close_worker();
}
END_TEST

/* Weights and what lives as long as the engine are all that is left, the same every time. */
START_TEST(a_hundred_cycles_of_load_leave_no_drift)
{
    struct gpu_memory memory, before;
    struct emu_live live;
    uint64_t live_bytes = 0;
    open_worker(0);
    gpu_module.memory(engine, 0, &before);
    for (uint32_t cycle = 0; cycle < 100; cycle++) {
        for (uint32_t i = 0; i < 16; i++)
            send(1 + (cycle * 37 + i * 61) % 700, 8, true);
        while (ended_count < seq_count)
            turn();
        gpu_module.memory(engine, 0, &memory);
        ck_assert_uint_gt(memory.kv_used, 0);
        check_answers();
        for (uint32_t i = 0; i < 400 && worker_wait_us(worker, now_us) != WORKER_FOREVER; i++)
            turn();
        gpu_module.memory(engine, 0, &memory);
        ck_assert_uint_eq(memory.kv_used + memory.kv_held, 0);
        ck_assert_uint_eq(memory.scratch_used + memory.scratch_held, 0);
        ck_assert_uint_eq(memory.weights, before.weights);
        ck_assert_uint_eq(memory.pinned, before.pinned);
        live = emu_live();
        live_bytes = cycle ? live_bytes : live.device_bytes;
        ck_assert_uint_eq(live.device_bytes, live_bytes);
        for (uint32_t i = 0; i < seq_count; i++)
            fake_seq_free(seqs[i]);
        seq_count = ended_count = 0;
    }
    close_worker();
}
END_TEST

/* Nobody reads them: some are kept, the others dropped. */
START_TEST(lines_of_the_log_make_no_heap_call)
{
    struct error error;
    int ends[2];
    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    int before = dup(STDERR_FILENO);
    ck_assert_int_eq(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
    log_setup(LOG_INFO, LOG_JSON);
    ck_assert_int_eq(log_writer_start(&error), 0);
    log_line(LOG_INFO, "test", "the first");
    uint64_t calls = heap_calls;
    for (uint32_t i = 0; i < 20000; i++) {
        log_line(LOG_INFO, "test", "line %u, which is as long as lines of requests are, %u", i, i);
        log_line(LOG_WARNING, "test", "repeated, mostly: %u", i);
    }
    calls = heap_calls - calls;
    uint64_t dropped = log_dropped();
    dup2(before, STDERR_FILENO);
    ck_assert_uint_eq(calls, 0);
    ck_assert_uint_gt(dropped, 0);
    close(before);
}
END_TEST

Suite *steady_suite(void)
{
    Suite *suite = suite_create("steady");
    TCase *tcase = tcase_create("worker and engine");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, from_the_10th_to_the_1000th_step_no_turn_makes_a_heap_call);
    tcase_add_test(tcase, with_too_little_kv_everything_is_answered_all_the_same);
    tcase_add_test(tcase, memory_follows_the_load_down);
    tcase_add_test(tcase, a_hundred_cycles_of_load_leave_no_drift);
    tcase_add_test(tcase, lines_of_the_log_make_no_heap_call);
    suite_add_tcase(suite, tcase);
    return suite;
}
