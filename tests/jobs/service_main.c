#include "tests/jobs/service_suites.h"
#include "tests/runner.h"

int main(void)
{
    SRunner *runner = srunner_create(flood_suite());
    srunner_add_suite(runner, service_suite());
    srunner_add_suite(runner, files_suite());
    srunner_add_suite(runner, shown_suite());
    return runner_run(runner);
}
