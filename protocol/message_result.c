/* RESULT: what score and embed answer, without JSON. */
#include <assert.h>
#include <string.h>

#include "protocol/message.h"

#define RESULT_HEADER_SIZE 24

_Static_assert(sizeof(struct message_score) == 16, "laid out as on the wire");

/* More than any payload can hold, rather than wrapped, where the counts are absurd. */
static uint64_t body_size(const struct message_result *result)
{
    if (result->kind == RESULT_SCORE)
        return (uint64_t)result->count * sizeof(struct message_score);
    uint64_t values = (uint64_t)result->count * result->width;
    return values > UINT32_MAX ? UINT32_MAX : values * sizeof(float);
}

size_t message_encode_result(void *buffer, size_t size, uint64_t id,
                             const struct message_result *result)
{
    const void *body = result->kind == RESULT_SCORE ? (const void *)result->scores : result->rows;
    uint64_t body_length = body_size(result);
    uint64_t payload_length = RESULT_HEADER_SIZE + ((body_length + 7) & ~(uint64_t)7);
    unsigned char *out = buffer, *payload = out + FRAME_HEADER_SIZE;
    const uint32_t fields[] = {result->sequence, result->kind,  result->first,
                               result->count,    result->width, 0};
    assert(result->kind == RESULT_SCORE || result->kind == RESULT_EMBED);
    if (payload_length > UINT32_MAX || size < FRAME_HEADER_SIZE ||
        size - FRAME_HEADER_SIZE < payload_length)
        return 0;
    frame_encode_header(out, FRAME_RESULT, 0, id, 0, (uint32_t)payload_length);
    memcpy(payload, fields, sizeof(fields)); /* kind and, above it, flags of zero */
    if (body_length > 0)
        memcpy(payload + RESULT_HEADER_SIZE, body, body_length);
    memset(payload + RESULT_HEADER_SIZE + body_length, 0,
           payload_length - RESULT_HEADER_SIZE - body_length);
    return FRAME_HEADER_SIZE + (size_t)payload_length;
}

static int malformed(const char *what, struct error *error)
{
    return error_set(error, ERR_BAD_FRAME, "result: %s", what);
}

int message_decode_result(const struct frame *frame, struct message_result *ret_result,
                          struct error *error)
{
    uint32_t fields[6];
    assert(frame->type == FRAME_RESULT);
    if (frame->head_length > 0)
        return malformed("a head where none belongs", error);
    if (frame->payload_length < RESULT_HEADER_SIZE)
        return malformed("cut short", error);
    memcpy(fields, frame->payload, sizeof(fields));
    struct message_result result = {.sequence = fields[0],
                                    .kind = (uint16_t)fields[1],
                                    .first = fields[2],
                                    .count = fields[3],
                                    .width = fields[4]};
    if (fields[1] >> 16 || fields[5])
        return malformed("flags not known", error);
    if (result.kind != RESULT_SCORE && result.kind != RESULT_EMBED)
        return malformed("kind not known", error);
    uint64_t body_length = frame->payload_length - RESULT_HEADER_SIZE;
    if (body_length != ((body_size(&result) + 7) & ~(uint64_t)7))
        return malformed("its counts and its length differ", error);
    const void *body = frame->payload + RESULT_HEADER_SIZE;
    if (result.kind == RESULT_SCORE)
        result.scores = body;
    else
        result.rows = body;
    *ret_result = result;
    return 0;
}
