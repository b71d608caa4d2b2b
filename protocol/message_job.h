/* JOB, TENSORS, PROGRAMS and TIMELINE: work for programs, with tensors. wire.md describes every field.
 *
 * JOB
 * {"program":"affine","items":[{"inputs":{"x":{"dtype":"f32","shape":[1000]}},"parameters":{"a":2}}],
 *      "priority":0,"deadline_ms":0,"memory":{"inputs":4000,"outputs":4000}}
 *
 * Tensors lie one behind the other, each padded to TENSOR_ALIGN, in the order in which they are
 * named: inputs in the payload, or with memory.inputs in memory that the client shares and whose
 * descriptor comes with the message. Results come in TENSORS frames, or with memory.outputs are
 * written there, in the order of items and then of the program's outputs. Any thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol/base/tensor.h"
#include "protocol/message.h"

#define MESSAGE_TENSORS_MAX 8
#define MESSAGE_PARAMETERS_MAX 16

struct message_tensor {
    const char *name; /* borrowed */
    uint32_t dtype, rank;
    uint64_t shape[TENSOR_RANK_MAX];
    uint64_t bytes;
    uint64_t at; /* where it begins in payload or memory */
};

enum message_value_type { VALUE_NUMBER, VALUE_INTEGER, VALUE_BOOL };

struct message_value {
    const char *name; /* borrowed */
    enum message_value_type type;
    int64_t integer; /* also of VALUE_BOOL, 0 or 1 */
    double number;   /* also of VALUE_INTEGER */
};

struct message_item {
    uint32_t input_count, value_count;
    struct message_tensor inputs[MESSAGE_TENSORS_MAX];
    struct message_value values[MESSAGE_PARAMETERS_MAX];
};

struct message_job {
    struct request_params params; /* job, priority, deadline_ms */
    char program[TENSOR_NAME_MAX + 1];
    uint32_t item_count;
    uint64_t input_memory, output_memory; /* bytes; 0: none is shared */
    const unsigned char *payload;         /* borrowed */
    uint64_t payload_length;
    /* Of message_job_item(). */
    json *document; /* owned; message_job_free() */
    const json *next;
    uint32_t index;
    uint64_t at;
};

/* What is common; no item is looked at. batch_max bounds them. */
int message_decode_job(const struct frame *frame, uint32_t batch_max, struct message_job *ret_job,
                       struct error *error);
/* The next item, each once, in order. Its inputs lie within payload or memory. Errors name it. */
int message_job_item(struct message_job *job, struct message_item *ret_item, struct error *error);
/* After the last: whether payload or memory held nothing else. */
int message_job_end(const struct message_job *job, struct error *error);
void message_job_free(struct message_job *job);

/* A client's side: the head with its header; the payload of `payload_length` bytes, a multiple of
 * 8, is to follow. 0: it did not fit, or the head is over FRAME_HEAD_MAX. */
struct message_job_out {
    const char *program;
    int32_t priority;
    uint64_t deadline_ms;
    uint64_t input_memory, output_memory;
    uint32_t item_count;
    const struct message_item *(*item)(void *context,
                                       uint32_t index); /* valid until the next call */
    void *context;
    uint64_t payload_length;
};
size_t message_encode_job(void *buffer, size_t size, uint64_t id,
                          const struct message_job_out *job);
/* Enough for the above. */
size_t message_job_size_bound(const struct message_job_out *job);

/* TENSORS: a part of one output; no head.
 *   u32 sequence, u32 output, u64 at, u64 bytes, then so many bytes, then zeros. */
#define TENSORS_HEADER_SIZE 24
struct message_tensors {
    uint32_t sequence, output;
    uint64_t at; /* bytes of the output that came before */
    uint64_t bytes;
    const unsigned char *data; /* borrowed */
};
size_t message_encode_tensors(void *buffer, size_t size, uint64_t id,
                              const struct message_tensors *tensors);
int message_decode_tensors(const struct frame *frame, struct message_tensors *ret_tensors,
                           struct error *error);

/* PROGRAMS: bare it asks for a list; {"enable":"NAME"} ends that a program is off. */
int message_decode_programs(const struct frame *frame, char ret_enable[TENSOR_NAME_MAX + 1],
                            struct error *error);

/* TIMELINE: {"from":N} asks for the chunks from number N on, bare for the next one's number alone.
 */
#define MESSAGE_TIMELINE_FROM_NOW UINT64_MAX
int message_decode_timeline(const struct frame *frame, uint64_t *ret_from, struct error *error);
