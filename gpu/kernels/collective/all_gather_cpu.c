#include "gpu/kernels/collective/all_gather.h"

#include "gpu/kernels/collective/inbox_cpu.h"
#include "gpu/kernels/cpu/body.h"

/* Columns of a rank's slice; none where the others have all. */
static uint32_t slice(const struct all_gather_args *args, uint32_t rank)
{
    uint32_t first = rank * args->share;
    uint32_t left = args->width > first ? args->width - first : 0;
    return left < args->share ? left : args->share;
}

static float *columns(const struct all_gather_args *args, uint32_t row, uint32_t rank)
{
    return (float *)dev(args->x) + (size_t)row * args->width + rank * args->share;
}

static uint64_t place(const struct all_gather_args *args, uint32_t row)
{
    return (uint64_t)row * args->share * sizeof(float);
}

static void put_row(const void *params, uint32_t row)
{
    const struct all_gather_args *args = params;
    const struct inboxes *inboxes = &args->inboxes;
    uint32_t own = inboxes->rank;
    for (uint32_t to = 0; row < body_rows(&args->rows) && to < inboxes->ranks; to++) {
        if (to != own)
            memcpy(inbox_part(inboxes, to, own, place(args, row)), columns(args, row, own),
                   slice(args, own) * sizeof(float));
    }
}

static void take_row(const void *params, uint32_t row)
{
    const struct all_gather_args *args = params;
    const struct inboxes *inboxes = &args->inboxes;
    uint32_t own = inboxes->rank;
    for (uint32_t from = 0; row < body_rows(&args->rows) && from < inboxes->ranks; from++) {
        if (from == own)
            continue;
        char *part = inbox_part(inboxes, own, from, place(args, row));
        size_t bytes = slice(args, from) * sizeof(float);
        memcpy(columns(args, row, from), part, bytes);
        memset(part, INBOX_EMPTY, bytes);
    }
}

cudaError_t op_all_gather(const struct all_gather_args *args, cudaStream_t stream)
{
    cudaError_t status =
        body_launch(stream, "collect put", put_row, args, sizeof *args, args->rows.max);
    if (status == cudaSuccess)
        status = inbox_meet(&args->inboxes, stream);
    if (status == cudaSuccess)
        status = body_launch(stream, "collect take", take_row, args, sizeof *args, args->rows.max);
    return status;
}
