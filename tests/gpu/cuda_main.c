#include <check.h>
#include <stdio.h>

#include "tests/gpu/gpu_suites.h"
#include "tests/gpu/rig.h"
#include "tests/runner.h"

#define SKIPPED 77

/* CK_FORK=no: a context does not survive a fork. */
int main(void)
{
    if (!rig_setup()) {
        printf("no GPU here\n");
        return SKIPPED;
    }
    SRunner *runner = srunner_create(device_suite());
    srunner_add_suite(runner, mutation_suite());
    srunner_set_fork_status(runner, CK_NOFORK);
    return runner_run(runner);
}
