/* What this machine's cores can do, to stand beside the CPU device's figures in cpu.sh:
 *     bench_limits THREADS
 * prints the rate of reading memory in GB/s, and of a plain vectorised float32 dot product of
 * vectors in the first cache in Gmul-add/s; all threads together, the mean of several rounds.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/base/clock.h"

#define THREADS_MAX 64
#define ROUNDS 6
#define READ_BYTES (256u << 20) /* of each thread, far beyond its caches */
#define DOT_LENGTH 2048
#define DOT_REPEATS 1000000

typedef float v16 __attribute__((vector_size(64), aligned(4), may_alias));
typedef uint64_t v8 __attribute__((vector_size(64), may_alias));

struct limit {
    pthread_t thread;
    pthread_barrier_t *barrier;
    v8 *memory;
    float x[DOT_LENGTH], y[DOT_LENGTH];
    float dots;
    v8 bits;
    time_us start_us, end_us; /* of the last round */
};

/* The same two loops for each width of registers. */
#define LOOPS(name, target)                                                                        \
    target static float dot_##name(const float *x, const float *y)                                 \
    {                                                                                              \
        v16 a = {0}, b = {0}, c = {0}, d = {0};                                                    \
        for (size_t i = 0; i < DOT_LENGTH; i += 64) {                                              \
            a += *(const v16 *)(x + i) * *(const v16 *)(y + i);                                    \
            b += *(const v16 *)(x + i + 16) * *(const v16 *)(y + i + 16);                          \
            c += *(const v16 *)(x + i + 32) * *(const v16 *)(y + i + 32);                          \
            d += *(const v16 *)(x + i + 48) * *(const v16 *)(y + i + 48);                          \
        }                                                                                          \
        a += b + c + d;                                                                            \
        float sum = 0;                                                                             \
        for (int i = 0; i < 16; i++)                                                               \
            sum += a[i];                                                                           \
        return sum;                                                                                \
    }                                                                                              \
    target static void loops_##name(struct limit *limit, int what)                                 \
    {                                                                                              \
        if (what == 0) {                                                                           \
            v8 a = {0}, b = {0}, c = {0}, d = {0};                                                 \
            for (size_t i = 0; i < READ_BYTES / sizeof(v8); i += 4) {                              \
                a ^= limit->memory[i];                                                             \
                b ^= limit->memory[i + 1];                                                         \
                c ^= limit->memory[i + 2];                                                         \
                d ^= limit->memory[i + 3];                                                         \
            }                                                                                      \
            limit->bits ^= a ^ b ^ c ^ d;                                                          \
        } else {                                                                                   \
            for (int i = 0; i < DOT_REPEATS; i++) {                                                \
                limit->dots += dot_##name(limit->x, limit->y);                                     \
                __asm__ volatile("" ::: "memory");                                                 \
            }                                                                                      \
        }                                                                                          \
    }

#ifdef __x86_64__
LOOPS(avx512, __attribute__((target("avx512f"))))
LOOPS(avx2, __attribute__((target("avx2,fma"))))
#endif
LOOPS(base, )

static void loops(struct limit *limit, int what)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f")) {
        loops_avx512(limit, what);
        return;
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        loops_avx2(limit, what);
        return;
    }
#endif
    loops_base(limit, what);
}

static void *run(void *argument)
{
    struct limit *limit = argument;
    for (int round = 0; round < 2 * ROUNDS; round++) {
        pthread_barrier_wait(limit->barrier);
        limit->start_us = clock_now_us();
        loops(limit, round % 2);
        limit->end_us = clock_now_us();
        pthread_barrier_wait(limit->barrier);
    }
    return NULL;
}

/* From the first thread's start to the last one's end; the next round waits for the main thread. */
static time_us duration_us(const struct limit *limits, int threads)
{
    time_us start_us = limits[0].start_us, end_us = limits[0].end_us;
    for (int t = 1; t < threads; t++) {
        start_us = limits[t].start_us < start_us ? limits[t].start_us : start_us;
        end_us = limits[t].end_us > end_us ? limits[t].end_us : end_us;
    }
    return end_us - start_us;
}

int main(int argc, char **argv)
{
    int threads = argc > 1 ? atoi(argv[1]) : 0;
    if (threads < 1 || threads > THREADS_MAX) {
        fprintf(stderr, "bench_limits THREADS\n");
        return 2;
    }
    struct limit *limits = aligned_alloc(64, sizeof(struct limit) * (size_t)threads);
    pthread_barrier_t barrier;
    if (!limits || pthread_barrier_init(&barrier, NULL, (unsigned)threads + 1))
        return EXIT_FAILURE;
    memset(limits, 0, sizeof(struct limit) * (size_t)threads);
    for (int t = 0; t < threads; t++) {
        limits[t].barrier = &barrier;
        limits[t].memory = aligned_alloc(64, READ_BYTES);
        if (!limits[t].memory)
            return EXIT_FAILURE;
        memset(limits[t].memory, t + 1, READ_BYTES);
        for (int i = 0; i < DOT_LENGTH; i++)
            limits[t].x[i] = limits[t].y[i] = (float)(i % 7);
        if (pthread_create(&limits[t].thread, NULL, run, &limits[t]))
            return EXIT_FAILURE;
    }
    double took_us[2] = {0, 0};
    double work[2] = {(double)threads * READ_BYTES, (double)threads * DOT_REPEATS * DOT_LENGTH};
    for (int round = 0; round < 2 * ROUNDS; round++) {
        pthread_barrier_wait(&barrier);
        pthread_barrier_wait(&barrier);
        took_us[round % 2] += (double)duration_us(limits, threads);
    }
    for (int t = 0; t < threads; t++) {
        pthread_join(limits[t].thread, NULL);
        if (limits[t].dots == 0 || limits[t].bits[0] == 1)
            return EXIT_FAILURE; /* the loops were left out */
        free(limits[t].memory);
    }
    free(limits);
    printf("%.2f %.2f\n", work[0] * ROUNDS / took_us[0] / 1e3, work[1] * ROUNDS / took_us[1] / 1e3);
    return EXIT_SUCCESS;
}
