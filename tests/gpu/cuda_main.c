#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/gpu/gpu_suites.h"
#include "tests/gpu/rig.h"

#define SKIPPED 77

/* CK_FORK=no: a context does not survive a fork. */
static bool all_pass(SRunner *runner)
{
    srunner_set_fork_status(runner, CK_NOFORK);
    srunner_run_all(runner, CK_ENV);
    bool pass = srunner_ntests_failed(runner) == 0;
    srunner_free(runner);
    return pass;
}

static bool pass_in(enum gpu_dtype dtype)
{
    rig_dtype = dtype;
    SRunner *runner = srunner_create(device_suite());
    srunner_add_suite(runner, mutation_suite());
    return all_pass(runner);
}

int main(void)
{
    bool pass = all_pass(srunner_create(dtype_suite()));
    if (pass && !rig_setup()) {
        printf("no GPU here\n");
        return SKIPPED;
    }
    pass = pass && pass_in(GPU_DTYPE_BF16);
    pass = pass_in(GPU_DTYPE_F16) && pass;
    return pass ? EXIT_SUCCESS : EXIT_FAILURE;
}
