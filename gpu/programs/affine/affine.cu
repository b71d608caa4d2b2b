#include <cuda_runtime.h>

#include "gpu/programs/affine/affine.h"

#define THREADS 256
/* Of an item: more elements than they have threads are gone through in turns. */
#define BLOCKS_MAX 1024

static __device__ __forceinline__ float rounds_of(float x, float a, float b, int rounds)
{
    for (int round = 0; round < rounds; round++)
        x = __fadd_rn(__fmul_rn(a, x), b);
    return x;
}

/* A row of blocks for each item. Tensors begin at multiples of 256 bytes, so four elements are one
 * load; the last few of an item are single ones. */
static __global__ void affine(const struct sluice_item *items)
{
    const struct sluice_item *item = &items[blockIdx.y];
    const uint64_t count = item->sizes[0], quads = count / 4;
    const uint64_t stride = (uint64_t)gridDim.x * THREADS;
    const uint64_t thread = (uint64_t)blockIdx.x * THREADS + threadIdx.x;
    const float a = (float)item->values[AFFINE_A].number;
    const float b = (float)item->values[AFFINE_B].number;
    const int rounds = (int)item->values[AFFINE_ROUNDS].integer;
    const float *x = (const float *)item->inputs[0];
    float *y = (float *)item->outputs[0];
    for (uint64_t i = thread; i < quads; i += stride) {
        float4 four = ((const float4 *)x)[i];
        for (int round = 0; round < rounds; round++) { /* four chains beside each other */
            four.x = __fadd_rn(__fmul_rn(a, four.x), b);
            four.y = __fadd_rn(__fmul_rn(a, four.y), b);
            four.z = __fadd_rn(__fmul_rn(a, four.z), b);
            four.w = __fadd_rn(__fmul_rn(a, four.w), b);
        }
        ((float4 *)y)[i] = four;
    }
    for (uint64_t i = quads * 4 + thread; i < count; i += stride)
        y[i] = rounds_of(x[i], a, b, rounds);
}

static int enqueue(const struct sluice_batch *batch, const struct sluice_streams *streams,
                   struct sluice_allocator *allocator)
{
    uint64_t longest = 1;
    (void)allocator;
    for (uint32_t i = 0; i < batch->count; i++)
        longest = batch->items[i].sizes[0] > longest ? batch->items[i].sizes[0] : longest;
    const uint64_t blocks = (longest + 4 * THREADS - 1) / (4 * THREADS);
    const dim3 grid((unsigned)(blocks < BLOCKS_MAX ? blocks : BLOCKS_MAX), batch->count);
    affine<<<grid, THREADS, 0, streams->streams[0]>>>(batch->device_items);
    return (int)cudaGetLastError();
}

SLUICE_EXPORT const struct sluice_program sluice_program_cuda = AFFINE;
