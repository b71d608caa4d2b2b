/* ACCEPT, DONE and ERROR: how the daemon answers a SUBMIT. */
#include <assert.h>

#include "protocol/head.h"
#include "protocol/message.h"

static const char *const finish_names[] = {
    [FINISH_STOP] = "stop",         [FINISH_LENGTH] = "length", [FINISH_CANCELLED] = "cancelled",
    [FINISH_DEADLINE] = "deadline", [FINISH_ERROR] = "error",   NULL};

const char *finish_name(enum finish finish)
{
    return finish_names[finish];
}

size_t message_encode_accept(void *buffer, size_t size, uint64_t id, uint64_t request)
{
    struct json_writer writer;
    assert(request > 0 && request <= HEAD_INTEGER_MAX);
    head_begin(&writer, buffer, size);
    json_open(&writer, NULL, '{');
    json_put_uint(&writer, "request", request);
    json_close(&writer, '}');
    return head_end(&writer, buffer, size, FRAME_ACCEPT, 0, id, 0);
}

int message_decode_accept(const struct frame *frame, uint64_t *ret_request, struct error *error)
{
    assert(frame->type == FRAME_ACCEPT);
    return head_read_request(frame, ret_request, error);
}

size_t message_encode_done(void *buffer, size_t size, uint64_t id, uint16_t flags,
                           const struct message_done *done)
{
    struct json_writer writer;
    head_begin(&writer, buffer, size);
    json_open(&writer, NULL, '{');
    json_put_uint(&writer, "sequence", done->sequence);
    json_put_text(&writer, "finish_reason", finish_name(done->finish));
    json_open(&writer, "usage", '{');
    json_put_uint(&writer, "prompt_tokens", done->prompt_tokens);
    json_put_uint(&writer, "completion_tokens", done->completion_tokens);
    if (done->cached_tokens)
        json_put_uint(&writer, "cached_tokens", done->cached_tokens);
    json_close(&writer, '}');
    json_open(&writer, "timings", '{');
    head_put_uint64(&writer, "queued_us", done->queued_us);
    head_put_uint64(&writer, "first_token_us", done->first_token_us);
    head_put_uint64(&writer, "total_us", done->total_us);
    json_close(&writer, '}');
    json_close(&writer, '}');
    return head_end(&writer, buffer, size, FRAME_DONE, flags, id, 0);
}

static int read_usage(const json *head, struct message_done *done, struct error *error)
{
    static const char *const names[] = {"prompt_tokens", "completion_tokens", "cached_tokens",
                                        NULL};
    const json *usage;
    int rc = head_object(head, "usage", names, &usage, error);
    if (!rc)
        rc = head_uint32(usage, "prompt_tokens", &done->prompt_tokens, error);
    if (!rc && json_get(usage, "cached_tokens"))
        rc = head_uint32(usage, "cached_tokens", &done->cached_tokens, error);
    if (!rc)
        rc = head_uint32(usage, "completion_tokens", &done->completion_tokens, error);
    return rc;
}

static int read_timings(const json *head, struct message_done *done, struct error *error)
{
    static const char *const names[] = {"queued_us", "first_token_us", "total_us", NULL};
    const json *timings;
    int rc = head_object(head, "timings", names, &timings, error);
    if (!rc)
        rc = head_uint64(timings, "queued_us", 0, HEAD_INTEGER_MAX, &done->queued_us, error);
    if (!rc)
        rc = head_uint64(timings, "first_token_us", 0, HEAD_INTEGER_MAX, &done->first_token_us,
                         error);
    if (!rc)
        rc = head_uint64(timings, "total_us", 0, HEAD_INTEGER_MAX, &done->total_us, error);
    return rc;
}

static int read_done(const json *head, void *message, struct error *error)
{
    struct message_done *done = message;
    unsigned finish = 0;
    int rc = head_uint32(head, "sequence", &done->sequence, error);
    if (!rc)
        rc = head_choice(head, "finish_reason", finish_names, &finish, error);
    if (!rc)
        rc = read_usage(head, done, error);
    if (!rc)
        rc = read_timings(head, done, error);
    done->finish = (enum finish)finish;
    return rc;
}

int message_decode_done(const struct frame *frame, struct message_done *ret_done,
                        struct error *error)
{
    static const char *const names[] = {"sequence", "finish_reason", "usage", "timings", NULL};
    struct message_done done = {0};
    assert(frame->type == FRAME_DONE);
    int rc = head_read(frame, names, read_done, &done, error);
    if (!rc)
        *ret_done = done;
    return rc;
}

static const char *const retry_names[] = {
    [RETRY_NEVER] = "never", [RETRY_LATER] = "later", [RETRY_FIX] = "fix", NULL};

size_t message_encode_error(void *buffer, size_t size, uint64_t id, uint16_t flags,
                            const struct message_error *message)
{
    const struct error *error = &message->error;
    struct json_writer writer;
    head_begin(&writer, buffer, size);
    json_open(&writer, NULL, '{');
    json_put_text(&writer, "code", error_name(error->code));
    json_put_text(&writer, "text", error->text);
    if (message->sequence != MESSAGE_NO_SEQUENCE)
        json_put_uint(&writer, "sequence", message->sequence);
    if (error->limit || error->value) {
        head_put_uint64(&writer, "limit", error->limit);
        head_put_uint64(&writer, "value", error->value);
    }
    if (error->retry_after_ms)
        json_put_uint(&writer, "retry_after_ms", error->retry_after_ms);
    json_put_text(&writer, "retry", retry_names[error_retry(error->code)]);
    json_close(&writer, '}');
    return head_end(&writer, buffer, size, FRAME_ERROR, flags, id, 0);
}

/* A code that this side does not know still ends what it ends: it is kept in the text. */
static void set_received(struct error *received, const char *name, const char *text)
{
    int code = error_from_name(name);
    if (code)
        error_set(received, code, "%s", text);
    else
        error_set(received, ERR_INTERNAL, "%s: %s", name, text);
}

static int read_error(const json *head, void *context, struct error *error)
{
    struct message_error *message = context;
    struct error *received = &message->error;
    char name[64], text[ERROR_TEXT_MAX];
    unsigned retry;
    int rc = head_string(head, "code", name, sizeof(name), error);
    if (!rc)
        rc = head_string(head, "text", text, sizeof(text), error);
    if (!rc)
        rc = head_choice(head, "retry", retry_names, &retry, error);
    if (rc)
        return rc;
    set_received(received, name, text);
    message->sequence = MESSAGE_NO_SEQUENCE;
    if (json_get(head, "sequence"))
        rc = head_uint32(head, "sequence", &message->sequence, error);
    if (!rc && json_get(head, "limit"))
        rc = head_uint64(head, "limit", 0, HEAD_INTEGER_MAX, &received->limit, error);
    if (!rc && json_get(head, "value"))
        rc = head_uint64(head, "value", 0, HEAD_INTEGER_MAX, &received->value, error);
    if (!rc && json_get(head, "retry_after_ms"))
        rc = head_uint32(head, "retry_after_ms", &received->retry_after_ms, error);
    return rc;
}

int message_decode_error(const struct frame *frame, struct message_error *ret_message,
                         struct error *error)
{
    static const char *const names[] = {"code",  "text",           "sequence", "limit",
                                        "value", "retry_after_ms", "retry",    NULL};
    struct message_error message;
    assert(frame->type == FRAME_ERROR);
    int rc = head_read(frame, names, read_error, &message, error);
    if (!rc)
        *ret_message = message;
    return rc;
}
