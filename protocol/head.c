#include "protocol/head.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

int head_open(const struct frame *frame, uint32_t depth_max, json **ret_document,
              struct error *error)
{
    struct json_bounds bounds = {.bytes_max = FRAME_HEAD_MAX, .depth_max = depth_max};
    json *document;
    if (frame->head_length == 0)
        return error_set(error, ERR_BAD_HEAD, "the head is missing");
    int rc = json_parse(frame->head, frame->head_length, bounds, &document, error);
    if (rc)
        return rc;
    if (!json_is_object(document)) {
        json_free(document);
        return error_set(error, ERR_BAD_HEAD, "the head is not a JSON object");
    }
    *ret_document = document;
    return 0;
}

int head_open_alone(const struct frame *frame, json **ret_document, struct error *error)
{
    if (frame->payload_length > 0)
        return error_set(error, ERR_BAD_FRAME, "a payload of %u bytes where none belongs",
                         frame->payload_length);
    return head_open(frame, HEAD_DEPTH_MAX, ret_document, error);
}

int head_read(const struct frame *frame, const char *const *names, head_reader read, void *message,
              struct error *error)
{
    json *head = NULL;
    int rc = head_open_alone(frame, &head, error);
    if (rc)
        return rc;
    rc = head_fields(head, names, error);
    if (!rc)
        rc = read(head, message, error);
    json_free(head);
    return rc;
}

static int read_request(const json *head, void *request, struct error *error)
{
    return head_uint64(head, "request", 1, HEAD_INTEGER_MAX, request, error);
}

int head_read_request(const struct frame *frame, uint64_t *ret_request, struct error *error)
{
    static const char *const names[] = {"request", NULL};
    return head_read(frame, names, read_request, ret_request, error);
}

int head_flag(const json *object, const char *name, bool *ret, struct error *error)
{
    const json *value = json_get(object, name);
    return value ? head_bool(value, name, ret, error) : 0;
}

int head_padding(const struct frame *frame, uint64_t used, struct error *error)
{
    for (uint64_t at = used; at < frame->payload_length; at++)
        if (frame->payload[at] != 0)
            return error_set(error, ERR_BAD_FRAME, "the padding of the payload is not zero");
    return 0;
}

int head_unknown(const char *name, struct error *error)
{
    return error_set(error, ERR_UNKNOWN_FIELD, "unknown field \"%.64s\"", name);
}

int head_fields(const json *object, const char *const *names, struct error *error)
{
    assert(json_is_object(object));
    for (const json *member = json_child(object); member; member = json_next(member)) {
        const char *const *name = names;
        while (*name && strcmp(*name, json_key(member)) != 0)
            name++;
        if (!*name)
            return head_unknown(json_key(member), error);
    }
    return 0;
}

int head_object(const json *head, const char *name, const char *const *names,
                const json **ret_object, struct error *error)
{
    const json *object = json_get(head, name);
    if (!json_is_object(object))
        return error_set(error, ERR_BAD_VALUE, "%s is %s", name,
                         object ? "not an object" : "missing");
    int rc = head_fields(object, names, error);
    if (rc)
        return rc;
    *ret_object = object;
    return 0;
}

int head_uint64(const json *object, const char *name, uint64_t min, uint64_t max, uint64_t *ret,
                struct error *error)
{
    int64_t value;
    int rc = json_integer(json_get(object, name), name, (int64_t)min, (int64_t)max, &value, error);
    if (rc)
        return rc;
    *ret = (uint64_t)value;
    return 0;
}

int head_uint32(const json *object, const char *name, uint32_t *ret, struct error *error)
{
    uint64_t value;
    int rc = head_uint64(object, name, 0, UINT32_MAX, &value, error);
    if (rc)
        return rc;
    *ret = (uint32_t)value;
    return 0;
}

int head_string(const json *object, const char *name, char *ret, size_t size, struct error *error)
{
    const json *value = json_get(object, name);
    if (!value)
        return error_set(error, ERR_BAD_VALUE, "%s is missing", name);
    if (!json_is_string(value))
        return error_set(error, ERR_BAD_VALUE, "%s is not a string", name);
    size_t length = strlen(json_string(value));
    if (length >= size)
        return error_limit(error, ERR_TOO_LARGE, size - 1, length,
                           "%s has %zu bytes, at most %zu are accepted", name, length, size - 1);
    memcpy(ret, json_string(value), length + 1);
    return 0;
}

int head_name(const json *object, const char *name, char *ret, size_t size, struct error *error)
{
    ret[0] = '\0';
    return json_get(object, name) ? head_string(object, name, ret, size, error) : 0;
}

int head_bool(const json *value, const char *name, bool *ret, struct error *error)
{
    if (!json_is_bool(value))
        return error_set(error, ERR_BAD_VALUE, "%s is neither true nor false", name);
    *ret = json_bool(value);
    return 0;
}

int head_choice(const json *object, const char *name, const char *const *choices, unsigned *ret,
                struct error *error)
{
    const json *value = json_get(object, name);
    char list[128] = "";
    if (!value)
        return error_set(error, ERR_BAD_VALUE, "%s is missing", name);
    for (unsigned i = 0; choices[i]; i++) {
        if (json_is_string(value) && strcmp(json_string(value), choices[i]) == 0) {
            *ret = i;
            return 0;
        }
        size_t used = strlen(list);
        snprintf(list + used, sizeof(list) - used, "%s%s", i ? ", " : "", choices[i]);
    }
    return error_set(error, ERR_BAD_VALUE, "%s is none of %s", name, list);
}

void head_begin(struct json_writer *writer, void *buffer, size_t size)
{
    bool room = size >= FRAME_HEADER_SIZE;
    json_writer_init(writer, room ? (char *)buffer + FRAME_HEADER_SIZE : NULL,
                     room ? size - FRAME_HEADER_SIZE : 0);
}

size_t head_end(struct json_writer *writer, void *buffer, size_t size, uint8_t type, uint16_t flags,
                uint64_t id, size_t payload_length)
{
    size_t head_length = frame_pad(writer->used);
    if (head_length > FRAME_HEAD_MAX || payload_length > UINT32_MAX ||
        size < FRAME_HEADER_SIZE + head_length ||
        size - FRAME_HEADER_SIZE - head_length < payload_length)
        return 0;
    if (head_length > writer->used)
        memset(writer->buffer + writer->used, ' ', head_length - writer->used);
    frame_encode_header(buffer, type, flags, id, (uint32_t)head_length, (uint32_t)payload_length);
    return FRAME_HEADER_SIZE + head_length;
}

void head_put_uint64(struct json_writer *writer, const char *name, uint64_t value)
{
    json_put_uint(writer, name, value < HEAD_INTEGER_MAX ? value : HEAD_INTEGER_MAX);
}
