/* What all runtime tests begin with. */
#pragma once

#include <check.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tests/runner.h"
#include "tests/runtime/device.h"

#define OK(call) ck_assert_str_eq(cudaGetErrorName(call), "cudaSuccess")
#define GIVES(error, call) ck_assert_str_eq(cudaGetErrorName(call), cudaGetErrorName(error))

static inline cudaStream_t stream_new(int priority)
{
    cudaStream_t stream;
    OK(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority));
    return stream;
}

static inline cudaEvent_t event_new(void)
{
    cudaEvent_t event;
    OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    return event;
}

static inline uint32_t *pinned_new(uint32_t count)
{
    void *host;
    OK(cudaHostAlloc(&host, count * sizeof(uint32_t), cudaHostAllocDefault));
    memset(host, 0, count * sizeof(uint32_t));
    return host;
}

static inline uint32_t *device_new(uint32_t count)
{
    void *device;
    OK(cudaMalloc(&device, count * sizeof(uint32_t)));
    return device;
}

/* A host function that holds its stream until the gate is opened. Only where device_threads(). */
struct gate {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool open;
};
#define GATE_INIT                                                                                  \
    {                                                                                              \
        PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false                                 \
    }

static inline void gate_pass(void *data)
{
    struct gate *gate = data;
    pthread_mutex_lock(&gate->mutex);
    while (!gate->open)
        pthread_cond_wait(&gate->changed, &gate->mutex);
    pthread_mutex_unlock(&gate->mutex);
}

static inline void gate_open(struct gate *gate)
{
    pthread_mutex_lock(&gate->mutex);
    gate->open = true;
    pthread_cond_broadcast(&gate->changed);
    pthread_mutex_unlock(&gate->mutex);
}

static inline void check_end(void)
{
    OK(cudaDeviceSynchronize());
    ck_assert(device_clean());
}

/* Runs one test case without forking: CUDA does not survive a fork. */
static inline int check_run(const char *name, TCase *tcase)
{
    Suite *suite = suite_create(name);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_set_fork_status(runner, CK_NOFORK);
    return runner_run(runner);
}
