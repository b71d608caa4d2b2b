/* Bodies of KServe's inference protocol (v2) with the binary extension: JSON, and behind it the
 * bytes of inputs that are not written in it.
 *
 * Arrays of `data` are cut out of the JSON before it is parsed, and read by their dtype
 * (tensor_text.h): what is parsed is small, whatever the tensors are. Nothing is allocated for a
 * tensor before its shape agrees with what came of it. What of the protocol is not done is refused
 * by its name. Any thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol/base/error.h"
#include "protocol/message_job.h"

#define QUERY_TENSORS_RANK_MAX (TENSOR_RANK_MAX + 1) /* with a dimension for items */
#define QUERY_TENSORS_ID_MAX 256

struct query_input {
    const char *name; /* borrows from the document */
    uint32_t dtype, rank;
    uint64_t shape[QUERY_TENSORS_RANK_MAX];
    uint64_t bytes, at; /* in `data` */
};

struct query_output {
    const char *name; /* likewise */
    bool binary;
};

struct query_tensors {
    json *document; /* owned */
    const char *id; /* NULL: not given */
    struct request_params params;
    bool all_binary; /* of outputs that are not named */
    uint32_t input_count, output_count, value_count;
    struct query_input inputs[MESSAGE_TENSORS_MAX];
    struct query_output outputs[MESSAGE_TENSORS_MAX]; /* none: all */
    struct message_value values[MESSAGE_PARAMETERS_MAX];
    unsigned char *data; /* owned; the inputs, one behind the other, each padded to TENSOR_ALIGN */
    uint64_t data_bytes;
};

/* json_length: bytes of JSON in front; what is behind belongs to binary inputs. On failure nothing
 * is left to free. */
int query_tensors_read(struct query_tensors *query, const char *body, size_t length,
                       size_t json_length, struct error *error);
void query_tensors_free(struct query_tensors *query); /* zeroed memory is allowed */

/* "FP32" of TENSOR_F32; and back, 0: there is none of that name. */
const char *query_datatype_name(uint32_t dtype);
uint32_t query_datatype_find(const char *name);
