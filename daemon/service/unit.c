#include "daemon/service/unit.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define FILE_BYTES_MAX 65536
#define PATH_BYTES_MAX 512
#define DROP_INS_MAX 64

/* ---- lines -------------------------------------------------------------------------------------
 */

static bool is_yes(const char *value)
{
    return strcasecmp(value, "yes") == 0 || strcasecmp(value, "true") == 0 ||
           strcasecmp(value, "on") == 0 || strcmp(value, "1") == 0;
}

/* An empty value takes back what was said before. Names of directories get `before` in front. */
static void add(char list[UNIT_LIST_MAX], const char *value, const char *before)
{
    char copy[UNIT_LIST_MAX], *rest = copy, *word;
    if (!*value)
        list[0] = '\0';
    snprintf(copy, sizeof(copy), "%s", value);
    while ((word = strsep(&rest, " \t"))) {
        size_t used = strlen(list);
        if (*word)
            snprintf(list + used, UNIT_LIST_MAX - used, "%s%s%s", used ? " " : "", before,
                     word + strspn(word, "-+"));
    }
}

/* "SOURCE:DESTINATION:OPTIONS" is seen at its destination. */
static void add_binds(char list[UNIT_LIST_MAX], const char *value)
{
    char copy[UNIT_LIST_MAX], *rest = copy, *word;
    if (!*value)
        add(list, "", "");
    snprintf(copy, sizeof(copy), "%s", value);
    while ((word = strsep(&rest, " \t"))) {
        char *to = strchr(word, ':');
        if (to)
            to[1 + strcspn(to + 1, ":")] = '\0';
        if (*word)
            add(list, to && to[1] ? to + 1 : word, "");
    }
}

static void set_families(struct unit *unit, const char *value)
{
    char copy[UNIT_LIST_MAX], *rest = copy, *word;
    bool without = *value == '~';
    if (!*value) {
        unit->families_limited = unit->inet = unit->inet6 = false;
        return;
    }
    if (!unit->families_limited)
        unit->inet = unit->inet6 = without; /* a list of what is not allowed begins with all */
    unit->families_limited = true;
    snprintf(copy, sizeof(copy), "%s", value + without);
    while ((word = strsep(&rest, " \t"))) {
        if (strcmp(word, "AF_INET") == 0)
            unit->inet = !without;
        if (strcmp(word, "AF_INET6") == 0)
            unit->inet6 = !without;
    }
}

static void set_home(struct unit *unit, const char *value)
{
    unit->home_bindable = strcmp(value, "tmpfs") == 0;
    unit->home_hidden = is_yes(value) || unit->home_bindable;
}

static void set_tmp(struct unit *unit, const char *value)
{
    unit->tmp_private = is_yes(value) || strcmp(value, "disconnected") == 0;
}

static void set_network(struct unit *unit, const char *value)
{
    unit->network_private = is_yes(value);
}

static void set_system(struct unit *unit, const char *value)
{
    unit->system_read_only = strcmp(value, "strict") == 0;
}

static void set_user(struct unit *unit, const char *value)
{
    snprintf(unit->user, sizeof(unit->user), "%s", value);
}

static void set_root(struct unit *unit, const char *value)
{
    unit->other_root = *value != '\0';
}

static void set_binds(struct unit *unit, const char *value)
{
    add_binds(unit->bound, value);
}

static void set_writable(struct unit *unit, const char *value)
{
    add(unit->writable, value, "");
}

static void set_cache(struct unit *unit, const char *value)
{
    add(unit->writable, value, "/var/cache/");
}

static void set_state(struct unit *unit, const char *value)
{
    add(unit->writable, value, "/var/lib/");
}

static void set_runtime(struct unit *unit, const char *value)
{
    add(unit->writable, value, "/run/");
}

static const struct {
    const char *key;
    void (*set)(struct unit *unit, const char *value);
} settings[] = {
    {"User", set_user},
    {"ProtectHome", set_home},
    {"PrivateTmp", set_tmp},
    {"PrivateNetwork", set_network},
    {"ProtectSystem", set_system},
    {"RestrictAddressFamilies", set_families},
    {"RootDirectory", set_root},
    {"RootImage", set_root},
    {"BindPaths", set_binds},
    {"BindReadOnlyPaths", set_binds},
    {"ReadWritePaths", set_writable},
    {"CacheDirectory", set_cache},
    {"StateDirectory", set_state},
    {"RuntimeDirectory", set_runtime},
};

static char *trim(char *text)
{
    text += strspn(text, " \t\r");
    size_t length = strlen(text);
    while (length > 0 && strchr(" \t\r", text[length - 1]))
        text[--length] = '\0';
    return text;
}

static void apply_line(struct unit *unit, char *line, bool *service)
{
    line = trim(line);
    char *equals = strchr(line, '=');
    if (*line == '[')
        *service = strcmp(line, "[Service]") == 0;
    if (!*service || *line == '#' || *line == ';' || !equals)
        return;
    *equals = '\0';
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++)
        if (strcmp(trim(line), settings[i].key) == 0)
            settings[i].set(unit, trim(equals + 1));
}

