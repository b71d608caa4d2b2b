#include "gpu/base/nvtx.h"

void nvtx_begin(const char *name)
{
    (void)name;
}

void nvtx_end(void)
{
}
