#include <math.h>

#include "gpu/programs/pipeline/pipeline.h"

#define BLOCK 4096u /* elements of an index: some microseconds */

/* Which block of which item an index is. */
static void pipeline(const struct sluice_item *items, const void *args, uint32_t index)
{
    const struct sluice_item *item = items;
    uint64_t block = index;
    (void)args;
    for (; block >= (item->sizes[0] + BLOCK - 1) / BLOCK; item++)
        block -= (item->sizes[0] + BLOCK - 1) / BLOCK;
    const float *x = item->inputs[0];
    float *y = item->outputs[0];
    const int64_t rounds = item->values[PIPELINE_ROUNDS].integer;
    const float a = (float)item->values[PIPELINE_A].number;
    const float b = (float)item->values[PIPELINE_B].number;
    uint64_t end = (block + 1) * BLOCK < item->sizes[0] ? (block + 1) * BLOCK : item->sizes[0];
    for (uint64_t i = block * BLOCK; i < end; i++) {
        float v = x[i];
        for (int64_t round = 0; round < rounds; round++)
            v = fmaf(v, b, a);
        y[i] = v;
    }
}

static int enqueue(const struct sluice_batch *batch, const struct sluice_streams *streams,
                   struct sluice_allocator *allocator)
{
    uint64_t blocks = 0;
    (void)allocator;
    for (uint32_t i = 0; i < batch->count; i++)
        blocks += (batch->items[i].sizes[0] + BLOCK - 1) / BLOCK;
    return streams->cpu->launch(streams->streams[0], "pipeline", pipeline, batch, NULL, 0,
                                (uint32_t)blocks);
}

SLUICE_EXPORT const struct sluice_program sluice_program_cpu = PIPELINE;
