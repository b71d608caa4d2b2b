/* A regular expression (constrain_check.h). */
#include "tests/fuzz/constrain_check.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    constrain_check(CONSTRAINT_PATTERN, data, size);
    return 0;
}
