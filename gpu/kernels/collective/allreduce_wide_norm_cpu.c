#include "gpu/kernels/collective/allreduce_wide_norm.h"

#include "gpu/kernels/collective/inbox_cpu.h"
#include "gpu/kernels/cpu/body.h"
#include "gpu/kernels/norm/wide_norm_cpu.h"

static uint64_t at_byte(uint32_t row, uint32_t value)
{
    return ((uint64_t)row * WIDE_VALUES + value) * sizeof(float);
}

static void put_share(const void *params, uint32_t index)
{
    const struct allreduce_wide_norm_args *args = params;
    const struct wide_norm_args *norm = &args->norm;
    const struct inboxes *inboxes = &args->inboxes;
    uint32_t share = wide_share(norm), rows = body_rows(&norm->rows);
    float *squares = dev(norm->squares);
    for (uint32_t row = index * share; row < (index + 1) * share && row < rows; row++) {
        for (uint32_t i = 0; i < WIDE_VALUES; i++) {
            float *own = &squares[(size_t)row * WIDE_VALUES + i];
            *own = wide_squares(norm, row, i);
            for (uint32_t to = 0; to < inboxes->ranks; to++) {
                if (to != inboxes->rank)
                    memcpy(inbox_part(inboxes, to, inboxes->rank, at_byte(row, i)), own,
                           sizeof *own);
            }
        }
    }
}

/* In the order of ranks. What it takes it leaves empty. */
static float take(const struct allreduce_wide_norm_args *args, uint32_t row, uint32_t value)
{
    const struct inboxes *inboxes = &args->inboxes;
    const float *own = dev(args->norm.squares);
    float sum = 0;
    for (uint32_t sender = 0; sender < inboxes->ranks; sender++) {
        float part = own[(size_t)row * WIDE_VALUES + value];
        if (sender != inboxes->rank) {
            char *from = inbox_part(inboxes, inboxes->rank, sender, at_byte(row, value));
            memcpy(&part, from, sizeof part);
            memset(from, INBOX_EMPTY, sizeof part);
        }
        sum = sender ? sum + part : part;
    }
    return sum;
}

static void take_share(const void *params, uint32_t index)
{
    const struct allreduce_wide_norm_args *args = params;
    uint32_t share = wide_share(&args->norm), rows = body_rows(&args->norm.rows);
    for (uint32_t row = index * share; row < (index + 1) * share && row < rows; row++) {
        for (uint32_t i = 0; i < WIDE_VALUES; i++)
            wide_scale(&args->norm, row, i, take(args, row, i));
    }
}

cudaError_t op_allreduce_wide_norm(const struct allreduce_wide_norm_args *args, cudaStream_t stream)
{
    uint32_t shares = wide_shares(&args->norm);
    cudaError_t status =
        body_launch(stream, "reduce wide put", put_share, args, sizeof *args, shares);
    if (status == cudaSuccess)
        status = inbox_meet(&args->inboxes, stream);
    if (status == cudaSuccess)
        status = body_launch(stream, "reduce wide take", take_share, args, sizeof *args, shares);
    return status;
}
