/* What lanes reach on a GPU, beside what its engines do in the same run:
 *     bench_lanes [FOLDER]      affine's module; else ../../gpu/programs beside this program
 *
 * affine with as many rounds as make a kernel take as long as a copy: chunks one after the other,
 * then over lanes, from pinned memory and by staging. Three stages at once can be 3 times as fast
 * at most; what the slowest engine allows is the rate of a copy while the other direction is busy,
 * which is measured by the same chunks without a kernel worth speaking of. Then the rate of copies
 * both ways, and what a steady run counted: calls that synchronise, allocations, pageable copies.
 *
 * Ends with 1 where a goal is missed; the lines that record.py keeps are all of it. */
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "gpu/jobs/gpu_jobs.h"
#include "tests/bench/on_gpu.h"

enum { AFFINE_A, AFFINE_B, AFFINE_ROUNDS }; /* its parameters */

#define CHUNK_BYTES ((uint64_t)16 << 20)
#define CHUNKS 16u /* different ones, which take turns */
#define LANES 4u
#define RING 2u
#define COPY_THREADS 8u
#define SENT 256u /* of a turn over lanes */
#define SENT_ALONE 48u
#define TURNS 5
#define ROUNDS_TRIED 2048
#define ROUNDS_MAX 65536
#define GAIN_GOAL 2.6
#define SHARE_GOAL 95.0 /* percent */
#define BOTH_GOAL 95e9

static struct program program;
static bool missed;

