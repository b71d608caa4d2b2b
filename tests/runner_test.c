/* Of runner.h: what is skipped is never counted as passed, forked or not; and of runner_parts.c. */
#include <sys/wait.h>
#include <unistd.h>

#include "tests/runner.h"

START_TEST(is_run)
{
    ck_assert_int_eq(_i, _i);
}
END_TEST

START_TEST(is_skipped)
{
    RUNNER_SKIP("turn %d of a test that is skipped on purpose", _i);
}
END_TEST

START_TEST(fails)
{
    ck_abort_msg("on purpose");
}
END_TEST

/* The exit status of a program with so many of each. */
static int status_of(enum fork_status fork_status, int run, int skipped, int failed)
{
    Suite *suite = suite_create("inner");
    TCase *tcase = tcase_create("inner");
    tcase_add_loop_test(tcase, is_run, 0, run);
    tcase_add_loop_test(tcase, is_skipped, 0, skipped);
    tcase_add_loop_test(tcase, fails, 0, failed);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_set_fork_status(runner, fork_status);
    return runner_run(runner);
}

static int wrong;

static void expect(int status, int run, int skipped, int failed)
{
    for (int forked = 0; forked < 2; forked++) {
        int found = status_of(forked ? CK_FORK : CK_NOFORK, run, skipped, failed);
        if (found != status) {
            printf("%d run, %d skipped, %d failed: status %d, not %d\n", run, skipped, failed,
                   found, status);
            wrong++;
        }
    }
}

/* Of 8 turns, those that a part runs: each turn's bit, as the exit status of a process that begins
 * like a program. */
static int turns_seen;

START_TEST(turn)
{
    turns_seen |= 1 << _i;
}
END_TEST

static int turns_of(const char *part)
{
    int status = 0;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        setenv("RUNNER_PART", part, 1);
        Suite *suite = suite_create("inner");
        for (int half = 0; half < 2; half++) {
            TCase *tcase = tcase_create("half");
            tcase_add_loop_test(tcase, turn, 4 * half, 4 * half + 4);
            suite_add_tcase(suite, tcase);
        }
        SRunner *runner = srunner_create(suite);
        srunner_set_fork_status(runner, CK_NOFORK);
        int failed = runner_run(runner);
        _exit(failed ? 0 : turns_seen);
    }
    return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

/* Every turn is in one part, and in one alone. */
static void expect_parts(void)
{
    int one = turns_of("1/3"), two = turns_of("2/3"), three = turns_of("3/3");
    if ((one | two | three) != 0xff || (one & two) || (one & three) || (two & three) || !one ||
        !two || !three) {
        printf("parts of 8 turns: %#x, %#x, %#x\n", one, two, three);
        wrong++;
    }
}

int main(void)
{
    expect_parts();
    expect(EXIT_SUCCESS, 3, 0, 0);
    expect(EXIT_SUCCESS, 1, 2, 0);
    expect(RUNNER_SKIPPED, 0, 3, 0);
    expect(EXIT_FAILURE, 1, 1, 1);
    expect(EXIT_FAILURE, 0, 1, 1);
    expect(EXIT_FAILURE, 0, 0, 0); /* a program that runs nothing has shown nothing */
    setenv("CK_RUN_SUITE", "of another program", 1);
    expect(RUNNER_SKIPPED, 1, 0, 0);
    unsetenv("CK_RUN_SUITE");
    return wrong ? EXIT_FAILURE : EXIT_SUCCESS;
}
