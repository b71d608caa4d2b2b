/* What gemm is, for both of its bodies: C = A B, in bf16 with sums in float32.
 *
 * A sum runs along k in one order for all elements; how the matrices are cut into tiles, shared out
 * and copied changes no bit. The two devices add in different orders, so their bits differ. */
#pragma once

#include "gpu/sluice_program.h"

#define GEMM_SIZE_MAX ((uint64_t)1 << 20)

/* Pieces of an item begin at multiples of so many rows of A: those of a cluster's tiles. */
#define GEMM_CUT 256

enum { GEMM_M, GEMM_K, GEMM_N };          /* sizes */
enum { GEMM_CLUSTER, GEMM_PROGRAMMATIC }; /* parameters */

static const struct sluice_size gemm_sizes[] = {
    {"m", 1, GEMM_SIZE_MAX}, {"k", 1, GEMM_SIZE_MAX}, {"n", 1, GEMM_SIZE_MAX}};

static const struct sluice_tensor gemm_inputs[] = {
    {"a", SLUICE_BF16, 2, {SLUICE_SIZE(GEMM_M), SLUICE_SIZE(GEMM_K)}},
    {"b", SLUICE_BF16, 2, {SLUICE_SIZE(GEMM_K), SLUICE_SIZE(GEMM_N)}}};
static const struct sluice_tensor gemm_outputs[] = {
    {"c", SLUICE_BF16, 2, {SLUICE_SIZE(GEMM_M), SLUICE_SIZE(GEMM_N)}}};

static const struct sluice_parameter gemm_parameters[] = {
    {.name = "cluster",
     .help = "two blocks load what both need once; off: each for itself",
     .type = SLUICE_SWITCH,
     .required = 0,
     .standard = {.integer = 1}},
    {.name = "programmatic",
     .help = "begins while the product before it in the batch ends; off: behind it",
     .type = SLUICE_SWITCH,
     .required = 0,
     .standard = {.integer = 1}},
};

static int enqueue(const struct sluice_batch *batch, const struct sluice_streams *streams,
                   struct sluice_allocator *allocator);

#define GEMM                                                                                       \
    {                                                                                              \
        .abi = SLUICE_PROGRAM_ABI, .flags = SLUICE_WRITES_ALL, .name = "gemm",                     \
        .summary = "C = A B in bf16", .size_count = 3, .input_count = 2, .output_count = 1,        \
        .parameter_count = 2, .sizes = gemm_sizes, .inputs = gemm_inputs, .outputs = gemm_outputs, \
        .parameters = gemm_parameters, .stream_count = 1, .event_count = 0, .cut_rows = GEMM_CUT,  \
        .batch_items_max = 0, .reserved = 0, .batch_scratch = 0, .scratch = NULL,                  \
        .enqueue = enqueue                                                                         \
    }
