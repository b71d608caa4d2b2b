/* A program that does what its parameter says: 0 copies, 1 fails, 2 faults in its kernel, 3 never
 * ends, 4 faults while it enqueues. */
#include "gpu/sluice_program.h"

static const struct sluice_size sizes[] = {{"n", 1, 1 << 20}};
static const struct sluice_tensor inputs[] = {{"x", SLUICE_U8, 1, {SLUICE_SIZE(0)}}};
static const struct sluice_tensor outputs[] = {{"y", SLUICE_U8, 1, {SLUICE_SIZE(0)}}};
static const struct sluice_parameter parameters[] = {
    {"how", "what goes wrong", SLUICE_INTEGER, 1, {0}, {0}, {.integer = 4}}};

static volatile int *volatile nowhere;
static volatile int stays;

static void kernel(const struct sluice_item *items, const void *args, uint32_t index)
{
    const struct sluice_item *item = &items[index];
    (void)args;
    if (item->values[0].integer == 2)
        *nowhere = 1;
    while (item->values[0].integer == 3 && !stays)
        continue;
    for (uint64_t i = 0; i < item->sizes[0]; i++)
        ((unsigned char *)item->outputs[0])[i] = ((const unsigned char *)item->inputs[0])[i];
}

static int enqueue(const struct sluice_batch *batch, const struct sluice_streams *streams,
                   struct sluice_allocator *allocator)
{
    (void)allocator;
    for (uint32_t i = 0; i < batch->count; i++) {
        if (batch->items[i].values[0].integer == 1)
            return 7;
        if (batch->items[i].values[0].integer == 4)
            *nowhere = 1;
    }
    return streams->cpu->launch(streams->streams[0], "poison", kernel, batch, NULL, 0,
                                batch->count);
}

SLUICE_EXPORT const struct sluice_program sluice_program_cpu = {.abi = SLUICE_PROGRAM_ABI,
                                                                .name = "poison",
                                                                .summary = "what a test needs",
                                                                .size_count = 1,
                                                                .input_count = 1,
                                                                .output_count = 1,
                                                                .parameter_count = 1,
                                                                .sizes = sizes,
                                                                .inputs = inputs,
                                                                .outputs = outputs,
                                                                .parameters = parameters,
                                                                .enqueue = enqueue};
