/* The cost of one served step on the emulated runtime: an H2D copy, two kernels, a D2H copy and a
 * host function over four streams joined by events, two steps in flight. Prints CPU time and
 * voluntary context switches per step. A measurement, not a test: nothing is asserted. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "gpu/emu/emu.h"

enum { COPY_IN, COMPUTE, COPY_OUT, NOTIFY, STREAMS };
enum { DEPTH = 2 };

static cudaStream_t stream[STREAMS];
static cudaEvent_t in[DEPTH], ran[DEPTH], out[DEPTH];
static int completed;

static void check(cudaError_t error)
{
    if (error != cudaSuccess) {
        fprintf(stderr, "%s\n", cudaGetErrorString(error));
        exit(1);
    }
}

static void add_one(const void *args, uint32_t index)
{
    uint64_t *values = dev(*(void *const *)args);
    values[index]++;
}

static void tell(void *unused)
{
    (void)unused;
    uint64_t one = 1;
    if (write(completed, &one, sizeof(one)) != sizeof(one))
        abort();
}

static void step(uint32_t slot, void *device, void *host)
{
    check(cudaMemcpyAsync(device, host, 1024, cudaMemcpyHostToDevice, stream[COPY_IN]));
    check(cudaEventRecord(in[slot], stream[COPY_IN]));
    check(cudaStreamWaitEvent(stream[COMPUTE], in[slot], 0));
    check(emu_launch(stream[COMPUTE], "first", add_one, &device, sizeof(device), 16));
    check(emu_launch(stream[COMPUTE], "second", add_one, &device, sizeof(device), 16));
    check(cudaEventRecord(ran[slot], stream[COMPUTE]));
    check(cudaStreamWaitEvent(stream[COPY_OUT], ran[slot], 0));
    check(cudaMemcpyAsync(host, device, 1024, cudaMemcpyDeviceToHost, stream[COPY_OUT]));
    check(cudaEventRecord(out[slot], stream[COPY_OUT]));
    check(cudaStreamWaitEvent(stream[NOTIFY], out[slot], 0));
    check(cudaLaunchHostFunc(stream[NOTIFY], tell, NULL));
}

static double seconds(struct timeval time)
{
    return (double)time.tv_sec + (double)time.tv_usec / 1e6;
}

int main(int count, char **arguments)
{
    int steps = count > 1 ? atoi(arguments[1]) : 100000,
        depth = count > 2 ? atoi(arguments[2]) : DEPTH;
    struct emu_options options = {.engine =
                                      count > 3 ? (enum emu_engine)atoi(arguments[3]) : EMU_THREADS,
                                  .memory_bytes = 64 << 20};
    void *device, *host;
    check(emu_setup(&options));
    for (int i = 0; i < STREAMS; i++)
        check(
            cudaStreamCreateWithPriority(&stream[i], cudaStreamNonBlocking, i == COMPUTE ? -5 : 0));
    for (int i = 0; i < DEPTH; i++) {
        check(cudaEventCreateWithFlags(&in[i], cudaEventDisableTiming));
        check(cudaEventCreateWithFlags(&ran[i], cudaEventDisableTiming));
        check(cudaEventCreateWithFlags(&out[i], cudaEventDisableTiming));
    }
    check(cudaMalloc(&device, DEPTH * 4096));
    check(cudaHostAlloc(&host, DEPTH * 4096, cudaHostAllocDefault));
    completed = eventfd(0, 0);

    struct rusage before, after;
    struct timespec begin, end;
    getrusage(RUSAGE_SELF, &before);
    clock_gettime(CLOCK_MONOTONIC, &begin);
    int enqueued = 0;
    for (uint64_t done = 0; done < (uint64_t)steps;) {
        for (; enqueued < steps && enqueued < (int)done + depth; enqueued++)
            step((uint32_t)(enqueued % DEPTH), (char *)device + enqueued % DEPTH * 4096,
                 (char *)host + enqueued % DEPTH * 4096);
        uint64_t ended;
        if (read(completed, &ended, sizeof(ended)) != sizeof(ended))
            abort();
        done += ended;
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    getrusage(RUSAGE_SELF, &after);
    double wall = (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) / 1e9;
    printf("%d steps, %d in flight: %.2f us, user %.2f us, system %.2f us, %.2f voluntary switches "
           "each\n",
           steps, depth, wall * 1e6 / steps,
           (seconds(after.ru_utime) - seconds(before.ru_utime)) * 1e6 / steps,
           (seconds(after.ru_stime) - seconds(before.ru_stime)) * 1e6 / steps,
           (double)(after.ru_nvcsw - before.ru_nvcsw) / steps);
    return 0;
}
