#include "client/job/constraint.h"

#include <stdlib.h>
#include <string.h>

#include "client/sluice.h"
#include "client/terminal/input.h"
#include "protocol/base/json.h"

static int read_file(const char *path, char **ret_text, struct error *error)
{
    struct input input;
    int rc = input_open(&input, path, error);
    if (rc)
        return rc;
    rc = input_all(&input, error);
    size_t length = buffer_used(&input.buffer);
    const char *text = (const char *)input.buffer.bytes + input.buffer.start;
    if (!rc && length > 0 && memchr(text, 0, length))
        rc = error_set(error, ERR_USAGE, "%.128s has a zero byte, which no schema or grammar has",
                       path);
    if (!rc && !(*ret_text = strndup(length > 0 ? text : "", length)))
        rc = error_set(error, ERR_NO_MEMORY, "out of memory");
    input_close(&input);
    return rc;
}

static void write_choices(struct json_writer *writer, const void *context)
{
    const struct option_list *choices = context;
    json_open(writer, NULL, '[');
    for (size_t i = 0; i < choices->count; i++)
        json_put_text(writer, NULL, choices->texts[i]);
    json_close(writer, ']');
}

static int list_choices(const struct option_list *choices, char **ret_text, struct error *error)
{
    size_t length;
    *ret_text = json_written(write_choices, choices, &length);
    return *ret_text ? 0 : error_set(error, ERR_NO_MEMORY, "out of memory");
}

int constraint_make(const struct settings *settings, struct constraint *ret_constraint,
                    struct error *error)
{
    struct constraint made = {.kind = SLUICE_CONSTRAINT_NONE};
    int asked = (settings->json_schema != NULL) + (settings->regex != NULL) +
                (settings->choice.count > 0) + (settings->json_object != 0) +
                (settings->grammar != NULL);
    int rc = 0;
    if (asked > 1)
        return error_set(error, ERR_USAGE,
                         "one of --json-schema, --regex, --choice, --grammar and --json-object at "
                         "most");
    if (settings->json_schema) {
        made.kind = SLUICE_CONSTRAINT_SCHEMA;
        rc = read_file(settings->json_schema, &made.text, error);
    } else if (settings->regex) {
        made.kind = SLUICE_CONSTRAINT_PATTERN;
        made.text = strdup(settings->regex);
        if (!made.text)
            rc = error_set(error, ERR_NO_MEMORY, "out of memory");
    } else if (settings->choice.count > 0) {
        made.kind = SLUICE_CONSTRAINT_CHOICE;
        rc = list_choices(&settings->choice, &made.text, error);
    } else if (settings->grammar) {
        made.kind = SLUICE_CONSTRAINT_GRAMMAR;
        rc = read_file(settings->grammar, &made.text, error);
    } else if (settings->json_object) {
        made.kind = SLUICE_CONSTRAINT_OBJECT;
    }
    if (!rc)
        *ret_constraint = made;
    return rc;
}

void constraint_drop(struct constraint *constraint)
{
    free(constraint->text);
    constraint->text = NULL;
}
