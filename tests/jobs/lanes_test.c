/* Chunks over lanes: right to the bit whatever is beside them, on every engine of the emulation. */
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu/jobs/module.h"
#include "gpu/lanes/lane.h"
#include "protocol/base/list.h"
#include "tests/heap.h"
#include "tests/jobs/bench.h"
#include "tests/runner.h"

static const struct gpu_jobs_options usual = {.lanes = 3,
                                              .ring = 2,
                                              .chunk_bytes = 256 << 10,
                                              .stream_count = 2,
                                              .event_count = 1};

/* Under the stepper a stream runs when it is chosen, so whatever may overtake, does. */
#define SEEDS 24
static void set_up(int turn)
{
    bench_setup(turn == 0   ? EMU_THREADS
                : turn == 1 ? EMU_STREAM_THREAD
                            : EMU_STEPPER,
                (uint64_t)turn);
}

static struct program affine(void)
{
    struct program program;
    struct error error;
    ck_assert_msg(!module_load(AFFINE_CPU, "cpu", &program, &error), "%s", error.text);
    return program;
}

static void finish(struct gpu_jobs *jobs, int wake_fd)
{
    gpu_jobs.stop(jobs);
    gpu_jobs.close(jobs);
    close(wake_fd);
    struct emu_live live = emu_live();
    ck_assert_uint_eq(live.streams + live.events + live.pools + live.host_ranges, 0);
    ck_assert_uint_eq(live.device_bytes, 0);
}

START_TEST(test_ragged_chunks_are_right_whatever_is_beside_them)
{
    int wake_fd;
    uint64_t state = (uint64_t)_i + 1;
    set_up(_i);
    struct program programs[] = {affine(), bench_program(&bench_staged)};
    struct gpu_jobs *jobs = bench_open(&usual, &wake_fd);
    struct error error;
    uint32_t sent = 0, ended = 0;
    while (ended < 40) {
        if (sent < 40 && gpu_jobs.room(jobs) > 0) {
            struct bench_chunk *chunk = bench_chunk(&programs[bench_draw(&state, 2)], &state,
                                                    1 + bench_draw(&state, BENCH_ITEMS), 700);
            ck_assert_msg(!gpu_jobs.submit(jobs, &chunk->base, &error), "%s", error.text);
            sent++;
            continue;
        }
        struct bench_chunk *chunk =
            container_of(bench_wait(jobs, wake_fd), struct bench_chunk, base);
        ck_assert(chunk->base.status == 0 && bench_right(chunk));
        bench_free(chunk);
        ended++;
    }
    struct gpu_jobs_counters counters;
    gpu_jobs.counters(jobs, &counters);
    ck_assert_uint_eq(counters.chunks, 40);
    ck_assert_uint_gt(counters.overlapped, 20);
    ck_assert_uint_eq(counters.synchronizes + counters.pageable_copies + counters.allocations, 0);
    ck_assert_uint_eq(emu_pageable_copies(), 0);
    finish(jobs, wake_fd);
}
END_TEST

/* Moves what the chunk's pieces read and write to pinned memory, with gaps; gives it. */
static float *pin(struct bench_chunk *chunk)
{
    void *pinned = NULL;
    size_t floats = 0;
    for (uint32_t i = 0; i < chunk->base.count; i++)
        floats += 2 * chunk->pieces[i].sizes[0] + 1;
    ck_assert_int_eq(cudaHostAlloc(&pinned, floats * sizeof(float), cudaHostAllocDefault), 0);
    float *at = pinned;
    for (uint32_t i = 0; i < chunk->base.count; i++) {
        const uint64_t length = chunk->pieces[i].sizes[0];
        memcpy(at, chunk->x[i], length * sizeof(float));
        chunk->pieces[i].inputs[0] = at;
        chunk->pieces[i].outputs[0] = at + length;
        at += 2 * length + 1;
    }
    chunk->base.pinned = true;
    return pinned;
}

static void unpin(struct bench_chunk *chunk, float *pinned)
{
    for (uint32_t i = 0; i < chunk->base.count; i++)
        if (chunk->pieces[i].outputs[0])
            memcpy(chunk->y[i], chunk->pieces[i].outputs[0],
                   chunk->pieces[i].sizes[0] * sizeof(float));
    cudaFreeHost(pinned);
}

