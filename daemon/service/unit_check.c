#include "daemon/service/unit_check.h"

#include <dirent.h>
#include <errno.h>
#include <grp.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/base/adapter_name.h"
#include "daemon/base/model_list.h"
#include "daemon/base/option.h"
#include "daemon/http/http_address.h"
#include "daemon/service/sockets.h"
#include "protocol/base/log.h"

#define ENTRIES_MAX 4096 /* of the model's directory */

/* ---- paths -------------------------------------------------------------------------------------
 */

static bool is_below(const char *path, const char *directory, size_t length)
{
    while (length > 1 && directory[length - 1] == '/')
        length--;
    return length > 0 && strncmp(path, directory, length) == 0 &&
           (path[length] == '\0' || path[length] == '/' || directory[length - 1] == '/');
}

/* Whether it is one of the list's, with blanks between, or below one. */
static bool is_listed(const char *path, const char *list)
{
    while (*list) {
        size_t length = strcspn(list, " ");
        if (is_below(path, list, length))
            return true;
        list += length + (list[length] == ' ');
    }
    return false;
}

/* systemd binds nothing below a home directory that it makes inaccessible. */
static int check_place(const struct unit *unit, const char *option, const char *path,
                       struct error *error)
{
    bool bound = is_listed(path, unit->bound);
    bool home = unit->home_hidden && !(bound && unit->home_bindable) &&
                is_listed(path, "/home /root /run/user");
    bool temporary = unit->tmp_private && !bound && is_listed(path, "/tmp /var/tmp");
    if (!home && !temporary)
        return 0;
    return error_set(error, ERR_BAD_CONFIG,
                     "%s: %.160s is in a %s, which %s does not see (%s=): move it to "
                     "/var/lib/sluice, or allow it (systemctl edit %s, [Service], "
                     "%sBindReadOnlyPaths=%.80s)",
                     option, path, home ? "home directory" : "directory for temporary files",
                     unit->name, home ? "ProtectHome" : "PrivateTmp", unit->name,
                     home ? "ProtectHome=tmpfs, " : "", path);
}

/* Where a path leads, or the path where that cannot be seen. */
static void resolve(const char *path, char real[PATH_MAX])
{
    if (!realpath(path, real))
        snprintf(real, PATH_MAX, "%s", path);
}

static int check_readable(const struct unit *unit, const char *option, const char *path,
                          struct error *error)
{
    char real[PATH_MAX];
    if (path[0] != '/')
        return error_set(error, ERR_BAD_CONFIG,
                         "%s: %.200s is no whole path, and %s does not start in this directory",
                         option, path, unit->name);
    int rc = check_place(unit, option, path, error);
    if (rc)
        return rc;
    resolve(path, real);
    return check_place(unit, option, real, error);
}

/* The files may be links to elsewhere. */
static int check_model(const struct unit *unit, const char *model, struct error *error)
{
    char path[PATH_MAX], real[PATH_MAX];
    int rc = check_readable(unit, "model", model, error);
    DIR *directory = rc ? NULL : opendir(model);
    struct dirent *entry;
    for (int i = 0; directory && !rc && i < ENTRIES_MAX && (entry = readdir(directory)); i++) {
        bool inside = strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
        snprintf(path, sizeof(path), "%.3800s/%.255s", model, entry->d_name);
        resolve(path, real);
        if (inside)
            rc = check_place(unit, "model", real, error);
    }
    if (directory)
        closedir(directory);
    return rc;
}

/* A file or socket that is to be made. */
static int check_writable(const struct unit *unit, const char *option, const char *path,
                          struct error *error)
{
    int rc = check_readable(unit, option, path, error);
    if (rc || !unit->system_read_only || is_listed(path, unit->writable) ||
        is_listed(path, unit->bound) || is_listed(path, "/dev /proc /sys"))
        return rc;
    return error_set(error, ERR_BAD_CONFIG,
                     "%s: %s may not write to %.200s (ProtectSystem=strict); "
                     "systemctl edit %s, [Service], ReadWritePaths= would allow it",
                     option, unit->name, path, unit->name);
}

/* ---- sockets -----------------------------------------------------------------------------------
 */

static int check_tcp(const struct unit *unit, const char *option, const struct listener *listener,
                     struct error *error)
{
    bool six = listener->name[0] == '[';
    bool allowed = !unit->families_limited || (six ? unit->inet6 : unit->inet);
    const char *instance = strchr(unit->name, '@');
    if (allowed && !unit->network_private)
        return 0;
    return error_set(
        error, ERR_BAD_CONFIG,
        "%s: %s has no network of its own to listen on %s with (%s=): leave the option "
        "empty, and systemctl enable sluiced-%s%.*s.socket, which passes a socket to it",
        option, unit->name, listener->name, allowed ? "PrivateNetwork" : "RestrictAddressFamilies",
        sockets_unit(option), instance ? (int)(strlen(instance) - strlen(".service")) : 0,
        instance ? instance : "");
}

