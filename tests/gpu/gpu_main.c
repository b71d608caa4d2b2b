#include <check.h>
#include <stdlib.h>

#include "tests/gpu/gpu_suites.h"

int main(void)
{
    SRunner *runner = srunner_create(engine_suite());
    srunner_add_suite(runner, memory_suite());
    srunner_add_suite(runner, wait_suite());
    srunner_add_suite(runner, graph_suite());
    srunner_add_suite(runner, start_suite());
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
