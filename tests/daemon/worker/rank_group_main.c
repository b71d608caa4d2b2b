#include <check.h>

#include "tests/daemon/worker/rank_group_suite.h"
#include "tests/runner.h"

int main(void)
{
    SRunner *runner = srunner_create(rank_group_suite());
    return runner_run(runner);
}
