#include "client/program/task.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/program/described.h"
#include "client/program/picture.h"
#include "client/tensor/array_file.h"

static const struct json_bounds line_bounds = {.bytes_max = 1u << 20, .depth_max = 4};

void task_free(struct task *task)
{
    for (size_t i = 0; i < SLUICE_ARRAYS_MAX; i++) {
        free(task->data[i]);
        free(task->outputs[i].data);
    }
    json_free(task->document);
    *task = (struct task){.document = NULL};
}

static int add_input(struct task *task, const char *name, const char *path, struct error *error)
{
    if (task->input_count == SLUICE_ARRAYS_MAX)
        return error_set(error, ERR_USAGE, "at most %d inputs", SLUICE_ARRAYS_MAX);
    /* The path stands in the data's place until task_open() has read it. */
    task->inputs[task->input_count++] = (sluice_array){.name = name, .data = path};
    return 0;
}

static int add_output(struct task *task, const char *name, const char *path, struct error *error)
{
    if (task->output_count == SLUICE_ARRAYS_MAX)
        return error_set(error, ERR_USAGE, "at most %d outputs", SLUICE_ARRAYS_MAX);
    task->outputs[task->output_count++] = (struct task_output){.name = name, .path = path};
    return 0;
}

static int add_argument(struct task *task, const sluice_argument *argument, struct error *error)
{
    if (task->argument_count == SLUICE_ARGUMENTS_MAX)
        return error_set(error, ERR_USAGE, "at most %d parameters", SLUICE_ARGUMENTS_MAX);
    task->arguments[task->argument_count++] = *argument;
    return 0;
}

static void set_number(sluice_argument *argument, double number)
{
    bool whole = fabs(number) <= 9007199254740992.0 && trunc(number) == number;
    argument->type = whole ? SLUICE_ARGUMENT_INTEGER : SLUICE_ARGUMENT_NUMBER;
    argument->integer = whole ? (int64_t)number : 0;
    argument->number = number;
}

/* ---- the command line --------------------------------------------------------------------------
 */

/* "name=rest": the name's length; 0: it is none. */
static size_t name_length(const char *text)
{
    size_t length = strcspn(text, "=");
    return text[length] == '=' ? length : 0;
}

/* How often the name stands in the list before the index. */
static size_t before(const struct option_list *list, size_t index)
{
    size_t length = name_length(list->texts[index]), count = 0;
    for (size_t i = 0; i < index; i++)
        count += strncmp(list->texts[i], list->texts[index], length + 1) == 0;
    return count;
}

static int check_list(const struct option_list *list, const char *option, struct error *error)
{
    for (size_t i = 0; i < list->count; i++)
        if (name_length(list->texts[i]) == 0 || !list->texts[i][name_length(list->texts[i]) + 1])
            return error_set(error, ERR_USAGE, "--%s takes NAME=%s: %.64s", option,
                             strcmp(option, "parameter") == 0 ? "VALUE" : "FILE", list->texts[i]);
    return 0;
}

int task_count(const struct settings *settings, size_t *ret_count, struct error *error)
{
    const struct option_list *inputs = &settings->inputs;
    size_t count = 0;
    int rc = check_list(inputs, "input", error);
    if (!rc)
        rc = check_list(&settings->outputs, "output", error);
    if (!rc)
        rc = check_list(&settings->parameters, "parameter", error);
    for (size_t i = 0; !rc && i < inputs->count; i++)
        count = before(inputs, i) + 1 > count ? before(inputs, i) + 1 : count;
    if (!rc)
        *ret_count = count;
    return rc;
}

static int cut_name(const char *text, char **names, size_t *name_count, const char **ret_name,
                    struct error *error)
{
    char *name = strndup(text, name_length(text));
    if (!name)
        return error_set(error, ERR_NO_MEMORY, "out of memory");
    names[(*name_count)++] = name;
    *ret_name = name;
    return 0;
}

static int parse_argument(const char *text, sluice_argument *argument, struct error *error)
{
    char *end;
    if (strcmp(text, "true") == 0 || strcmp(text, "false") == 0) {
        argument->type = SLUICE_ARGUMENT_BOOL;
        argument->integer = text[0] == 't';
        return 0;
    }
    errno = 0;
    double number = strtod(text, &end);
    if (end == text || *end || !isfinite(number))
        return error_set(error, ERR_USAGE,
                         "parameter %s: %.32s is neither a number nor true or false",
                         argument->name, text);
    set_number(argument, number);
    return 0;
}

int task_of_settings(const struct settings *settings, size_t index, struct task *ret_task,
                     char **names, size_t *name_count, struct error *error)
{
    const struct option_list *lists[] = {&settings->inputs, &settings->outputs};
    const char *name = NULL;
    int rc = 0;
    for (int which = 0; which < 2; which++)
        for (size_t i = 0; !rc && i < lists[which]->count; i++) {
            const char *text = lists[which]->texts[i];
            if (before(lists[which], i) != index)
                continue;
            rc = cut_name(text, names, name_count, &name, error);
            if (!rc)
                rc = which == 0 ? add_input(ret_task, name, text + strlen(name) + 1, error)
                                : add_output(ret_task, name, text + strlen(name) + 1, error);
        }
    for (size_t i = 0; !rc && i < settings->parameters.count; i++) {
        const char *text = settings->parameters.texts[i];
        sluice_argument argument = {.name = NULL};
        rc = cut_name(text, names, name_count, &argument.name, error);
        if (!rc)
            rc = parse_argument(text + strlen(argument.name) + 1, &argument, error);
        if (!rc)
            rc = add_argument(ret_task, &argument, error);
    }
    return rc;
}

