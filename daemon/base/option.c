#include "daemon/base/option.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/adapter_name.h"
#include "daemon/base/grant.h"
#include "daemon/base/model_list.h"
#include "daemon/base/model_name.h"
#include "daemon/base/option_table.h"
#include "daemon/base/web_access.h"
#include "protocol/base/log.h"
#include "protocol/base/utf8.h"

#define FILE_MAX_BYTES (1u << 20)
#define ENVIRONMENT_PREFIX "SLUICE_"

int options_defaults(struct options **ret_options, struct error *error)
{
    struct options *options = calloc(1, sizeof(*options));
    if (!options)
        return error_set(error, ERR_NO_MEMORY, "no memory for options");
    for (uint32_t i = 0; i < option_count; i++) {
        const struct option *option = &option_table[i];
        int rc =
            option_set(options, option, option->default_text, strlen(option->default_text), error);
        if (rc) {
            options_free(options);
            return rc;
        }
    }
    *ret_options = options;
    return 0;
}

void options_free(struct options *options)
{
    if (!options)
        return;
    for (uint32_t i = 0; i < option_count; i++)
        if (option_table[i].kind == OPTION_TEXT || option_table[i].kind == OPTION_LIST)
            free(*(char **)option_field(options, &option_table[i]));
    free(options);
}

/* ---- file -------------------------------------------------------------------------------------
 */

struct span {
    const char *text;
    size_t length;
};

static struct span trim(struct span span)
{
    while (span.length > 0 && isspace((unsigned char)span.text[0]))
        span.text++, span.length--;
    while (span.length > 0 && isspace((unsigned char)span.text[span.length - 1]))
        span.length--;
    return span;
}

static bool printable(struct span span)
{
    for (size_t at = 0; at < span.length;) {
        size_t step = utf8_length((const unsigned char *)span.text + at, span.length - at);
        unsigned char c = (unsigned char)span.text[at];
        if (step == 0 || (c < 0x20 && c != '\t') || c == 0x7f)
            return false;
        at += step;
    }
    return true;
}

static int read_line(struct options *options, const char *name, uint32_t number, struct span line,
                     uint32_t *seen, struct error *error)
{
    struct error why;
    line = trim(line);
    if (line.length == 0 || line.text[0] == '#')
        return 0;
    if (!printable(line))
        return error_set(error, ERR_BAD_CONFIG, "%s:%u: not a line of text", name, number);
    const char *equals = memchr(line.text, '=', line.length);
    if (!equals)
        return error_set(error, ERR_BAD_CONFIG, "%s:%u: \"key = value\" expected", name, number);
    struct span key = trim((struct span){line.text, (size_t)(equals - line.text)});
    struct span value =
        trim((struct span){equals + 1, line.length - (size_t)(equals + 1 - line.text)});
    const struct option *option = option_find(key.text, key.length);
    if (!option)
        return error_set(error, ERR_BAD_CONFIG, "%s:%u: there is no option \"%.*s\"", name, number,
                         (int)(key.length > 64 ? 64 : key.length), key.text);
    uint32_t *first = &seen[option - option_table];
    bool more = *first && option->kind == OPTION_LIST;
    if (*first && !more)
        return error_set(error, ERR_BAD_CONFIG, "%s:%u: %s was set in line %u already", name,
                         number, option->name, *first);
    *first = *first ? *first : number;
    int rc = (more ? option_add : option_set)(options, option, value.text, value.length, &why);
    if (rc)
        return error_set(error, -rc == ERR_NO_MEMORY ? ERR_NO_MEMORY : ERR_BAD_CONFIG, "%s:%u: %s",
                         name, number, why.text);
    return 0;
}

int options_read_text(struct options *options, const char *name, const char *text, size_t length,
                      struct error *error)
{
    uint32_t seen[OPTIONS_MAX] = {0};
    uint32_t number = 0;
    for (size_t at = 0; at < length;) {
        const char *end = memchr(text + at, '\n', length - at);
        size_t line = end ? (size_t)(end - (text + at)) : length - at;
        int rc = read_line(options, name, ++number, (struct span){text + at, line}, seen, error);
        if (rc)
            return rc;
        at += line + 1;
    }
    return 0;
}

