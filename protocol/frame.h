/* The frame: 24 bytes of header, then a head, then a payload. Little endian.
 *
 *   offset  size  field
 *        0     4  magic   0x45434c53 ("SLCE")
 *        4     1  version FRAME_VERSION
 *        5     1  type    enum frame_type
 *        6     2  flags   FRAME_FLAG_*; a bit that is not known is refused
 *        8     8  id      the client's own number of the request; 0 in frames that belong to none
 *       16     4  head_length     multiple of 8; JSON padded with spaces, or binary records
 *       20     4  payload_length  multiple of 8
 *
 * Head and payload stay where they were received: with a buffer aligned to 8 bytes (and compacted to
 * multiples of 8, see daemon/net/conn.c) both are aligned to 8. Nothing is allocated. Any thread.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "protocol/base/error.h"

#define FRAME_MAGIC 0x45434c53u
#define FRAME_VERSION 1
#define FRAME_HEADER_SIZE 24

/* Limits of one frame that hold before the handshake told the daemon's own, smaller or larger. */
#define FRAME_HEAD_MAX (1u << 20)
#define FRAME_SIZE_DEFAULT_MAX (16u << 20)

enum frame_type {
    FRAME_HELLO = 1,   /* client: version range, name */
    FRAME_WELCOME = 2, /* daemon: version, limits, model, device */
    FRAME_SUBMIT = 3,  /* client: a batch of sequences; id = the client's own */
    FRAME_ACCEPT = 4,  /* daemon: head {"request": daemon-wide id} */
    FRAME_TOKENS = 5,  /* daemon: token records, binary */
    FRAME_DONE = 6,    /* daemon: one sequence has ended */
    FRAME_ERROR = 7,   /* daemon: one sequence, a whole request, or the connection failed */
    FRAME_CANCEL = 8,  /* client: head {"request": id} or, with an empty head, the frame's own id */
    FRAME_STATS = 9,   /* client asks (empty head or {"requests":true}); daemon answers, same type */
    FRAME_HEALTH = 10, /* likewise */
    FRAME_MODEL = 11,  /* likewise */
    FRAME_DRAIN = 12,  /* likewise; needs an admin */
    FRAME_RESUME = 13, /* likewise; needs an admin */
    FRAME_RESULT = 14, /* daemon: binary results of score and embed, see wire.md */
    FRAME_TOKENIZE = 15,   /* client: a text or a conversation; daemon answers with its tokens */
    FRAME_DETOKENIZE = 16, /* client: tokens; daemon answers with their text */
    FRAME_JOB = 17,        /* client: a program, and tensors for it */
    FRAME_TENSORS = 18,    /* daemon: a part of an output, binary */
    FRAME_PROGRAMS = 19,   /* client asks, or as an admin ends that one is off; daemon answers */
    FRAME_TIMELINE = 20,   /* an admin asks; daemon answers: when the stages of jobs ran */
    FRAME_TYPE_MAX = 20
};

#define FRAME_FLAG_LAST 0x0001u   /* last frame of this id */
#define FRAME_FLAG_ANSWER 0x0002u /* a daemon's answer to a control frame */
#define FRAME_FLAGS_KNOWN 0x0003u

struct frame {
    uint8_t type;
    uint16_t flags;
    uint64_t id;
    const char *head; /* borrowed from the buffer */
    uint32_t head_length;
    const unsigned char *payload; /* borrowed from the buffer */
    uint32_t payload_length;
};

enum frame_status { FRAME_OK, FRAME_MORE, FRAME_BAD };

/* Reads one frame from the first `length` bytes of `buffer`.
 * FRAME_OK: *ret_frame and *ret_used (the bytes it took) are set.
 * FRAME_MORE: *ret_used is the number of bytes that must be there in all (at least the header).
 * FRAME_BAD: *error says why; the connection cannot go on, since the stream has lost its step.
 * frame_max bounds header, head and payload together and is checked as soon as the header is there. */
enum frame_status frame_decode(const void *buffer, size_t length, size_t frame_max,
                               struct frame *ret_frame, size_t *ret_used, struct error *error);

/* Writes the 24 bytes. Lengths must be multiples of 8. */
void frame_encode_header(unsigned char out[FRAME_HEADER_SIZE], uint8_t type, uint16_t flags,
                         uint64_t id, uint32_t head_length, uint32_t payload_length);

static inline size_t frame_pad(size_t length)
{
    return (length + 7) & ~(size_t)7;
}
