/* A block per row. Counts are 16 bits wide, so a compare and swap adds one and stops at the top;
 * the sum does not depend on the order. */
#include "gpu/kernels/sampling/count.h"
#include "gpu/kernels/common/device.cuh"

#define COUNT_THREADS 256

__device__ static void count_token(unsigned short *entry, bool prompt)
{
    unsigned short old = *entry, assumed;
    do {
        assumed = old;
        unsigned next = assumed;
        if (prompt)
            next |= COUNT_PROMPT;
        else if ((assumed & COUNT_MAX) != COUNT_MAX)
            next++;
        if (next == assumed)
            return;
        old = atomicCAS(entry, assumed, (unsigned short)next);
    } while (old != assumed);
}

__global__ void count_kernel(struct count_args a)
{
    grid_trigger();
    grid_wait();
    if (blockIdx.x >= a.batch.counts->rows)
        return;
    struct batch_row row = a.batch.rows[blockIdx.x];
    const struct batch_slot &slot = a.batch.slots[row.slot];
    if (!(slot.flags & GPU_SLOT_PENALTIES))
        return;
    unsigned short *seen = a.batch.seen + (size_t)row.slot * a.vocab;
    if (row.position == slot.first) {
        for (uint32_t i = threadIdx.x; i < a.vocab; i += blockDim.x)
            seen[i] = 0;
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < slot.first; i += blockDim.x)
            count_token(seen + slot.before[i], i < slot.prompt_len);
    }
    for (uint32_t i = threadIdx.x; i < row.uncounted; i += blockDim.x)
        count_token(seen + slot.before[i], row.position - row.uncounted + i < slot.prompt_len);
    for (uint32_t i = threadIdx.x; i < row.q_len - row.drafts; i += blockDim.x)
        count_token(seen + a.batch.token_id[row.token + i], row.position + i < slot.prompt_len);
}

cudaError_t op_count(const struct count_args *args, cudaStream_t stream)
{
    return launch(count_kernel, dim3(args->batch.rows_max), COUNT_THREADS, 0, stream, *args);
}
