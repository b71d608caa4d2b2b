/* From a failed CUDA call to an error of ours.
 *
 * A call that fails for want of memory gives ERR_DEVICE_MEMORY and leaves the device usable; every
 * other failure gives ERR_DEVICE. Any thread.
 */
#pragma once

#include <cuda_runtime_api.h>

#include "protocol/base/error.h"

/* Returns the negative code; `what` names the call. Takes the runtime's "last error" away, so that
 * a failure that was dealt with is not found again by the next launch. */
int cuda_fail(cudaError_t status, const char *what, struct error *error);

/* Closing goes on behind a call that failed; the first that did is told. */
static inline int first_failure(int status, int next)
{
    return status ? status : next;
}

#define CUDA_TRY(call, error)                                                                      \
    do {                                                                                           \
        cudaError_t cuda_status = (call);                                                          \
        if (cuda_status != cudaSuccess)                                                            \
            return cuda_fail(cuda_status, #call, error);                                           \
    } while (0)