/* ---- a line ------------------------------------------------------------------------------------
 */

static int read_files(const json *object, const char *key, struct task *task,
                      int (*add)(struct task *, const char *, const char *, struct error *),
                      struct error *error)
{
    const json *files = json_get(object, key);
    int rc = 0;
    for (const json *at = json_child(files); at && !rc; at = json_next(at)) {
        if (!json_is_object(files) || !json_is_string(at))
            return error_set(error, ERR_USAGE, "%s is an object of names and files", key);
        rc = add(task, json_key(at), json_string(at), error);
    }
    return rc;
}

static int read_arguments(const json *object, struct task *task, struct error *error)
{
    const json *values = json_get(object, "parameters");
    int rc = 0;
    for (const json *at = json_child(values); at && !rc; at = json_next(at)) {
        sluice_argument argument = {.name = json_key(at)};
        if (!json_is_object(values) || (!json_is_bool(at) && !json_is_number(at)))
            return error_set(error, ERR_USAGE, "parameters is an object of numbers and booleans");
        if (json_is_bool(at)) {
            argument.type = SLUICE_ARGUMENT_BOOL;
            argument.integer = json_bool(at);
        } else {
            set_number(&argument, json_number(at));
        }
        rc = add_argument(task, &argument, error);
    }
    return rc;
}

int task_of_line(const char *line, size_t length, struct task *ret_task, struct error *error)
{
    static const char *const names[] = {"inputs", "outputs", "parameters"};
    int rc = json_parse(line, length, line_bounds, &ret_task->document, error);
    if (rc)
        return rc;
    if (!json_is_object(ret_task->document))
        return error_set(error, ERR_USAGE, "it is no object");
    for (const json *at = json_child(ret_task->document); at; at = json_next(at)) {
        bool known = false;
        for (size_t i = 0; i < 3; i++)
            known |= strcmp(names[i], json_key(at)) == 0;
        if (!known)
            return error_set(error, ERR_USAGE, "unknown field \"%.64s\"", json_key(at));
    }
    rc = read_files(ret_task->document, "inputs", ret_task, add_input, error);
    if (!rc)
        rc = read_files(ret_task->document, "outputs", ret_task, add_output, error);
    return rc ? rc : read_arguments(ret_task->document, ret_task, error);
}

/* ---- files -------------------------------------------------------------------------------------
 */

static int open_output(struct task *task, const json *program, uint32_t number,
                       struct task_output *made, struct error *error)
{
    const char *name = described_output(program, number);
    for (size_t i = 0; i < task->output_count; i++)
        if (strcmp(task->outputs[i].name, name) == 0)
            made->path = task->outputs[i].path;
    made->name = name;
    const struct described_item item = {task->inputs, task->input_count, task->arguments,
                                        task->argument_count};
    int rc = described_shape(program, &item, number, &made->array, error);
    if (rc || (!made->path && !(task->picture && made->array.rank == PICTURE_RANK)))
        return rc;
    made->data = malloc(sluice_array_bytes(&made->array));
    return made->data ? 0 : error_set(error, ERR_NO_MEMORY, "no memory for output %s", name);
}

static int open_outputs(struct task *task, const json *program, struct error *error)
{
    struct task_output made[SLUICE_ARRAYS_MAX] = {{.name = NULL}};
    const uint32_t count = described_outputs(program);
    int rc = 0;
    for (size_t i = 0; i < task->output_count; i++) {
        bool known = false;
        for (uint32_t j = 0; j < count; j++)
            known |= strcmp(task->outputs[i].name, described_output(program, j)) == 0;
        if (!known)
            return error_set(error, ERR_USAGE, "the program has no output %.63s",
                             task->outputs[i].name);
    }
    for (uint32_t i = 0; !rc && i < count; i++)
        rc = open_output(task, program, i, &made[i], error);
    memcpy(task->outputs, made, sizeof(made));
    task->output_count = count;
    if (!rc && task->picture && !picture_output(task))
        rc = error_set(error, ERR_USAGE, "the program has no output of two dimensions to draw");
    return rc;
}

int task_open(struct task *task, const json *program, struct error *error)
{
    int rc = 0;
    if (task->input_count == 0)
        return error_set(error, ERR_USAGE, "there are no inputs");
    for (size_t i = 0; !rc && i < task->input_count; i++) {
        const char *name = task->inputs[i].name;
        rc = array_read(task->inputs[i].data, &task->inputs[i], &task->data[i], error);
        task->inputs[i].name = name;
    }
    return rc ? rc : open_outputs(task, program, error);
}

bool task_take(struct task *task, uint32_t output, uint64_t at, const void *data, size_t bytes)
{
    struct task_output *to = output < task->output_count ? &task->outputs[output] : NULL;
    uint64_t all = to ? sluice_array_bytes(&to->array) : 0;
    if (!to || at != to->got || bytes > all - at)
        return false;
    if (to->data)
        memcpy(to->data + at, data, bytes);
    to->got += bytes;
    return true;
}

int task_write(const struct task *task, struct error *error)
{
    int rc = 0;
    for (size_t i = 0; !rc && i < task->output_count; i++) {
        const struct task_output *output = &task->outputs[i];
        sluice_array array = output->array;
        if (output->got != sluice_array_bytes(&array))
            return error_set(error, ERR_CLOSED, "output %s did not come as a whole", output->name);
        array.data = output->data;
        if (output->path)
            rc = array_write(output->path, &array, error);
    }
    return rc || !task->picture ? rc : picture_write(task, error);
}
