#include "daemon/base/option_table.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/model_list.h"
#include "protocol/base/utf8.h"

#define RANGE_TEXT(low, high) .min = (low), .max = (high)
#define RANGE_LIST(low, high) .min = (low), .max = (high)
#define RANGE_SWITCH(low, high) .min = 0, .max = 1
#define RANGE_COUNT(low, high) .min = (low), .max = (high)
#define RANGE_BYTES(low, high) .min = (low), .max = (high)
#define RANGE_TIME(low, high) .min = (low), .max = (high)
#define RANGE_CHOICE(list, high) .words = (list)

const struct option option_table[] = {
#define OPTION(field, text, sort, value, low, high, again, hidden, about)                          \
    {.name = (text),                                                                               \
     .kind = OPTION_##sort,                                                                        \
     .default_text = (value),                                                                      \
     .help = (about),                                                                              \
     RANGE_##sort(low, high),                                                                      \
     .reload = (again),                                                                            \
     .secret = (hidden),                                                                           \
     .offset = offsetof(struct options, field)},
#include "daemon/base/option.def"
#undef OPTION
};

#define OPTION_COUNT_OF (sizeof(option_table) / sizeof(option_table[0]))
const uint32_t option_count = OPTION_COUNT_OF;
_Static_assert(OPTION_COUNT_OF <= OPTIONS_MAX, "more options than callers have room for");

struct unit {
    const char *name;
    uint64_t factor;
};

static const struct unit byte_units[] = {
    {"GiB", 1u << 30}, {"MiB", 1u << 20}, {"KiB", 1u << 10}, {"", 1}};
static const struct unit time_units[] = {{"s", 1000000}, {"ms", 1000}};
static const struct unit no_units[] = {{"", 1}};

#define UNITS(table, ret_count) (*(ret_count) = sizeof(table) / sizeof((table)[0]), (table))

static const struct unit *units_of(const struct option *option, size_t *ret_count)
{
    if (option->kind == OPTION_BYTES)
        return UNITS(byte_units, ret_count);
    if (option->kind == OPTION_TIME)
        return UNITS(time_units, ret_count);
    return UNITS(no_units, ret_count);
}

static const char *units_help(enum option_kind kind)
{
    return kind == OPTION_BYTES  ? " (such as 512, 64KiB, 16MiB or 2GiB)"
           : kind == OPTION_TIME ? " (such as 250ms or 30s)"
                                 : "";
}

const struct option *option_find(const char *name, size_t length)
{
    for (uint32_t i = 0; i < option_count; i++)
        if (strlen(option_table[i].name) == length &&
            memcmp(option_table[i].name, name, length) == 0)
            return &option_table[i];
    return NULL;
}

void *option_field(struct options *options, const struct option *option)
{
    return (char *)options + option->offset;
}

static const void *field_of(const struct options *options, const struct option *option)
{
    return (const char *)options + option->offset;
}

static uint64_t number_of(const struct options *options, const struct option *option)
{
    return *(const uint64_t *)field_of(options, option);
}

static const char *text_of(const struct options *options, const struct option *option)
{
    const char *text = *(char *const *)field_of(options, option);
    return text ? text : "";
}

/* ---- setting -----------------------------------------------------------------------------------
 */

static bool word_is(const char *text, size_t length, const char *word)
{
    return strlen(word) == length && memcmp(text, word, length) == 0;
}

static int set_text(struct options *options, const struct option *option, const char *text,
                    size_t length, struct error *error)
{
    if (length > option->max)
        return error_limit(error, ERR_BAD_CONFIG, option->max, length,
                           "%s: at most %" PRIu64 " bytes, not %zu", option->name, option->max,
                           length);
    char *copy = malloc(length + 1);
    if (!copy)
        return error_set(error, ERR_NO_MEMORY, "no memory for %s", option->name);
    memcpy(copy, text, length);
    copy[length] = '\0';
    char **field = option_field(options, option);
    free(*field);
    *field = copy;
    return 0;
}

/* Behind what it has. */
static int add_text(struct options *options, const struct option *option, const char *text,
                    size_t length, struct error *error)
{
    const char *now = text_of(options, option);
    size_t before = strlen(now);
    if (strcmp(option->name, "model") == 0 &&
        (!model_list_name_length(now, before) || !model_list_name_length(text, length)))
        return error_set(error, ERR_BAD_CONFIG, "model: of several each has a name: NAME=DIR");
    if (before == 0 || length == 0)
        return error_set(error, ERR_BAD_CONFIG, "%s: one of several values is empty", option->name);
    char *both = malloc(before + 1 + length);
    if (!both)
        return error_set(error, ERR_NO_MEMORY, "no memory for %s", option->name);
    memcpy(both, now, before);
    both[before] = ',';
    memcpy(both + before + 1, text, length);
    int rc = set_text(options, option, both, before + 1 + length, error);
    free(both);
    return rc;
}

