/* How a program of Check suites ends. */
#pragma once

#include <check.h>
#include <stdlib.h>

/* Runs all, frees the runner, and returns the program's exit status. CK_VERBOSITY says how much is
 * printed, CK_RUN_SUITE, CK_RUN_CASE and CK_FORK what is run and how. */
static inline int runner_run(SRunner *runner)
{
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
