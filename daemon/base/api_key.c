#include "daemon/base/api_key.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "daemon/base/siphash.h"
#include "protocol/base/utf8.h"

#define FILE_MAX ((size_t)1 << 20)

struct key {
    unsigned char bytes[KEY_MAX]; /* with zeros behind it */
    uint64_t user;
    char name[KEY_NAME_MAX + 1];
};

static struct siphash_key secret; /* set once, before other threads */

void keys_set_secret(uint64_t first, uint64_t second)
{
    secret = (struct siphash_key){{first, second}};
}

uint64_t keys_hash(const char *bytes, size_t length)
{
    struct siphash hash;
    siphash_begin(&hash, &secret);
    siphash_add(&hash, bytes, length);
    return siphash_end(&hash);
}

/* The user stays the same whatever other keys there are. Of 60 bits. */
uint64_t keys_user_of(const char *name, size_t length)
{
    return KEY_USER_ANONYMOUS + 1 + (keys_hash(name, length) >> 4);
}

/* It stands in logs and labels. */
bool keys_is_name(const char *name, size_t length)
{
    if (length == 0 || length > KEY_NAME_MAX)
        return false;
    for (size_t at = 0, step; at < length; at += step) {
        step = utf8_length((const unsigned char *)name + at, length - at);
        if (step == 0 || (unsigned char)name[at] <= ' ' || name[at] == 0x7f)
            return false;
    }
    return true;
}

/* One key is one user's, and one number is one name's. */
static int compare(const struct keys *keys, const struct key *made, const char *file,
                   unsigned number, struct error *error)
{
    for (uint32_t i = 0; i < keys->count; i++) {
        const struct key *other = &keys->keys[i];
        if (memcmp(other->bytes, made->bytes, KEY_MAX) == 0)
            return error_set(error, ERR_BAD_CONFIG, "%.256s:%u: %s has the key of %s", file, number,
                             made->name, other->name);
        if (other->user == made->user && strcmp(other->name, made->name) != 0)
            return error_set(error, ERR_BAD_CONFIG,
                             "%.256s:%u: %s and %s would be one user: choose another name", file,
                             number, made->name, other->name);
    }
    return 0;
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
    if (!keys_is_name(line, who))
        return error_set(error, ERR_BAD_CONFIG, "%.256s:%u: a name is printable text", name,
                         number);
    if (memchr(line, '/', who))
        return error_set(error, ERR_BAD_CONFIG,
                         "%.256s:%u: a name has no '/': what comes behind one is a user that a "
                         "trusted key names",
                         name, number);
    if (keys->count == KEYS_MAX)
        return error_set(error, ERR_BAD_CONFIG, "%.256s: more than %d keys", name, KEYS_MAX);
    if (!keys->keys)
        keys->keys = calloc(KEYS_MAX, sizeof(*keys->keys)); /* what grew would leave keys behind */
    if (!keys->keys)
        return error_set(error, ERR_NO_MEMORY, "no memory for keys");
    struct key *made = &keys->keys[keys->count];
    memcpy(made->bytes, key, key_length);
    memcpy(made->name, line, who);
    made->user = keys_user_of(line, who);
    int rc = compare(keys, made, name, number, error);
    keys->count++;
    return rc;
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
    char *text = malloc(FILE_MAX + 2);
    size_t length = file && text ? fread(text, 1, FILE_MAX + 1, file) : 0;
    int rc = 0;
    if (!file)
        rc = error_set(error, error_of_system(errno, ERR_BAD_CONFIG),
                       "cannot read %.256s (api-key-file): %s", path, strerror(errno));
    else if (!text)
        rc = error_set(error, ERR_NO_MEMORY, "no memory for keys");
    else if (ferror(file))
        rc = error_set(error, error_of_system(errno, ERR_BAD_CONFIG),
                       "cannot read %.256s (api-key-file): %s", path, strerror(errno));
    else if (length > FILE_MAX)
        rc = error_set(error, ERR_BAD_CONFIG, "%.256s (api-key-file) is larger than %zu bytes",
                       path, FILE_MAX);
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

bool keys_have(const struct keys *keys, const char *name, size_t length)
{
    for (uint32_t i = 0; i < keys->count; i++)
        if (strlen(keys->keys[i].name) == length && memcmp(keys->keys[i].name, name, length) == 0)
            return true;
    return false;
}

uint64_t keys_user(const struct keys *keys, const char *authorization, const char *key,
                   const char **ret_name)
{
    unsigned char given[KEY_MAX] = {0};
    uint64_t found = 0; /* its place among the keys, and one more */
    if (authorization)
        key = strncasecmp(authorization, "Bearer ", 7) == 0 ? authorization + 7 : NULL;
    size_t length = key ? strlen(key) : 0;
    if (length == 0 || length > KEY_MAX)
        return 0;
    memcpy(given, key, length);
    for (uint32_t i = 0; i < keys->count; i++) {
        unsigned difference = 0;
        for (size_t at = 0; at < KEY_MAX; at++)
            difference |= (unsigned)(given[at] ^ keys->keys[i].bytes[at]);
        /* All ones when equal, without a branch. */
        uint64_t equal = (uint64_t)0 - (uint64_t)((difference - 1) >> 31);
        found |= (i + 1) & equal;
    }
    if (!found)
        return 0;
    *ret_name = keys->keys[found - 1].name;
    return keys->keys[found - 1].user;
}
