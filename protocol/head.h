/* JSON heads: what the message_*.c files have in common. Private to them.
 *
 * Reading: head_open, then head_fields refuses what is not known, then the values, then json_free.
 * A value's name stands in the error. Writing: head_begin, json_put_*, head_end.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol/base/error.h"
#include "protocol/base/json.h"
#include "protocol/frame.h"

#define HEAD_INTEGER_MAX ((uint64_t)1 << 53) /* the greatest that strict JSON carries */
#define HEAD_DEPTH_MAX 8                     /* of answers and control frames */

/* The head as an object; it must not be empty. */
int head_open(const struct frame *frame, uint32_t depth_max, json **ret_document,
              struct error *error);
/* The same where the message has no payload. */
int head_open_alone(const struct frame *frame, json **ret_document, struct error *error);

/* The way of most: a head without payload is opened, has no fields but these, is read into
 * `message` and freed. On failure part of `message` may be set. */
typedef int (*head_reader)(const json *head, void *message, struct error *error);
int head_read(const struct frame *frame, const char *const *names, head_reader read, void *message,
              struct error *error);

/* The same for a head that has the number of a request, and nothing else. */
int head_read_request(const struct frame *frame, uint64_t *ret_request, struct error *error);

/* Refuses a payload that is not 0 from `used` bytes on. */
int head_padding(const struct frame *frame, uint64_t used, struct error *error);

/* Refuses fields of the object that are none of the names, which end with NULL. */
int head_fields(const json *object, const char *const *names, struct error *error);
/* A field that may be absent, which leaves *ret as it was. */
int head_flag(const json *object, const char *name, bool *ret, struct error *error);
/* An object within the head, and the same for its fields. */
int head_object(const json *head, const char *name, const char *const *names,
                const json **ret_object, struct error *error);
/* Refuses a field that nobody knows; its name is cut to a length fit for a text. */
int head_unknown(const char *name, struct error *error);

/* Each of these fails when the field is missing or of another type. */
int head_uint64(const json *object, const char *name, uint64_t min, uint64_t max, uint64_t *ret,
                struct error *error);
int head_uint32(const json *object, const char *name, uint32_t *ret, struct error *error);
int head_string(const json *object, const char *name, char *ret, size_t size, struct error *error);
/* A string that may be absent: then "". */
int head_name(const json *object, const char *name, char *ret, size_t size, struct error *error);
int head_bool(const json *value, const char *name, bool *ret, struct error *error);
/* The index of the string among the names, which end with NULL. */
int head_choice(const json *object, const char *name, const char *const *choices, unsigned *ret,
                struct error *error);

void head_begin(struct json_writer *writer, void *buffer, size_t size);
/* Pads the head, puts the header before it; the frame's size without its payload, or 0 when frame
 * and payload do not fit. */
size_t head_end(struct json_writer *writer, void *buffer, size_t size, uint8_t type, uint16_t flags,
                uint64_t id, size_t payload_length);
void head_put_uint64(struct json_writer *writer, const char *name,
                     uint64_t value); /* cut to 2^53 */
