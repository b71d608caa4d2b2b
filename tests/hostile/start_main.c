#include <signal.h>

#include "tests/hostile/start_suites.h"
#include "tests/runner.h"

int main(void)
{
    SRunner *runner = srunner_create(start_suite());
    srunner_add_suite(runner, limits_suite());
    srunner_add_suite(runner, place_suite());
    signal(SIGPIPE, SIG_IGN);
    return runner_run(runner);
}
