/* HELLO, WELCOME, CANCEL, STATS and what else is asked of the daemon itself. */
#include <assert.h>
#include <string.h>

#include "protocol/head.h"
#include "protocol/message.h"

size_t message_encode_hello(void *buffer, size_t size, const struct message_hello *hello)
{
    struct json_writer writer;
    head_begin(&writer, buffer, size);
    json_open(&writer, NULL, '{');
    json_open(&writer, "versions", '[');
    json_put_uint(&writer, NULL, hello->version_min);
    json_put_uint(&writer, NULL, hello->version_max);
    json_close(&writer, ']');
    json_put_text(&writer, "client", hello->client);
    json_close(&writer, '}');
    return head_end(&writer, buffer, size, FRAME_HELLO, 0, 0, 0);
}

static int read_versions(const json *versions, struct message_hello *hello, struct error *error)
{
    int64_t min, max;
    if (!json_is_array(versions) || json_count(versions) != 2)
        return error_set(error, ERR_BAD_VALUE, "versions is not a pair of least and greatest");
    const json *first = json_child(versions);
    int rc = json_integer(first, "versions", 1, UINT32_MAX, &min, error);
    if (!rc)
        rc = json_integer(json_next(first), "versions", min, UINT32_MAX, &max, error);
    if (rc)
        return rc;
    hello->version_min = (uint32_t)min;
    hello->version_max = (uint32_t)max;
    return 0;
}

int message_decode_hello(const struct frame *frame, struct message_hello *ret_hello,
                         struct error *error)
{
    static const char *const names[] = {"versions", "client", NULL};
    struct message_hello hello;
    json *head;
    assert(frame->type == FRAME_HELLO);
    int rc = head_open_alone(frame, &head, error);
    if (rc)
        return rc;
    rc = read_versions(json_get(head, "versions"), &hello, error);
    if (!rc)
        rc = head_string(head, "client", hello.client, sizeof(hello.client), error);
    /* A client that speaks a later version, too, may say more than this one knows of. */
    if (!rc && hello.version_max <= FRAME_VERSION)
        rc = head_fields(head, names, error);
    json_free(head);
    if (rc)
        return rc;
    *ret_hello = hello;
    return 0;
}

size_t message_encode_welcome(void *buffer, size_t size, const struct message_welcome *welcome)
{
    struct json_writer writer;
    head_begin(&writer, buffer, size);
    json_open(&writer, NULL, '{');
    json_put_uint(&writer, "version", welcome->version);
    head_put_uint64(&writer, "frame_max", welcome->frame_max);
    json_put_uint(&writer, "batch_max", welcome->batch_max);
    json_put_uint(&writer, "context_max", welcome->context_max);
    json_put_uint(&writer, "vocabulary", welcome->vocabulary);
    json_put_text(&writer, "model", welcome->model);
    json_put_text(&writer, "device", welcome->device);
    json_put_bool(&writer, "text", welcome->text);
    json_put_uint(&writer, "logprobs_max", welcome->logprobs_max);
    json_put_uint(&writer, "n_max", welcome->n_max);
    json_close(&writer, '}');
    return head_end(&writer, buffer, size, FRAME_WELCOME, FRAME_FLAG_ANSWER, 0, 0);
}

static int read_welcome(const json *head, void *message, struct error *error)
{
    struct message_welcome *welcome = message;
    int rc = head_uint32(head, "version", &welcome->version, error);
    if (!rc)
        rc = head_uint64(head, "frame_max", 0, HEAD_INTEGER_MAX, &welcome->frame_max, error);
    if (!rc)
        rc = head_uint32(head, "batch_max", &welcome->batch_max, error);
    if (!rc)
        rc = head_uint32(head, "context_max", &welcome->context_max, error);
    if (!rc)
        rc = head_uint32(head, "vocabulary", &welcome->vocabulary, error);
    if (!rc)
        rc = head_uint32(head, "logprobs_max", &welcome->logprobs_max, error);
    if (!rc)
        rc = head_uint32(head, "n_max", &welcome->n_max, error);
    if (!rc)
        rc = head_string(head, "model", welcome->model, sizeof(welcome->model), error);
    if (!rc)
        rc = head_string(head, "device", welcome->device, sizeof(welcome->device), error);
    if (!rc)
        rc = head_bool(json_get(head, "text"), "text", &welcome->text, error);
    return rc;
}

