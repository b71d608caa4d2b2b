#include <check.h>

#include "tests/runner.h"
#include "tests/text/text_suites.h"

int main(void)
{
    SRunner *runner = srunner_create(reference_suite());
    srunner_add_suite(runner, chat_suite());
    srunner_add_suite(runner, detokenizer_suite());
    srunner_add_suite(runner, regex_suite());
    srunner_add_suite(runner, stop_suite());
    srunner_add_suite(runner, tokenizer_suite());
    srunner_add_suite(runner, window_suite());
    return runner_run(runner);
}