/* Without staging: what it had before is in it still. */
START_TEST(test_pinned_chunks_are_right_and_leave_staging_alone)
{
    int wake_fd;
    uint64_t state = (uint64_t)_i + 1;
    set_up(_i);
    struct program programs[] = {affine(), bench_program(&bench_staged)};
    struct gpu_jobs *jobs = bench_open(&usual, &wake_fd);
    struct error error;
    for (int turn = 0; turn < 6; turn++) {
        struct bench_chunk *chunk = bench_chunk(&programs[turn % 2], &state, 12, 700);
        float *pinned = pin(chunk);
        void *unwanted = chunk->pieces[11].outputs[0];
        chunk->pieces[11].outputs[0] = NULL;
        memset(unwanted, 0x77, 4);
        ck_assert_msg(!gpu_jobs.submit(jobs, &chunk->base, &error), "%s", error.text);
        ck_assert_ptr_eq(bench_wait(jobs, wake_fd), &chunk->base);
        ck_assert(memcmp(unwanted, "wwww", 4) == 0);
        unpin(chunk, pinned);
        chunk->base.count--; /* nobody wanted the last one */
        ck_assert(bench_right(chunk));
        chunk->base.count++;
        bench_free(chunk);
    }
    struct gpu_jobs_counters counters;
    gpu_jobs.counters(jobs, &counters);
    ck_assert_uint_eq(counters.synchronizes + counters.pageable_copies + counters.allocations, 0);
    ck_assert_uint_eq(emu_pageable_copies(), 0);
    finish(jobs, wake_fd);
}
END_TEST

/* ---- waits -------------------------------------------------------------------------------------
 */

/* A chunk whose wait of this number is left out: whether it then ends right. In a process of its own:
 * a kernel that runs before its table is there goes wherever poison points. */
static bool right_without_here(uint64_t wait, uint64_t seed)
{
    int wake_fd;
    uint64_t state = seed;
    bench_setup(EMU_STEPPER, seed);
    struct program program = affine();
    struct gpu_jobs *jobs = bench_open(&usual, &wake_fd);
    struct bench_chunk *chunk = bench_chunk(&program, &state, 5, 100);
    struct error error;
    emu_fault_skip_wait(wait);
    ck_assert(!gpu_jobs.submit(jobs, &chunk->base, &error));
    ck_assert_ptr_eq(bench_wait(jobs, wake_fd), &chunk->base);
    bool right = bench_right(chunk);
    bench_free(chunk);
    finish(jobs, wake_fd);
    return right;
}

static bool right_without(uint64_t wait, uint64_t seed)
{
    int status = 0;
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        _exit(right_without_here(wait, seed) ? 0 : 1);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

START_TEST(test_each_wait_of_a_chunk_is_needed)
{
    uint32_t wrong = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        ck_assert(right_without(0, seed));
        wrong += !right_without((uint64_t)_i, seed);
    }
    ck_assert_uint_gt(wrong, 0);
}
END_TEST

/* ---- memory ------------------------------------------------------------------------------------
 */

static uint32_t first_word(const struct sluice_program *said)
{
    int wake_fd;
    uint64_t state = 1;
    uint32_t word;
    bench_setup(EMU_THREADS, 0);
    struct program program = bench_program(said);
    struct gpu_jobs *jobs = bench_open(&usual, &wake_fd);
    struct error error;
    for (int i = 0; i < 3; i++) { /* the later ones in memory that the first has used */
        struct bench_chunk *chunk = bench_chunk(&program, &state, 8, 100);
        ck_assert(!gpu_jobs.submit(jobs, &chunk->base, &error));
        ck_assert_ptr_eq(bench_wait(jobs, wake_fd), &chunk->base);
        memcpy(&word, chunk->y[7], sizeof(word));
        bench_free(chunk);
    }
    finish(jobs, wake_fd);
    return word;
}

START_TEST(test_outputs_and_scratch_are_cleared_unless_the_program_writes_all)
{
    struct sluice_program keeps = bench_reader;
    keeps.flags = SLUICE_WRITES_ALL;
    ck_assert_uint_eq(first_word(&bench_reader), 0);
    ck_assert_uint_ne(first_word(&keeps), 0); /* poison: it is its own affair */
}
END_TEST

