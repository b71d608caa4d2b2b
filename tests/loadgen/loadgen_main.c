#include <stdlib.h>

#include "tests/loadgen/loadgen_suites.h"

int main(void)
{
    SRunner *runner = srunner_create(schedule_suite());
    srunner_add_suite(runner, driver_suite());
    srunner_add_suite(runner, summary_suite());
    srunner_add_suite(runner, event_suite());
    srunner_add_suite(runner, http_suite());
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
