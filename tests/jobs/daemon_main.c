#include "tests/jobs/daemon_suites.h"
#include "tests/runner.h"

int main(void)
{
    SRunner *runner = srunner_create(chunk_suite());
    srunner_add_suite(runner, calibration_suite());
    srunner_add_suite(runner, http_sim_suite());
    srunner_add_suite(runner, memory_suite());
    srunner_add_suite(runner, record_suite());
    srunner_add_suite(runner, sim_suite());
    srunner_add_suite(runner, timeline_suite());
    srunner_add_suite(runner, worker_suite());
    return runner_run(runner);
}
