/* Four served steps, two in flight, with the nth cudaStreamWaitEvent skipped (0: none). Run under
 * ThreadSanitizer, which has to report every skip and nothing else. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "gpu/emu/emu.h"

enum { COPY_IN, COMPUTE, COPY_OUT, NOTIFY, STREAMS };
enum { STEPS = 4, DEPTH = 2, COUNT = 64 };

static cudaStream_t stream[STREAMS];
static cudaEvent_t event[3];
static uint32_t *device[DEPTH], *in[DEPTH], *out[DEPTH];
static uint32_t wrong;
static int completed;

static void check(cudaError_t error)
{
    if (error != cudaSuccess) {
        fprintf(stderr, "%s\n", cudaGetErrorString(error));
        exit(2);
    }
}

static void add_one(const void *args, uint32_t index)
{
    uint32_t *data = dev(*(void *const *)args);
    data[index]++;
}

static void tell(void *result)
{
    uint64_t one = 1;
    const uint32_t *data = result;
    if (data[0] != data[COUNT - 1])
        wrong++;
    if (write(completed, &one, sizeof(one)) != sizeof(one))
        abort();
}

static void hand_over(cudaEvent_t by, int from, int to)
{
    check(cudaEventRecord(by, stream[from]));
    check(cudaStreamWaitEvent(stream[to], by, 0));
}

static void step(uint32_t number)
{
    uint32_t slot = number % DEPTH;
    for (uint32_t i = 0; i < COUNT; i++)
        in[slot][i] = number;
    check(cudaMemcpyAsync(device[slot], in[slot], COUNT * 4, cudaMemcpyHostToDevice,
                          stream[COPY_IN]));
    hand_over(event[0], COPY_IN, COMPUTE);
    check(emu_launch(stream[COMPUTE], "add", add_one, &device[slot], sizeof(void *), COUNT));
    hand_over(event[1], COMPUTE, COPY_OUT);
    check(cudaMemcpyAsync(out[slot], device[slot], COUNT * 4, cudaMemcpyDeviceToHost,
                          stream[COPY_OUT]));
    hand_over(event[2], COPY_OUT, NOTIFY);
    check(cudaLaunchHostFunc(stream[NOTIFY], tell, out[slot]));
}

int main(int count, char **arguments)
{
    struct emu_options options = {.memory_bytes = 64 << 20, .team_threads = 2, .poison = true};
    check(emu_setup(&options));
    emu_fault_skip_wait(count > 1 ? strtoull(arguments[1], NULL, 10) : 0);
    for (int i = 0; i < STREAMS; i++)
        check(
            cudaStreamCreateWithPriority(&stream[i], cudaStreamNonBlocking, i == COMPUTE ? -5 : 0));
    for (int i = 0; i < 3; i++)
        check(cudaEventCreateWithFlags(&event[i], cudaEventDisableTiming));
    for (int i = 0; i < DEPTH; i++) {
        check(cudaMalloc((void **)&device[i], COUNT * 4));
        check(cudaHostAlloc((void **)&in[i], COUNT * 4, cudaHostAllocDefault));
        check(cudaHostAlloc((void **)&out[i], COUNT * 4, cudaHostAllocDefault));
    }
    completed = eventfd(0, 0);
    uint32_t enqueued = 0;
    for (uint64_t done = 0, ended = 0; done < STEPS; done += ended) {
        for (; enqueued < STEPS && enqueued < done + DEPTH; enqueued++)
            step(enqueued);
        if (read(completed, &ended, sizeof(ended)) != sizeof(ended))
            abort();
    }
    check(cudaDeviceSynchronize());
    printf("%u steps, %u wrong\n", enqueued, wrong);
    return wrong ? 1 : 0;
}