int message_decode_welcome(const struct frame *frame, struct message_welcome *ret_welcome,
                           struct error *error)
{
    static const char *const names[] = {"version",    "frame_max",    "batch_max", "context_max",
                                        "vocabulary", "model",        "device",    "text",
                                        "n_max",      "logprobs_max", NULL};
    struct message_welcome welcome;
    assert(frame->type == FRAME_WELCOME);
    int rc = head_read(frame, names, read_welcome, &welcome, error);
    if (!rc)
        *ret_welcome = welcome;
    return rc;
}

size_t message_encode_cancel(void *buffer, size_t size, uint64_t id, uint64_t request)
{
    struct json_writer writer;
    if (request > HEAD_INTEGER_MAX)
        return 0;
    head_begin(&writer, buffer, size);
    if (request > 0) {
        json_open(&writer, NULL, '{');
        json_put_uint(&writer, "request", request);
        json_close(&writer, '}');
    }
    return head_end(&writer, buffer, size, FRAME_CANCEL, 0, id, 0);
}

/* Whether the frame is bare: neither head nor payload. */
static bool is_bare(const struct frame *frame)
{
    return frame->head_length == 0 && frame->payload_length == 0;
}

int message_decode_cancel(const struct frame *frame, uint64_t *ret_request, struct error *error)
{
    assert(frame->type == FRAME_CANCEL);
    if (!is_bare(frame))
        return head_read_request(frame, ret_request, error);
    *ret_request = 0;
    return 0;
}

size_t message_encode_control(void *buffer, size_t size, uint8_t type, uint16_t flags, uint64_t id,
                              const char *head, size_t head_length)
{
    struct json_writer writer;
    head_begin(&writer, buffer, size);
    if (head_length > writer.size)
        return 0;
    if (head_length > 0)
        memcpy(writer.buffer, head, head_length);
    writer.used = head_length;
    return head_end(&writer, buffer, size, type, flags, id, 0);
}

static int read_model(const json *head, void *message, struct error *error)
{
    struct message_model *model = message;
    model->change = json_get(head, "sleep") != NULL;
    int rc = head_name(head, "model", model->model, sizeof(model->model), error);
    if (!rc)
        rc = head_flag(head, "sleep", &model->sleep, error);
    if (!rc)
        rc = head_flag(head, "reload", &model->reload, error);
    if (!rc)
        rc = head_name(head, "directory", model->directory, sizeof(model->directory), error);
    if (!rc && model->reload && model->change)
        rc = error_set(error, ERR_BAD_VALUE, "reload: not beside sleep");
    if (!rc && model->directory[0] && !model->reload)
        rc = error_set(error, ERR_BAD_VALUE, "directory: only beside reload");
    return rc;
}

int message_decode_model(const struct frame *frame, struct message_model *ret_model,
                         struct error *error)
{
    static const char *const names[] = {"model", "sleep", "reload", "directory", NULL};
    struct message_model model = {.model = ""};
    assert(frame->type == FRAME_MODEL);
    int rc = is_bare(frame) ? 0 : head_read(frame, names, read_model, &model, error);
    if (!rc)
        *ret_model = model;
    return rc;
}

static int read_stats(const json *head, void *message, struct error *error)
{
    struct message_stats *stats = message;
    int rc = head_flag(head, "requests", &stats->requests, error);
    if (!rc)
        rc = head_flag(head, "buckets", &stats->buckets, error);
    if (!rc)
        rc = head_flag(head, "prometheus", &stats->prometheus, error);
    return rc;
}

int message_decode_stats(const struct frame *frame, struct message_stats *ret_stats,
                         struct error *error)
{
    static const char *const names[] = {"requests", "buckets", "prometheus", NULL};
    struct message_stats stats = {0};
    assert(frame->type == FRAME_STATS);
    int rc = is_bare(frame) ? 0 : head_read(frame, names, read_stats, &stats, error);
    if (!rc)
        *ret_stats = stats;
    return rc;
}
