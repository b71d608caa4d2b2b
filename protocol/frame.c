#include "protocol/frame.h"

#include <assert.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "payloads are used in place, which needs a little-endian machine");

static const unsigned char magic[4] = {'S', 'L', 'C', 'E'};

static uint64_t load(const unsigned char *bytes, unsigned size)
{
    uint64_t value = 0;
    memcpy(&value, bytes, size);
    return value;
}

/* What can be judged is judged at once: who speaks another protocol may never send 24 bytes. */
static int check_start(const unsigned char *bytes, size_t length, struct error *error)
{
    size_t known = length < sizeof(magic) ? length : sizeof(magic);
    if (memcmp(bytes, magic, known) != 0)
        return error_set(error, ERR_BAD_MAGIC, "not the Sluice protocol");
    if (length > 4 && bytes[4] != FRAME_VERSION)
        return error_limit(error, ERR_BAD_VERSION, FRAME_VERSION, bytes[4],
                           "the frame has protocol version %u, spoken here is version %u", bytes[4],
                           FRAME_VERSION);
    return 0;
}

static int check_header(const struct frame *frame, size_t frame_max, struct error *error)
{
    uint64_t size = (uint64_t)FRAME_HEADER_SIZE + frame->head_length + frame->payload_length;
    if (frame->type == 0 || frame->type > FRAME_TYPE_MAX)
        return error_set(error, ERR_BAD_FRAME, "frame type %u is not known", frame->type);
    if (frame->flags & ~FRAME_FLAGS_KNOWN)
        return error_set(error, ERR_BAD_FRAME, "frame flags 0x%04x are not known",
                         (unsigned)(frame->flags & ~FRAME_FLAGS_KNOWN));
    if (frame->head_length % 8 || frame->payload_length % 8)
        return error_set(error, ERR_BAD_FRAME,
                         "head of %u and payload of %u bytes, both must be multiples of 8",
                         frame->head_length, frame->payload_length);
    if (frame->head_length > FRAME_HEAD_MAX)
        return error_limit(error, ERR_TOO_LARGE, FRAME_HEAD_MAX, frame->head_length,
                           "head of %u bytes, at most %u are accepted", frame->head_length,
                           FRAME_HEAD_MAX);
    if (size > frame_max)
        return error_limit(error, ERR_TOO_LARGE, frame_max, size,
                           "frame of %llu bytes, at most %zu are accepted",
                           (unsigned long long)size, frame_max);
    return 0;
}

enum frame_status frame_decode(const void *buffer, size_t length, size_t frame_max,
                               struct frame *ret_frame, size_t *ret_used, struct error *error)
{
    const unsigned char *bytes = buffer;
    if (check_start(bytes, length, error))
        return FRAME_BAD;
    if (length < FRAME_HEADER_SIZE) {
        *ret_used = FRAME_HEADER_SIZE;
        return FRAME_MORE;
    }
    struct frame frame = {
        .type = bytes[5],
        .flags = (uint16_t)load(bytes + 6, 2),
        .id = load(bytes + 8, 8),
        .head_length = (uint32_t)load(bytes + 16, 4),
        .payload_length = (uint32_t)load(bytes + 20, 4),
    };
    if (check_header(&frame, frame_max, error))
        return FRAME_BAD;
    size_t size = (size_t)FRAME_HEADER_SIZE + frame.head_length + frame.payload_length;
    *ret_used = size;
    if (length < size)
        return FRAME_MORE;
    frame.head = (const char *)bytes + FRAME_HEADER_SIZE;
    frame.payload = bytes + FRAME_HEADER_SIZE + frame.head_length;
    *ret_frame = frame;
    return FRAME_OK;
}

void frame_encode_header(unsigned char out[FRAME_HEADER_SIZE], uint8_t type, uint16_t flags,
                         uint64_t id, uint32_t head_length, uint32_t payload_length)
{
    assert(type > 0 && type <= FRAME_TYPE_MAX && !(flags & ~FRAME_FLAGS_KNOWN));
    assert(head_length % 8 == 0 && payload_length % 8 == 0);
    memcpy(out, magic, sizeof(magic));
    out[4] = FRAME_VERSION;
    out[5] = type;
    memcpy(out + 6, &flags, 2);
    memcpy(out + 8, &id, 8);
    memcpy(out + 16, &head_length, 4);
    memcpy(out + 20, &payload_length, 4);
}
