#include "gpu/kernels/collective/allreduce_norm.h"

#include "gpu/kernels/collective/inbox_cpu.h"
#include "gpu/kernels/cpu/body.h"
#include "gpu/kernels/norm/norm_cpu.h"

static uint64_t row_bytes(const struct norm_args *norm)
{
    return (uint64_t)norm->size * dtype_bytes(norm->delta_dtype);
}

static void put_share(const void *params, uint32_t index)
{
    const struct allreduce_norm_args *args = params;
    const struct norm_args *norm = &args->norm;
    const struct inboxes *inboxes = &args->inboxes;
    uint32_t share = body_share(norm->size), rows = body_rows(&norm->rows);
    for (uint32_t row = index * share; row < (index + 1) * share && row < rows; row++) {
        const void *from = body_at(norm->delta, norm->delta_dtype, row, norm->delta_stride);
        for (uint32_t to = 0; to < inboxes->ranks; to++) {
            if (to != inboxes->rank)
                memcpy(inbox_part(inboxes, to, inboxes->rank, row * row_bytes(norm)), from,
                       row_bytes(norm));
        }
    }
}

/* What it takes of the others' parts for the last time it leaves empty. */
static void take(const void *context, uint32_t row, uint32_t first, uint32_t count, bool last,
                 float *ret)
{
    const struct allreduce_norm_args *args = context;
    const struct norm_args *norm = &args->norm;
    const struct inboxes *inboxes = &args->inboxes;
    enum dtype dtype = norm->delta_dtype;
    float part[NORM_PIECE];
    for (uint32_t sender = 0; sender < inboxes->ranks; sender++) {
        void *from = sender == inboxes->rank
                         ? body_at(norm->delta, dtype, row, norm->delta_stride)
                         : inbox_part(inboxes, inboxes->rank, sender, row * row_bytes(norm));
        void *at = number_at(from, dtype, first);
        number_widen(sender ? part : ret, at, dtype, count);
        for (uint32_t i = 0; sender && i < count; i++)
            ret[i] += part[i];
        if (last && sender != inboxes->rank)
            memset(at, INBOX_EMPTY, (size_t)count * dtype_bytes(dtype));
    }
}

static void take_share(const void *params, uint32_t index)
{
    const struct allreduce_norm_args *args = params;
    uint32_t share = body_share(args->norm.size), rows = body_rows(&args->norm.rows);
    for (uint32_t row = index * share; row < (index + 1) * share && row < rows; row++)
        norm_row(&args->norm, row, take, args);
}

cudaError_t op_allreduce_norm(const struct allreduce_norm_args *args, cudaStream_t stream)
{
    if (allreduce_norm_refused(args))
        return cudaErrorInvalidValue;
    uint32_t shares = body_shares(args->norm.rows.max, args->norm.size);
    cudaError_t status = body_launch(stream, "reduce put", put_share, args, sizeof *args, shares);
    if (status == cudaSuccess)
        status = inbox_meet(&args->inboxes, stream);
    if (status == cudaSuccess)
        status = body_launch(stream, "reduce take", take_share, args, sizeof *args, shares);
    return status;
}
