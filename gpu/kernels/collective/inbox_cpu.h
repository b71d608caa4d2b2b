/* What the CPU bodies about inboxes share. */
#pragma once

#include "gpu/emu/emu.h"
#include "gpu/kernels/collective/inbox.h"

/* Behind what the stream holds: waits until all ranks' streams have come as far. */
static inline cudaError_t inbox_meet(const struct inboxes *inboxes, cudaStream_t stream)
{
    cudaStream_t own = inboxes->tally[inboxes->rank];
    cudaError_t status = emu_tally_raise(stream, own);
    for (uint32_t i = 0; status == cudaSuccess && i < inboxes->ranks; i++) {
        if (i != inboxes->rank)
            status = emu_tally_level(stream, own, inboxes->tally[i]);
    }
    return status;
}

/* Byte `at` of what `sender` puts into the inbox of `to`. */
static inline char *inbox_part(const struct inboxes *inboxes, uint32_t to, uint32_t sender,
                               uint64_t at)
{
    return (char *)dev(inboxes->at[to]) + sender * inboxes->part_bytes + at;
}
