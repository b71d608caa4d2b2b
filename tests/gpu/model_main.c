#include <check.h>

#include "tests/gpu/gpu_suites.h"
#include "tests/runner.h"

int main(void)
{
    SRunner *runner = srunner_create(device_suite());
    srunner_add_suite(runner, reference_suite());
    srunner_add_suite(runner, format_suite());
    srunner_add_suite(runner, synthetic_format_suite());
    srunner_add_suite(runner, whole_suite());
    srunner_add_suite(runner, quantize_suite());
    srunner_add_suite(runner, experts_suite());
    srunner_add_suite(runner, adapter_suite());
    srunner_add_suite(runner, adapter_files_suite());
    srunner_add_suite(runner, adapter_load_suite());
    srunner_add_suite(runner, eagle_suite());
    srunner_add_suite(runner, eagle_refused_suite());
    srunner_add_suite(runner, keep_suite());
    srunner_add_suite(runner, wake_suite());
    srunner_add_suite(runner, mutation_suite());
    srunner_add_suite(runner, bits_suite());
    srunner_add_suite(runner, invariant_suite());
    srunner_add_suite(runner, ranks_suite());
    srunner_add_suite(runner, pipeline_suite());
    srunner_add_suite(runner, several_suite());
    return runner_run(runner);
}
