#include "tests/loadgen/loadgen_suites.h"
#include "tests/runner.h"

int main(void)
{
    SRunner *runner = srunner_create(schedule_suite());
    srunner_add_suite(runner, driver_suite());
    srunner_add_suite(runner, summary_suite());
    srunner_add_suite(runner, session_suite());
    srunner_add_suite(runner, event_suite());
    srunner_add_suite(runner, http_suite());
    srunner_add_suite(runner, screen_suite());
    return runner_run(runner);
}