static int set_switch(struct options *options, const struct option *option, const char *text,
                      size_t length, struct error *error)
{
    bool yes = word_is(text, length, "yes");
    if (!yes && !word_is(text, length, "no"))
        return error_set(error, ERR_BAD_CONFIG, "%s: yes or no", option->name);
    *(bool *)option_field(options, option) = yes;
    return 0;
}

/* The index-th word of "a|b|c"; false past the last. */
static bool word_at(const char *words, uint32_t index, const char **ret_word, size_t *ret_length)
{
    for (;; words++) {
        size_t length = strcspn(words, "|");
        if (index-- == 0) {
            *ret_word = words;
            *ret_length = length;
            return true;
        }
        words += length;
        if (!*words)
            return false;
    }
}

static int set_choice(struct options *options, const struct option *option, const char *text,
                      size_t length, struct error *error)
{
    const char *word;
    size_t word_length;
    for (uint32_t i = 0; word_at(option->words, i, &word, &word_length); i++)
        if (word_length == length && memcmp(word, text, length) == 0) {
            *(uint32_t *)option_field(options, option) = i;
            return 0;
        }
    return error_set(error, ERR_BAD_CONFIG, "%s: one of %s", option->name, option->words);
}

/* Digits and a unit; false when it is not that, or passes 64 bits. */
static bool read_number(const struct option *option, const char *text, size_t length,
                        uint64_t *ret_value)
{
    uint64_t value = 0;
    size_t at = 0, unit_count;
    for (; at < length && text[at] >= '0' && text[at] <= '9'; at++)
        if (__builtin_mul_overflow(value, 10u, &value) ||
            __builtin_add_overflow(value, (uint64_t)(text[at] - '0'), &value))
            return false;
    if (at == 0)
        return false;
    while (at < length && text[at] == ' ')
        at++;
    const struct unit *units = units_of(option, &unit_count);
    for (size_t i = 0; i < unit_count; i++)
        if (word_is(text + at, length - at, units[i].name) &&
            !__builtin_mul_overflow(value, units[i].factor, ret_value))
            return true;
    if (value == 0 && at == length) { /* nothing is nothing in any unit */
        *ret_value = 0;
        return true;
    }
    return false;
}

/* A number that nobody chose, where an option has that word for it. */
static bool may_be_auto(const struct option *option)
{
    return strcmp(option->default_text, "auto") == 0;
}

static void show_number(const struct option *option, uint64_t value, char *text, size_t size)
{
    size_t unit_count;
    if (value == OPTION_AUTO && may_be_auto(option)) {
        snprintf(text, size, "auto");
        return;
    }
    const struct unit *units = units_of(option, &unit_count);
    for (size_t i = 0; i < unit_count; i++)
        if (value % units[i].factor == 0 && (value > 0 || i + 1 == unit_count)) {
            snprintf(text, size, "%" PRIu64 "%s", value / units[i].factor, units[i].name);
            return;
        }
    /* A time is set in whole milliseconds, so the last unit always divides it. */
    snprintf(text, size, "%" PRIu64, value);
}

static int set_number(struct options *options, const struct option *option, const char *text,
                      size_t length, struct error *error)
{
    uint64_t value;
    char low[32], high[32];
    if (may_be_auto(option) && word_is(text, length, "auto")) {
        *(uint64_t *)option_field(options, option) = OPTION_AUTO;
        return 0;
    }
    if (!read_number(option, text, length, &value))
        return error_set(error, ERR_BAD_CONFIG, "%s: a whole number%s%s is expected", option->name,
                         units_help(option->kind), may_be_auto(option) ? ", or auto," : "");
    if (value < option->min || value > option->max) {
        show_number(option, option->min, low, sizeof(low));
        show_number(option, option->max, high, sizeof(high));
        return error_limit(error, ERR_BAD_CONFIG, value < option->min ? option->min : option->max,
                           value, "%s: must lie between %s and %s", option->name, low, high);
    }
    *(uint64_t *)option_field(options, option) = value;
    return 0;
}

int option_set(struct options *options, const struct option *option, const char *text,
               size_t length, struct error *error)
{
    if (memchr(text, '\0', length))
        return error_set(error, ERR_BAD_CONFIG, "%s: not a text", option->name);
    switch (option->kind) {
    case OPTION_TEXT:
    case OPTION_LIST:
        return set_text(options, option, text, length, error);
    case OPTION_SWITCH:
        return set_switch(options, option, text, length, error);
    case OPTION_CHOICE:
        return set_choice(options, option, text, length, error);
    case OPTION_COUNT:
    case OPTION_BYTES:
    case OPTION_TIME:
        break;
    }
    return set_number(options, option, text, length, error);
}

int option_add(struct options *options, const struct option *option, const char *text,
               size_t length, struct error *error)
{
    assert(option->kind == OPTION_LIST);
    if (memchr(text, '\0', length))
        return error_set(error, ERR_BAD_CONFIG, "%s: not a text", option->name);
    return add_text(options, option, text, length, error);
}

