#include "tests/client/command_suites.h"

#include <stdlib.h>

int main(void)
{
    SRunner *runner = srunner_create(window_suite());
    srunner_add_suite(runner, chat_suite());
    srunner_add_suite(runner, command_suite());
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
