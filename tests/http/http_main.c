#include <string.h>

#include "tests/http/http_suites.h"
#include "tests/runner.h"

/* test_http --fields: the page of fields, instead of tests. */
int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--fields") == 0) {
        fields_write(stdout);
        return fflush(stdout) ? 1 : 0;
    }
    SRunner *runner = srunner_create(exchange_suite());
    srunner_add_suite(runner, bodies_suite());
    srunner_add_suite(runner, entry_suite());
    srunner_add_suite(runner, metrics_suite());
    srunner_add_suite(runner, untaken_suite());
    srunner_add_suite(runner, framing_suite());
    srunner_add_suite(runner, access_suite());
    srunner_add_suite(runner, chat_ask_suite());
    srunner_add_suite(runner, fields_suite());
    srunner_add_suite(runner, health_suite());
    srunner_add_suite(runner, adapters_suite());
    srunner_add_suite(runner, models_suite());
    srunner_add_suite(runner, names_suite());
    srunner_add_suite(runner, partial_suite());
    srunner_add_suite(runner, question_suite());
    srunner_add_suite(runner, openapi_suite());
    srunner_add_suite(runner, pairs_suite());
    srunner_add_suite(runner, router_suite());
    srunner_add_suite(runner, lists_suite());
    srunner_add_suite(runner, tagged_suite());
    srunner_add_suite(runner, tensors_suite());
    srunner_add_suite(runner, texts_suite());
    srunner_add_suite(runner, timing_suite());
    srunner_add_suite(runner, tools_suite());
    srunner_add_suite(runner, users_suite());
    return runner_run(runner);
}
