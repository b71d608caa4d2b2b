/* A program of fixed shapes with a tensor of most dtypes: outputs are what came in, to the bit. */
#include <string.h>

#include "gpu/sluice_program.h"

#define KINDS 7

static const struct sluice_tensor inputs[KINDS] = {
    {"flag", SLUICE_BOOL, 1, {3}}, {"big", SLUICE_U64, 2, {2, 2}}, {"whole", SLUICE_I64, 1, {2}},
    {"small", SLUICE_I8, 1, {2}},  {"wide", SLUICE_F64, 1, {2}},   {"narrow", SLUICE_F32, 1, {2}},
    {"half", SLUICE_F16, 1, {4}}};
static const struct sluice_tensor outputs[KINDS] = {
    {"flag_out", SLUICE_BOOL, 1, {3}}, {"big_out", SLUICE_U64, 2, {2, 2}},
    {"whole_out", SLUICE_I64, 1, {2}}, {"small_out", SLUICE_I8, 1, {2}},
    {"wide_out", SLUICE_F64, 1, {2}},  {"narrow_out", SLUICE_F32, 1, {2}},
    {"half_out", SLUICE_F16, 1, {4}}};

static void copy(const struct sluice_item *items, const void *args, uint32_t index)
{
    static const size_t sizes[KINDS] = {3, 32, 16, 2, 16, 8, 8};
    (void)args;
    for (int i = 0; i < KINDS; i++)
        memcpy(items[index].outputs[i], items[index].inputs[i], sizes[i]);
}

static int enqueue(const struct sluice_batch *batch, const struct sluice_streams *streams,
                   struct sluice_allocator *allocator)
{
    (void)allocator;
    return streams->cpu->launch(streams->streams[0], "fixed", copy, batch, NULL, 0, batch->count);
}

SLUICE_EXPORT const struct sluice_program sluice_program_cpu = {.abi = SLUICE_PROGRAM_ABI,
                                                                .flags = SLUICE_WRITES_ALL,
                                                                .name = "fixed",
                                                                .summary = "what came in",
                                                                .input_count = KINDS,
                                                                .output_count = KINDS,
                                                                .inputs = inputs,
                                                                .outputs = outputs,
                                                                .stream_count = 1,
                                                                .enqueue = enqueue};
