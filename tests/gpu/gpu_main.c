#include <check.h>

#include "tests/gpu/gpu_suites.h"
#include "tests/runner.h"

int main(void)
{
    SRunner *runner = srunner_create(engine_suite());
    srunner_add_suite(runner, memory_suite());
    srunner_add_suite(runner, wait_suite());
    srunner_add_suite(runner, graph_suite());
    srunner_add_suite(runner, start_suite());
    srunner_add_suite(runner, stop_suite());
    srunner_add_suite(runner, load_suite());
    srunner_add_suite(runner, copies_suite());
    return runner_run(runner);
}
