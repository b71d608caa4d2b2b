#include "gpu/checkpoint/snapshot.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HASH_LENGTH 40
#define REPOSITORY "models--"

struct part {
    const char *text;
    size_t length;
};

/* The last part before `end`, without the slashes behind it; *ret_start is where it begins. */
static struct part last_part(const char *path, size_t end, size_t *ret_start)
{
    while (end > 0 && path[end - 1] == '/')
        end--;
    size_t start = end;
    while (start > 0 && path[start - 1] != '/')
        start--;
    *ret_start = start;
    return (struct part){path + start, end - start};
}

static bool is(struct part part, const char *text)
{
    return part.length == strlen(text) && memcmp(part.text, text, part.length) == 0;
}

/* Says nothing of its own: what it stands for is to be looked up. */
static bool is_opaque(struct part part)
{
    size_t digits = 0;
    while (digits < part.length && strchr("0123456789abcdef", part.text[digits]))
        digits++;
    return part.length == 0 || is(part, ".") || is(part, "..") ||
           (digits == part.length && digits == HASH_LENGTH);
}

/* The repository's name; false where the path is no snapshot's. */
static bool repository_of(const char *path, char *name, size_t size)
{
    size_t start;
    size_t prefix = strlen(REPOSITORY);
    last_part(path, strlen(path), &start);
    struct part middle = last_part(path, start, &start);
    struct part first = last_part(path, start, &start);
    if (!is(middle, "snapshots") || first.length <= prefix ||
        memcmp(first.text, REPOSITORY, prefix) != 0)
        return false;
    snprintf(name, size, "%.*s", (int)(first.length - prefix), first.text + prefix);
    char *gap = strstr(name, "--"); /* no name of the hub has it */
    if (gap) {
        *gap = '/';
        memmove(gap + 1, gap + 2, strlen(gap + 2) + 1);
    }
    return true;
}

void snapshot_name(const char *directory, char *name, size_t size)
{
    size_t start;
    struct part part = last_part(directory, strlen(directory), &start);
    char *whole = is_opaque(part) ? realpath(directory, NULL) : NULL;
    const char *path = whole ? whole : directory;
    if (!repository_of(path, name, size)) {
        part = last_part(path, strlen(path), &start);
        snprintf(name, size, "%.*s", (int)part.length, part.text);
    }
    free(whole);
}
