#include "tests/model/scratch.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void need(int holds, const char *what)
{
    if (holds)
        return;
    perror(what);
    abort();
}

void scratch_path(const char *directory, const char *name, char path[SCRATCH_PATH_MAX])
{
    int length = snprintf(path, SCRATCH_PATH_MAX, "%s/%s", directory, name);
    need(length > 0 && length < SCRATCH_PATH_MAX, name);
}

void scratch_make(char directory[SCRATCH_PATH_MAX])
{
    const char *base = getenv("TMPDIR");
    scratch_path(base ? base : "/tmp", "sluice-model-XXXXXX", directory);
    need(mkdtemp(directory) != NULL, directory);
}

/* Calls `each` with the name of every entry but "." and "..". */
static void list(const char *directory, void (*each)(const char *, const char *, void *),
                 void *data)
{
    DIR *open = opendir(directory);
    need(open != NULL, directory);
    for (struct dirent *entry; (entry = readdir(open));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            each(directory, entry->d_name, data);
    closedir(open);
}

static void remove_one(const char *directory, const char *name, void *data)
{
    (void)data;
    char path[SCRATCH_PATH_MAX];
    scratch_path(directory, name, path);
    need(remove(path) == 0, path);
}

void scratch_remove(const char *directory)
{
    list(directory, remove_one, NULL);
    need(rmdir(directory) == 0, directory);
}

void scratch_write(const char *directory, const char *name, const void *bytes, size_t length)
{
    char path[SCRATCH_PATH_MAX];
    scratch_path(directory, name, path);
    FILE *file = fopen(path, "wb");
    need(file != NULL, path);
    need(fwrite(bytes, 1, length, file) == length, path);
    need(fclose(file) == 0, path);
}

void scratch_truncate(const char *directory, const char *name, uint64_t length)
{
    char path[SCRATCH_PATH_MAX];
    scratch_path(directory, name, path);
    need(truncate(path, (off_t)length) == 0, path);
}

char *scratch_read(const char *directory, const char *name, size_t *ret_length)
{
    char path[SCRATCH_PATH_MAX];
    scratch_path(directory, name, path);
    FILE *file = fopen(path, "rb");
    need(file != NULL, path);
    need(fseek(file, 0, SEEK_END) == 0, path);
    size_t length = (size_t)ftell(file);
    rewind(file);
    char *bytes = malloc(length + 1);
    need(bytes && fread(bytes, 1, length, file) == length, path);
    fclose(file);
    bytes[length] = '\0';
    if (ret_length)
        *ret_length = length;
    return bytes;
}

static void copy_one(const char *from, const char *name, void *directory)
{
    size_t length = 0;
    char *bytes = scratch_read(from, name, &length);
    scratch_write(directory, name, bytes, length);
    free(bytes);
}

void scratch_copy(const char *from, const char *directory)
{
    list(from, copy_one, (void *)directory);
}

void scratch_rename(const char *directory, const char *name, const char *from, const char *to)
{
    char before[256], after[256];
    need(snprintf(before, sizeof before, "\"%s\":", from) < (int)sizeof before, from);
    need(snprintf(after, sizeof after, "\"%s\":", to) < (int)sizeof after, to);
    scratch_replace(directory, name, before, after);
    size_t length = 0;
    uint64_t header = 0; /* places of data count from its end on */
    char *bytes = scratch_read(directory, name, &length);
    memcpy(&header, bytes, sizeof header);
    header += strlen(to) - strlen(from);
    memcpy(bytes, &header, sizeof header);
    scratch_write(directory, name, bytes, length);
    free(bytes);
}

void scratch_replace(const char *directory, const char *name, const char *from, const char *to)
{
    size_t length = 0, cut = strlen(from), put = strlen(to);
    char *bytes = scratch_read(directory, name, &length);
    char *place = memmem(bytes, length, from, cut);
    need(place != NULL, from);
    char *made = malloc(length - cut + put);
    need(made != NULL, name);
    size_t before = (size_t)(place - bytes);
    memcpy(made, bytes, before);
    memcpy(made + before, to, put);
    memcpy(made + before + put, place + cut, length - before - cut);
    scratch_write(directory, name, made, length - cut + put);
    free(made);
    free(bytes);
}

void scratch_overwrite(const char *directory, const char *name, const char *tensor,
                       const void *bytes, size_t size)
{
    size_t length = 0;
    char *file = scratch_read(directory, name, &length), quoted[128];
    uint64_t header = 0;
    memcpy(&header, file, sizeof header);
    snprintf(quoted, sizeof quoted, "\"%s\"", tensor);
    char *at = memmem(file, length, quoted, strlen(quoted));
    need(at != NULL, tensor);
    at = strstr(at, "\"data_offsets\":[");
    uint64_t begin = strtoull(at + strlen("\"data_offsets\":["), NULL, 10);
    memcpy(file + sizeof header + header + begin, bytes, size);
    scratch_write(directory, name, file, length);
    free(file);
}