int options_read_file(struct options *options, const char *path, struct error *error)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return error_set(error, error_of_system(errno, ERR_BAD_CONFIG), "cannot read %s: %s", path,
                         strerror(errno));
    int rc = 0;
    char *text = malloc(FILE_MAX_BYTES + 1);
    size_t length = text ? fread(text, 1, FILE_MAX_BYTES + 1, file) : 0;
    if (!text)
        rc = error_set(error, ERR_NO_MEMORY, "no memory to read %s", path);
    else if (ferror(file))
        rc = error_set(error, error_of_system(errno, ERR_BAD_CONFIG), "cannot read %s: %s", path,
                       strerror(errno));
    else if (length > FILE_MAX_BYTES)
        rc = error_set(error, ERR_BAD_CONFIG, "%s is larger than %u bytes", path, FILE_MAX_BYTES);
    else
        rc = options_read_text(options, path, text, length, error);
    free(text);
    fclose(file);
    return rc;
}

/* ---- environment ------------------------------------------------------------------------------
 */

/* The name in an entry, as a file would write it: "" when it is not one of ours, or none that
 * options have. */
static void environment_key(const char *entry, char key[64])
{
    size_t prefix = strlen(ENVIRONMENT_PREFIX);
    const char *equals = strchr(entry, '=');
    key[0] = '\0';
    if (strncmp(entry, ENVIRONMENT_PREFIX, prefix) != 0 || !equals)
        return;
    size_t length = (size_t)(equals - entry) - prefix;
    if (length >= 64)
        return;
    for (size_t i = 0; i < length; i++) {
        char c = entry[prefix + i];
        key[i] = c == '_' ? '-' : (char)tolower((unsigned char)c);
    }
    key[length] = '\0';
}

/* `seen`: two entries may be the same option, in other letters or as a process was given them. */
static int read_variable(struct options *options, const struct option *option, const char *entry,
                         bool *seen, struct error *error)
{
    struct error why;
    const char *value = strchr(entry, '=') + 1;
    bool more = *seen && option->kind == OPTION_LIST;
    if (*seen && !more)
        return error_set(error, ERR_BAD_CONFIG, "environment: %s is set twice", option->name);
    *seen = true;
    int rc = (more ? option_add : option_set)(options, option, value, strlen(value), &why);
    return rc ? error_set(error, -rc == ERR_NO_MEMORY ? ERR_NO_MEMORY : ERR_BAD_CONFIG,
                          "environment: %s", why.text)
              : 0;
}

int options_read_environment(struct options *options, char *const *environment, char unknown[64],
                             struct error *error)
{
    bool seen[OPTIONS_MAX] = {false};
    int rc = 0;
    unknown[0] = '\0';
    for (; !rc && environment && *environment; environment++) {
        const char *entry = *environment;
        char key[64];
        environment_key(entry, key);
        const struct option *option = option_find(key, strlen(key));
        bool ours = strncmp(entry, ENVIRONMENT_PREFIX, strlen(ENVIRONMENT_PREFIX)) == 0;
        if (option)
            rc = read_variable(options, option, entry, &seen[option - option_table], error);
        else if (ours && strcmp(key, "config") != 0 && strchr(entry, '=') && !unknown[0])
            snprintf(unknown, 64, "%.*s", (int)strcspn(entry, "="), entry);
    }
    return rc;
}

/* ---- command line -----------------------------------------------------------------------------
 */

/* One flag: "--name=value", "--name value", or "--name" alone for a switch and a command. */
struct flag {
    struct span name;
    const char *value; /* NULL when none was joined by "=" */
};

static int read_flag(const char *argument, struct flag *flag, struct error *error)
{
    if (strncmp(argument, "--", 2) != 0 || argument[2] == '\0')
        return error_set(error, ERR_USAGE, "\"%.64s\" is not a flag; see --help", argument);
    const char *equals = strchr(argument, '=');
    flag->name.text = argument + 2;
    flag->name.length = equals ? (size_t)(equals - flag->name.text) : strlen(flag->name.text);
    flag->value = equals ? equals + 1 : NULL;
    return 0;
}

static bool flag_is(const struct flag *flag, const char *name)
{
    return flag->name.length == strlen(name) &&
           memcmp(flag->name.text, name, flag->name.length) == 0;
}

static bool *command_switch(struct option_command *command, const struct flag *flag)
{
    if (flag_is(flag, "calibrate"))
        return &command->calibrate;
    if (flag_is(flag, "check"))
        return &command->check;
    if (flag_is(flag, "print-config"))
        return &command->print_config;
    if (flag_is(flag, "help"))
        return &command->help;
    if (flag_is(flag, "version"))
        return &command->version;
    return NULL;
}

