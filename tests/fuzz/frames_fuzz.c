/* A stream of frames: whatever comes is the same frames whole and byte by byte, every length stays
 * within the limit, and every frame is then read as its message. */
#include <string.h>

#include "protocol/frame.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/message_check.h"

#define LIMIT 4096

/* The status of the first frame as a receiver sees it whose bytes come one at a time. */
static enum frame_status decode_slowly(const unsigned char *bytes, size_t length,
                                       struct frame *ret_frame, size_t *ret_used)
{
    struct error error;
    enum frame_status status = FRAME_MORE;
    for (size_t known = 0; known <= length && status == FRAME_MORE; known++)
        status = frame_decode(bytes, known, LIMIT, ret_frame, ret_used, &error);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t at = 0;
    while (at < size) {
        struct frame frame, slow_frame;
        struct error error;
        size_t used = 0, slow_used = 0, length = size - at;
        /* A copy for each frame: aligned, and its end is the end of what may be read. */
        unsigned char *bytes = malloc(length);
        FUZZ_CHECK(bytes);
        memcpy(bytes, data + at, length);
        enum frame_status status = frame_decode(bytes, length, LIMIT, &frame, &used, &error);
        FUZZ_CHECK(decode_slowly(bytes, length, &slow_frame, &slow_used) == status);
        if (status == FRAME_OK) {
            FUZZ_CHECK(used == slow_used && used <= length && used <= LIMIT);
            FUZZ_CHECK(used == FRAME_HEADER_SIZE + frame.head_length + frame.payload_length);
            message_check(&frame);
        }
        free(bytes);
        if (status != FRAME_OK) {
            FUZZ_CHECK(status == FRAME_BAD || (used > length && used <= LIMIT));
            return 0;
        }
        at += used;
    }
    return 0;
}
