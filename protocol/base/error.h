/* Error codes: what functions return negated, and what crosses the wire.
 *
 * A function that can fail returns 0 or a negative code, and leaves its ret_ parameters untouched
 * on failure. Where a text for the user is needed, it is written into a struct error that the
 * caller owns; nothing is allocated. Any thread.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum error_code {
#define ERROR(name, number, retry, text) ERR_##name = number,
#include "protocol/base/error.def"
#undef ERROR
};

enum error_retry { RETRY_NEVER, RETRY_LATER, RETRY_FIX };

#define ERROR_TEXT_MAX 512

struct error {
    int code;                  /* positive enum error_code; 0 when nothing failed */
    uint32_t retry_after_ms;   /* hint for RETRY_LATER; 0 where there is none */
    uint64_t limit;            /* the limit that was met, where one was */
    uint64_t value;            /* the value that met it */
    char text[ERROR_TEXT_MAX]; /* one line, names the thing; never holds content of a request */
};

/* Fills *error and returns -code, so that a check reads: return error_set(error, ERR_BUSY, "...").
 * A null error is allowed: only the code is returned then. */
int error_set(struct error *error, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The same with the limit and the value that went over it. */
int error_limit(struct error *error, int code, uint64_t limit, uint64_t value, const char *format,
                ...) __attribute__((format(printf, 5, 6)));

/* The code for what the system refused by this errno: ERR_IO or ERR_NO_MEMORY where it is out of
 * something and may have it later, else `otherwise`. */
int error_of_system(int number, int otherwise);

const char *error_name(int code); /* "busy", "too_large": lower case; "unknown" for other numbers */
const char *error_text(int code);
enum error_retry error_retry(int code);
int error_from_name(const char *name); /* 0 when no error has that name */
