/* Copies by several threads: every byte is there when a run returns, round after round. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu/lanes/copy_crew.h"
#include "tests/jobs/bench.h"

#define BYTES ((size_t)3 << 20)
#define COPIES 64u
#define ROUNDS 200

static unsigned char *draw_bytes(uint64_t *state)
{
    unsigned char *bytes = malloc(BYTES);
    ck_assert_ptr_nonnull(bytes);
    for (size_t i = 0; i < BYTES; i += 4) {
        uint32_t word = bench_draw(state, 1u << 31);
        memcpy(bytes + i, &word, 4);
    }
    return bytes;
}

/* Cuts all of it into copies of any length, a few of which are longer than a slice. */
static void copy_all(struct copy_crew *crew, unsigned char *to, const unsigned char *from,
                     uint64_t *state)
{
    size_t at = 0;
    for (uint32_t i = 0; at < BYTES; i++) {
        size_t length = 1 + bench_draw(state, i % 4 == 0 ? 1200000 : 70000);
        length = i + 1 == COPIES || at + length > BYTES ? BYTES - at : length;
        copy_crew_add(crew, to + at, from + at, length);
        at += length;
    }
    copy_crew_run(crew);
}

START_TEST(test_all_bytes_are_there_when_a_run_returns)
{
    static const uint32_t threads[] = {0, 1, 3, COPY_CREW_MAX};
    struct copy_crew *crew;
    struct error error;
    uint64_t state = (uint64_t)_i + 1;
    unsigned char *from = draw_bytes(&state), *to = malloc(BYTES);
    ck_assert_int_eq(copy_crew_open(&crew, threads[_i], BYTES, COPIES, &error), 0);
    ck_assert_int_eq(crew == NULL, threads[_i] == 0);
    for (int round = 0; round < ROUNDS; round++) {
        memset(to, round, BYTES);
        from[bench_draw(&state, BYTES)]++;
        copy_all(crew, to, from, &state);
        ck_assert(memcmp(to, from, BYTES) == 0);
        copy_crew_run(crew); /* nothing */
    }
    copy_crew_close(crew);
    free(from);
    free(to);
}
END_TEST

/* Chunks whose tensors are larger than a slice, with threads beside the worker. */
START_TEST(test_chunks_are_right_when_several_threads_copy)
{
    const struct gpu_jobs_options options = {.lanes = 2,
                                             .ring = 2,
                                             .chunk_bytes = 4 << 20,
                                             .copy_threads = 3,
                                             .stream_count = 2,
                                             .event_count = 1};
    struct program program = bench_program(&bench_staged);
    struct error error;
    uint64_t state = 7;
    int wake_fd;
    bench_setup(EMU_THREADS, 0);
    struct gpu_jobs *jobs = bench_open(&options, &wake_fd);
    for (int turn = 0; turn < 6; turn++) {
        struct bench_chunk *chunk = bench_chunk(&program, &state, 3, 300000);
        ck_assert_msg(!gpu_jobs.submit(jobs, &chunk->base, &error), "%s", error.text);
        ck_assert_ptr_eq(bench_wait(jobs, wake_fd), &chunk->base);
        ck_assert(bench_right(chunk));
        bench_free(chunk);
    }
    gpu_jobs.stop(jobs);
    gpu_jobs.close(jobs);
    close(wake_fd);
}
END_TEST

Suite *copy_crew_suite(void)
{
    Suite *suite = suite_create("copy_crew");
    TCase *tests = tcase_create("copy_crew");
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, test_all_bytes_are_there_when_a_run_returns, 0, 4);
    tcase_add_test(tests, test_chunks_are_right_when_several_threads_copy);
    suite_add_tcase(suite, tests);
    return suite;
}
