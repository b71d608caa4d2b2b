#include "tests/http/http_suites.h"
#include "tests/runner.h"

int main(void)
{
    SRunner *runner = srunner_create(exchange_suite());
    srunner_add_suite(runner, framing_suite());
    srunner_add_suite(runner, access_suite());
    srunner_add_suite(runner, chat_ask_suite());
    srunner_add_suite(runner, names_suite());
    srunner_add_suite(runner, question_suite());
    srunner_add_suite(runner, texts_suite());
    srunner_add_suite(runner, users_suite());
    return runner_run(runner);
}
