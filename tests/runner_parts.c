/* A share of a program's tests: RUNNER_PART=I/N runs each Nth turn of a test, from the Ith on, over
 * all suites in the order in which they were added. So a slow program's parts run beside each
 * other, and no list says which test is of which. The linker sends what Check's tcase_add_...
 * macros call through here (--wrap).
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

void __real__tcase_add_test(TCase *tcase, const TTest *test, int signal, int exit_value, int start,
                            int end);
void __wrap__tcase_add_test(TCase *tcase, const TTest *test, int signal, int exit_value, int start,
                            int end);

static int part = -1, parts;
static int turns; /* that were dealt out */

static void read_part(void)
{
    const char *text = getenv("RUNNER_PART");
    char rest;
    part = 0;
    parts = 1;
    if (!text)
        return;
    if (sscanf(text, "%d/%d%c", &part, &parts, &rest) != 2 || part < 1 || part > parts) {
        fprintf(stderr, "RUNNER_PART=%s: not I/N with I from 1 to N\n", text);
        exit(EXIT_FAILURE);
    }
    part--;
}

void __wrap__tcase_add_test(TCase *tcase, const TTest *test, int signal, int exit_value, int start,
                            int end)
{
    if (part < 0)
        read_part();
    for (int i = start; i < end; i++) {
        if (turns++ % parts == part)
            __real__tcase_add_test(tcase, test, signal, exit_value, i, i + 1);
    }
}
