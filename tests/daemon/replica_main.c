#include <stdlib.h>

#include "tests/daemon/replica_suites.h"

int main(void)
{
    SRunner *runner = srunner_create(queue_suite());
    srunner_add_suite(runner, kv_suite());
    srunner_add_suite(runner, cost_suite());
    srunner_add_suite(runner, place_suite());
    srunner_add_suite(runner, stats_suite());
    srunner_add_suite(runner, sched_suite());
    srunner_add_suite(runner, sched_random_suite());
    srunner_add_suite(runner, worker_suite());
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
