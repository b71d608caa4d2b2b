/* A program as the daemon knows it: what its module says of itself, checked and copied, so that
 * nothing behind the module's pointers is read again but its functions.
 *
 * Any thread. Programs live until the process ends, as the modules do.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "gpu/sluice_program.h"
#include "protocol/base/error.h"

#define PROGRAM_SUMMARY_MAX 255
#define PROGRAM_SIZE_MAX ((uint64_t)1 << 40)  /* of a dimension, and bytes of a tensor */
#define PROGRAM_INTEGER_MAX ((int64_t)1 << 53)

struct program_size {
    char name[SLUICE_NAME_MAX + 1];
    uint64_t min, max;
    int32_t parameter; /* whose value it is; -1: a dimension of an input */
};

struct program_tensor {
    char name[SLUICE_NAME_MAX + 1];
    enum sluice_dtype dtype;
    uint32_t rank;
    int64_t shape[SLUICE_RANK_MAX]; /* a fixed dimension, or SLUICE_SIZE(n) */
};

struct program_parameter {
    char name[SLUICE_NAME_MAX + 1];
    char help[PROGRAM_SUMMARY_MAX + 1];
    enum sluice_parameter_type type;
    bool required;
    union sluice_value standard, min, max;
};

struct program {
    char name[SLUICE_NAME_MAX + 1];
    char summary[PROGRAM_SUMMARY_MAX + 1];
    uint32_t size_count, input_count, output_count, parameter_count;
    struct program_size sizes[SLUICE_SIZES_MAX];
    struct program_tensor inputs[SLUICE_TENSORS_MAX], outputs[SLUICE_TENSORS_MAX];
    struct program_parameter parameters[SLUICE_PARAMETERS_MAX];
    uint32_t stream_count, event_count; /* at least one stream */
    bool writes_all;
    uint64_t cut_rows;
    uint32_t batch_items_max; /* 0: no bound of its own */
    uint64_t batch_scratch;
    uint64_t (*scratch)(const struct sluice_item *item); /* may be NULL */
    int (*enqueue)(const struct sluice_batch *batch, const struct sluice_streams *streams,
                   struct sluice_allocator *allocator);
    const char *(*check)(const struct sluice_item *item); /* may be NULL */
};

/* Checks what a module says. ERR_BAD_CONFIG names what is wrong; *ret is untouched then. */
int program_read(const struct sluice_program *said, struct program *ret, struct error *error);
