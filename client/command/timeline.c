/* The model of three stages: copies in, kernels, copies out, of several batches at once. Each stage
 * is an engine of its own, which takes the batches in order, one at a time. No daemon is asked. */
#include "client/command/timeline.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STAGES 3
#define SHOWN_MAX 64 /* batches that are drawn, unit by unit */

static const char *const names[STAGES] = {"H2D", "K", "D2H"};

/* What stages take: "1,2.5,1". */
static int read_times(const char *text, double times[STAGES])
{
    for (int i = 0; i < STAGES; i++) {
        char *end;
        times[i] = strtod(text, &end);
        if (end == text || !isfinite(times[i]) || times[i] <= 0 || times[i] > 1e15 ||
            *end != (i + 1 < STAGES ? ',' : '\0'))
            return -1;
        text = end + 1;
    }
    return 0;
}

/* One unit of time a line; what runs in it, the last stage first. */
static void draw(int batches)
{
    for (int t = 0; t < batches + STAGES - 1; t++) {
        printf("t = %d: ", t);
        for (int stage = STAGES - 1; stage >= 0; stage--)
            if (t >= stage && t - stage < batches)
                printf("[%s%d]", names[stage], t - stage);
        printf("\n");
    }
}

/* When the last stage of the last batch ends. A stage begins once the one before it has ended, and
 * its engine is through with the batch before. */
static double pipelined(const double times[STAGES], int batches)
{
    double free_at[STAGES] = {0};
    for (int batch = 0; batch < batches; batch++) {
        double ready = 0;
        for (int stage = 0; stage < STAGES; stage++) {
            ready = (ready > free_at[stage] ? ready : free_at[stage]) + times[stage];
            free_at[stage] = ready;
        }
    }
    return free_at[STAGES - 1];
}

enum status timeline_command(const struct command *command, const struct settings *settings,
                             int argc, char **argv)
{
    double times[STAGES] = {1, 1, 1};
    (void)argv;
    if (argc > 0 || settings->simulate == 0) {
        say("%s: %s", command->name,
            argc > 0 ? "takes no argument but options" : "give --simulate BATCHES");
        return STATUS_USAGE;
    }
    if (settings->times && read_times(settings->times, times)) {
        say("%s: --times takes three times above 0, with commas between: copy in, kernels, copy "
            "out",
            command->name);
        return STATUS_USAGE;
    }
    const double sequential = settings->simulate * (times[0] + times[1] + times[2]);
    const double together = pipelined(times, settings->simulate);
    if (!settings->times && settings->simulate <= SHOWN_MAX)
        draw(settings->simulate);
    printf("%d batches of %d stages: sequential %g, pipelined %g, %.2f x\n", settings->simulate,
           STAGES, sequential, together, sequential / together);
    return STATUS_OK;
}
