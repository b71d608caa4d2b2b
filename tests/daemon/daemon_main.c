#include "tests/daemon/daemon_suites.h"

#include "tests/runner.h"

int main(void)
{
    SRunner *runner = srunner_create(admission_suite());
    srunner_add_suite(runner, agent_suite());
    srunner_add_suite(runner, backlog_suite());
    srunner_add_suite(runner, cancel_suite());
    srunner_add_suite(runner, check_text_suite());
    srunner_add_suite(runner, conn_suite());
    srunner_add_suite(runner, constraint_cache_suite());
    srunner_add_suite(runner, deadline_suite());
    srunner_add_suite(runner, device_suite());
    srunner_add_suite(runner, ending_suite());
    srunner_add_suite(runner, errand_suite());
    srunner_add_suite(runner, fair_suite());
    srunner_add_suite(runner, file_marks_suite());
    srunner_add_suite(runner, layout_suite());
    srunner_add_suite(runner, least_suite());
    srunner_add_suite(runner, listen_suite());
    srunner_add_suite(runner, log_suite());
    srunner_add_suite(runner, log_writer_suite());
    srunner_add_suite(runner, manager_suite());
    srunner_add_suite(runner, model_list_suite());
    srunner_add_suite(runner, models_suite());
    srunner_add_suite(runner, option_suite());
    srunner_add_suite(runner, reload_suite());
    srunner_add_suite(runner, sleep_sim_suite());
    srunner_add_suite(runner, sleep_suite());
    srunner_add_suite(runner, reach_suite());
    srunner_add_suite(runner, result_suite());
    srunner_add_suite(runner, server_suite());
    srunner_add_suite(runner, service_suite());
    srunner_add_suite(runner, cache_suite());
    srunner_add_suite(runner, share_suite());
    srunner_add_suite(runner, standard_suite());
    srunner_add_suite(runner, trace_suite());
    srunner_add_suite(runner, unit_suite());
    srunner_add_suite(runner, waiting_suite());
    return runner_run(runner);
}
