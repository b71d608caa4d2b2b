/* Whatever header is accepted: every tensor lies in the file behind the header, none overlaps
 * another, and each is found by its name. The last byte of the input says how long the data is. */
#include <string.h>

#include "gpu/checkpoint/safetensors.h"
#include "tests/fuzz/fuzz.h"

static int overlap(const struct safetensors_tensor *a, const struct safetensors_tensor *b)
{
    return a->bytes && b->bytes && a->offset < b->offset + b->bytes &&
           b->offset < a->offset + a->bytes;
}

static void check(const struct safetensors *safetensors, uint64_t data_offset, uint64_t file_bytes)
{
    for (size_t i = 0; i < safetensors->count; i++) {
        const struct safetensors_tensor *tensor = &safetensors->tensors[i];
        FUZZ_CHECK(tensor->rank <= SAFETENSORS_RANK_MAX);
        FUZZ_CHECK(tensor->offset >= data_offset && tensor->offset <= file_bytes);
        FUZZ_CHECK(tensor->bytes <= file_bytes - tensor->offset);
        FUZZ_CHECK(safetensors_find(safetensors, tensor->name) == tensor);
        for (size_t other = i + 1; other < safetensors->count && other < i + 64; other++)
            FUZZ_CHECK(!overlap(tensor, &safetensors->tensors[other]));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    size_t length = size - 1;
    uint64_t file_bytes = 8 + length + (uint64_t)data[length] * 64;
    struct safetensors safetensors;
    struct error error = {0};
    int rc = safetensors_parse((const char *)data, length, "f", file_bytes, &safetensors, &error);
    if (rc) {
        FUZZ_CHECK(rc == -ERR_BAD_MODEL && error.code == ERR_BAD_MODEL);
        FUZZ_CHECK(strncmp(error.text, "f: ", 3) == 0);
        return 0;
    }
    check(&safetensors, 8 + length, file_bytes);
    safetensors_free(&safetensors);
    return 0;
}
