/* A share of a program's tests: RUNNER_PART=I/N runs each Nth turn of a test, from the Ith on, over
 * all suites in the order in which they were added. So a slow program's parts run beside each
 * other, and no list says which test is of which. The linker sends what Check's tcase_add_...
 * macros call through here (--wrap).
 */
#include <check.h>

#include "tests/parts.h"

void __real__tcase_add_test(TCase *tcase, const TTest *test, int signal, int exit_value, int start,
                            int end);
void __wrap__tcase_add_test(TCase *tcase, const TTest *test, int signal, int exit_value, int start,
                            int end);

static struct parts parts; /* parts.parts is 0 until it was read */

void __wrap__tcase_add_test(TCase *tcase, const TTest *test, int signal, int exit_value, int start,
                            int end)
{
    if (!parts.parts)
        parts = parts_read();
    for (int i = start; i < end; i++) {
        if (parts_turn(&parts))
            __real__tcase_add_test(tcase, test, signal, exit_value, i, i + 1);
    }
}
