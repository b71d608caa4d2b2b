#include "tests/answer/answer_suites.h"
#include "tests/runner.h"

int main(void)
{
    return runner_run(srunner_create(answer_reader_suite()));
}
