/* What pipeline is, for both of its bodies: y = p(p(... p(x))), an element at a time, where
 * p(v) = a + b v and there are `rounds` of it.
 *
 * A round is a fused multiply-add, rounded to float32 once: so both devices give the same bits.
 * How much arithmetic there is for a byte is the request's to say: few rounds are bound by memory,
 * many by arithmetic. */
#pragma once

#include "gpu/sluice_program.h"

/* Pieces of an item begin at multiples of so many elements: 256 bytes. */
#define PIPELINE_CUT 64
#define PIPELINE_ROUNDS_MAX 4096

enum { PIPELINE_ROUNDS, PIPELINE_A, PIPELINE_B, PIPELINE_SPECIALIZED };

static const struct sluice_size pipeline_sizes[] = {{"n", 1, (uint64_t)1 << 32}};

static const struct sluice_tensor pipeline_inputs[] = {{"x", SLUICE_F32, 1, {SLUICE_SIZE(0)}}};
static const struct sluice_tensor pipeline_outputs[] = {{"y", SLUICE_F32, 1, {SLUICE_SIZE(0)}}};

#define PIPELINE_COEFFICIENT(letter, text, value)                                                  \
    {                                                                                              \
        .name = letter, .help = text, .type = SLUICE_NUMBER, .required = 0,                        \
        .standard = {.number = (value)}, .min = {.number = -3e38}, .max = {                        \
            .number = 3e38                                                                         \
        }                                                                                          \
    }

static const struct sluice_parameter pipeline_parameters[] = {
    {.name = "rounds",
     .help = "how often a + b v is taken",
     .type = SLUICE_INTEGER,
     .required = 0,
     .standard = {.integer = 1},
     .min = {.integer = 0},
     .max = {.integer = PIPELINE_ROUNDS_MAX}},
    PIPELINE_COEFFICIENT("a", "what a round adds", 0),
    PIPELINE_COEFFICIENT("b", "what a round multiplies by", 1),
    {.name = "specialized",
     .help = "warps that load, compute and store; off: threads that do all three",
     .type = SLUICE_SWITCH,
     .required = 0,
     .standard = {.integer = 1}},
};

static int enqueue(const struct sluice_batch *batch, const struct sluice_streams *streams,
                   struct sluice_allocator *allocator);

#define PIPELINE                                                                                   \
    {                                                                                              \
        .abi = SLUICE_PROGRAM_ABI, .flags = SLUICE_WRITES_ALL, .name = "pipeline",                 \
        .summary = "y = rounds of v = a + b v, from v = x", .size_count = 1, .input_count = 1,     \
        .output_count = 1, .parameter_count = 4, .sizes = pipeline_sizes,                          \
        .inputs = pipeline_inputs, .outputs = pipeline_outputs, .parameters = pipeline_parameters, \
        .stream_count = 1, .event_count = 0, .cut_rows = PIPELINE_CUT, .batch_items_max = 0,       \
        .reserved = 0, .batch_scratch = 0, .scratch = NULL, .enqueue = enqueue                     \
    }
