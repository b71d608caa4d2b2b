#include "daemon/adapters/adapter_folder.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool is_adapter(const char *directory, const char *name)
{
    char path[PATH_MAX];
    int length = snprintf(path, sizeof(path), "%s/%s/adapter_config.json", directory, name);
    return name[0] != '.' && length < (int)sizeof(path) && access(path, F_OK) == 0;
}

/* As names of the option `adapter` are. */
static bool is_name(const char *name)
{
    bool plain = strlen(name) < MODEL_NAME_SIZE;
    for (const char *at = name; *at; at++)
        plain = plain && (unsigned char)*at > ' ' && *at != 0x7f;
    return plain;
}

static int add(struct adapter_folder *folder, const char *name, struct error *error)
{
    if (!is_name(name))
        return error_set(error, ERR_BAD_CONFIG,
                         "adapter-dir: %.64s: a name has at most %d bytes, and no space among them",
                         name, MODEL_NAME_SIZE - 1);
    if (folder->count == ADAPTERS_KNOWN_MAX)
        return error_limit(error, ERR_BAD_CONFIG, ADAPTERS_KNOWN_MAX, ADAPTERS_KNOWN_MAX + 1,
                           "adapter-dir: more than %d adapters", ADAPTERS_KNOWN_MAX);
    snprintf(folder->names[folder->count++], MODEL_NAME_SIZE, "%s", name);
    return 0;
}

static int compare(const void *a, const void *b)
{
    return strcmp(a, b);
}

int adapter_folder_read(struct adapter_folder *ret, const char *directory, struct error *error)
{
    const struct dirent *entry;
    int rc = 0;
    ret->count = 0;
    if (!directory[0])
        return 0;
    DIR *dir = opendir(directory);
    if (!dir)
        return error_set(error, ERR_BAD_CONFIG, "adapter-dir: %s: %s", directory, strerror(errno));
    while (!rc && (entry = readdir(dir)))
        if (is_adapter(directory, entry->d_name))
            rc = add(ret, entry->d_name, error);
    closedir(dir);
    qsort(ret->names, ret->count, sizeof(ret->names[0]), compare);
    return rc;
}

int adapter_folder_apart(const struct adapter_folder *folder, const struct adapter_names *adapters,
                         const struct model_names *models, struct error *error)
{
    uint32_t count = folder->count + adapters->count;
    if (count > ADAPTERS_KNOWN_MAX)
        return error_limit(error, ERR_BAD_CONFIG, ADAPTERS_KNOWN_MAX, count,
                           "adapter-dir: %u adapters, with those of adapter: at most %d", count,
                           ADAPTERS_KNOWN_MAX);
    for (uint32_t i = 0; i < folder->count; i++) {
        if (model_names_has(models, folder->names[i]))
            return error_set(error, ERR_BAD_CONFIG, "adapter-dir: %s is a name of the model",
                             folder->names[i]);
        if (adapter_names_find(adapters, folder->names[i]))
            return error_set(error, ERR_BAD_CONFIG, "adapter-dir: %s is an adapter already",
                             folder->names[i]);
    }
    return 0;
}
