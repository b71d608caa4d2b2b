#include "client/command/control.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/command/top.h"
#include "client/command/view.h"
#include "client/program/run.h"
#include "client/terminal/connect.h"

#define RELOAD_POLL_MS 100
#define DIRECTORY_MAX 1024 /* with the terminator; as the protocol has it */

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

/* ---- a new version -----------------------------------------------------------------------------
 */

static enum status ask_version(sluice_client *client, const char *name, const char *directory,
                               bool begins, json **ret_answer)
{
    char head[2 * PATH_MAX];
    const char *text;
    struct json_writer writer;
    json_writer_init(&writer, head, sizeof(head) - 1);
    json_open(&writer, NULL, '{');
    if (name)
        json_put_text(&writer, "model", name);
    if (begins)
        json_put_bool(&writer, "reload", true);
    if (begins && directory)
        json_put_text(&writer, "directory", directory);
    json_close(&writer, '}');
    head[writer.used] = '\0';
    if (sluice_control(client, SLUICE_MODEL, head, ANSWER_TIMEOUT_MS, &text)) {
        const sluice_error *error = sluice_client_error(client);
        say("%s: %s", sluice_error_name(error->code), error->text);
        return status_of_error(error);
    }
    if (json_parse(text, strlen(text), bounds, ret_answer, NULL)) {
        say("the daemon's answer is no JSON");
        return STATUS_SERVER;
    }
    return STATUS_OK;
}

static bool is_over(const json *answer)
{
    const char *word = json_string(json_get(answer, "reload"));
    return strcmp(word, "none") == 0 || strcmp(word, "failed") == 0;
}

/* Until the new version is alone, or was refused. */
static enum status wait_version(sluice_client *client, const char *name, json **answer)
{
    const struct timespec pause = {.tv_nsec = RELOAD_POLL_MS * 1000000L};
    enum status status = STATUS_OK;
    while (!status && !is_over(*answer)) {
        json_free(*answer);
        *answer = NULL;
        nanosleep(&pause, NULL);
        status = ask_version(client, name, NULL, false, answer);
    }
    return status;
}

static void write_answer(struct json_writer *writer, const void *answer)
{
    json_put_value(writer, NULL, answer);
}

static void print_json(const json *answer)
{
    size_t length;
    char *text = json_written(write_answer, answer, &length);
    if (text)
        printf("%.*s\n", (int)length, text);
    free(text);
}

static enum status reload(const struct settings *settings, const char *name, const char *directory)
{
    sluice_client *client;
    json *answer = NULL;
    enum status status = connect_daemon(settings, &client);
    if (status)
        return status;
    status = ask_version(client, name, directory, true, &answer);
    if (!status)
        status = wait_version(client, name, &answer);
    const char *error = json_string(json_get(answer, "reload_error"));
    if (!status && error[0]) {
        say("%s: %s; the version before it stays", json_string(json_get(answer, "reload_code")),
            error);
        status = STATUS_SERVER;
    } else if (!status && settings->json) {
        print_json(answer);
    } else if (!status) {
        view_object(answer);
    }
    json_free(answer);
    sluice_close(client);
    return status;
}

enum status control_reload(const struct command *command, const struct settings *settings, int argc,
                           char **argv)
{
    char directory[PATH_MAX];
    if (argc > 2 || (argc > 0 && strlen(argv[0]) > 127)) {
        say("%s takes one model's name, of at most 127 bytes, and a directory", command->name);
        return STATUS_USAGE;
    }
    if (argc == 2 && !realpath(argv[1], directory)) {
        say("%s: %s: %s", command->name, argv[1], strerror(errno));
        return STATUS_USAGE;
    }
    if (argc == 2 && strlen(directory) >= DIRECTORY_MAX) {
        say("%s: a directory has at most %d bytes", command->name, DIRECTORY_MAX - 1);
        return STATUS_USAGE;
    }
    return reload(settings, argc > 0 ? argv[0] : NULL, argc > 1 ? directory : NULL);
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
