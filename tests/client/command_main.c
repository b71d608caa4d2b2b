#include "tests/client/command_suites.h"

#include "tests/runner.h"

int main(void)
{
    SRunner *runner = srunner_create(window_suite());
    srunner_add_suite(runner, chat_suite());
    srunner_add_suite(runner, command_suite());
    srunner_add_suite(runner, control_suite());
    srunner_add_suite(runner, png_suite());
    srunner_add_suite(runner, standard_suite());
    srunner_add_suite(runner, timeline_suite());
    return runner_run(runner);
}