START_TEST(test_what_the_device_refuses_passes_once_others_have_ended)
{
    int wake_fd;
    uint64_t state = 1;
    bench_setup(EMU_THREADS, 0);
    struct program program = affine();
    struct gpu_jobs *jobs = bench_open(&usual, &wake_fd);
    struct bench_chunk *chunks[2];
    struct error error;
    for (int i = 0; i < 2; i++)
        chunks[i] = bench_chunk(&program, &state, 1, 1000);
    emu_memory_limit(0);
    ck_assert_int_eq(gpu_jobs.submit(jobs, &chunks[0]->base, &error), -ERR_DEVICE_MEMORY);
    ck_assert_uint_eq(gpu_jobs.room(jobs), usual.lanes * usual.ring);
    emu_memory_limit(UINT64_MAX);
    for (int i = 0; i < 2; i++) {
        ck_assert(!gpu_jobs.submit(jobs, &chunks[i]->base, &error));
        ck_assert_ptr_eq(bench_wait(jobs, wake_fd), &chunks[i]->base);
        ck_assert(bench_right(chunks[i]));
        bench_free(chunks[i]);
    }
    finish(jobs, wake_fd);
}
END_TEST

START_TEST(test_memory_is_kept_for_the_next_chunk_and_given_back_by_trim)
{
    int wake_fd;
    uint64_t state = 1;
    bench_setup(EMU_THREADS, 0);
    struct program program = affine();
    struct gpu_jobs *jobs = bench_open(&usual, &wake_fd);
    struct gpu_jobs_memory memory;
    struct error error;
    struct bench_chunk *chunk = bench_chunk(&program, &state, 32, 500);
    uint64_t calls = 0;
    uint32_t heap = 0; /* turns with heap calls, of the jobs' alone; Check's asserts make some, too */
    for (int i = 0; i < 30; i++) {
        struct gpu_chunk *back = NULL;
        uint64_t before = heap_calls;
        if (i == 10)
            calls = emu_calls(EMU_cudaHostAlloc) + emu_calls(EMU_cudaMalloc) +
                    emu_calls(EMU_cudaStreamSynchronize) +
                    emu_calls(EMU_cudaStreamCreateWithPriority);
        int rc = gpu_jobs.submit(jobs, &chunk->base, &error);
        while (!rc && !(back = gpu_jobs.take(jobs, &error)) && !error.code)
            usleep(100);
        heap += i >= 10 && heap_calls > before;
        ck_assert_ptr_eq(back, &chunk->base);
    }
    (void)heap;
#ifndef __SANITIZE_THREAD__ /* there the emulation's own queues grow, since its threads are slow */
    ck_assert_uint_le(heap, 2); /* and here once or twice, where the machine is busy */
#endif
    ck_assert_uint_eq(emu_calls(EMU_cudaHostAlloc) + emu_calls(EMU_cudaMalloc) +
                          emu_calls(EMU_cudaStreamSynchronize) +
                          emu_calls(EMU_cudaStreamCreateWithPriority),
                      calls);
    gpu_jobs.memory(jobs, &memory);
    ck_assert_uint_eq(memory.used, 0);
    ck_assert_uint_gt(memory.held, 0);
    ck_assert(!gpu_jobs.trim(jobs, &error));
    gpu_jobs.memory(jobs, &memory);
    ck_assert_uint_eq(memory.held, 0);
    bench_free(chunk);
    finish(jobs, wake_fd);
}
END_TEST

/* ---- what fails --------------------------------------------------------------------------------
 */

START_TEST(test_what_enqueue_returns_fails_its_chunk_alone)
{
    int wake_fd;
    uint64_t state = 1;
    bench_setup(EMU_THREADS, 0);
    struct program failing = bench_program(&bench_failing), program = affine();
    struct gpu_jobs *jobs = bench_open(&usual, &wake_fd);
    struct error error;
    struct bench_chunk *bad = bench_chunk(&failing, &state, 2, 100);
    struct bench_chunk *good = bench_chunk(&program, &state, 2, 100);
    ck_assert(!gpu_jobs.submit(jobs, &bad->base, &error));
    ck_assert_ptr_eq(bench_wait(jobs, wake_fd), &bad->base);
    ck_assert_int_eq(bad->base.status, 7);
    ck_assert_uint_eq(*(const unsigned char *)bad->y[0], 0x5a); /* not touched */
    ck_assert(!gpu_jobs.submit(jobs, &good->base, &error));
    ck_assert_ptr_eq(bench_wait(jobs, wake_fd), &good->base);
    ck_assert(bench_right(good));
    bench_free(bad);
    bench_free(good);
    finish(jobs, wake_fd);
}
END_TEST