/* The flag's value, joined or the next argument; *i moves over it. */
static int flag_value(const struct flag *flag, int argc, char *const *argv, int *i,
                      const char **ret_value, struct error *error)
{
    if (!flag->value && *i + 1 >= argc)
        return error_set(error, ERR_USAGE, "%.64s needs a value", argv[*i]);
    *ret_value = flag->value ? flag->value : argv[++*i];
    return 0;
}

static bool switch_alone(const struct option *option, const struct flag *flag, int argc,
                         char *const *argv, int i)
{
    return option->kind == OPTION_SWITCH && !flag->value &&
           (i + 1 >= argc || strncmp(argv[i + 1], "--", 2) == 0);
}

static int set_flag(struct options *options, const struct option *option, const char *value,
                    bool more, struct error *error)
{
    struct error why;
    /* In a file and the environment that is what stands there when nothing is meant. */
    if (!*value && strcmp(option->name, "socket") == 0)
        return error_set(error, ERR_USAGE, "--socket: the path is empty");
    int rc = (more ? option_add : option_set)(options, option, value, strlen(value), &why);
    return rc ? error_set(error, -rc == ERR_NO_MEMORY ? ERR_NO_MEMORY : ERR_USAGE, "--%s", why.text)
              : 0;
}

/* --profile-steps N FILE: the one flag of two values. */
static bool file_follows(const struct option *option, int argc, char *const *argv, int i)
{
    return strcmp(option->name, "profile-steps") == 0 && i + 1 < argc &&
           strncmp(argv[i + 1], "--", 2) != 0;
}

static int read_profile_file(struct options *options, bool *seen, const char *path,
                             struct error *error)
{
    const struct option *option = option_find("profile-file", strlen("profile-file"));
    if (seen[option - option_table])
        return error_set(error, ERR_USAGE, "--%s was given twice", option->name);
    seen[option - option_table] = true;
    return options ? set_flag(options, option, path, false, error) : 0;
}

/* A flag that is no option and names a file. */
static const char **command_file(struct option_command *command, const struct flag *flag)
{
    if (flag_is(flag, "config"))
        return &command->config;
    if (flag_is(flag, "calibrate-page"))
        return &command->calibrate_page;
    return flag_is(flag, "calibrate-store") ? &command->calibrate_store : NULL;
}

static int read_command_file(const struct flag *flag, int argc, char *const *argv, int *i,
                             const char **file, struct error *error)
{
    if (*file)
        return error_set(error, ERR_USAGE, "--%.*s was given twice", (int)flag->name.length,
                         flag->name.text);
    return flag_value(flag, argc, argv, i, file, error);
}

/* Walks all arguments; options are set where `options` is given, commands where `command` is. */
static int walk_flags(int argc, char *const *argv, struct options *options,
                      struct option_command *command, struct error *error)
{
    bool seen[OPTIONS_MAX] = {false};
    struct option_command unused = {0}, *own = command ? command : &unused;
    for (int i = 1; i < argc; i++) {
        struct flag flag = {0};
        const char *value = NULL;
        int rc = read_flag(argv[i], &flag, error);
        if (rc)
            return rc;
        bool *on = command_switch(own, &flag);
        if (on) {
            *on = true;
            if (command && (command->help || command->version))
                return 0;
            continue;
        }
        const char **file = command_file(own, &flag);
        if (file) {
            rc = read_command_file(&flag, argc, argv, &i, file, error);
            if (rc)
                return rc;
            continue;
        }
        const struct option *option = option_find(flag.name.text, flag.name.length);
        if (!option)
            return error_set(error, ERR_USAGE, "there is no flag \"%.64s\"; see --help", argv[i]);
        bool *given = &seen[option - option_table], more = *given && option->kind == OPTION_LIST;
        if (*given && !more)
            return error_set(error, ERR_USAGE, "--%s was given twice", option->name);
        *given = true;
        value = "yes";
        if (!switch_alone(option, &flag, argc, argv, i))
            rc = flag_value(&flag, argc, argv, &i, &value, error);
        if (!rc && options)
            rc = set_flag(options, option, value, more, error);
        if (!rc && file_follows(option, argc, argv, i))
            rc = read_profile_file(options, seen, argv[++i], error);
        if (rc)
            return rc;
    }
    return 0;
}

int options_read_command(int argc, char *const *argv, char *const *environment,
                         struct option_command *ret_command, struct error *error)
{
    struct option_command command = {0};
    int rc = walk_flags(argc, argv, NULL, &command, error);
    if (rc)
        return rc;
    for (; !command.config && environment && *environment; environment++)
        if (strncmp(*environment, ENVIRONMENT_PREFIX "CONFIG=", 14) == 0 && (*environment)[14])
            command.config = *environment + 14;
    *ret_command = command;
    return 0;
}

