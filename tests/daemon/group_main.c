#include <check.h>

#include "tests/daemon/group_suite.h"
#include "tests/runner.h"

int main(void)
{
    SRunner *runner = srunner_create(group_suite());
    return runner_run(runner);
}
