#include "tests/constrain/constrain_suites.h"
#include "tests/runner.h"

int main(void)
{
    SRunner *runner = srunner_create(instance_suite());
    srunner_add_suite(runner, mask_suite());
    return runner_run(runner);
}
