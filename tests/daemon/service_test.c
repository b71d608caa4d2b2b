#include "tests/daemon/daemon_suites.h"

Suite *service_suite(void)
{
    Suite *suite = suite_create("service");
    return suite;
}
