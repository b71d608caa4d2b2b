#include "tests/protocol/protocol_suites.h"

#include "tests/runner.h"

int main(void)
{
    SRunner *runner = srunner_create(frame_suite());
    srunner_add_suite(runner, message_suite());
    srunner_add_suite(runner, job_suite());
    srunner_add_suite(runner, records_suite());
    srunner_add_suite(runner, submit_suite());
    srunner_add_suite(runner, text_suite());
    srunner_add_suite(runner, wire_suite());
    return runner_run(runner);
}
