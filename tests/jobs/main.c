#include <check.h>

#include "tests/jobs/bench.h"
#include "tests/runner.h"

int main(void)
{
    SRunner *runner = srunner_create(copy_crew_suite());
    srunner_add_suite(runner, calls_suite());
    srunner_add_suite(runner, lanes_suite());
    srunner_add_suite(runner, module_suite());
    srunner_add_suite(runner, shape_suite());
    srunner_add_suite(runner, times_suite());
    return runner_run(runner);
}
