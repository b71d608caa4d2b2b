#include "gpu/programs/affine/affine.h"

#define BLOCK 16384u /* elements of an index: some microseconds */

/* Which block of which item an index is. */
static void affine(const struct sluice_item *items, const void *args, uint32_t index)
{
    const struct sluice_item *item = items;
    uint64_t block = index;
    (void)args;
    for (; block >= (item->sizes[0] + BLOCK - 1) / BLOCK; item++)
        block -= (item->sizes[0] + BLOCK - 1) / BLOCK;
    const float *x = item->inputs[0];
    float *y = item->outputs[0];
    const float a = (float)item->values[AFFINE_A].number;
    const float b = (float)item->values[AFFINE_B].number;
    uint64_t end = (block + 1) * BLOCK < item->sizes[0] ? (block + 1) * BLOCK : item->sizes[0];
    for (uint64_t i = block * BLOCK; i < end; i++)
        y[i] = a * x[i] + b;
    for (int64_t round = 1; round < item->values[AFFINE_ROUNDS].integer; round++)
        for (uint64_t i = block * BLOCK; i < end; i++)
            y[i] = a * y[i] + b;
}

static int enqueue(const struct sluice_batch *batch, const struct sluice_streams *streams,
                   struct sluice_allocator *allocator)
{
    uint64_t blocks = 0;
    (void)allocator;
    for (uint32_t i = 0; i < batch->count; i++)
        blocks += (batch->items[i].sizes[0] + BLOCK - 1) / BLOCK;
    return streams->cpu->launch(streams->streams[0], "affine", affine, batch, NULL, 0,
                                (uint32_t)blocks);
}

SLUICE_EXPORT const struct sluice_program sluice_program_cpu = AFFINE;
