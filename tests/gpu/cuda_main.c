#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/gpu/gpu_suites.h"
#include "tests/gpu/rig/rig.h"
#include "tests/runner.h"

/* CK_FORK=no: a context does not survive a fork. */
static int run(SRunner *runner)
{
    srunner_set_fork_status(runner, CK_NOFORK);
    return runner_run(runner);
}

static int run_in(enum gpu_dtype dtype)
{
    rig_dtype = dtype;
    SRunner *runner = srunner_create(device_suite());
    srunner_add_suite(runner, eagle_suite());
    srunner_add_suite(runner, mutation_suite());
    if (dtype == GPU_DTYPE_F16) { /* roundings of bf16 come near to what a mistake does */
        srunner_add_suite(runner, several_suite());
        srunner_add_suite(runner, waits_suite());
    }
    return run(runner);
}

/* Of two runs together; one in which nothing has the name that was chosen is skipped. */
static int both(int one, int other)
{
    if (one == RUNNER_SKIPPED || other == RUNNER_SKIPPED)
        return one == RUNNER_SKIPPED ? other : one;
    return one == EXIT_SUCCESS ? other : one;
}

int main(void)
{
    int status = run(srunner_create(dtype_suite()));
    if (status == EXIT_FAILURE)
        return EXIT_FAILURE;
    if (!rig_setup()) {
        printf("SKIPPED: no GPU here\n");
        return RUNNER_SKIPPED;
    }
    status = both(status, run_in(GPU_DTYPE_BF16));
    return both(status, run_in(GPU_DTYPE_F16));
}
