#include "client/option/option.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/base/number.h"

#define NAME_MAX_SHOWN 64
#define OPTIONS_GIVEN_MAX 256
#define HELP_COLUMN 26
#define HELP_WIDTH 80

static void *place_of(const struct option *option, void *into)
{
    return (char *)into + option->offset;
}

static int bad(const struct option *option, struct error *error, const char *what)
{
    return error_set(error, ERR_USAGE, "%s: %s", option->name, what);
}

static int out_of_range(const struct option *option, struct error *error)
{
    const char *kind = option->kind != OPTION_REAL ? "a whole number, " : "";
    char min[NUMBER_SHOWN_MAX], max[NUMBER_SHOWN_MAX];
    number_show(min, option->min);
    number_show(max, option->max);
    if (isinf(option->max))
        return error_set(error, ERR_USAGE, "%s must be %sat least %s", option->name, kind, min);
    return error_set(error, ERR_USAGE, "%s must be %s%s to %s", option->name, kind, min, max);
}

static int set_number(const struct option *option, void *into, double number, struct error *error)
{
    if (!(number >= option->min && number <= option->max) ||
        (option->kind != OPTION_REAL && number != floor(number)))
        return out_of_range(option, error);
    if (option->kind == OPTION_WHOLE)
        *(int64_t *)place_of(option, into) = (int64_t)number;
    else if (option->kind == OPTION_INT)
        *(int *)place_of(option, into) = (int)number;
    else
        *(double *)place_of(option, into) = number;
    return 0;
}

static int add_text(const struct option *option, void *into, const char *text, struct error *error)
{
    struct option_list *list = place_of(option, into);
    if (list->count == OPTION_LIST_MAX)
        return error_set(error, ERR_USAGE, "%s: at most %d", option->name, OPTION_LIST_MAX);
    list->texts[list->count++] = text;
    return 0;
}

static int add_token(const struct option *option, struct option_tokens *tokens, double number,
                     struct error *error)
{
    /* Doubles when full, from 16 on: the count is a power of two then. */
    if (tokens->count == 0 || (tokens->count >= 16 && !(tokens->count & (tokens->count - 1)))) {
        size_t room = tokens->count ? 2 * tokens->count : 16;
        int32_t *more = realloc(tokens->tokens, room * sizeof(*more));
        if (!more)
            return error_set(error, ERR_NO_MEMORY, "out of memory");
        tokens->tokens = more;
    }
    if (!(number >= 0 && number <= INT32_MAX) || number != floor(number))
        return bad(option, error, "a token is a whole number from 0 on");
    tokens->tokens[tokens->count++] = (int32_t)number;
    return 0;
}

static int parse_number(const struct option *option, const char *text, double *ret,
                        struct error *error)
{
    char *end;
    errno = 0;
    double number = strtod(text, &end);
    if (end == text || *end || errno)
        return out_of_range(option, error);
    *ret = number;
    return 0;
}

static int parse_tokens(const struct option *option, struct option_tokens *tokens, const char *text,
                        struct error *error)
{
    tokens->count = 0;
    for (;;) {
        char *end;
        long number = strtol(text, &end, 10);
        if (end == text || (*end && *end != ','))
            return bad(option, error, "give token numbers with commas between: 1,2,3");
        int rc = add_token(option, tokens, (double)number, error);
        if (rc || !*end)
            return rc;
        text = end + 1;
    }
}

static int set_text(const struct option *option, void *into, const char *text, struct error *error)
{
    double number = 0;
    int rc;
    switch (option->kind) {
    case OPTION_SWITCH:
    case OPTION_OFF:
        *(int *)place_of(option, into) = option->kind == OPTION_SWITCH;
        return 0;
    case OPTION_WHOLE:
    case OPTION_INT:
    case OPTION_REAL:
        rc = parse_number(option, text, &number, error);
        return rc ? rc : set_number(option, into, number, error);
    case OPTION_TEXT:
        *(const char **)place_of(option, into) = text;
        return 0;
    case OPTION_LIST:
        return add_text(option, into, text, error);
    case OPTION_TOKENS:
        return parse_tokens(option, place_of(option, into), text, error);
    }
    return -ERR_INTERNAL;
}

