/* test_sim: runs of the whole daemon from seeds. Exit code 1 when one of them went wrong; the line
 * that says so ends with the command that repeats it. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "protocol/base/log.h"
#include "tests/sim/sim.h"

static struct {
    uint64_t first, last;
    bool twice;          /* each seed is run again, and must leave the same trace */
    bool cover;          /* every figure must be above 0 */
    bool guesses;        /* some guesses must have stood */
    bool expect_failure; /* at least one seed must go wrong: the simulation sees the mutation */
    struct sim_setup setup;
} order = {
    .first = 1,
    .last = 1,
    .setup = {
        .model = "synthetic:null", .adapters = "", .beside = "", .replicas = 1, .tp = 1, .pp = 1}};

static char replay[1024]; /* the command for the present seed */

static void set_replay(uint64_t seed)
{
    snprintf(replay, sizeof(replay),
             "test_sim --model %s --adapters '%s' --beside '%s' --replicas %u --tp %u --pp %u%s "
             "--seed %" PRIu64 "\n",
             order.setup.model, order.setup.adapters, order.setup.beside, order.setup.replicas,
             order.setup.tp, order.setup.pp, order.setup.ep ? " --ep" : "", seed);
}

/* A failed assert or a bad access of the daemon's. */
static void on_crash(int number)
{
    static const char text[] = "crashed; to repeat it: ";
    (void)!write(STDERR_FILENO, text, sizeof(text) - 1);
    (void)!write(STDERR_FILENO, replay, strlen(replay));
    signal(number, SIG_DFL);
    raise(number);
}

static void usage(void)
{
    fprintf(stderr, "test_sim [--seed N | --seeds A..B] [--model NAME] [--adapters NAME=DIR,...]\n"
                    "         [--beside NAME[,NAME]] [--replicas N] [--tp N] [--pp N] [--ep] "
                    "[--twice] [--cover] [--guesses]\n"
                    "         [--skip-wait N [--expect-failure]] [--story]\n");
    exit(2);
}

static void read_arguments(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(name, "--twice") == 0) {
            order.twice = true;
            continue;
        }
        if (strcmp(name, "--story") == 0) {
            order.setup.story = true;
            continue;
        }
        if (strcmp(name, "--ep") == 0) {
            order.setup.ep = true;
            continue;
        }
        if (strcmp(name, "--cover") == 0) {
            order.cover = true;
            continue;
        }
        if (strcmp(name, "--guesses") == 0) {
            order.guesses = true;
            continue;
        }
        if (strcmp(name, "--expect-failure") == 0) {
            order.expect_failure = true;
            continue;
        }
        i++;
        if (strcmp(name, "--seed") == 0)
            order.first = order.last = strtoull(value, NULL, 10);
        else if (strcmp(name, "--model") == 0)
            order.setup.model = value;
        else if (strcmp(name, "--adapters") == 0)
            order.setup.adapters = value;
        else if (strcmp(name, "--beside") == 0)
            order.setup.beside = value;
        else if (strcmp(name, "--replicas") == 0)
            order.setup.replicas = (uint32_t)strtoul(value, NULL, 10);
        else if (strcmp(name, "--tp") == 0)
            order.setup.tp = (uint32_t)strtoul(value, NULL, 10);
        else if (strcmp(name, "--pp") == 0)
            order.setup.pp = (uint32_t)strtoul(value, NULL, 10);
        else if (strcmp(name, "--skip-wait") == 0)
            order.setup.skipped_wait = (uint32_t)strtoul(value, NULL, 10);
        else if (strcmp(name, "--seeds") != 0 ||
                 sscanf(value, "%" SCNu64 "..%" SCNu64, &order.first, &order.last) != 2)
            usage();
    }
}

#define FIGURES (sizeof(struct sim_figures) / sizeof(uint64_t))

static void add(struct sim_figures *sum, const struct sim_figures *one)
{
    uint64_t *to = (uint64_t *)sum;
    const uint64_t *from = (const uint64_t *)one;
    for (size_t i = 0; i < FIGURES; i++)
        to[i] += from[i];
}

/* False when something never happened in all the runs: then they did not test it. */
static bool print(const struct sim_figures *sum)
{
    static const char *const names[FIGURES] = {"requests sent",
                                               "accepted",
                                               "completed",
                                               "refused",
                                               "lost with their connection",
                                               "steps",
                                               "slabs grown",
                                               "slabs refused",
                                               "device failures",
                                               "blocks had from others",
                                               "preemptions",
                                               "for priorities",
                                               "wasted rows",
                                               "blocks moved",
                                               "steps ahead",
                                               "tokens guessed",
                                               "that stood",
                                               "prompt tokens cached",
                                               "waits for another's prompt",
                                               "cached blocks given up",
                                               "blocks copied out",
                                               "and back",
                                               "chunks refused",
                                               "stopped",
                                               "full",
                                               "cancelled",
                                               "deadlines",
                                               "slow readers",
                                               "texts late",
                                               "texts cancelled",
                                               "texts dropped",
                                               "texts stopped",
                                               "ends",
                                               "after draining",
                                               "after a cut",
                                               "that left something",
                                               "turns with results without room",
                                               "turns with a slot that others gave up",
                                               "lines while nobody read the log",
                                               "lines dropped",
                                               "models fell asleep",
                                               "woke",
                                               "made way",
                                               "wakings refused",
                                               "weights kept",
                                               "keepings that failed"};
    const uint64_t *figures = (const uint64_t *)sum;
    bool all = true;
    for (size_t i = 0; i < FIGURES; i++) {
        printf("%s%s %" PRIu64, i ? ", " : "", names[i], figures[i]);
        bool other = &figures[i] == &sum->stood || /* that one: --guesses */
                     (!order.setup.beside[0] && &figures[i] >= &sum->slept);
        all = all && (figures[i] > 0 || other);
    }
    printf("\n");
    return all;
}

static bool run(uint64_t seed, struct sim_figures *sum)
{
    struct sim_report report, again;
    set_replay(seed);
    sim_run(seed, &order.setup, &report);
    if (order.twice && !report.failed) {
        sim_run(seed, &order.setup, &again);
        if (again.trace != report.trace || again.events != report.events) {
            report.failed = true;
            snprintf(report.failure, sizeof(report.failure),
                     "two runs differ: %" PRIu64 " and %" PRIu64 " events", report.events,
                     again.events);
        }
    }
    if (report.failed && !order.expect_failure)
        fprintf(stderr, "seed %" PRIu64 ": %s; to repeat it: %s", seed, report.failure, replay);
    add(sum, &report.figures);
    return !report.failed;
}

int main(int argc, char **argv)
{
    struct sim_figures sum = {0};
    uint64_t passed = 0, failed = 0;
    read_arguments(argc, argv);
    log_setup(LOG_DEBUG, LOG_TEXT);
    signal(SIGABRT, on_crash);
    signal(SIGSEGV, on_crash);
    for (uint64_t seed = order.first; seed <= order.last; seed++) {
        if (run(seed, &sum))
            passed++;
        else
            failed++;
    }
    bool all = print(&sum);
    if ((order.cover && !all) || (order.guesses && sum.stood == 0)) {
        fprintf(stderr, "a figure is 0: these seeds test nothing of it\n");
        failed++;
    }
    printf("%" PRIu64 " passed, %" PRIu64 " failed\n", passed, failed);
    return order.expect_failure ? failed == 0 : failed > 0;
}