bool option_next(const char **list, struct option_word *ret_word)
{
    const char *text = *list;
    if (!text || !*text)
        return false;
    size_t length = strcspn(text, ",");
    *list = text[length] ? text + length + 1 : NULL;
    while (length > 0 && *text == ' ')
        text++, length--;
    while (length > 0 && text[length - 1] == ' ')
        length--;
    *ret_word = (struct option_word){text, length};
    return true;
}

/* ---- showing -----------------------------------------------------------------------------------
 */

void option_show(const struct options *options, const struct option *option, char *text,
                 size_t size)
{
    const char *word = "";
    size_t length = 0;
    switch (option->kind) {
    case OPTION_TEXT:
    case OPTION_LIST:
        snprintf(text, size, "%s", text_of(options, option));
        return;
    case OPTION_SWITCH:
        snprintf(text, size, "%s", *(const bool *)field_of(options, option) ? "yes" : "no");
        return;
    case OPTION_CHOICE:
        word_at(option->words, *(const uint32_t *)field_of(options, option), &word, &length);
        snprintf(text, size, "%.*s", (int)length, word);
        return;
    case OPTION_COUNT:
    case OPTION_BYTES:
    case OPTION_TIME:
        show_number(option, number_of(options, option), text, size);
    }
}

bool option_equal(const struct options *a, const struct options *b, const struct option *option)
{
    switch (option->kind) {
    case OPTION_TEXT:
    case OPTION_LIST:
        return strcmp(text_of(a, option), text_of(b, option)) == 0;
    case OPTION_SWITCH:
        return *(const bool *)field_of(a, option) == *(const bool *)field_of(b, option);
    case OPTION_CHOICE:
        return *(const uint32_t *)field_of(a, option) == *(const uint32_t *)field_of(b, option);
    case OPTION_COUNT:
    case OPTION_BYTES:
    case OPTION_TIME:
        break;
    }
    return number_of(a, option) == number_of(b, option);
}

static void print_range(const struct option *option, FILE *file)
{
    char low[32], high[32];
    if (option->kind == OPTION_CHOICE)
        fprintf(file, "%s; ", option->words);
    if (option->kind == OPTION_COUNT || option->kind == OPTION_BYTES ||
        option->kind == OPTION_TIME) {
        show_number(option, option->min, low, sizeof(low));
        show_number(option, option->max, high, sizeof(high));
        fprintf(file, "%s to %s; ", low, high);
    }
    if (option->default_text[0])
        fprintf(file, "default %s", option->default_text);
    else
        fprintf(file, "no default");
    if (option->kind == OPTION_LIST)
        fprintf(file, "; several add up");
    if (option->reload)
        fprintf(file, "; reloadable");
}

static const char *metavariable(const struct option *option)
{
    static const char *const names[] = {
        [OPTION_TEXT] = "TEXT", [OPTION_LIST] = "TEXT,...", [OPTION_SWITCH] = "yes|no",
        [OPTION_COUNT] = "N",   [OPTION_BYTES] = "SIZE",    [OPTION_TIME] = "TIME"};
    return option->kind == OPTION_CHOICE ? option->words : names[option->kind];
}

void options_print_help(FILE *file)
{
    fprintf(file,
            "usage: sluiced --model DIR|synthetic:NAME[:FORMAT] [--socket PATH] [--device "
            "auto|cuda|cpu] "
            "[--config FILE] ...\n\n"
            "  --config FILE   read options from a file first; or SLUICE_CONFIG\n"
            "  --calibrate     find job-chunk and job-lanes for a program on this machine, and end\n"
            "  --calibrate-page FILE  what it found as a page of HTML, and as JSON beside it\n"
            "  --calibrate-store FILE  a configuration in which both are set to it\n"
            "  --check         say whether configuration and model can be used, and end\n"
            "  --print-config  print the options in effect, as a file, and end\n"
            "  --help, --version\n\n"
            "Each of these may stand in the file as \"name = value\", in the environment as "
            "SLUICE_NAME, and as a flag, once; what holds several may repeat, and adds up:\n\n");
    for (uint32_t i = 0; i < option_count; i++) {
        const struct option *option = &option_table[i];
        fprintf(file, "  --%s %s\n        %s\n        (", option->name, metavariable(option),
                option->help);
        print_range(option, file);
        fprintf(file, ")\n");
    }
}

void options_print_config(const struct options *options, FILE *file)
{
    char value[4200], usual[4200];
    for (uint32_t i = 0; i < option_count; i++) {
        const struct option *option = &option_table[i];
        fprintf(file, "# %s\n# (", option->help);
        print_range(option, file);
        fprintf(file, ")\n");
        option_show(options, option, value, sizeof(value));
        if (option->secret && value[0]) {
            fprintf(file, "# %s is set, and secret\n\n", option->name);
            continue;
        }
        snprintf(usual, sizeof(usual), "%s", option->default_text);
        bool set = strcmp(value, usual) != 0;
        fprintf(file, "%s%s = %s\n\n", set ? "" : "#", option->name, value);
    }
}
