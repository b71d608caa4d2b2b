#include "tests/protocol/protocol_suites.h"

#include <stdlib.h>

int main(void)
{
    SRunner *runner = srunner_create(frame_suite());
    srunner_add_suite(runner, message_suite());
    srunner_add_suite(runner, records_suite());
    srunner_add_suite(runner, submit_suite());
    srunner_add_suite(runner, text_suite());
    srunner_add_suite(runner, wire_suite());
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
