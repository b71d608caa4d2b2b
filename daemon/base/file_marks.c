#include "daemon/base/file_marks.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Of what a link leads to. False: nothing is known of it. */
static bool look(const char *path, struct file_mark *ret_mark)
{
    struct stat status;
    *ret_mark = (struct file_mark){.there = stat(path, &status) == 0};
    if (!ret_mark->there)
        return errno == ENOENT || errno == ENOTDIR;
    const uint64_t words[FILE_MARK_WORDS] = {
        status.st_dev,
        status.st_ino,
        (uint64_t)status.st_size,
        (uint64_t)status.st_mtim.tv_sec,
        (uint64_t)status.st_mtim.tv_nsec,
        /* Also where the time above was set back, as copies that keep times do. */
        (uint64_t)status.st_ctim.tv_sec,
        (uint64_t)status.st_ctim.tv_nsec,
    };
    memcpy(ret_mark->words, words, sizeof(words));
    return true;
}

static bool is_noted(const struct file_marks *marks, const char *path)
{
    for (uint32_t i = 0; i < marks->count; i++)
        if (strcmp(marks->at[i].path, path) == 0)
            return true;
    return false;
}

void file_marks_note(struct file_marks *marks, const char *directory, const char *name)
{
    char path[PATH_MAX];
    struct file_mark mark;
    int length = snprintf(path, sizeof(path), "%s%s%s", directory, name[0] ? "/" : "", name);
    bool fits = length < (int)sizeof(path);
    if (fits && is_noted(marks, path))
        return;
    bool known = fits && marks->count < FILE_MARKS_MAX && look(path, &mark);
    if (known)
        mark.path = strdup(path);
    if (known && mark.path)
        marks->at[marks->count++] = mark;
    else
        marks->lost = true;
}

static bool holds(const struct file_mark *mark)
{
    struct file_mark now;
    return look(mark->path, &now) && now.there == mark->there &&
           memcmp(now.words, mark->words, sizeof(now.words)) == 0;
}

bool file_marks_hold(const struct file_marks *marks)
{
    bool hold = marks->count > 0 && !marks->lost;
    for (uint32_t i = 0; hold && i < marks->count; i++)
        hold = holds(&marks->at[i]);
    return hold;
}

void file_marks_free(struct file_marks *marks)
{
    for (uint32_t i = 0; i < marks->count; i++)
        free(marks->at[i].path);
    *marks = (struct file_marks){.count = 0};
}
