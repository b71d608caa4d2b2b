/* TOKENS: records in a payload, without JSON. */
#include <assert.h>
#include <string.h>

#include "protocol/message.h"

#define FLAGS_KNOWN (TOKENS_LOGPROBS | TOKENS_TOP | TOKENS_TEXT)
#define RECORD_HEADER_SIZE 8

_Static_assert(sizeof(struct message_top) == 8, "laid out as on the wire");

struct layout {
    size_t logprobs, top_count, top, text_length, text, end; /* offsets from the record's start */
};

/* Everything up to the texts is a multiple of 4 bytes, so that all of it is aligned in place. No
 * sum can wrap: count has 16 bits, top_count at most MESSAGE_LOGPROBS_MAX, text_length 32 bits. */
static struct layout layout_of(uint16_t flags, size_t count, size_t top_count, size_t text_length)
{
    struct layout layout;
    layout.logprobs = RECORD_HEADER_SIZE + 4 * count;
    layout.top_count = layout.logprobs + (flags & TOKENS_LOGPROBS ? 4 * count : 0);
    layout.top = layout.top_count + (flags & TOKENS_TOP ? 4 : 0);
    layout.text_length = layout.top + (flags & TOKENS_TOP ? 8 * count * top_count : 0);
    layout.text = layout.text_length + (flags & TOKENS_TEXT ? 4 : 0);
    layout.end = layout.text + (flags & TOKENS_TEXT ? text_length : 0);
    return layout;
}

static struct layout layout_of_record(const struct message_tokens *record)
{
    assert(!(record->flags & ~FLAGS_KNOWN) && record->count <= TOKENS_COUNT_MAX);
    assert(!(record->flags & TOKENS_TOP) || record->top_count <= MESSAGE_LOGPROBS_MAX);
    return layout_of(record->flags, record->count, record->top_count, record->text_length);
}

size_t message_tokens_size(const struct message_tokens *record)
{
    return frame_pad(layout_of_record(record).end);
}

static void copy(unsigned char *to, const void *from, size_t size)
{
    if (size > 0)
        memcpy(to, from, size);
}

size_t message_put_tokens(void *buffer, size_t size, const struct message_tokens *record)
{
    struct layout layout = layout_of_record(record);
    size_t end = frame_pad(layout.end), count = record->count;
    unsigned char *out = buffer;
    if (end > size)
        return 0;
    memcpy(out, &record->sequence, 4);
    memcpy(out + 4, &record->count, 2);
    memcpy(out + 6, &record->flags, 2);
    copy(out + RECORD_HEADER_SIZE, record->tokens, 4 * count);
    if (record->flags & TOKENS_LOGPROBS)
        copy(out + layout.logprobs, record->logprobs, 4 * count);
    if (record->flags & TOKENS_TOP) {
        memcpy(out + layout.top_count, &record->top_count, 4);
        copy(out + layout.top, record->top, 8 * count * record->top_count);
    }
    if (record->flags & TOKENS_TEXT) {
        memcpy(out + layout.text_length, &record->text_length, 4);
        copy(out + layout.text, record->text, record->text_length);
    }
    memset(out + layout.end, 0, end - layout.end);
    return end;
}

static int malformed(size_t offset, const char *what, struct error *error)
{
    return error_set(error, ERR_BAD_FRAME, "token record at byte %zu: %s", offset, what);
}

/* A count that stands inside the record; false when the record ends before it. */
static bool read_count(const unsigned char *record, size_t left, size_t at, uint32_t *ret)
{
    if (at > left || left - at < 4)
        return false;
    memcpy(ret, record + at, 4);
    return true;
}

static int read_record(const unsigned char *record, size_t left, size_t offset,
                       struct message_tokens *tokens, size_t *ret_size, struct error *error)
{
    if (left < RECORD_HEADER_SIZE)
        return malformed(offset, "cut short", error);
    memcpy(&tokens->sequence, record, 4);
    memcpy(&tokens->count, record + 4, 2);
    memcpy(&tokens->flags, record + 6, 2);
    if (tokens->flags & ~FLAGS_KNOWN)
        return malformed(offset, "flags not known", error);
    if (tokens->count > TOKENS_COUNT_MAX)
        return malformed(offset, "too many tokens", error);
    struct layout layout = layout_of(tokens->flags, tokens->count, 0, 0);
    if ((tokens->flags & TOKENS_TOP) &&
        !read_count(record, left, layout.top_count, &tokens->top_count))
        return malformed(offset, "cut short", error);
    if (tokens->top_count > MESSAGE_LOGPROBS_MAX)
        return malformed(offset, "too many likeliest tokens", error);
    layout = layout_of(tokens->flags, tokens->count, tokens->top_count, 0);
    if ((tokens->flags & TOKENS_TEXT) &&
        !read_count(record, left, layout.text_length, &tokens->text_length))
        return malformed(offset, "cut short", error);
    layout = layout_of(tokens->flags, tokens->count, tokens->top_count, tokens->text_length);
    if (frame_pad(layout.end) > left)
        return malformed(offset, "cut short", error);
    tokens->tokens = (const int32_t *)(const void *)(record + RECORD_HEADER_SIZE);
    if (tokens->flags & TOKENS_LOGPROBS)
        tokens->logprobs = (const float *)(const void *)(record + layout.logprobs);
    if (tokens->flags & TOKENS_TOP)
        tokens->top = (const struct message_top *)(const void *)(record + layout.top);
    if (tokens->flags & TOKENS_TEXT)
        tokens->text = (const char *)record + layout.text;
    *ret_size = frame_pad(layout.end);
    return 0;
}

int message_next_tokens(const struct frame *frame, size_t *offset,
                        struct message_tokens *ret_record, struct error *error)
{
    struct message_tokens record = {0};
    size_t size = 0;
    assert(frame->type == FRAME_TOKENS && *offset <= frame->payload_length);
    if (frame->head_length > 0)
        return error_set(error, ERR_BAD_FRAME, "a head of %u bytes where none belongs",
                         frame->head_length);
    if (*offset == frame->payload_length)
        return 1;
    int rc = read_record(frame->payload + *offset, frame->payload_length - *offset, *offset,
                         &record, &size, error);
    if (rc)
        return rc;
    *offset += size;
    *ret_record = record;
    return 0;
}
