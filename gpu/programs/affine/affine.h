/* What affine is, for both of its bodies: y = a x + b, an element at a time; with more `rounds`
 * than one, of what came out again: so that kernels take as long as somebody wants them to.
 *
 * The product is rounded to float32, then the sum: so both devices give the same bits. */
#pragma once

#include "gpu/sluice_program.h"

/* Pieces of an item begin at multiples of so many elements: 256 bytes. */
#define AFFINE_CUT 64
#define AFFINE_ROUNDS_MAX 65536

enum { AFFINE_A, AFFINE_B, AFFINE_ROUNDS };

static const struct sluice_size affine_sizes[] = {{"n", 1, (uint64_t)1 << 32}};

static const struct sluice_tensor affine_inputs[] = {{"x", SLUICE_F32, 1, {SLUICE_SIZE(0)}}};
static const struct sluice_tensor affine_outputs[] = {{"y", SLUICE_F32, 1, {SLUICE_SIZE(0)}}};

static const struct sluice_parameter affine_parameters[] = {
    {.name = "a",
     .help = "what x is multiplied by",
     .type = SLUICE_NUMBER,
     .required = 0,
     .standard = {.number = 1},
     .min = {.number = -3e38},
     .max = {.number = 3e38}},
    {.name = "b",
     .help = "what is added",
     .type = SLUICE_NUMBER,
     .required = 0,
     .standard = {.number = 0},
     .min = {.number = -3e38},
     .max = {.number = 3e38}},
    {.name = "rounds",
     .help = "how often a x + b is taken",
     .type = SLUICE_INTEGER,
     .required = 0,
     .standard = {.integer = 1},
     .min = {.integer = 1},
     .max = {.integer = AFFINE_ROUNDS_MAX}},
};

static int enqueue(const struct sluice_batch *batch, const struct sluice_streams *streams,
                   struct sluice_allocator *allocator);

#define AFFINE                                                                                     \
    {                                                                                              \
        .abi = SLUICE_PROGRAM_ABI, .flags = SLUICE_WRITES_ALL, .name = "affine",                   \
        .summary = "y = a x + b", .size_count = 1, .input_count = 1, .output_count = 1,            \
        .parameter_count = 3, .sizes = affine_sizes, .inputs = affine_inputs,                      \
        .outputs = affine_outputs, .parameters = affine_parameters, .stream_count = 1,             \
        .event_count = 0, .cut_rows = AFFINE_CUT, .batch_items_max = 0, .reserved = 0,             \
        .batch_scratch = 0, .scratch = NULL, .enqueue = enqueue, .check = NULL                     \
    }
