/* What npy_parse accepts is within bounds, and is accepted again once npy_format has written it. */
#include <string.h>

#include "client/tensor/npy.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char header[NPY_HEADER_WRITTEN_MAX];
    sluice_array array, again;
    size_t used, used_again;
    struct error error;
    int rc = npy_parse(data, size, &array, &used, &error);
    if (rc) {
        FUZZ_CHECK(rc == -error.code && error.text[0]);
        return 0;
    }
    FUZZ_CHECK(used <= size && used <= NPY_HEADER_MAX);
    FUZZ_CHECK(array.rank <= SLUICE_ARRAY_RANK_MAX && sluice_array_bytes(&array) > 0);
    size_t length = npy_format(&array, header);
    FUZZ_CHECK(length <= sizeof(header) && length % 64 == 0);
    FUZZ_CHECK(npy_parse(header, length, &again, &used_again, &error) == 0);
    FUZZ_CHECK(used_again == length && again.dtype == array.dtype && again.rank == array.rank);
    FUZZ_CHECK(memcmp(again.shape, array.shape, sizeof(array.shape)) == 0);
    return 0;
}