void unit_apply(struct unit *unit, const char *text, size_t length)
{
    char line[UNIT_LIST_MAX];
    size_t used = 0;
    bool service = false;
    for (size_t at = 0; at <= length; at++) {
        char c = at < length ? text[at] : '\n';
        if (c == '\n' && used > 0 && line[used - 1] == '\\') {
            line[used - 1] = ' '; /* it goes on in the next line */
        } else if (c == '\n') {
            line[used] = '\0';
            apply_line(unit, line, &service);
            used = 0;
        } else if (used < sizeof(line) - 1 && c) {
            line[used++] = c;
        }
    }
}

/* ---- files -------------------------------------------------------------------------------------
 */

static const char *const places[] = {"/etc/systemd/system", "/run/systemd/system",
                                     "/usr/local/lib/systemd/system", "/usr/lib/systemd/system",
                                     "/lib/systemd/system"};
#define PLACES (sizeof(places) / sizeof(places[0]))

static bool apply_file(struct unit *unit, const char *path)
{
    FILE *file = fopen(path, "re");
    char *text = file ? malloc(FILE_BYTES_MAX) : NULL;
    if (text)
        unit_apply(unit, text, fread(text, 1, FILE_BYTES_MAX, file));
    free(text);
    if (file)
        fclose(file);
    return file != NULL;
}

static bool apply_first(struct unit *unit, const char *root, const char *name)
{
    char path[PATH_BYTES_MAX];
    for (size_t i = 0; i < PLACES; i++) {
        snprintf(path, sizeof(path), "%s%s/%s", root, places[i], name);
        if (apply_file(unit, path))
            return true;
    }
    return false;
}

struct drop_ins {
    struct drop_in {
        char name[NAME_MAX + 1], path[PATH_BYTES_MAX];
    } found[DROP_INS_MAX];
    size_t count;
};

/* One that was found before stands instead of another of its name. */
static void add_drop_in(struct drop_ins *drop_ins, const char *directory, const char *name)
{
    size_t length = strlen(name);
    if (length < 6 || strcmp(name + length - 5, ".conf") != 0 || drop_ins->count == DROP_INS_MAX)
        return;
    for (size_t i = 0; i < drop_ins->count; i++)
        if (strcmp(drop_ins->found[i].name, name) == 0)
            return;
    struct drop_in *made = &drop_ins->found[drop_ins->count++];
    snprintf(made->name, sizeof(made->name), "%s", name);
    snprintf(made->path, sizeof(made->path), "%s/%s", directory, name);
}

static void find_drop_ins(struct drop_ins *drop_ins, const char *root, const char *name)
{
    char path[PATH_BYTES_MAX / 2];
    for (size_t i = 0; i < PLACES; i++) {
        snprintf(path, sizeof(path), "%s%s/%s.d", root, places[i], name);
        DIR *directory = opendir(path);
        struct dirent *entry;
        while (directory && (entry = readdir(directory)))
            add_drop_in(drop_ins, path, entry->d_name);
        if (directory)
            closedir(directory);
    }
}

static int by_name(const void *left, const void *right)
{
    return strcmp(((const struct drop_in *)left)->name, ((const struct drop_in *)right)->name);
}

static void apply_drop_ins(struct unit *unit, const char *root, const char *template)
{
    struct drop_ins *drop_ins = calloc(1, sizeof(*drop_ins));
    if (!drop_ins)
        return;
    find_drop_ins(drop_ins, root, unit->name);
    if (template)
        find_drop_ins(drop_ins, root, template);
    find_drop_ins(drop_ins, root, "service");
    qsort(drop_ins->found, drop_ins->count, sizeof(drop_ins->found[0]), by_name);
    for (size_t i = 0; i < drop_ins->count; i++)
        apply_file(unit, drop_ins->found[i].path);
    free(drop_ins);
}

bool unit_read(const char *root, const char *config, struct unit *ret_unit)
{
    struct unit unit = {.name = ""};
    char path[PATH_MAX];
    size_t before = strlen(root), directory = before + strlen(UNIT_DIRECTORY);
    size_t end = strlen(".conf");
    if (!config || !realpath(config, path))
        return false;
    size_t length = strlen(path);
    const char *name = path + directory;
    if (length <= directory + end || strcmp(path + length - end, ".conf") != 0 ||
        strncmp(path, root, before) != 0 || strchr(name, '/') ||
        strncmp(path + before, UNIT_DIRECTORY, strlen(UNIT_DIRECTORY)) != 0)
        return false;
    bool first = strcmp(name, "sluiced.conf") == 0;
    snprintf(unit.name, sizeof(unit.name), "sluiced%s%.*s.service", first ? "" : "@",
             first ? 0 : (int)(length - directory - end > 64 ? 64 : length - directory - end),
             name);
    const char *template = first ? NULL : "sluiced@.service";
    if (!apply_first(&unit, root, unit.name) && (!template || !apply_first(&unit, root, template)))
        return false;
    apply_drop_ins(&unit, root, template);
    *ret_unit = unit;
    return true;
}
