/* One message: the first byte is its type, the head goes up to the first zero byte, the payload is
 * the rest. So the fuzzer need not learn to write lengths. */
#include <string.h>

#include "protocol/frame.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/message_check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1 || data[0] == 0 || data[0] > FRAME_TYPE_MAX)
        return 0;
    const uint8_t *head = data + 1, *zero = memchr(head, 0, size - 1);
    size_t head_length = zero ? (size_t)(zero - head) : size - 1;
    size_t payload_length = zero ? size - 2 - head_length : 0;
    size_t padded = frame_pad(head_length), all = padded + frame_pad(payload_length);
    char *bytes = malloc(all ? all : 1);
    FUZZ_CHECK(bytes);
    memset(bytes, ' ', padded);
    memset(bytes + padded, 0, all - padded);
    memcpy(bytes, head, head_length);
    if (payload_length > 0)
        memcpy(bytes + padded, zero + 1, payload_length);
    struct frame frame = {.type = data[0],
                          .id = 1,
                          .head = bytes,
                          .head_length = (uint32_t)padded,
                          .payload = (unsigned char *)bytes + padded,
                          .payload_length = (uint32_t)(all - padded)};
    message_check(&frame);
    free(bytes);
    return 0;
}
