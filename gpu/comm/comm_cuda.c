/* NCCL, loaded when a model is shared: a machine with one GPU needs none. One communicator per rank
 * of this process, all made at once by the leader; a rank first uses its own in a step, which comes
 * after every rank has started. */
#include <dlfcn.h>
#include <nccl.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/base/cuda_error.h"
#include "gpu/comm/comm.h"
#include "gpu/gpu.h"

struct comm_body {
    ncclComm_t comms[GPU_DEVICES_MAX];
};

static struct {
    ncclResult_t (*init_all)(ncclComm_t *comms, int count, const int *devices);
    ncclResult_t (*all_reduce)(const void *from, void *to, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
    ncclResult_t (*destroy)(ncclComm_t comm);
    ncclResult_t (*abort)(ncclComm_t comm);
    const char *(*text)(ncclResult_t result);
} nccl;

static int nccl_load(struct error *error)
{
    const struct {
        const char *name;
        void *to;
    } calls[] = {{"ncclCommInitAll", &nccl.init_all},
                 {"ncclAllReduce", &nccl.all_reduce},
                 {"ncclCommDestroy", &nccl.destroy},
                 {"ncclCommAbort", &nccl.abort},
                 {"ncclGetErrorString", &nccl.text}};
    void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return error_set(error, ERR_UNSUPPORTED, "tp needs NCCL: %.200s", dlerror());
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        void *call = dlsym(library, calls[i].name);
        if (!call)
            return error_set(error, ERR_UNSUPPORTED, "libnccl.so.2 has no %s", calls[i].name);
        memcpy(calls[i].to, &call, sizeof call);
    }
    return 0;
}

static int nccl_fail(ncclResult_t result, const char *what, struct error *error)
{
    return error_set(error, ERR_DEVICE, "%s: %s", what, nccl.text(result));
}

bool p2p_tally_make(cudaStream_t *ret_tally)
{
    *ret_tally = NULL;
    return true;
}

void p2p_tally_free(cudaStream_t tally)
{
    (void)tally;
}

/* Before any rank's thread: a second engine finds the same addresses. */
int comm_body_make(struct comm_group *group, struct error *error)
{
    int status = nccl_load(error);
    if (status)
        return status;
    group->body = calloc(1, sizeof *group->body);
    return group->body ? 0
                       : error_set(error, ERR_NO_MEMORY, "no memory for a group of %u devices",
                                   group->ranks);
}

void comm_body_free(struct comm_group *group)
{
    for (uint32_t i = 0; i < group->ranks; i++) {
        if (group->body->comms[i])
            (void)nccl.destroy(group->body->comms[i]);
    }
    free(group->body);
}

void comm_body_abort(struct comm_group *group)
{
    for (uint32_t i = 0; i < group->ranks; i++) {
        if (group->body->comms[i])
            (void)nccl.abort(group->body->comms[i]);
        group->body->comms[i] = NULL;
    }
}

int comm_body_open(struct comm *comm, struct mem *mem, struct error *error)
{
    struct comm_group *group = comm->group;
    (void)mem;
    if (comm->rank)
        return 0;
    ncclResult_t result = nccl.init_all(group->body->comms, (int)group->ranks, group->devices);
    /* It left some other device current. */
    CUDA_TRY(cudaSetDevice(group->devices[0]), error);
    return result == ncclSuccess ? 0 : nccl_fail(result, "ncclCommInitAll", error);
}

int comm_body_begin(struct comm *comm, struct error *error)
{
    (void)comm;
    (void)error;
    return 0;
}

int comm_body_sum(struct comm *comm, void *x, uint64_t count, enum dtype dtype, struct error *error)
{
    ncclDataType_t type = dtype == DTYPE_F32    ? ncclFloat32
                          : dtype == DTYPE_BF16 ? ncclBfloat16
                                                : ncclFloat16;
    ncclResult_t result = nccl.all_reduce(x, x, count, type, ncclSum,
                                          comm->group->body->comms[comm->rank], comm->stream);
    return result == ncclSuccess ? 0 : nccl_fail(result, "ncclAllReduce", error);
}
