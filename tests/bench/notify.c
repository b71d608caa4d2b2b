/* What a host function after every step costs the compute stream, against one after every 64th.
 *     bench_notify [ROUNDS]
 *
 * Steps as the engine makes them, over its own streams, events and copies (gpu/base/streams.h);
 * what runs on compute are fills of about 0.3 ms. Blocks of 64 steps of the one kind and of the
 * other take turns in one run. Prints compute's time per step of each kind, by events around each
 * block, and the median of the differences between neighbours; at most 10 us are allowed.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "gpu/base/cuda_error.h"
#include "gpu/base/streams.h"

#define STEPS 64u
#define FILLS 8
#define FILL_BYTES (64u << 20)
#define CONTROL_BYTES 4096
#define ROUNDS_MAX 1000
#define LIMIT_US 10.0

static struct streams lane;
static cudaEvent_t begin, end;
static void *filled, *control, *pinned;
static int wake_fd;
static uint64_t last;

static void check(cudaError_t status)
{
    if (status == cudaSuccess)
        return;
    fprintf(stderr, "%s\n", cudaGetErrorString(status));
    exit(1);
}

static void expect(int status, const struct error *error)
{
    if (!status)
        return;
    fprintf(stderr, "%s\n", error->text);
    exit(1);
}

static void enqueue(bool tell)
{
    struct error error;
    uint64_t step = ++last;
    expect(streams_plan_in(&lane, step, control, pinned, CONTROL_BYTES, &error), &error);
    for (int i = 0; i < FILLS; i++)
        check(cudaMemsetAsync(filled, i, FILL_BYTES, lane.compute));
    expect(streams_results_there(&lane, step, &error), &error);
    expect(streams_results_out(&lane, step, (char *)pinned + CONTROL_BYTES, control, CONTROL_BYTES,
                               &error),
           &error);
    if (tell)
        expect(streams_notify(&lane, step, &error), &error);
}

static void await_last(void)
{
    struct pollfd wake = {.fd = wake_fd, .events = POLLIN};
    uint64_t count;
    while (streams_completed(&lane) < last)
        if (poll(&wake, 1, 10000) != 1 || read(wake_fd, &count, sizeof(count)) < 0)
            exit(1);
}

/* Compute's time per step, in microseconds. */
static double block(uint32_t every)
{
    float ms = 0;
    check(cudaEventRecord(begin, lane.compute));
    for (uint32_t i = 1; i <= STEPS; i++)
        enqueue(i % every == 0);
    check(cudaEventRecord(end, lane.compute));
    await_last();
    check(cudaEventSynchronize(end));
    check(cudaEventElapsedTime(&ms, begin, end));
    return (double)ms * 1e3 / STEPS;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof(*values), ascending);
    return values[count / 2];
}

int main(int argument_count, char **arguments)
{
    static double every[ROUNDS_MAX], seldom[ROUNDS_MAX], difference[ROUNDS_MAX];
    int rounds = argument_count > 1 ? atoi(arguments[1]) : 40;
    struct error error;
    rounds = rounds < 1 ? 1 : rounds > ROUNDS_MAX ? ROUNDS_MAX : rounds;
    wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    check(cudaSetDevice(0));
    expect(streams_open(&lane, wake_fd, 0, &error), &error);
    check(cudaEventCreateWithFlags(&begin, cudaEventDefault));
    check(cudaEventCreateWithFlags(&end, cudaEventDefault));
    check(cudaMalloc(&filled, FILL_BYTES));
    check(cudaMalloc(&control, CONTROL_BYTES));
    check(cudaHostAlloc(&pinned, 2 * CONTROL_BYTES, cudaHostAllocDefault));
    (void)block(1); /* warms up */
    (void)block(STEPS);
    for (int i = 0; i < rounds; i++) {
        /* Which comes first alternates, so that neither has the warmer device. */
        if (i % 2)
            seldom[i] = block(STEPS), every[i] = block(1);
        else
            every[i] = block(1), seldom[i] = block(STEPS);
        difference[i] = every[i] - seldom[i];
    }
    double cost_us = median(difference, rounds);
    printf("compute per step: told every step %.2f us, every %uth %.2f us; medians of %d blocks\n",
           median(every, rounds), STEPS, median(seldom, rounds), rounds);
    printf("%s a host function every step costs compute %.2f us per step, at most %.0f\n",
           cost_us <= LIMIT_US ? "ok     " : "FAILED ", cost_us, LIMIT_US);
    check(cudaEventDestroy(begin));
    check(cudaEventDestroy(end));
    check(cudaFree(filled));
    check(cudaFree(control));
    check(cudaFreeHost(pinned));
    streams_close(&lane);
    close(wake_fd);
    return cost_us <= LIMIT_US ? 0 : 1;
}
