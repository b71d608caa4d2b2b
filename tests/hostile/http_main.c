/* A real daemon's HTTP among clients that are huge, deep, endless, slow or gone, a thousand of them
 * at a time. Each is refused or bounded, the canary sees nothing of it, and afterwards the daemon
 * is as it was. `ctest -R hostile_http` runs it; it raises the number of descriptors by itself, and
 * says SKIPPED where that is not allowed. */
#include <signal.h>

#include "tests/hostile/http_suites.h"
#include "tests/runner.h"

int main(void)
{
    SRunner *runner = srunner_create(crowd_suite());
    srunner_add_suite(runner, framing_suite());
    srunner_add_suite(runner, template_suite());
    srunner_add_suite(runner, constraint_suite());
    signal(SIGPIPE, SIG_IGN);
    return runner_run(runner);
}
