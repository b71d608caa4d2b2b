#include <stdio.h>

#include "tests/gpu/kernels/rig.h"
#include "tests/gpu/kernels/suites.h"
#include "tests/runner.h"

/* A machine without a device skips the tests; everything else that goes wrong fails them. */
void rig_device(uint32_t threads)
{
    (void)threads;
    int count = 0;
    cudaError_t status = cudaGetDeviceCount(&count);
    if (status == cudaErrorNoDevice || status == cudaErrorInsufficientDriver) {
        printf("SKIPPED: %s\n", cudaGetErrorString(status));
        exit(RUNNER_SKIPPED);
    }
    OK(status);
    int major = 0;
    OK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
    rig_gates_many = major == 9;
}

bool rig_gates_many;

const bool rig_kernels_wait = true;
const uint32_t rig_formats = (1u << FORMAT_U4) - 1;

cudaStream_t rig_tally_make(void)
{
    return NULL;
}

void rig_tally_free(cudaStream_t tally)
{
    (void)tally;
}

void rig_suites(SRunner *runner)
{
    srunner_add_suite(runner, expand_suite());
    srunner_add_suite(runner, formats_suite());
}
