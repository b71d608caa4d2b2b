#include <check.h>
#include <stdlib.h>

#include "tests/daemon/group_suite.h"

int main(void)
{
    SRunner *runner = srunner_create(group_suite());
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