static int check_addresses(const struct unit *unit, const char *option, const char *list,
                           struct error *error)
{
    int rc = 0;
    while (!rc && *list) {
        struct listener listener;
        rc = address_read(&list, option, &listener, error);
        if (!rc)
            rc = listener.tcp ? check_tcp(unit, option, &listener, error)
                              : check_writable(unit, option, listener.path, error);
    }
    return rc;
}

static int check_programs(const struct unit *unit, const char *list, struct error *error)
{
    struct option_word word;
    char path[PATH_MAX];
    int rc = 0;
    while (!rc && option_next(&list, &word)) {
        snprintf(path, sizeof(path), "%.*s", (int)word.length, word.text);
        rc = check_readable(unit, "program", path, error);
    }
    return rc;
}

static int check_adapters(const struct unit *unit, const char *list, struct error *error)
{
    struct adapter_names names;
    int rc = adapter_names_read(&names, list, error);
    for (uint32_t i = 0; !rc && i < names.count; i++)
        rc = check_readable(unit, "adapter", names.at[i].directory, error);
    return rc;
}

/* Each with what is read beside it. */
static int check_models(const struct unit *unit, const struct options *options, struct error *error)
{
    struct model_list list;
    int rc = model_list_make(options, &list, error);
    if (rc)
        return rc;
    for (uint32_t i = 0; !rc && i < list.count; i++) {
        const struct options *own = list.at[i];
        if (own->chat_template[0])
            rc = check_readable(unit, "chat-template", own->chat_template, error);
        if (!rc && own->score_template[0])
            rc = check_readable(unit, "score-template", own->score_template, error);
        if (!rc && strncmp(own->model, "synthetic:", strlen("synthetic:")) != 0)
            rc = check_model(unit, own->model, error);
    }
    model_list_free(&list);
    return rc;
}

int unit_check(const struct unit *unit, const struct options *options, struct error *error)
{
    int rc = check_addresses(unit, "http", options->http, error);
    if (!rc)
        rc = check_addresses(unit, "metrics", options->metrics, error);
    if (!rc)
        rc = check_addresses(unit, "agent-check", options->agent_check, error);
    if (rc || unit->other_root)
        return rc;
    if (options->socket[0])
        rc = check_writable(unit, "socket", options->socket, error);
    if (!rc && options->profile_file[0])
        rc = check_writable(unit, "profile-file", options->profile_file, error);
    if (!rc && options->api_key_file[0])
        rc = check_readable(unit, "api-key-file", options->api_key_file, error);
    if (!rc && options->module_dir[0])
        rc = check_readable(unit, "module-dir", options->module_dir, error);
    if (!rc)
        rc = check_programs(unit, options->program, error);
    if (!rc)
        rc = check_adapters(unit, options->adapter, error);
    if (!rc && options->adapter_dir[0])
        rc = check_readable(unit, "adapter-dir", options->adapter_dir, error);
    if (!rc && options->state_dir[0])
        rc = check_writable(unit, "state-dir", options->state_dir, error);
    return rc ? rc : check_models(unit, options, error);
}

/* ---- user --------------------------------------------------------------------------------------
 */

int unit_become(const struct unit *unit, struct error *error)
{
    if (!unit->user[0])
        return 0;
    const struct passwd *entry = getpwnam(unit->user);
    if (!entry)
        return error_set(error, ERR_BAD_CONFIG,
                         "there is no user %s, whom %s runs as: systemd-sysusers makes it",
                         unit->user, unit->name);
    if (geteuid() != 0) {
        if (geteuid() != entry->pw_uid)
            log_line(LOG_WARNING, "sluiced",
                     "checked by another user than %s, whom %s runs as: what that may read is not "
                     "known (root can tell)",
                     unit->user, unit->name);
        return 0;
    }
    if (initgroups(entry->pw_name, entry->pw_gid) ||
        setresgid(entry->pw_gid, entry->pw_gid, entry->pw_gid) ||
        setresuid(entry->pw_uid, entry->pw_uid, entry->pw_uid))
        return error_set(error, ERR_IO, "cannot go on as user %s: %s", unit->user, strerror(errno));
    return 0;
}

bool unit_is_user(const struct unit *unit)
{
    const struct passwd *entry = unit->user[0] ? getpwnam(unit->user) : NULL;
    return entry && geteuid() == entry->pw_uid;
}

void unit_explain(const struct unit *unit, struct error *error)
{
    const struct error inner = *error;
    if (unit_is_user(unit))
        error_set(error, inner.code, "%.400s (as user %s, as %s)", inner.text, unit->user,
                  unit->name);
}
