#include "daemon/base/api_key.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define FILE_MAX ((size_t)1 << 20)

struct key {
    unsigned char bytes[KEY_MAX]; /* with zeros behind it */
    uint64_t user;
};

/* FNV-1a of the name: the user stays the same whatever other keys there are. */
uint64_t keys_user_of(const char *name, size_t length)
{
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)name[i]) * 16777619u;
    return KEY_USER_FIRST + hash;
}

static int read_line(struct keys *keys, const char *name, unsigned number, const char *line,
                     size_t length, struct error *error)
{
    size_t who = strcspn(line, " \t\r\n"), gap = strspn(line + who, " \t");
    const char *key = line + who + gap;
    size_t key_length = strcspn(key, " \t\r\n");
    if (who == 0 || who > length || gap == 0 || key_length == 0 ||
        strspn(key + key_length, " \t\r") + (size_t)(key - line) + key_length != length)
        return error_set(error, ERR_BAD_CONFIG, "%.256s:%u: \"NAME KEY\" is expected", name,
                         number);
    if (who > KEY_NAME_MAX || key_length > KEY_MAX)
        return error_set(error, ERR_BAD_CONFIG, "%.256s:%u: a name has at most %d bytes, a key %d",
                         name, number, KEY_NAME_MAX, KEY_MAX);
    if (keys->count == KEYS_MAX)
        return error_set(error, ERR_BAD_CONFIG, "%.256s: more than %d keys", name, KEYS_MAX);
    struct key *grown = realloc(keys->keys, (keys->count + 1) * sizeof(*grown));
    if (!grown)
        return error_set(error, ERR_NO_MEMORY, "no memory for keys");
    keys->keys = grown;
    struct key *made = &grown[keys->count++];
    memset(made, 0, sizeof(*made));
    memcpy(made->bytes, key, key_length);
    made->user = keys_user_of(line, who);
    return 0;
}

int keys_read(struct keys *keys, const char *name, const char *text, size_t length,
              struct error *error)
{
    unsigned number = 0;
    int rc = 0;
    *keys = (struct keys){0};
    for (const char *line = text; !rc && line < text + length; number++) {
        const char *end = memchr(line, '\n', (size_t)(text + length - line));
        size_t line_length = (size_t)((end ? end : text + length) - line);
        size_t blank = strspn(line, " \t\r");
        if (blank < line_length && line[blank] != '#')
            rc = read_line(keys, name, number + 1, line, line_length, error);
        line += line_length + 1;
    }
    if (!rc && keys->count == 0)
        rc = error_set(error, ERR_BAD_CONFIG, "%.256s holds no key", name);
    if (rc)
        keys_free(keys);
    return rc;
}

int keys_load(struct keys *keys, const char *path, struct error *error)
{
    FILE *file = fopen(path, "re");
    char *text = malloc(FILE_MAX + 1);
    size_t length = file && text ? fread(text, 1, FILE_MAX, file) : 0;
    int rc = 0;
    if (!file)
        rc = error_set(error, error_of_system(errno, ERR_BAD_CONFIG),
                       "cannot read %.256s (api-key-file): %s", path, strerror(errno));
    else if (!text)
        rc = error_set(error, ERR_NO_MEMORY, "no memory for keys");
    if (!rc) {
        text[length] = '\0';
        rc = keys_read(keys, path, text, length, error);
    }
    if (text)
        explicit_bzero(text, length);
    free(text);
    if (file)
        fclose(file);
    return rc;
}

void keys_free(struct keys *keys)
{
    if (keys->keys)
        explicit_bzero(keys->keys, keys->count * sizeof(*keys->keys));
    free(keys->keys);
    *keys = (struct keys){0};
}

uint64_t keys_user(const struct keys *keys, const char *authorization)
{
    unsigned char given[KEY_MAX] = {0};
    uint64_t user = 0;
    if (!authorization || strncasecmp(authorization, "Bearer ", 7) != 0)
        return 0;
    size_t length = strlen(authorization + 7);
    if (length == 0 || length > KEY_MAX)
        return 0;
    memcpy(given, authorization + 7, length);
    for (uint32_t i = 0; i < keys->count; i++) {
        unsigned difference = 0;
        for (size_t at = 0; at < KEY_MAX; at++)
            difference |= (unsigned)(given[at] ^ keys->keys[i].bytes[at]);
        /* All ones when equal, without a branch. */
        uint64_t equal = (uint64_t)0 - (uint64_t)((difference - 1) >> 31);
        user |= keys->keys[i].user & equal;
    }
    return user;
}
