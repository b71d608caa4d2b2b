#include "gpu/base/cuda_error.h"

#include <string.h>

int cuda_fail(cudaError_t status, const char *what, struct error *error)
{
    int code = status == cudaErrorMemoryAllocation ? ERR_DEVICE_MEMORY : ERR_DEVICE;
    (void)cudaGetLastError();
    return error_set(error, code, "%.*s: %s (%s)", (int)strcspn(what, "("), what,
                     cudaGetErrorName(status), cudaGetErrorString(status));
}
