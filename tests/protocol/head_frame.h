/* A frame in memory from a head in text, as a receiver would hold it. */
#pragma once

#include <check.h>
#include <string.h>

#include "protocol/frame.h"

#define HEAD_FRAME_MAX (64 * 1024)

struct head_frame {
    struct frame frame;
    _Alignas(8) char bytes[HEAD_FRAME_MAX];
};

static inline void head_frame_fill(struct head_frame *out, uint8_t type, const char *head,
                                   const void *payload, size_t payload_length)
{
    size_t length = strlen(head), padded = frame_pad(length), all = frame_pad(payload_length);
    ck_assert_uint_le(padded + all, HEAD_FRAME_MAX);
    memset(out->bytes, ' ', padded);
    memcpy(out->bytes, head, length);
    memset(out->bytes + padded, 0, all);
    if (payload_length > 0)
        memcpy(out->bytes + padded, payload, payload_length);
    out->frame = (struct frame){.type = type,
                                .id = 1,
                                .head = out->bytes,
                                .head_length = (uint32_t)padded,
                                .payload = (unsigned char *)out->bytes + padded,
                                .payload_length = (uint32_t)all};
}
