#include "tests/gpu/rig/skip_wait.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

#include "gpu/comm/comm.h"

#define WAITS_MAX 16

static struct {
    struct {
        cudaStream_t stream;
        cudaEvent_t event;
    } waits[WAITS_MAX];
    uint32_t wait_count;
    uint32_t sum;                   /* 0: none */
    uint32_t sums[GPU_DEVICES_MAX]; /* of the running step, of the ranks of one stage; each its
                                       rank's thread's own */
} omit;

void skip_nothing(void)
{
    memset(&omit, 0, sizeof omit);
}

void skip_wait(cudaStream_t stream, cudaEvent_t event)
{
    assert(omit.wait_count < WAITS_MAX);
    omit.waits[omit.wait_count].stream = stream;
    omit.waits[omit.wait_count++].event = event;
}

void skip_sum(uint32_t nth)
{
    omit.sum = nth;
}

/* ---- what the linker puts before the engine's calls ---------------------------------------------
 */

/* Of a call by the name that it has where threads have default streams of their own. */
#define JOIN(prefix, call) prefix##call
#define NAME(prefix, call) JOIN(prefix, call)
#define REAL_WAIT NAME(__real_, cudaStreamWaitEvent)
#define WRAP_WAIT NAME(__wrap_, cudaStreamWaitEvent)

cudaError_t REAL_WAIT(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t WRAP_WAIT(cudaStream_t stream, cudaEvent_t event, unsigned flags);
void __real_comm_begin(struct comm *comm);
void __wrap_comm_begin(struct comm *comm);
int __real_comm_sum(struct comm *comm, void *x, uint64_t count, enum dtype dtype,
                    cudaStream_t compute, struct error *error);
int __wrap_comm_sum(struct comm *comm, void *x, uint64_t count, enum dtype dtype,
                    cudaStream_t compute, struct error *error);

cudaError_t WRAP_WAIT(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    for (uint32_t i = 0; i < omit.wait_count; i++) {
        if (omit.waits[i].stream == stream && omit.waits[i].event == event)
            return cudaSuccess;
    }
    return REAL_WAIT(stream, event, flags);
}

void __wrap_comm_begin(struct comm *comm)
{
    if (omit.sum)
        omit.sums[comm->rank] = 0;
    __real_comm_begin(comm);
}

int __wrap_comm_sum(struct comm *comm, void *x, uint64_t count, enum dtype dtype,
                    cudaStream_t compute, struct error *error)
{
    if (omit.sum && ++omit.sums[comm->rank] == omit.sum)
        return 0;
    return __real_comm_sum(comm, x, count, dtype, compute, error);
}
