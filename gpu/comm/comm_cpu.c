/* Each rank puts its part into a buffer that the others read, raises its tally, waits until all
 * tallies stand as high, and adds up. Two buffers take turns, and a step's first sum meets without
 * data before: so a buffer is written again only after a later meeting, to which everybody came who
 * read it. */
#include <stdlib.h>

#include "gpu/base/cuda_error.h"
#include "gpu/comm/comm.h"
#include "gpu/kernels/cpu/body.h"

#define PIECE_BYTES (256u << 10)
#define SHARE 4096u /* elements of an index of the kernel */

struct comm_body {
    cudaStream_t tally[GPU_DEVICES_MAX];
    char *buffers[GPU_DEVICES_MAX]; /* [2][PIECE_BYTES], of fixed memory; set by its rank */
};

bool p2p_tally_make(cudaStream_t *ret_tally)
{
    return (*ret_tally = emu_tally_make()) != NULL;
}

void p2p_tally_free(cudaStream_t tally)
{
    emu_tally_free(tally);
}

int comm_body_make(struct comm_group *group, struct error *error)
{
    group->body = calloc(1, sizeof *group->body);
    bool made = group->body != NULL;
    for (uint32_t i = 0; made && i < group->ranks; i++)
        made = p2p_tally_make(&group->body->tally[i]);
    if (made)
        return 0;
    comm_body_free(group);
    return error_set(error, ERR_NO_MEMORY, "no memory for a group of %u devices", group->ranks);
}

void comm_body_free(struct comm_group *group)
{
    for (uint32_t i = 0; group->body && i < group->ranks; i++)
        emu_tally_free(group->body->tally[i]);
    free(group->body);
}

/* One context's error is everybody's here, and lets go who waits. */
void comm_body_abort(struct comm_group *group)
{
    (void)group;
}

int comm_body_open(struct comm *comm, struct mem *mem, struct error *error)
{
    void *buffers = NULL;
    int status = mem_fixed(mem, 2 * PIECE_BYTES, &buffers, error);
    comm->group->body->buffers[comm->rank] = buffers;
    return status;
}

static int meet(const struct comm *comm, struct error *error)
{
    cudaStream_t *tally = comm->group->body->tally, own = tally[comm->rank];
    CUDA_TRY(emu_tally_raise(comm->stream, own), error);
    for (uint32_t i = 0; i < comm->group->ranks; i++) {
        if (i != comm->rank)
            CUDA_TRY(emu_tally_level(comm->stream, own, tally[i]), error);
    }
    return 0;
}

int comm_body_begin(struct comm *comm, struct error *error)
{
    return meet(comm, error);
}

struct sum_args {
    void *to;
    const void *parts[GPU_DEVICES_MAX];
    uint32_t ranks, count;
    enum dtype dtype;
};

static void sum_share(const void *params, uint32_t index)
{
    const struct sum_args *args = params;
    uint32_t first = index * SHARE;
    uint32_t count = args->count - first < SHARE ? args->count - first : SHARE;
    float total[SHARE], part[SHARE];
    for (uint32_t r = 0; r < args->ranks; r++) {
        number_widen(r ? part : total, body_at(args->parts[r], args->dtype, first, 1), args->dtype,
                     count);
        for (uint32_t i = 0; r && i < count; i++)
            total[i] += part[i];
    }
    number_round(body_at(args->to, args->dtype, first, 1), total, args->dtype, count);
}

static int piece_sum(struct comm *comm, void *x, uint32_t count, enum dtype dtype,
                     struct error *error)
{
    char *const *buffers = comm->group->body->buffers;
    struct sum_args args = {.to = x, .ranks = comm->group->ranks, .count = count, .dtype = dtype};
    uint64_t at = (uint64_t)(comm->turn++ % 2) * PIECE_BYTES;
    for (uint32_t i = 0; i < args.ranks; i++)
        args.parts[i] = buffers[i] + at;
    CUDA_TRY(cudaMemcpyAsync(buffers[comm->rank] + at, x, (size_t)count * dtype_bytes(dtype),
                             cudaMemcpyDeviceToDevice, comm->stream),
             error);
    int status = meet(comm, error);
    if (status)
        return status;
    CUDA_TRY(body_launch(comm->stream, "sum", sum_share, &args, sizeof args,
                         (count + SHARE - 1) / SHARE),
             error);
    return 0;
}

int comm_body_sum(struct comm *comm, void *x, uint64_t count, enum dtype dtype, struct error *error)
{
    uint64_t fit = PIECE_BYTES / dtype_bytes(dtype);
    int status = 0;
    for (uint64_t first = 0; !status && first < count; first += fit)
        status = piece_sum(comm, (char *)x + first * dtype_bytes(dtype),
                           (uint32_t)(count - first < fit ? count - first : fit), dtype, error);
    return status;
}
