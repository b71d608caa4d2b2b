#include "client/bench/api_key.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A header is made of it: one word, and nothing that a header has not. */
static int take(const char *text, size_t length, const char *from, char key[API_KEY_MAX],
                struct error *error)
{
    if (length >= API_KEY_MAX)
        return error_set(error, ERR_USAGE, "%s: a key of more than %d bytes", from,
                         API_KEY_MAX - 1);
    for (size_t i = 0; i < length; i++)
        if (!isgraph((unsigned char)text[i]))
            return error_set(error, ERR_USAGE, "%s: a key has no spaces and no control characters",
                             from);
    memcpy(key, text, length);
    key[length] = '\0';
    return 0;
}

/* The last word of a line; length 0: it has none that counts. */
static const char *last_word(const char *line, size_t *ret_length)
{
    static const char space[] = " \t\r\n";
    line += strspn(line, space);
    size_t end = *line == '#' ? 0 : strlen(line), start;
    while (end > 0 && strchr(space, line[end - 1]))
        end--;
    for (start = end; start > 0 && !strchr(space, line[start - 1]);)
        start--;
    *ret_length = end - start;
    return line + start;
}

static int read_file(const char *path, char key[API_KEY_MAX], struct error *error)
{
    char line[2 * API_KEY_MAX];
    size_t length = 0;
    const char *word = NULL;
    FILE *file = fopen(path, "re");
    if (!file)
        return error_set(error, ERR_USAGE, "api-key-file: %.128s: %s", path,
                         strerrordesc_np(errno));
    while (length == 0 && fgets(line, sizeof(line), file))
        word = last_word(line, &length);
    int failed = ferror(file) ? errno : 0;
    fclose(file);
    if (failed)
        return error_set(error, ERR_USAGE, "api-key-file: %.128s: %s", path,
                         strerrordesc_np(failed));
    if (length == 0)
        return error_set(error, ERR_USAGE, "api-key-file: %.128s: holds no key", path);
    return take(word, length, "api-key-file", key, error);
}

int api_key_read(const char *path, char key[API_KEY_MAX], struct error *error)
{
    const char *own = getenv("OPENAI_API_KEY");
    if (path)
        return read_file(path, key, error);
    return take(own ? own : "", own ? strlen(own) : 0, "OPENAI_API_KEY", key, error);
}