int options_read_flags(struct options *options, int argc, char *const *argv, struct error *error)
{
    return walk_flags(argc, argv, options, NULL, error);
}

/* ---- all together ------------------------------------------------------------------------------
 */

int options_check_model(const struct options *options, struct error *error)
{
    struct model_names names;
    struct adapter_names adapters;
    if (options->gpu_memory_max && options->kv_max > options->gpu_memory_max)
        return error_limit(error, ERR_BAD_CONFIG, options->gpu_memory_max, options->kv_max,
                           "kv-max must be at most gpu-memory-max");
    int rc = model_names_read(&names, options->served_model_name, "", error);
    rc = rc ? rc : adapter_names_read(&adapters, options->adapter, error);
    return rc ? rc : adapter_names_apart(&adapters, &names, error);
}

/* Each by itself, and all beside each other. */
static int check_models(const struct options *options, struct error *error)
{
    struct model_list list = {.count = 0};
    struct adapter_names adapters;
    int rc = adapter_names_read(&adapters, options->adapter, error);
    if (!rc && adapters.count > 0 && !options->model[0])
        rc = error_set(error, ERR_BAD_CONFIG, "adapter: %s has no model", adapters.at[0].name);
    if (!rc && options->adapters_max > 0 && !options->model[0])
        rc = error_set(error, ERR_BAD_CONFIG, "adapters-max: there is no model");
    if (!rc && options->adapter_dir[0] && options->adapters_max <= adapters.count)
        rc = error_set(error, ERR_BAD_CONFIG,
                       "adapter-dir: adapters-max, %u, leaves no place beside those of adapter",
                       (unsigned)options->adapters_max);
    if (!rc)
        rc = model_list_make(options, &list, error);
    for (uint32_t i = 1; !rc && i < list.count; i++) {
        struct model_names names;
        rc = model_names_read(&names, list.at[i]->served_model_name, "", error);
        rc = rc ? rc : adapter_names_apart(&adapters, &names, error);
    }
    model_list_free(&list);
    return rc;
}

int options_check(const struct options *options, struct error *error)
{
    if (options->output_high >= options->output_max)
        return error_limit(error, ERR_BAD_CONFIG, options->output_max, options->output_high,
                           "output-high must be below output-max");
    if (options->frame_max > options->input_max / 2)
        return error_limit(error, ERR_BAD_CONFIG, options->input_max / 2, options->frame_max,
                           "frame-max must be at most half of input-max, a user's share");
    if ((options->profile_steps > 0) != (options->profile_file[0] != '\0'))
        return error_set(
            error, ERR_BAD_CONFIG,
            "profile-steps and profile-file are given together: --profile-steps N FILE");
    struct grants grants;
    int rc = options_check_model(options, error);
    rc = rc ? rc : check_models(options, error);
    rc = rc ? rc : web_access_check(options, error);
    return rc ? rc : grants_read(&grants, options->users, error);
}

int options_load(int argc, char *const *argv, char *const *environment,
                 struct options **ret_options, struct option_command *ret_command, char unknown[64],
                 struct error *error)
{
    struct option_command command;
    struct options *options = NULL;
    int rc = options_read_command(argc, argv, environment, &command, error);
    unknown[0] = '\0';
    if (!rc)
        rc = options_defaults(&options, error);
    if (!rc && !command.help && !command.version) {
        if (command.config)
            rc = options_read_file(options, command.config, error);
        if (!rc)
            rc = options_read_environment(options, environment, unknown, error);
        if (!rc)
            rc = options_read_flags(options, argc, argv, error);
        if (!rc)
            rc = options_check(options, error);
    }
    if (rc) {
        options_free(options);
        return rc;
    }
    *ret_options = options;
    *ret_command = command;
    return 0;
}

int options_reloadable(const struct options *now, const struct options *next, struct error *error)
{
    for (uint32_t i = 0; i < option_count; i++) {
        const struct option *option = &option_table[i];
        if (!option->reload && !option_equal(now, next, option))
            return error_set(error, ERR_BAD_CONFIG, "%s cannot change while the daemon runs",
                             option->name);
    }
    return 0;
}

int options_log_level(const struct options *options)
{
    _Static_assert(LOG_ERROR == 3 && LOG_DEBUG == 7, "the words of log-level stand in this order");
    return LOG_ERROR + (int)options->log_level;
}
