/* Any constraint of any kind (constrain_check.h). The first byte is the kind. */
#include "tests/fuzz/constrain_check.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 0)
        constrain_check((enum constraint_kind)(data[0] % 6), data + 1, size - 1);
    return 0;
}
