#include "gpu/weights/arrival.h"

#include <assert.h>

#include "gpu/base/cuda_error.h"

int arrival_mark(struct arrival *arrival, uint64_t end, cudaStream_t stream, struct error *error)
{
    assert(arrival->count < ARRIVAL_EVENTS);
    cudaEvent_t *event = &arrival->events[arrival->count];
    CUDA_TRY(cudaEventCreateWithFlags(event, cudaEventDisableTiming), error);
    arrival->ends[arrival->count++] = end;
    CUDA_TRY(cudaEventRecord(*event, stream), error);
    return 0;
}

int arrival_await(struct arrival *arrival, uint64_t end, cudaStream_t compute, struct error *error)
{
    uint32_t count = arrival->awaited;
    while (count < arrival->count && (count > 0 ? arrival->ends[count - 1] : 0) < end)
        count++;
    if (count == arrival->awaited)
        return 0;
    CUDA_TRY(cudaStreamWaitEvent(compute, arrival->events[count - 1], 0), error);
    arrival->awaited = count;
    return 0;
}

void arrival_close(struct arrival *arrival)
{
    for (uint32_t i = 0; i < arrival->count; i++)
        (void)cudaEventDestroy(arrival->events[i]);
    arrival->count = arrival->awaited = 0;
}
