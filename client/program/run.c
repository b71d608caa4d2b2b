#include "client/program/run.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/program/described.h"
#include "client/program/task.h"
#include "client/terminal/connect.h"
#include "client/terminal/input.h"
#include "protocol/base/tensor.h"

/* Items and bytes of one request; a file of more becomes several. */
#define ITEMS_MAX 256u
#define BYTES_MAX ((uint64_t)256 << 20)

static const struct json_bounds answer_bounds = {.bytes_max = 4u << 20, .depth_max = 16};

struct run {
    const struct settings *settings;
    const char *program;
    sluice_client *client;
    json *answer;
    const json *described;
    struct task tasks[ITEMS_MAX];
    size_t count;
    uint64_t bytes; /* of their inputs */
    uint64_t items; /* that were run before */
    enum status status;
    /* Names cut out of the command line. */
    char *names[3 * OPTION_LIST_MAX * OPTION_LIST_MAX];
    size_t name_count;
};

static void note(struct run *run, enum status status)
{
    if (run->status == STATUS_OK)
        run->status = status;
}

static enum status say_failure(const sluice_client *client)
{
    const sluice_error *error = sluice_client_error(client);
    say("%s: %s", sluice_error_name(error->code), error->text);
    return status_of_error(error);
}

static enum status say_no_memory(void)
{
    say("out of memory");
    return STATUS_SERVER;
}

/* ---- what the daemon has -----------------------------------------------------------------------
 */

static enum status ask(sluice_client *client, const char *head, json **ret_answer)
{
    const char *text;
    if (sluice_control(client, SLUICE_PROGRAMS, head, ANSWER_TIMEOUT_MS, &text))
        return say_failure(client);
    if (json_parse(text, strlen(text), answer_bounds, ret_answer, NULL)) {
        say("the daemon's answer is no JSON");
        return STATUS_SERVER;
    }
    return STATUS_OK;
}

static void print_tensors(const char *title, const json *list)
{
    for (const json *at = json_child(list); at; at = json_next(at)) {
        printf("  %-9s %s %s (", title, json_string(json_get(at, "name")),
               json_string(json_get(at, "dtype")));
        for (const json *one = json_child(json_get(at, "shape")); one; one = json_next(one)) {
            if (json_is_string(one))
                printf("%s", json_string(one));
            else
                printf("%.0f", json_number(one));
            printf("%s", json_next(one) ? ", " : "");
        }
        printf(")\n");
    }
}

static void print_program(const json *program)
{
    bool off = json_bool(json_get(program, "off"));
    printf("%s: %s\n", json_string(json_get(program, "name")),
           json_string(json_get(program, "summary")));
    if (off)
        printf("  off       %s\n", json_string(json_get(program, "reason")));
    print_tensors("input", json_get(program, "inputs"));
    print_tensors("output", json_get(program, "outputs"));
    for (const json *at = json_child(json_get(program, "parameters")); at; at = json_next(at))
        printf("  parameter %s: %s (%s%s)\n", json_string(json_get(at, "name")),
               json_string(json_get(at, "help")), json_string(json_get(at, "type")),
               json_bool(json_get(at, "required")) ? ", required" : "");
    printf("  jobs      %.0f, %.0f failed\n", json_number(json_get(program, "jobs")),
           json_number(json_get(program, "failed")));
}

static void write_enable(struct json_writer *writer, const void *name)
{
    json_open(writer, NULL, '{');
    json_put_text(writer, "enable", name);
    json_close(writer, '}');
}

enum status program_list(const struct settings *settings)
{
    sluice_client *client;
    json *answer = NULL;
    char *head = NULL;
    size_t length;
    enum status status = connect_daemon(settings, &client);
    if (status)
        return status;
    const char *text = NULL;
    if (settings->enable && !(head = json_written(write_enable, settings->enable, &length)))
        status = say_no_memory();
    else if (sluice_control(client, SLUICE_PROGRAMS, head, ANSWER_TIMEOUT_MS, &text))
        status = say_failure(client);
    else if (settings->json)
        printf("%s\n", text);
    else if (json_parse(text, strlen(text), answer_bounds, &answer, NULL))
        status = STATUS_SERVER;
    for (const json *at = json_child(json_get(answer, "programs")); at; at = json_next(at))
        print_program(at);
    json_free(answer);
    free(head);
    sluice_close(client);
    return status;
}

