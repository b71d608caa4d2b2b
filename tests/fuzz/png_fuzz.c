/* What png_decode accepts has as many pixels as it says, and the same ones once png_encode has
 * written them. A checksum that is wrong is mended first: else nothing behind one would ever be
 * seen. */
#include <string.h>
#include <zlib.h>

#include "client/tensor/png.h"
#include "tests/fuzz/fuzz.h"

#define PIXELS_MAX (1u << 16) /* that are compared: a small file may have many */

static uint32_t read_u32(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static void mend(uint8_t *bytes, size_t size)
{
    size_t at = 8;
    while (size >= 12 && at <= size - 12 && read_u32(bytes + at) <= size - 12 - at) {
        const size_t end = at + 8 + read_u32(bytes + at);
        const uint32_t sum = (uint32_t)crc32(0, bytes + at + 4, (uInt)(end - at - 4));
        for (int i = 0; i < 4; i++)
            bytes[end + (size_t)i] = (uint8_t)(sum >> (24 - 8 * i));
        at = end + 4;
    }
}

static void check_same(const sluice_array *array)
{
    unsigned char *written;
    sluice_array again;
    size_t length;
    void *data;
    struct error error;
    FUZZ_CHECK(!png_encode((uint32_t)array->shape[1], (uint32_t)array->shape[0], array->data,
                           &written, &length, &error));
    FUZZ_CHECK(!png_decode(written, length, &again, &data, &error));
    FUZZ_CHECK(again.shape[0] == array->shape[0] && again.shape[1] == array->shape[1]);
    FUZZ_CHECK(memcmp(data, array->data, sluice_array_bytes(array)) == 0);
    free(written);
    free(data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *bytes = malloc(size ? size : 1);
    sluice_array array;
    void *pixels;
    struct error error;
    FUZZ_CHECK(bytes);
    if (size > 0)
        memcpy(bytes, data, size);
    mend(bytes, size);
    int rc = png_decode(bytes, size, &array, &pixels, &error);
    free(bytes);
    if (rc) {
        FUZZ_CHECK(rc == -error.code && error.text[0]);
        return 0;
    }
    FUZZ_CHECK(array.rank == 3 && array.shape[2] == 3);
    FUZZ_CHECK(array.shape[0] > 0 && array.shape[0] <= PNG_SIDE_MAX);
    FUZZ_CHECK(array.shape[1] > 0 && array.shape[1] <= PNG_SIDE_MAX);
    if (array.shape[0] * array.shape[1] <= PIXELS_MAX)
        check_same(&array);
    free(pixels);
    return 0;
}
