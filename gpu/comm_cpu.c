/* Each rank puts its part into a buffer that the others read, raises its tally, waits until all
 * tallies stand as high, and adds up. Two buffers take turns, and comm_begin meets without data: so
 * a buffer is written again only after a later meeting, to which everybody came who read it. */
#include <stdlib.h>

#include "gpu/comm.h"
#include "gpu/cuda.h"
#include "gpu/kernels/cpu/body.h"

#define PIECE_BYTES (256u << 10)
#define SHARE 4096u /* elements of an index of the kernel */

struct comm_group {
    uint32_t ranks;
    struct {
        cudaStream_t tally;
        char *buffers; /* [2][PIECE_BYTES], of fixed memory; set by its rank */
    } rank[];
};

int comm_group_make(uint32_t ranks, const int *devices, struct comm_group **ret_group,
                    struct error *error)
{
    (void)devices;
    struct comm_group *group = calloc(1, sizeof *group + ranks * sizeof group->rank[0]);
    bool made = group != NULL;
    if (made)
        group->ranks = ranks;
    for (uint32_t i = 0; made && i < ranks; i++)
        made = (group->rank[i].tally = emu_tally_make()) != NULL;
    if (!made) {
        comm_group_free(group);
        return error_set(error, ERR_NO_MEMORY, "no memory for a group of %u devices", ranks);
    }
    *ret_group = group;
    return 0;
}

void comm_group_free(struct comm_group *group)
{
    for (uint32_t i = 0; group && i < group->ranks; i++)
        emu_tally_free(group->rank[i].tally);
    free(group);
}

/* One context's error is everybody's here, and lets go who waits. */
void comm_abort(struct comm_group *group)
{
    (void)group;
}

int comm_body_open(struct comm *comm, struct mem *mem, struct error *error)
{
    void *buffers = NULL;
    int status = mem_fixed(mem, 2 * PIECE_BYTES, &buffers, error);
    comm->group->rank[comm->rank].buffers = buffers;
    return status;
}

static int meet(const struct comm *comm, struct error *error)
{
    const struct comm_group *group = comm->group;
    cudaStream_t own = group->rank[comm->rank].tally;
    CUDA_TRY(emu_tally_raise(comm->stream, own), error);
    for (uint32_t i = 0; i < group->ranks; i++) {
        if (i != comm->rank)
            CUDA_TRY(emu_tally_level(comm->stream, own, group->rank[i].tally), error);
    }
    return 0;
}

int comm_body_begin(struct comm *comm, struct error *error)
{
    comm->turn = 0;
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
    const struct comm_group *group = comm->group;
    struct sum_args args = {.to = x, .ranks = group->ranks, .count = count, .dtype = dtype};
    uint64_t at = (uint64_t)(comm->turn++ % 2) * PIECE_BYTES;
    for (uint32_t i = 0; i < group->ranks; i++)
        args.parts[i] = group->rank[i].buffers + at;
    CUDA_TRY(cudaMemcpyAsync(group->rank[comm->rank].buffers + at, x,
                             (size_t)count * dtype_bytes(dtype), cudaMemcpyDeviceToDevice,
                             comm->stream),
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
