#include "tests/client/client_suites.h"

#include "tests/runner.h"

int main(void)
{
    SRunner *runner = srunner_create(connection_suite());
    srunner_add_suite(runner, address_suite());
    srunner_add_suite(runner, submit_suite());
    srunner_add_suite(runner, blocking_suite());
    return runner_run(runner);
}