static void fail(const char *what, const struct error *error)
{
    fprintf(stderr, "lanes: %s: %s\n", what, error->text);
    exit(1);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static int compare(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

/* ---- chunks ------------------------------------------------------------------------------------
 */

struct chunk {
    struct gpu_chunk base;
    struct gpu_piece piece;
};

static struct chunk chunks[CHUNKS];

static void *host_memory(bool pinned)
{
    void *memory = NULL;
    if (pinned && cudaHostAlloc(&memory, CHUNK_BYTES, cudaHostAllocDefault) != cudaSuccess)
        memory = NULL;
    else if (!pinned)
        memory = malloc(CHUNK_BYTES);
    if (!memory)
        exit(1);
    memset(memory, 0, CHUNK_BYTES);
    return memory;
}

static void make_chunks(bool pinned)
{
    for (uint32_t i = 0; i < CHUNKS; i++) {
        struct chunk *chunk = &chunks[i];
        *chunk = (struct chunk){.base = {.program = &program, .count = 1, .pinned = pinned}};
        chunk->base.pieces = &chunk->piece;
        chunk->piece = (struct gpu_piece){.sizes = {CHUNK_BYTES / sizeof(float)},
                                          .whole = CHUNK_BYTES / sizeof(float),
                                          .inputs = {host_memory(pinned)},
                                          .outputs = {host_memory(pinned)}};
        chunk->piece.values[AFFINE_A].number = 0.5;
        chunk->piece.values[AFFINE_B].number = 1;
    }
}

static void free_chunks(bool pinned)
{
    for (uint32_t i = 0; i < CHUNKS; i++) {
        void *memory[] = {(void *)(uintptr_t)chunks[i].piece.inputs[0], chunks[i].piece.outputs[0]};
        for (int j = 0; j < 2; j++) {
            if (pinned)
                (void)cudaFreeHost(memory[j]);
            else
                free(memory[j]);
        }
    }
}

/* ---- lanes -------------------------------------------------------------------------------------
 */

struct bench {
    struct gpu_jobs *jobs;
    int wake_fd;
    uint32_t slots;
};

static struct bench open_lanes(uint32_t lanes, uint32_t ring)
{
    const struct gpu_jobs_options options = {.lanes = lanes,
                                             .ring = ring,
                                             .chunk_bytes = CHUNK_BYTES,
                                             .copy_threads = COPY_THREADS,
                                             .stream_count = program.stream_count,
                                             .event_count = program.event_count};
    struct bench bench = {.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), .slots = lanes * ring};
    struct error error;
    if (gpu_jobs.open(&options, &bench.jobs, &error) ||
        gpu_jobs.start(bench.jobs, bench.wake_fd, &error))
        fail("opening", &error);
    return bench;
}

static void close_lanes(struct bench *bench)
{
    gpu_jobs.stop(bench->jobs);
    gpu_jobs.close(bench->jobs);
    close(bench->wake_fd);
}

static void take(struct bench *bench, double ret_us[3])
{
    struct error error;
    uint64_t drained;
    struct gpu_chunk *chunk;
    while (!(chunk = gpu_jobs.take(bench->jobs, &error))) {
        struct pollfd poll_fd = {.fd = bench->wake_fd, .events = POLLIN};
        if (error.code || poll(&poll_fd, 1, 20000) != 1)
            fail("taking", &error);
        if (read(bench->wake_fd, &drained, sizeof(drained)) < 0)
            continue;
    }
    const struct gpu_chunk_times *times = &chunk->times;
    if (ret_us) {
        ret_us[0] += (double)(times->in.end_ns - times->in.begin_ns) / 1e3;
        ret_us[1] += (double)(times->kernels.end_ns - times->kernels.begin_ns) / 1e3;
        ret_us[2] += (double)(times->out.end_ns - times->out.begin_ns) / 1e3;
    }
}

/* So many chunks, as many at once as there is room; seconds. ret_us: timed, the sums of stages. */
static double turn(struct bench *bench, uint32_t count, int rounds, double ret_us[3])
{
    struct error error;
    uint32_t sent = 0, ended = 0;
    const double begin = now();
    while (ended < count) {
        if (sent < count && sent - ended < bench->slots) {
            struct chunk *chunk = &chunks[sent++ % CHUNKS];
            chunk->piece.values[AFFINE_ROUNDS].integer = rounds;
            chunk->base.timed = ret_us != NULL;
            if (gpu_jobs.submit(bench->jobs, &chunk->base, &error))
                fail("submitting", &error);
            continue;
        }
        take(bench, ret_us);
        ended++;
    }
    return now() - begin;
}

/* Seconds of a chunk: the middle one of some turns. */
static double seconds_of(struct bench *bench, uint32_t count, int rounds)
{
    double seconds[TURNS];
    (void)turn(bench, count / 4, rounds, NULL);
    for (int i = 0; i < TURNS; i++)
        seconds[i] = turn(bench, count, rounds, NULL) / count;
    qsort(seconds, TURNS, sizeof(seconds[0]), compare);
    return seconds[TURNS / 2];
}

/* ---- rows --------------------------------------------------------------------------------------
 */

__attribute__((format(printf, 2, 3))) static void row(bool good, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    printf("%s ", good ? "ok    " : "SHORT ");
    vprintf(format, arguments);
    putchar('\n');
    va_end(arguments);
    missed |= !good;
}

/* Rounds whose kernel takes as long as a copy does while the other direction is busy. */
static int equal_rounds(struct bench *alone, double copy_s, double ret_us[3])
{
    double us[3] = {0};
    (void)turn(alone, 8, ROUNDS_TRIED, NULL);
    (void)turn(alone, 8, ROUNDS_TRIED, us);
    const double kernel_s = us[1] / 8 / 1e6;
    int rounds = (int)(ROUNDS_TRIED * copy_s / kernel_s);
    rounds = rounds < 1 ? 1 : rounds > ROUNDS_MAX ? ROUNDS_MAX : rounds;
    memset(ret_us, 0, 3 * sizeof(*ret_us));
    (void)turn(alone, 8, rounds, ret_us);
    for (int i = 0; i < 3; i++)
        ret_us[i] /= 8;
    return rounds;
}

static void look_at_counters(const struct bench *bench, const char *how)
{
    struct gpu_jobs_counters counters;
    gpu_jobs.counters(bench->jobs, &counters);
    row(counters.synchronizes + counters.allocations + counters.pageable_copies == 0,
        "calls that synchronise, allocations outside pools, pageable copies, %s: %lu, %lu and %lu "
        "in "
        "%lu chunks, asked 0",
        how, counters.synchronizes, counters.allocations, counters.pageable_copies,
        counters.chunks);
}

/* The goals are those of pinned memory: staging is the host's copies, too. */
static void measure(bool pinned)
{
    const char *how = pinned ? "pinned" : "staged";
    double us[3];
    make_chunks(pinned);
    struct bench alone = open_lanes(1, 1), lanes = open_lanes(LANES, RING);
    const double copies_s = seconds_of(&lanes, SENT, 1); /* the slowest engine is a copy */
    const int rounds = equal_rounds(&alone, copies_s, us);
    const double alone_s = seconds_of(&alone, SENT_ALONE, rounds);
    const double lanes_s = seconds_of(&lanes, SENT, rounds);
    const double gain = alone_s / lanes_s, share = 100 * copies_s / lanes_s;
    const double both = 2 * (double)CHUNK_BYTES / copies_s;
    char asked[3][32] = {"", "", ""};
    if (pinned) {
        snprintf(asked[0], sizeof(asked[0]), ", asked %.0f GB/s", BOTH_GOAL / 1e9);
        snprintf(asked[1], sizeof(asked[1]), ", asked %.1f times", GAIN_GOAL);
        snprintf(asked[2], sizeof(asked[2]), ", asked %.0f %%", SHARE_GOAL);
    }
    row(!pinned || both >= BOTH_GOAL, "in and out together, %s: %.1f GB/s%s", how, both / 1e9,
        asked[0]);
    row(!pinned || gain >= GAIN_GOAL,
        "stages of equal length, %s: %.2f times the sequential run over %u lanes (affine of %d "
        "rounds; %.0f, %.0f and %.0f us alone)%s",
        how, gain, LANES, rounds, us[0], us[1], us[2], asked[1]);
    row(!pinned || share >= SHARE_GOAL,
        "share of what the slowest engine allows with the other direction busy, %s: %.1f %%%s", how,
        share, asked[2]);
    look_at_counters(&lanes, how);
    close_lanes(&alone);
    close_lanes(&lanes);
    free_chunks(pinned);
}

int main(int argc, char **argv)
{
    char folder[PATH_MAX];
    on_gpu_folder(argc, argv, folder);
    program = on_gpu_load(folder, "affine");
    measure(true);
    measure(false);
    return missed;
}
