/* How a program of Check suites ends, and how one of its tests says that it could not be run.
 *
 * Check knows passed and failed. What finds no device, or too few threads, is neither: it ends with
 * RUNNER_SKIP, which says so in a line that begins with SKIPPED. The program's last line counts
 * such tests, and where nothing but they was run the program exits 77, which ctest reports as
 * skipped.
 */
#pragma once

#include <check.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define RUNNER_SKIPPED 77

/* Shared with the processes that tests are forked into; one for all sources of a program. */
__attribute__((weak)) _Atomic int *runner_skips;

/* Of a test whose function is `name`, as START_TEST makes it. */
__attribute__((format(printf, 2, 3))) static inline void runner_skip(const char *name,
                                                                     const char *format, ...)
{
    size_t length = strlen(name);
    if (length > 3 && !strcmp(name + length - 3, "_fn"))
        length -= 3;
    printf("SKIPPED %.*s: ", (int)length, name);
    va_list arguments;
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    putchar('\n');
    fflush(stdout); /* a forked test ends without */
    ck_assert_ptr_nonnull(runner_skips);
    atomic_fetch_add(runner_skips, 1);
}

/* Ends a test, or a turn of a loop test, that cannot be run here: RUNNER_SKIP("%u devices", n). */
#define RUNNER_SKIP(...)                                                                           \
    do {                                                                                           \
        runner_skip(__func__, __VA_ARGS__);                                                        \
        return;                                                                                    \
    } while (0)

/* Runs all, frees the runner, and returns the program's exit status. CK_VERBOSITY says how much is
 * printed, CK_RUN_SUITE, CK_RUN_CASE and CK_FORK what is run and how. */
static inline int runner_run(SRunner *runner)
{
    void *shared =
        mmap(NULL, sizeof *runner_skips, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        perror("mmap");
        return EXIT_FAILURE;
    }
    runner_skips = shared;
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner), run = srunner_ntests_run(runner);
    int skipped = atomic_load(runner_skips);
    srunner_free(runner);
    runner_skips = NULL;
    (void)munmap(shared, sizeof *runner_skips);
    if (skipped > 0)
        printf("%d of these %d checks were SKIPPED\n", skipped, run);
    bool chosen = getenv("CK_RUN_SUITE") || getenv("CK_RUN_CASE"); /* of another program, perhaps */
    if (failed > 0 || (run == 0 && !chosen))
        return EXIT_FAILURE;
    if (run == 0)
        printf("SKIPPED: no suite and no case here has the name that was chosen\n");
    return skipped == run ? RUNNER_SKIPPED : EXIT_SUCCESS;
}
