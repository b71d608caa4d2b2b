#include "tests/client/client_suites.h"

#include <stdlib.h>

int main(void)
{
    SRunner *runner = srunner_create(connection_suite());
    srunner_add_suite(runner, address_suite());
    srunner_add_suite(runner, submit_suite());
    srunner_add_suite(runner, blocking_suite());
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
