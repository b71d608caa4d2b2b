#include "tests/daemon/worker/steady_suite.h"
#include "tests/runner.h"

int main(void)
{
    SRunner *runner = srunner_create(steady_suite());
    return runner_run(runner);
}
