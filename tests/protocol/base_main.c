#include "tests/protocol/base_suites.h"

#include "tests/runner.h"

int main(void)
{
    SRunner *runner = srunner_create(error_suite());
    srunner_add_suite(runner, hist_suite());
    srunner_add_suite(runner, json_suite());
    srunner_add_suite(runner, json_write_suite());
    srunner_add_suite(runner, list_suite());
    srunner_add_suite(runner, log_ring_suite());
    srunner_add_suite(runner, log_suite());
    srunner_add_suite(runner, number_suite());
    srunner_add_suite(runner, repeat_suite());
    return runner_run(runner);
}
