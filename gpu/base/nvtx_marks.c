#include "gpu/base/nvtx.h"

#include <nvtx3/nvToolsExt.h>

void nvtx_begin(const char *name)
{
    (void)nvtxRangePushA(name);
}

void nvtx_end(void)
{
    (void)nvtxRangePop();
}
