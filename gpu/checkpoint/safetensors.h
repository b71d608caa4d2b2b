/* The header of a safetensors file: which tensors there are, and where.
 *
 * The header is untrusted: at most 16 MiB, every size and product checked, every tensor inside the
 * file and none overlapping another. The caller owns the table. Any thread.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "protocol/base/error.h"
#include "protocol/base/json.h"

#define SAFETENSORS_HEADER_MAX (16u << 20)
#define SAFETENSORS_VALUES_MAX (1u << 20) /* JSON values in a header */
#define SAFETENSORS_RANK_MAX 8
#define SAFETENSORS_NAME_MAX 255

struct safetensors_tensor {
    const char *name;
    const char *dtype; /* "BF16": one of a fixed list, static */
    uint32_t rank;
    uint64_t shape[SAFETENSORS_RANK_MAX];
    uint64_t offset, bytes; /* from the start of the file */
};

struct safetensors {
    size_t count;
    struct safetensors_tensor *tensors; /* by name */
    char *names;
};

/* Reads and checks the header of the open file; `file` names it in messages. ERR_BAD_MODEL. */
int safetensors_read(int fd, const char *file, uint64_t file_bytes, struct safetensors *ret,
                     struct error *error);

/* The same of a header in memory: `length` bytes of JSON, the data from byte 8 + length of a file
 * of file_bytes on. */
int safetensors_parse(const char *header, size_t length, const char *file, uint64_t file_bytes,
                      struct safetensors *ret, struct error *error);
void safetensors_free(struct safetensors *safetensors);

const struct safetensors_tensor *safetensors_find(const struct safetensors *safetensors,
                                                  const char *name); /* NULL: none */

/* Parses JSON of a model file whose size the sender chose: refuses more values than
 * SAFETENSORS_VALUES_MAX before any is built, since each costs far more memory than its text. */
int safetensors_json(const char *text, size_t length, const char *file, json **ret_document,
                     struct error *error);
