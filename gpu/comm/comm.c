#include "gpu/comm/comm.h"

#include <stdlib.h>
#include <string.h>

#include "gpu/base/cuda_error.h"

int comm_group_make(uint32_t ranks, const int *devices, struct comm_group **ret_group,
                    struct error *error)
{
    struct comm_group *group = calloc(1, sizeof *group);
    if (!group)
        return error_set(error, ERR_NO_MEMORY, "no memory for a group of %u devices", ranks);
    group->ranks = ranks;
    memcpy(group->devices, devices, ranks * sizeof *devices);
    int status = p2p_group_open(&group->office, ranks, devices, error);
    if (status) {
        free(group);
        return status;
    }
    status = comm_body_make(group, error);
    if (status) {
        p2p_group_close(&group->office);
        free(group);
        return status;
    }
    *ret_group = group;
    return 0;
}

void comm_group_free(struct comm_group *group)
{
    if (!group)
        return;
    comm_body_free(group);
    p2p_group_close(&group->office);
    free(group);
}

void comm_abort(struct comm_group *group)
{
    p2p_group_abort(&group->office);
    comm_body_abort(group);
}

int comm_open(struct comm *comm, struct comm_group *group, uint32_t rank, struct p2p_model model,
              struct mem *mem, struct error *error)
{
    int least = 0, greatest = 0;
    *comm = (struct comm){.group = group, .rank = rank};
    CUDA_TRY(cudaDeviceGetStreamPriorityRange(&least, &greatest), error);
    CUDA_TRY(cudaStreamCreateWithPriority(&comm->stream, cudaStreamNonBlocking, greatest), error);
    CUDA_TRY(cudaEventCreateWithFlags(&comm->there, cudaEventDisableTiming), error);
    CUDA_TRY(cudaEventCreateWithFlags(&comm->summed, cudaEventDisableTiming), error);
    int status = p2p_open(&comm->p2p, &group->office, rank, model, mem, error);
    return status ? status : comm_body_open(comm, mem, error);
}

void comm_close(struct comm *comm)
{
    p2p_close(&comm->p2p);
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

void comm_begin(struct comm *comm)
{
    comm->begun = false;
    comm->turn = 0;
    p2p_begin(&comm->p2p);
}

int comm_sum(struct comm *comm, void *x, uint64_t count, enum dtype dtype, cudaStream_t compute,
             struct error *error)
{
    int status = follow_compute(comm, compute, error);
    if (!status && !comm->begun)
        status = comm_body_begin(comm, error);
    comm->begun = true;
    return status ? status : comm_body_sum(comm, x, count, dtype, error);
}

int comm_join(struct comm *comm, cudaStream_t compute, struct error *error)
{
    CUDA_TRY(cudaEventRecord(comm->summed, comm->stream), error);
    CUDA_TRY(cudaStreamWaitEvent(compute, comm->summed, 0), error);
    return 0;
}