/* ---- results -----------------------------------------------------------------------------------
 */

static void on_output(void *context, uint32_t item, uint32_t output, uint64_t at, const void *data,
                      size_t bytes)
{
    struct run *run = context;
    if (item < run->count)
        (void)task_take(&run->tasks[item], output, at, data,
                        bytes); /* what is missing is told when it is written */
}

static void on_end(void *context, uint32_t item, const sluice_end *end)
{
    struct run *run = context;
    if (item >= run->count)
        return;
    run->tasks[item].ended = true;
    run->tasks[item].end = *end;
}

static void put_output(struct json_writer *writer, const struct task_output *output)
{
    json_open(writer, output->name, '{');
    json_put_text(writer, "dtype", tensor_dtype_name((uint32_t)output->array.dtype));
    json_open(writer, "shape", '[');
    for (size_t i = 0; i < output->array.rank; i++)
        json_put_uint(writer, NULL, output->array.shape[i]);
    json_close(writer, ']');
    if (output->path)
        json_put_text(writer, "file", output->path);
    json_close(writer, '}');
}

struct ended {
    const struct task *task;
    uint64_t index;
    const struct error *failure; /* code 0: none */
};

static void write_ended(struct json_writer *writer, const void *context)
{
    const struct ended *ended = context;
    const struct task *task = ended->task;
    bool failed = ended->failure->code != 0;
    json_open(writer, NULL, '{');
    json_put_uint(writer, "index", ended->index);
    json_put_text(writer, "finish_reason", failed ? "error" : sluice_finish_name(task->end.finish));
    if (failed) {
        json_put_text(writer, "error", error_name(ended->failure->code));
        json_put_text(writer, "message", ended->failure->text);
    }
    json_open(writer, "outputs", '{');
    for (size_t i = 0; !failed && i < task->output_count; i++)
        put_output(writer, &task->outputs[i]);
    json_close(writer, '}');
    json_put_uint(writer, "queued_us", task->end.queued_us);
    json_put_uint(writer, "total_us", task->end.total_us);
    json_close(writer, '}');
}

static enum status print_json(const struct task *task, uint64_t index, const struct error *failure)
{
    const struct ended ended = {task, index, failure};
    size_t length;
    char *text = json_written(write_ended, &ended, &length);
    if (!text)
        return say_no_memory();
    printf("%s\n", text);
    free(text);
    return STATUS_OK;
}

/* Of one that has ended, well or badly. */
static void finish(struct run *run, const struct task *task, uint64_t index)
{
    struct error failure = {.code = 0};
    enum status status = status_of_end(&task->end);
    if (status == STATUS_OK && task_write(task, &failure))
        status = STATUS_SERVER;
    else if (task->end.finish == SLUICE_FINISH_ERROR)
        error_set(&failure, task->end.error.code, "%s", task->end.error.text);
    else if (status)
        error_set(&failure, status == STATUS_DEADLINE ? ERR_DEADLINE : ERR_CANCELLED,
                  "it did not end in time");
    note(run, status);
    if (run->settings->json)
        note(run, print_json(task, index, &failure));
    else if (status)
        say("item %" PRIu64 ": %s: %s", index, error_name(failure.code), failure.text);
}

/* ---- requests ----------------------------------------------------------------------------------
 */

