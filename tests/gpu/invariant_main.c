/* Invariant mode on a GPU, apart from the other checks of an engine: each model runs in sixteen ways. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/gpu/gpu_suites.h"
#include "tests/gpu/rig/rig.h"
#include "tests/runner.h"

int main(void)
{
    if (!rig_setup()) {
        printf("SKIPPED: no GPU here\n");
        return RUNNER_SKIPPED;
    }
    int failed = 0;
    for (int f16 = 0; f16 < 2; f16++) {
        rig_dtype = f16 ? GPU_DTYPE_F16 : GPU_DTYPE_BF16;
        SRunner *runner = srunner_create(invariant_suite());
        srunner_set_fork_status(runner, CK_NOFORK); /* a context does not survive a fork */
        failed += runner_run(runner) != EXIT_SUCCESS;
    }
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
