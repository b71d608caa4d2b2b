#include <check.h>
#include <stdlib.h>

#include "tests/gpu/gpu_suites.h"

int main(void)
{
    SRunner *runner = srunner_create(device_suite());
    srunner_add_suite(runner, reference_suite());
    srunner_add_suite(runner, mutation_suite());
    srunner_add_suite(runner, bits_suite());
    srunner_add_suite(runner, ranks_suite());
    srunner_add_suite(runner, pipeline_suite());
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
