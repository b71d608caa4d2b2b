/* How many streams run at once, and what default streams do. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "gpu/base/cuda_error.h"
#include "gpu/kernels/spin/spin.h"
#include "gpu/lanes/machine.h"

/* Much longer than the launches of all of them take: 256 took a millisecond. */
#define KERNEL_NS UINT64_C(10000000)

static int streams_turn(struct machine *machine, const void *argument, struct error *error)
{
    const uint32_t count = *(const uint32_t *)argument;
    for (uint32_t i = 0; i < count; i++)
        CUDA_TRY(op_spin(KERNEL_NS, machine->streams[i]), error);
    return machine_synchronize(machine, count, error);
}

static int default_turn(struct machine *machine, const void *argument, struct error *error)
{
    (void)machine;
    (void)argument;
    for (int i = 0; i < GPU_MACHINE_THREADS; i++)
        CUDA_TRY(op_spin(KERNEL_NS, cudaStreamPerThread), error);
    CUDA_TRY(cudaStreamSynchronize(cudaStreamPerThread), error);
    return 0;
}

/* ---- default streams of several threads --------------------------------------------------------
 */

struct gate {
    atomic_uint ready;
    atomic_bool open;
};

struct own_thread {
    pthread_t thread;
    struct gate *gate;
    int device;
    cudaError_t status;
};

static cudaError_t spin_on_default(uint64_t ns)
{
    cudaError_t status = op_spin(ns, cudaStreamPerThread);
    return status == cudaSuccess ? cudaStreamSynchronize(cudaStreamPerThread) : status;
}

/* Once to have its stream made, then when all are there. */
static void *own_default(void *data)
{
    struct own_thread *own = data;
    own->status = cudaSetDevice(own->device);
    if (own->status == cudaSuccess)
        own->status = spin_on_default(0);
    atomic_fetch_add(&own->gate->ready, 1);
    while (!atomic_load(&own->gate->open))
        sched_yield();
    if (own->status == cudaSuccess)
        own->status = spin_on_default(KERNEL_NS);
    return NULL;
}

static int threads_ns(struct machine *machine, double *ret_ns, struct error *error)
{
    struct own_thread own[GPU_MACHINE_THREADS];
    struct gate gate = {.ready = 0};
    uint32_t made = 0;
    int failed = 0;
    cudaError_t status = cudaSuccess;
    for (; made < GPU_MACHINE_THREADS && !failed; made += !failed) {
        own[made] = (struct own_thread){.gate = &gate, .device = machine->device};
        failed = pthread_create(&own[made].thread, NULL, own_default, &own[made]);
    }
    while (atomic_load(&gate.ready) < made)
        sched_yield();
    const uint64_t since = machine_now_ns();
    atomic_store(&gate.open, true);
    for (uint32_t i = 0; i < made; i++) {
        pthread_join(own[i].thread, NULL);
        status = status == cudaSuccess ? own[i].status : status;
    }
    *ret_ns = (double)(machine_now_ns() - since);
    if (failed)
        return error_set(error, ERR_INTERNAL, "cannot start a thread: %s", strerror(failed));
    CUDA_TRY(status, error);
    return 0;
}

static int threads_gain(struct machine *machine, double one_ns, double *ret, struct error *error)
{
    double ns = 0;
    int rc = threads_ns(machine, &ns, error);
    *ret = GPU_MACHINE_THREADS * one_ns / (ns > 0 ? ns : 1);
    return rc;
}

int machine_streams(struct machine *machine, struct gpu_machine *ret, struct error *error)
{
    double one = 0, ns = 0;
    int rc = 0;
    for (uint32_t count = 1;
         !rc && count <= machine->stream_count && ret->stream_count < GPU_MACHINE_STREAMS_MAX;
         count *= 2) {
        rc = machine_middle_ns(machine, streams_turn, &count, &ns, error);
        one = count == 1 ? ns : one;
        ret->streams[ret->stream_count] = count;
        ret->streams_gain[ret->stream_count++] = count * one / (ns > 0 ? ns : 1);
    }
    if (!rc)
        rc = machine_middle_ns(machine, default_turn, NULL, &ns, error);
    ret->default_gain = GPU_MACHINE_THREADS * one / (ns > 0 ? ns : 1);
    return rc ? rc : threads_gain(machine, one, &ret->threads_gain, error);
}
