/* Batches over the stages of lanes: copies in, kernels and copies out of several at once. As they
 * ran on the daemon's device, or by the model, for which no daemon is asked. */
#include "client/command/timeline.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/terminal/connect.h"
#include "client/timeline/chart.h"
#include "protocol/base/clock.h"

#define SHOWN_MAX 64 /* batches that are drawn, unit by unit */
#define POLL_MS 50   /* how often the daemon is asked for more */

static const struct json_bounds bounds = {.bytes_max = 4u << 20, .depth_max = 8};
static const char *const drawn_names[STAGES] = {"H2D", "K", "D2H"};

/* ---- the model ---------------------------------------------------------------------------------
 */

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
                printf("[%s%d]", drawn_names[stage], t - stage);
        printf("\n");
    }
}

static enum status simulate(const struct command *command, const struct settings *settings)
{
    double times[STAGES] = {1, 1, 1};
    if (settings->times && read_times(settings->times, times)) {
        say("%s: --times takes three times above 0, with commas between: copy in, kernels, copy "
            "out",
            command->name);
        return STATUS_USAGE;
    }
    const double sequential = settings->simulate * (times[0] + times[1] + times[2]);
    const double together = overlap_model(times, (uint64_t)settings->simulate);
    if (!settings->times && settings->simulate <= SHOWN_MAX)
        draw(settings->simulate);
    printf("%d batches of %d stages: sequential %g, pipelined %g, %.2f x\n", settings->simulate,
           STAGES, sequential, together, sequential / together);
    return STATUS_OK;
}

/* ---- what ran ----------------------------------------------------------------------------------
 */

/* from: NULL asks where to begin. */
static enum status ask(sluice_client *client, const uint64_t *from, struct chunk_list *list,
                       uint64_t *ret_next)
{
    char head[64];
    const char *text;
    json *answer = NULL;
    struct error error;
    if (from)
        snprintf(head, sizeof(head), "{\"from\":%" PRIu64 "}", *from);
    if (sluice_control(client, SLUICE_TIMELINE, from ? head : NULL, ANSWER_TIMEOUT_MS, &text)) {
        const sluice_error *failure = sluice_client_error(client);
        say("%s: %s", sluice_error_name(failure->code), failure->text);
        return status_of_error(failure);
    }
    int rc = json_parse(text, strlen(text), bounds, &answer, &error);
    if (!rc)
        rc = chunk_list_read(list, answer, ret_next, &error);
    if (rc)
        say("%s", error.text);
    json_free(answer);
    return rc ? STATUS_SERVER : STATUS_OK;
}

/* Until there are enough of them, or the time is over. */
static enum status collect(sluice_client *client, int seconds, struct chunk_list *list)
{
    const struct timespec pause = {.tv_nsec = POLL_MS * 1000000L};
    const time_us end_us = clock_now_us() + (time_us)seconds * 1000000u;
    uint64_t next = 0;
    enum status status = ask(client, NULL, list, &next);
    while (!status && list->count < list->room && clock_now_us() < end_us) {
        const uint64_t before = next;
        status = ask(client, &before, list, &next);
        if (!status && next == before)
            nanosleep(&pause, NULL);
    }
    return status;
}

/* To a file of this name; NULL is none. */
static enum status write_file(const char *path, const struct chunk_list *list,
                              const struct overlap *overlap, bool svg)
{
    if (!path)
        return STATUS_OK;
    FILE *file = fopen(path, "we");
    bool bad = !file;
    if (file) {
        if (svg)
            chart_svg(list, overlap, file);
        else
            chart_trace(list, file);
        bad = ferror(file) != 0;
        bad = fclose(file) != 0 || bad;
    }
    if (bad)
        say("%s cannot be written: %s", path, strerror(errno));
    return bad ? STATUS_USAGE : STATUS_OK;
}

static enum status show(const struct settings *settings, struct chunk_list *list)
{
    struct overlap overlap;
    struct error error;
    chunk_list_sort(list);
    if (overlap_measure(list, &overlap, &error)) {
        say("%s", error.text);
        return STATUS_SERVER;
    }
    if (settings->json)
        chart_json(list, &overlap, stdout);
    else
        chart_print(list, &overlap, stdout);
    enum status status = write_file(settings->svg, list, &overlap, true);
    return status ? status : write_file(settings->trace, list, &overlap, false);
}

static enum status watch(const struct command *command, const struct settings *settings)
{
    struct chunk_list list;
    struct error error;
    sluice_client *client;
    enum status status = connect_daemon(settings, &client);
    if (status)
        return status;
    if (chunk_list_init(&list, (size_t)settings->chunks, &error)) {
        say("%s: %s", command->name, error.text);
        status = STATUS_SERVER;
    }
    if (!status)
        status = collect(client, settings->seconds, &list);
    if (!status && list.count == 0) {
        say("%s: no job ran within %d s", command->name, settings->seconds);
        status = STATUS_RETRY;
    }
    if (!status)
        status = show(settings, &list);
    chunk_list_free(&list);
    sluice_close(client);
    return status;
}

enum status timeline_command(const struct command *command, const struct settings *settings,
                             int argc, char **argv)
{
    const char *wrong = NULL;
    (void)argv;
    if (argc > 0)
        wrong = "takes no argument but options";
    else if (settings->simulate > 0 && (settings->svg || settings->trace || settings->json))
        wrong = "--svg, --trace and --json show what ran: not with --simulate";
    else if (settings->simulate == 0 && settings->times)
        wrong = "--times is for --simulate";
    if (wrong) {
        say("%s: %s", command->name, wrong);
        return STATUS_USAGE;
    }
    return settings->simulate > 0 ? simulate(command, settings) : watch(command, settings);
}