static int read_list(const struct option *option, void *into, const json *list, struct error *error)
{
    struct option_list *texts = place_of(option, into);
    texts->count = 0; /* a line's own list stands instead of the command line's */
    for (const json *value = json_child(list); value; value = json_next(value)) {
        int rc = json_is_string(value) ? add_text(option, into, json_string(value), error)
                                       : bad(option, error, "not a list of strings");
        if (rc)
            return rc;
    }
    return 0;
}

static int read_tokens(const struct option *option, void *into, const json *list,
                       struct error *error)
{
    struct option_tokens *tokens = place_of(option, into);
    for (const json *value = json_child(list); value; value = json_next(value)) {
        int rc = json_is_number(value) ? add_token(option, tokens, json_number(value), error)
                                       : bad(option, error, "not a list of numbers");
        if (rc)
            return rc;
    }
    return 0;
}

static int set_json(const struct option *option, void *into, const json *value, struct error *error)
{
    switch (option->kind) {
    case OPTION_SWITCH:
    case OPTION_OFF:
        if (!json_is_bool(value))
            return bad(option, error, "not true or false");
        *(int *)place_of(option, into) = json_bool(value);
        return 0;
    case OPTION_WHOLE:
    case OPTION_INT:
    case OPTION_REAL:
        return json_is_number(value) ? set_number(option, into, json_number(value), error)
                                     : out_of_range(option, error);
    case OPTION_TEXT:
        if (!json_is_string(value))
            return bad(option, error, "not a string");
        *(const char **)place_of(option, into) = json_string(value);
        return 0;
    case OPTION_LIST:
        return json_is_array(value) ? read_list(option, into, value, error)
                                    : bad(option, error, "not a list of strings");
    case OPTION_TOKENS:
        return json_is_array(value) ? read_tokens(option, into, value, error)
                                    : bad(option, error, "not a list of numbers");
    }
    return -ERR_INTERNAL;
}

/* Whether `name` up to `length` is the option's. In files alone "_" and "-" are the same, and what
 * an option --no-NAME switches off is a field NAME. */
static bool is_named(const struct option *option, const char *name, size_t length, bool file)
{
    const char *own = option->name + (file && option->kind == OPTION_OFF ? strlen("no-") : 0);
    if (strlen(own) != length)
        return false;
    for (size_t i = 0; i < length; i++)
        if (name[i] != (file && own[i] == '-' ? '_' : own[i]))
            return false;
    return true;
}

static const struct option *find(const struct option_group *groups, const char *name, size_t length,
                                 bool file)
{
    for (; groups->options; groups++)
        for (const struct option *option = groups->options; option->name; option++)
            if (is_named(option, name, length, file) && (!file || option->in_file))
                return option;
    return NULL;
}

/* Those of one command line, so that none is taken twice. */
struct given {
    const struct option *options[OPTIONS_GIVEN_MAX];
    size_t count;
};

static int note(struct given *given, const struct option *option, struct error *error)
{
    for (size_t i = 0; i < given->count; i++)
        if (given->options[i] == option)
            return error_set(error, ERR_USAGE, "--%s was given twice", option->name);
    assert(given->count < OPTIONS_GIVEN_MAX); /* each is here once, and there are fewer */
    if (option->kind != OPTION_LIST)
        given->options[given->count++] = option;
    return 0;
}

