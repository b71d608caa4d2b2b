#include "client/command/control.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/command/top.h"
#include "client/command/view.h"
#include "client/program/run.h"
#include "client/terminal/connect.h"

static const struct json_bounds bounds = {.bytes_max = 4u << 20, .depth_max = 16};

/* Asks, and shows the answer: as it came, or as a table. *ret_answer, when wanted, is the caller's.
 */
static enum status ask(const struct command *command, const struct settings *settings, int argc,
                       char **argv, int what, const char *head, json **ret_answer)
{
    sluice_client *client;
    const char *text;
    json *answer = NULL;
    if (argc > 0) {
        say("%s takes no argument but options: %s", command->name, argv[0]);
        return STATUS_USAGE;
    }
    enum status status = connect_daemon(settings, &client);
    if (status)
        return status;
    if (sluice_control(client, what, head, ANSWER_TIMEOUT_MS, &text)) {
        const sluice_error *error = sluice_client_error(client);
        say("%s: %s", sluice_error_name(error->code), error->text);
        status = status_of_error(error);
    } else if (json_parse(text, strlen(text), bounds, &answer, NULL)) {
        say("the daemon's answer is no JSON");
        status = STATUS_SERVER;
    } else {
        if (settings->json)
            printf("%s\n", text);
        else if (settings->prometheus)
            printf("%s", json_string(json_get(answer, "prometheus")));
        else if (what == SLUICE_STATS)
            view_stats(answer);
        else
            view_object(answer);
        if (ret_answer)
            *ret_answer = answer;
        else
            json_free(answer);
    }
    sluice_close(client);
    return status;
}

enum status control_stats(const struct command *command, const struct settings *settings, int argc,
                          char **argv)
{
    if (settings->watch + settings->prometheus + settings->json > 1) {
        say("%s: give one of --watch, --prometheus and --json", command->name);
        return STATUS_USAGE;
    }
    if (settings->watch && argc == 0)
        return top_watch(settings);
    if (settings->prometheus)
        return ask(command, settings, argc, argv, SLUICE_STATS, "{\"prometheus\":true}", NULL);
    const char *head = settings->requests ? "{\"requests\":true}" : NULL;
    return ask(command, settings, argc, argv, SLUICE_STATS, head, NULL);
}

enum status control_health(const struct command *command, const struct settings *settings, int argc,
                           char **argv)
{
    json *answer = NULL;
    enum status status = ask(command, settings, argc, argv, SLUICE_HEALTH, NULL, &answer);
    if (status)
        return status;
    const char *word = json_string(json_get(answer, "status"));
    if (!json_bool(json_get(answer, "ready")))
        status =
            !strcmp(word, "loading") || !strcmp(word, "draining") ? STATUS_RETRY : STATUS_SERVER;
    json_free(answer);
    return status;
}

/* Of the model that stands on the command line, or of the first; sleep: NULL, or what becomes of
 * it. */
static enum status ask_model(const struct command *command, const struct settings *settings,
                             int argc, char **argv, const bool *sleep)
{
    char head[1024];
    struct json_writer writer;
    if (argc > 1 || (argc == 1 && strlen(argv[0]) > 127)) {
        say("%s takes one model's name, of at most 127 bytes", command->name);
        return STATUS_USAGE;
    }
    if (argc == 0 && !sleep)
        return ask(command, settings, 0, argv, SLUICE_MODEL, NULL, NULL);
    json_writer_init(&writer, head, sizeof(head) - 1);
    json_open(&writer, NULL, '{');
    if (argc == 1)
        json_put_text(&writer, "model", argv[0]);
    if (sleep)
        json_put_bool(&writer, "sleep", *sleep);
    json_close(&writer, '}');
    head[writer.used] = '\0';
    return ask(command, settings, 0, argv, SLUICE_MODEL, head, NULL);
}

enum status control_model(const struct command *command, const struct settings *settings, int argc,
                          char **argv)
{
    return ask_model(command, settings, argc, argv, NULL);
}

enum status control_sleep(const struct command *command, const struct settings *settings, int argc,
                          char **argv)
{
    return ask_model(command, settings, argc, argv, &(bool){true});
}

enum status control_wake(const struct command *command, const struct settings *settings, int argc,
                         char **argv)
{
    return ask_model(command, settings, argc, argv, &(bool){false});
}

enum status control_drain(const struct command *command, const struct settings *settings, int argc,
                          char **argv)
{
    return ask(command, settings, argc, argv, SLUICE_DRAIN, NULL, NULL);
}

enum status control_resume(const struct command *command, const struct settings *settings, int argc,
                           char **argv)
{
    return ask(command, settings, argc, argv, SLUICE_RESUME, NULL, NULL);
}

enum status control_programs(const struct command *command, const struct settings *settings, int argc,
                             char **argv)
{
    if (argc > 0) {
        say("%s takes no argument but options: %s", command->name, argv[0]);
        return STATUS_USAGE;
    }
    return program_list(settings);
}

enum status control_job(const struct command *command, const struct settings *settings, int argc,
                        char **argv)
{
    if (argc != 1) {
        say("%s: %s", command->name, argc ? "one program at a time" : "which program? (see sluice programs)");
        return STATUS_USAGE;
    }
    if (settings->file &&
        (settings->inputs.count + settings->outputs.count + settings->parameters.count > 0 ||
         settings->picture)) {
        say("%s: --file says it all, without --input, --output, --parameter and --picture",
            command->name);
        return STATUS_USAGE;
    }
    return program_job(settings, argv[0]);
}

static bool read_number(const char *text, uint64_t *ret)
{
    char *end;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    if (end == text || *end || errno || *text == '-' || number == 0)
        return false;
    *ret = number;
    return true;
}

static enum status cancel_all(sluice_client *client, int argc, char **argv)
{
    enum status status = STATUS_OK;
    for (int i = 0; i < argc; i++) {
        uint64_t number = 0;
        read_number(argv[i], &number);
        if (sluice_cancel_request(client, number, ANSWER_TIMEOUT_MS) == 0)
            continue;
        const sluice_error *error = sluice_client_error(client);
        say("%s: %s: %s", argv[i], sluice_error_name(error->code), error->text);
        if (!status)
            status = status_of_error(error);
    }
    return status;
}

enum status control_cancel(const struct command *command, const struct settings *settings, int argc,
                           char **argv)
{
    sluice_client *client;
    uint64_t number;
    for (int i = 0; i < argc; i++) {
        if (!read_number(argv[i], &number)) {
            say("%s: %s is no request's number", command->name, argv[i]);
            return STATUS_USAGE;
        }
    }
    if (argc == 0) {
        say("%s: which request? (see sluice stats --requests)", command->name);
        return STATUS_USAGE;
    }
    enum status status = connect_daemon(settings, &client);
    if (status)
        return status;
    status = cancel_all(client, argc, argv);
    sluice_close(client);
    return status;
}
