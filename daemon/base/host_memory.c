#include "daemon/base/host_memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysinfo.h>

#define PATH_MAX_BYTES 4096
#define STAYS_SHARE 16u /* such a part of all memory stays */

/* The number behind a word that a line begins with; the file's only one where the word is "". */
static bool number_in(const char *path, const char *word, uint64_t *ret_number)
{
    char line[256];
    FILE *file = fopen(path, "re");
    bool found = false;
    while (file && !found && fgets(line, sizeof(line), file))
        found = strncmp(line, word, strlen(word)) == 0 &&
                sscanf(line + strlen(word), "%" SCNu64, ret_number) == 1;
    if (file)
        fclose(file);
    return found;
}

static bool group_number(const char *group, const char *file, const char *word,
                         uint64_t *ret_number)
{
    char path[PATH_MAX_BYTES + 64];
    snprintf(path, sizeof(path), "%s/%s", group, file);
    return number_in(path, word, ret_number);
}

static void take_least(struct host_memory *memory, uint64_t all, uint64_t left)
{
    if (left < memory->left)
        *memory = (struct host_memory){.all = all, .left = left};
}

/* A group without a limit says "max". */
static void take_group(struct host_memory *memory, const char *group)
{
    uint64_t all, used, file;
    if (!group_number(group, "memory.max", "", &all) ||
        !group_number(group, "memory.current", "", &used))
        return;
    if (group_number(group, "memory.stat", "inactive_file ", &file))
        used -= file < used ? file : used;
    if (group_number(group, "memory.stat", "active_file ", &file))
        used -= file < used ? file : used;
    take_least(memory, all, used < all ? all - used : 0);
}

/* "0::/path": the group of this process in the one hierarchy; those above it limit it, too. */
static void take_groups(struct host_memory *memory, const char *root)
{
    char path[PATH_MAX_BYTES], line[PATH_MAX_BYTES / 2];
    snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "re");
    bool found = false;
    while (file && !found && fgets(line, sizeof(line), file))
        found = strncmp(line, "0::/", 4) == 0;
    if (file)
        fclose(file);
    if (!found)
        return;
    line[strcspn(line, "\n")] = '\0';
    int top = snprintf(path, sizeof(path), "%s/sys/fs/cgroup", root);
    size_t length =
        (size_t)top + (size_t)snprintf(path + top, sizeof(path) - (size_t)top, "%s", line + 3);
    for (; length >= (size_t)top && length < sizeof(path); path[length] = '\0') {
        take_group(memory, path);
        while (length > (size_t)top && path[length - 1] != '/')
            length--;
        if (length == (size_t)top)
            break;
        length--; /* the slash */
    }
}

static bool read_meminfo(const char *root, struct host_memory *ret_memory)
{
    char path[PATH_MAX_BYTES];
    snprintf(path, sizeof(path), "%s/proc/meminfo", root);
    if (!number_in(path, "MemTotal:", &ret_memory->all) ||
        !number_in(path, "MemAvailable:", &ret_memory->left))
        return false;
    ret_memory->all *= 1024; /* it is told in kB */
    ret_memory->left *= 1024;
    return true;
}

/* A service may not see meminfo (ProcSubset=pid). What files take the group of all then tells. */
static bool read_sysinfo(const char *root, struct host_memory *ret_memory)
{
    struct sysinfo info;
    char path[PATH_MAX_BYTES];
    static const char *const words[] = {"inactive_file ", "active_file "};
    if (sysinfo(&info) != 0)
        return false;
    uint64_t all = (uint64_t)info.totalram * info.mem_unit, file;
    uint64_t left = ((uint64_t)info.freeram + info.bufferram) * info.mem_unit;
    snprintf(path, sizeof(path), "%s/sys/fs/cgroup/memory.stat", root);
    for (int i = 0; i < 2; i++)
        if (number_in(path, words[i], &file))
            left += file < all ? file : all;
    *ret_memory = (struct host_memory){.all = all, .left = left < all ? left : all};
    return true;
}

bool host_memory_read(const char *root, struct host_memory *ret_memory)
{
    struct host_memory memory;
    if (!read_meminfo(root, &memory) && !read_sysinfo(root, &memory))
        return false;
    take_groups(&memory, root);
    *ret_memory = memory;
    return true;
}

bool host_memory_spares(const struct host_memory *memory, uint64_t bytes)
{
    uint64_t stays = memory->all / STAYS_SHARE;
    return memory->left >= stays && memory->left - stays >= bytes;
}