static int parse_one(const struct option_group *groups, void *into, int argc, char **argv,
                     int *index, struct given *given, struct error *error)
{
    const char *argument = argv[*index];
    const char *name = argument[1] == '-' ? argument + 2 : argument[1] == 'i' ? "instance" : "";
    size_t length = strcspn(name, "=");
    if (argument[1] != '-' && (argument[1] != 'i' || argument[2]))
        length = 0;
    const struct option *option = length ? find(groups, name, length, false) : NULL;
    if (!option)
        return error_set(error, ERR_USAGE, "unknown option %.*s", NAME_MAX_SHOWN, argument);
    bool bare = option->kind == OPTION_SWITCH || option->kind == OPTION_OFF;
    const char *text = name[length] == '=' ? name + length + 1 : NULL;
    if (bare && text)
        return bad(option, error, "takes no value");
    if (!bare && !text) {
        if (*index + 1 >= argc)
            return error_set(error, ERR_USAGE, "--%s needs a value", option->name);
        text = argv[++*index];
    }
    ++*index;
    int rc = note(given, option, error);
    return rc ? rc : set_text(option, into, text, error);
}

int option_parse(const struct option_group *groups, void *into, int argc, char **argv, int *index,
                 struct error *error)
{
    struct given given = {.count = 0};
    while (*index < argc && argv[*index][0] == '-' && argv[*index][1]) {
        if (!strcmp(argv[*index], "--")) {
            ++*index;
            return 0;
        }
        int rc = parse_one(groups, into, argc, argv, index, &given, error);
        if (rc)
            return rc;
    }
    return 0;
}

/* How many arguments the option at `argument` takes, itself among them. */
static int taken(const struct option_group *groups, const char *argument)
{
    if (argument[1] != '-')
        return strcmp(argument, "-i") == 0 ? 2 : 1;
    size_t length = strcspn(argument + 2, "=");
    const struct option *option = find(groups, argument + 2, length, false);
    bool bare = !option || option->kind == OPTION_SWITCH || option->kind == OPTION_OFF;
    return bare || argument[2 + length] == '=' ? 1 : 2;
}

void option_permute(const struct option_group *groups, int argc, char **argv)
{
    int options = 0;
    for (int at = 0; at < argc && strcmp(argv[at], "--") != 0;) {
        if (argv[at][0] != '-' || !argv[at][1]) {
            at++;
            continue;
        }
        for (int left = taken(groups, argv[at]); left > 0 && at < argc; left--, at++, options++) {
            char *moved = argv[at];
            memmove(argv + options + 1, argv + options, (size_t)(at - options) * sizeof(*argv));
            argv[options] = moved;
        }
    }
}

int option_read(const struct option_group *groups, void *into, const char *name, const json *value,
                struct error *error)
{
    const struct option *option = find(groups, name, strlen(name), true);
    return option ? set_json(option, into, value, error)
                  : error_set(error, ERR_USAGE, "unknown field \"%.*s\"", NAME_MAX_SHOWN, name);
}

/* Breaks the text between words, so that no line passes the width of a terminal. */
static void print_wrapped(const char *text)
{
    size_t room = HELP_WIDTH - HELP_COLUMN;
    while (strlen(text) > room) {
        size_t cut = room;
        while (cut > 0 && text[cut] != ' ')
            cut--;
        if (cut == 0)
            cut = room;
        printf("%.*s\n%*s", (int)cut, text, HELP_COLUMN, "");
        text += cut + (text[cut] == ' ');
    }
    printf("%s\n", text);
}

void option_help(const struct option_group *groups)
{
    bool files = find(groups, "file", 4, false) && find(groups, "priority", 8, true);
    for (; groups->options; groups++) {
        for (const struct option *option = groups->options; option->name; option++) {
            char left[64];
            snprintf(left, sizeof(left), "--%s%s%s", option->name, option->value ? " " : "",
                     option->value ? option->value : "");
            printf("  %-*s", HELP_COLUMN - 2, left);
            /* The mark of what lines of a file may have, where there is such a file. */
            print_wrapped(option->help + (!files && !strncmp(option->help, "* ", 2) ? 2 : 0));
        }
    }
}