/* Beside a model copies are in parts, so that a step's small ones get between them. */
START_TEST(test_copies_beside_a_model_are_short)
{
    int wake_fd;
    uint64_t state = 1, calls[2];
    bench_setup(EMU_THREADS, 0);
    struct program program = affine();
    for (int background = 0; background < 2; background++) {
        struct gpu_jobs_options options = {
            .lanes = 1, .ring = 1, .chunk_bytes = 8 << 20, .stream_count = 2, .event_count = 1};
        options.background = background;
        struct gpu_jobs *jobs = bench_open(&options, &wake_fd);
        struct bench_chunk *chunk = bench_chunk(&program, &state, 1, 1 << 20);
        struct error error;
        uint64_t before = emu_calls(EMU_cudaMemcpyAsync);
        ck_assert(!gpu_jobs.submit(jobs, &chunk->base, &error));
        ck_assert_ptr_eq(bench_wait(jobs, wake_fd), &chunk->base);
        calls[background] = emu_calls(EMU_cudaMemcpyAsync) - before;
        ck_assert(bench_right(chunk));
        bench_free(chunk);
        finish(jobs, wake_fd);
    }
    ck_assert_uint_gt(calls[1], calls[0]);
}
END_TEST

/* Any call of a chunk's way that the device fails at. */
START_TEST(test_a_lost_device_is_final)
{
    static const enum emu_call calls[] = {EMU_cudaMemcpyAsync, EMU_cudaEventRecord,
                                          EMU_cudaStreamWaitEvent, EMU_cudaLaunchHostFunc,
                                          EMU_launch};
    int wake_fd;
    uint64_t state = 1;
    bench_setup(EMU_THREADS, 0);
    struct program program = affine();
    static struct gpu_jobs *jobs; /* never freed: a host function may be running */
    jobs = bench_open(&usual, &wake_fd);
    struct bench_chunk *chunk = bench_chunk(&program, &state, 2, 100);
    struct error error;
    emu_fault_set(calls[_i], 1, cudaErrorIllegalAddress);
    ck_assert_int_eq(gpu_jobs.submit(jobs, &chunk->base, &error), -ERR_DEVICE);
    ck_assert_uint_eq(gpu_jobs.room(jobs), 0);
    ck_assert_int_eq(gpu_jobs.query(jobs, &error), GPU_FAILED);
    gpu_jobs.stop(jobs); /* and comes back */
    bench_setup(EMU_THREADS, 0);
    bench_free(chunk);
    gpu_jobs.close(jobs);
}
END_TEST

START_TEST(test_what_cannot_be_opened_leaves_nothing)
{
    struct gpu_jobs *jobs = NULL;
    struct error error;
    bench_setup(EMU_THREADS, 0);
    ck_assert(!gpu_jobs.open(&usual, &jobs, &error));
    emu_fault_set(_i ? EMU_cudaHostAlloc : EMU_cudaEventCreateWithFlags, 3,
                  cudaErrorMemoryAllocation);
    ck_assert_int_eq(gpu_jobs.start(jobs, -1, &error), -ERR_DEVICE_MEMORY);
    gpu_jobs.stop(jobs);
    gpu_jobs.close(jobs);
    struct emu_live live = emu_live();
    ck_assert_uint_eq(live.streams + live.events + live.pools + live.host_ranges, 0);
}
END_TEST

Suite *lanes_suite(void)
{
    Suite *suite = suite_create("lanes");
    TCase *tests = tcase_create("lanes");
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, test_ragged_chunks_are_right_whatever_is_beside_them, 0, SEEDS);
    tcase_add_loop_test(tests, test_pinned_chunks_are_right_and_leave_staging_alone, 0, SEEDS);
    tcase_add_loop_test(tests, test_each_wait_of_a_chunk_is_needed, 1, 4);
    tcase_add_test(tests, test_outputs_and_scratch_are_cleared_unless_the_program_writes_all);
    tcase_add_test(tests, test_what_the_device_refuses_passes_once_others_have_ended);
    tcase_add_test(tests, test_memory_is_kept_for_the_next_chunk_and_given_back_by_trim);
    tcase_add_test(tests, test_what_enqueue_returns_fails_its_chunk_alone);
    tcase_add_test(tests, test_copies_beside_a_model_are_short);
    tcase_add_loop_test(tests, test_a_lost_device_is_final, 0, 5);
    tcase_add_loop_test(tests, test_what_cannot_be_opened_leaves_nothing, 0, 2);
    suite_add_tcase(suite, tests);
    return suite;
}
