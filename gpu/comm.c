#include "gpu/comm.h"

#include "gpu/cuda.h"

int comm_open(struct comm *comm, struct comm_group *group, uint32_t rank, struct mem *mem,
              struct error *error)
{
    int least = 0, greatest = 0;
    *comm = (struct comm){.group = group, .rank = rank};
    CUDA_TRY(cudaDeviceGetStreamPriorityRange(&least, &greatest), error);
    CUDA_TRY(cudaStreamCreateWithPriority(&comm->stream, cudaStreamNonBlocking, greatest), error);
    CUDA_TRY(cudaEventCreateWithFlags(&comm->there, cudaEventDisableTiming), error);
    CUDA_TRY(cudaEventCreateWithFlags(&comm->summed, cudaEventDisableTiming), error);
    return comm_body_open(comm, mem, error);
}

void comm_close(struct comm *comm)
{
    if (comm->there)
        (void)cudaEventDestroy(comm->there);
    if (comm->summed)
        (void)cudaEventDestroy(comm->summed);
    if (comm->stream)
        (void)cudaStreamDestroy(comm->stream);
    *comm = (struct comm){0};
}

static int follow_compute(struct comm *comm, cudaStream_t compute, struct error *error)
{
    CUDA_TRY(cudaEventRecord(comm->there, compute), error);
    CUDA_TRY(cudaStreamWaitEvent(comm->stream, comm->there, 0), error);
    return 0;
}

int comm_begin(struct comm *comm, cudaStream_t compute, struct error *error)
{
    int status = follow_compute(comm, compute, error);
    return status ? status : comm_body_begin(comm, error);
}

int comm_sum(struct comm *comm, void *x, uint64_t count, enum dtype dtype, cudaStream_t compute,
             struct error *error)
{
    int status = follow_compute(comm, compute, error);
    return status ? status : comm_body_sum(comm, x, count, dtype, error);
}

int comm_join(struct comm *comm, cudaStream_t compute, struct error *error)
{
    CUDA_TRY(cudaEventRecord(comm->summed, comm->stream), error);
    CUDA_TRY(cudaStreamWaitEvent(compute, comm->summed, 0), error);
    return 0;
}
