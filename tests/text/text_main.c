#include <check.h>
#include <stdlib.h>

#include "tests/text/text_suites.h"

int main(void)
{
    SRunner *runner = srunner_create(reference_suite());
    srunner_add_suite(runner, chat_suite());
    srunner_add_suite(runner, detokenizer_suite());
    srunner_add_suite(runner, regex_suite());
    srunner_add_suite(runner, stop_suite());
    srunner_add_suite(runner, tokenizer_suite());
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
