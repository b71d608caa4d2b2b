#include <stdlib.h>

#include "tests/http/http_suites.h"

int main(void)
{
    SRunner *runner = srunner_create(exchange_suite());
    srunner_add_suite(runner, chat_ask_suite());
    srunner_add_suite(runner, question_suite());
    srunner_add_suite(runner, texts_suite());
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
