#include "protocol/base/error.h"

#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define NAME_MAX_LENGTH 24

struct entry {
    int code;
    enum error_retry retry;
    const char *upper;
    const char *text;
};

static const struct entry entries[] = {
#define ERROR(name, number, retry, text) {ERR_##name, RETRY_##retry, #name, text},
#include "protocol/base/error.def"
#undef ERROR
};

#define ENTRIES (sizeof(entries) / sizeof(entries[0]))

/* The preprocessor cannot lower a name, and a second spelling in error.def could differ. */
static char names[ENTRIES][NAME_MAX_LENGTH];
static pthread_once_t names_once = PTHREAD_ONCE_INIT;

#define ERROR(name, number, retry, text)                                                           \
    _Static_assert(sizeof(#name) <= NAME_MAX_LENGTH, "error name too long");
#include "protocol/base/error.def"
#undef ERROR

static void names_fill(void)
{
    for (size_t i = 0; i < ENTRIES; i++)
        for (size_t j = 0; entries[i].upper[j]; j++)
            names[i][j] = (char)tolower((unsigned char)entries[i].upper[j]);
}

static size_t find(int code)
{
    size_t i = 0;
    while (i < ENTRIES && entries[i].code != code)
        i++;
    return i;
}

const char *error_name(int code)
{
    size_t i = find(code);
    pthread_once(&names_once, names_fill);
    return i < ENTRIES ? names[i] : "unknown";
}

const char *error_text(int code)
{
    size_t i = find(code);
    return i < ENTRIES ? entries[i].text : "unknown error";
}

enum error_retry error_retry(int code)
{
    size_t i = find(code);
    return i < ENTRIES ? entries[i].retry : RETRY_NEVER;
}

int error_of_system(int number, int otherwise)
{
    switch (number) {
    case ENOMEM:
    case ENOBUFS:
        return ERR_NO_MEMORY;
    case EMFILE:
    case ENFILE:
    case EAGAIN:
        return ERR_IO;
    default:
        return otherwise;
    }
}

int error_from_name(const char *name)
{
    pthread_once(&names_once, names_fill);
    for (size_t i = 0; i < ENTRIES; i++)
        if (strcmp(names[i], name) == 0)
            return entries[i].code;
    return 0;
}

static void fill(struct error *error, int code, uint64_t limit, uint64_t value, const char *format,
                 va_list arguments)
{
    /* Not straight into error->text: the arguments may point there, when a caller adds where it
     * happened to what it was told. */
    char text[ERROR_TEXT_MAX];
    if (vsnprintf(text, sizeof(text), format, arguments) < 0)
        snprintf(text, sizeof(text), "%s", error_text(code));
    for (char *c = text; *c; c++)
        if (iscntrl((unsigned char)*c))
            *c = '?';
    error->code = code;
    error->retry_after_ms = 0;
    error->limit = limit;
    error->value = value;
    memcpy(error->text, text, strlen(text) + 1);
}

int error_set(struct error *error, int code, const char *format, ...)
{
    if (error) {
        va_list arguments;
        va_start(arguments, format);
        fill(error, code, 0, 0, format, arguments);
        va_end(arguments);
    }
    return -code;
}

int error_limit(struct error *error, int code, uint64_t limit, uint64_t value, const char *format,
                ...)
{
    if (error) {
        va_list arguments;
        va_start(arguments, format);
        fill(error, code, limit, value, format, arguments);
        va_end(arguments);
    }
    return -code;
}
