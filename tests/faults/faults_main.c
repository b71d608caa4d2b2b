/* test_faults: the daemon under each fault of calls.def at the nth call of its name, up to the number
 * of calls that an undisturbed life of it makes. Without --all three places of each: the first, one
 * in the middle, the last. Exit code 1 when one went wrong; its line ends with the command to repeat.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/faults/scene.h"

#define JOBS_MAX 64
#define PLACES_MAX 40u /* further calls of a name are of the same few places of the code */

static const struct {
    const char *name, *faults;
} calls[FAULTS_CALLS] = {
#define CALL(name, type, parameters, arguments, faults) {#name, faults},
#define BYTES(name, type, parameters, arguments, part, faults) {#name, faults},
#define OTHER(name, faults) {#name, faults},
#include "tests/faults/calls.def"
#undef CALL
#undef BYTES
#undef OTHER
};

static struct {
    const char *model;
    const char *call, *fault; /* only these, when given */
    unsigned long nth;
    bool all;
    int jobs;
} order = {.model = "synthetic:null", .jobs = 4};

static struct job {
    pid_t pid;
    struct scene_fault fault;
    struct scene_report *report; /* shared with its process */
} jobs[JOBS_MAX];

static unsigned descriptors;
static unsigned long passed, failed, not_struck;

static void usage(void)
{
    fprintf(stderr, "test_faults [--all] [--model NAME] [--call NAME] [--fault NAME] [--nth N] "
                    "[--jobs N]\n");
    exit(2);
}

static void read_arguments(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--all") == 0) {
            order.all = true;
            continue;
        }
        const char *name = argv[i], *value = ++i < argc ? argv[i] : NULL;
        if (!value)
            usage();
        else if (strcmp(name, "--model") == 0)
            order.model = value;
        else if (strcmp(name, "--call") == 0)
            order.call = value;
        else if (strcmp(name, "--fault") == 0)
            order.fault = value;
        else if (strcmp(name, "--nth") == 0)
            order.nth = strtoul(value, NULL, 10);
        else if (strcmp(name, "--jobs") == 0)
            order.jobs = atoi(value);
        else
            usage();
    }
    if (order.jobs < 1 || order.jobs > JOBS_MAX)
        usage();
}

static void close_job(struct job *job)
{
    const struct scene_report *report = job->report;
    job->pid = 0;
    passed += report->outcome == SCENE_GOOD;
    not_struck += report->outcome == SCENE_NOT_STRUCK;
    failed += report->outcome == SCENE_WRONG;
    if (report->outcome == SCENE_WRONG)
        fprintf(stderr, "%s; to repeat it: test_faults --model %s --call %s --nth %lu --fault '%s'\n",
                report->wrong, order.model, job->fault.call ? job->fault.call : "none",
                job->fault.nth, job->fault.name);
}

static void await_one(void)
{
    int status;
    pid_t pid = wait(&status);
    for (int i = 0; i < order.jobs; i++) {
        if (pid <= 0 || jobs[i].pid != pid)
            continue;
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
            jobs[i].report->outcome = SCENE_WRONG;
            snprintf(jobs[i].report->wrong, sizeof(jobs[i].report->wrong), "the test crashed");
        }
        close_job(&jobs[i]);
        return;
    }
}

/* Each in a process of its own; as many at a time as there are jobs. */
static struct job *run(const struct scene_fault *fault)
{
    for (;;) {
        for (int i = 0; i < order.jobs; i++) {
            struct job *job = &jobs[i];
            if (job->pid)
                continue;
            job->fault = *fault;
            fflush(NULL);
            job->pid = fork();
            if (job->pid == 0) {
                scene_run(order.model, fault, descriptors, job->report);
                _exit(0);
            }
            return job;
        }
        await_one();
    }
}

static void run_places(const char *call, const char *name, unsigned long count)
{
    struct scene_fault fault = {.call = call};
    unsigned long most = count < PLACES_MAX ? count : PLACES_MAX;
    const unsigned long some[] = {1, (count + 1) / 2, count};
    snprintf(fault.name, sizeof(fault.name), "%s", name);
    if (order.nth) {
        fault.nth = order.nth;
        run(&fault);
        return;
    }
    for (unsigned long i = 0; i < (order.all ? most : 3); i++) {
        /* More calls than places: spread over all of them. */
        fault.nth = !order.all ? some[i] : count <= PLACES_MAX ? i + 1 : 1 + i * (count - 1) / (most - 1);
        if (order.all || i == 0 || some[i] != some[i - 1])
            run(&fault);
    }
}

static void run_call(int call, unsigned long count)
{
    char faults[256], *rest = faults, *name;
    if (order.call && strcmp(order.call, calls[call].name) != 0)
        return;
    snprintf(faults, sizeof(faults), "%s", calls[call].faults);
    while ((name = strsep(&rest, " ")) != NULL) {
        if (*name && (!order.fault || strcmp(order.fault, name) == 0))
            run_places(calls[call].name, name, count);
    }
}

int main(int argc, char **argv)
{
    static const struct scene_fault none = {.call = NULL};
    struct scene_report calm;
    read_arguments(argc, argv);
    for (int i = 0; i < order.jobs; i++)
        jobs[i].report = mmap(NULL, sizeof(*jobs[i].report), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct job *job = run(&none);
    await_one();
    calm = *job->report;
    descriptors = calm.descriptors;
    for (int call = 0; call < FAULTS_CALLS && failed == 0; call++) {
        printf("%s%s %lu", call ? ", " : "", calls[call].name, calm.calls[call]);
        fflush(stdout);
    }
    printf("\n");
    bool calm_failed = failed > 0;
    for (int call = 0; call < FAULTS_CALLS && !calm_failed; call++)
        if (calm.calls[call] > 0 || order.nth)
            run_call(call, calm.calls[call]);
    bool left = true;
    while (left) {
        left = false;
        for (int i = 0; i < order.jobs; i++)
            left = left || jobs[i].pid > 0;
        if (left)
            await_one();
    }
    printf("%lu passed, %lu failed, %lu did not come to strike\n", passed, failed, not_struck);
    return failed > 0 || passed < 2;
}