static void flush(struct run *run)
{
    sluice_job_item items[ITEMS_MAX];
    sluice_job job;
    if (run->count == 0)
        return;
    for (size_t i = 0; i < run->count; i++)
        items[i] = (sluice_job_item){.inputs = run->tasks[i].inputs,
                                     .input_count = run->tasks[i].input_count,
                                     .arguments = run->tasks[i].arguments,
                                     .argument_count = run->tasks[i].argument_count};
    sluice_job_init(&job);
    job.program = run->program;
    job.items = items;
    job.item_count = run->count;
    job.priority = (int)run->settings->work.priority;
    job.deadline_ms = (uint64_t)run->settings->work.deadline_ms;
    job.output = on_output;
    job.end = on_end;
    job.context = run;
    if (sluice_run_job(run->client, &job, -1) && !run->tasks[0].ended)
        note(run, say_failure(run->client));
    for (size_t i = 0; i < run->count; i++) {
        if (run->tasks[i].ended)
            finish(run, &run->tasks[i], run->items + i);
        task_free(&run->tasks[i]);
    }
    run->items += run->count;
    run->count = 0;
    run->bytes = 0;
}

/* The task behind the last one is whole: it joins the request. */
static void add(struct run *run)
{
    struct task *task = &run->tasks[run->count++];
    for (size_t i = 0; i < task->input_count; i++)
        run->bytes += sluice_array_bytes(&task->inputs[i]);
    if (run->count == ITEMS_MAX || run->bytes >= BYTES_MAX)
        flush(run);
}

static void run_settings(struct run *run)
{
    struct error error;
    size_t count = 0;
    int rc = task_count(run->settings, &count, &error);
    if (!rc && count == 0)
        rc = error_set(&error, ERR_USAGE, "give inputs: --input NAME=FILE.npy, or --file");
    if (!rc && count > 1 && run->settings->picture)
        rc = error_set(&error, ERR_USAGE, "--picture is of one item, there are %zu", count);
    for (size_t i = 0; !rc && i < count; i++) {
        struct task *task = &run->tasks[run->count];
        task->picture = run->settings->picture;
        rc = task_of_settings(run->settings, i, task, run->names, &run->name_count, &error);
        if (!rc)
            rc = task_open(task, run->described, &error);
        if (rc)
            task_free(task);
        else
            add(run);
    }
    if (rc) {
        say("job: %s", error.text);
        note(run, STATUS_USAGE);
    } else {
        flush(run);
    }
}

static void run_line(struct run *run, const char *line, size_t length, uint64_t number)
{
    struct task *task = &run->tasks[run->count];
    struct error error;
    if (strspn(line, " \t\r") >= length)
        return;
    int rc = task_of_line(line, length, task, &error);
    if (!rc)
        rc = task_open(task, run->described, &error);
    if (!rc) {
        add(run);
        return;
    }
    say("line %" PRIu64 ": %s", number, error.text);
    note(run, STATUS_USAGE);
    task_free(task);
}

static void run_file(struct run *run)
{
    struct input input;
    struct error error;
    const char *line;
    size_t length;
    uint64_t number = 0;
    int rc = input_open(&input, run->settings->file, &error);
    while (!rc) {
        while ((line = input_line(&input, &length)))
            run_line(run, line, length, ++number);
        if (input.ended)
            break;
        rc = input_more(&input, &error);
    }
    if (rc) {
        say("job: %s", error.text);
        note(run, STATUS_USAGE);
    }
    flush(run);
    input_close(&input);
}

enum status program_job(const struct settings *settings, const char *program)
{
    struct error error;
    struct run *run = calloc(1, sizeof(*run));
    if (!run)
        return say_no_memory();
    run->settings = settings;
    run->program = program;
    run->status = connect_daemon(settings, &run->client);
    if (!run->status)
        run->status = ask(run->client, NULL, &run->answer);
    if (!run->status && described_find(run->answer, program, &run->described, &error)) {
        say("%s", error.text);
        run->status = STATUS_SERVER;
    }
    if (!run->status && settings->file)
        run_file(run);
    else if (!run->status)
        run_settings(run);
    enum status status = run->status;
    for (size_t i = 0; i < run->name_count; i++)
        free(run->names[i]);
    for (size_t i = 0; i < ITEMS_MAX; i++)
        task_free(&run->tasks[i]);
    json_free(run->answer);
    sluice_close(run->client);
    free(run);
    return status;
}
