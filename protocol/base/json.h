/* Strict JSON: the only way that JSON from outside comes into Sluice, over cJSON.
 *
 * Refuses what cJSON alone lets through: invalid UTF-8, \u0000, duplicate keys (keys are
 * case-sensitive), integers beyond 2^53, nesting and size over the given bounds, anything but white
 * space after the value. All but duplicate keys is checked before cJSON sees the text, without
 * allocation.
 *
 * A parsed document is owned by the caller (json_free). Values are borrowed from it. Any thread; a
 * document by one thread at a time.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol/base/error.h"

struct cJSON;
typedef struct cJSON json; /* opaque to callers */

struct json_bounds {
    size_t bytes_max;    /* text length */
    uint32_t depth_max;  /* nesting of arrays and objects, at most 64 */
    uint32_t values_max; /* of them and what they hold; each takes some 80 bytes. 0 = no limit */
};

/* text need not be terminated. On failure *error names the byte offset and what is wrong there:
 * ERR_TOO_LARGE (over the bounds), ERR_NO_MEMORY, else ERR_BAD_HEAD. */
int json_parse(const char *text, size_t length, struct json_bounds bounds, json **ret_document,
               struct error *error);
void json_free(json *document);
/* Frees all members but those with one of these keys. The document must be the caller's. */
void json_keep(json *object, const char *const *keys, size_t count);

bool json_is_object(const json *value);
bool json_is_array(const json *value);
bool json_is_string(const json *value);
bool json_is_number(const json *value);
bool json_is_bool(const json *value);
bool json_is_null(const json *value);

const json *json_get(const json *object, const char *key); /* NULL when absent or not an object */
const json *json_child(const json *container);             /* first element or member, or NULL */
const json *json_next(const json *value);
const char *json_key(const json *member); /* "" of what is no object's member */
size_t json_count(const json *container);

const char *json_string(const json *value); /* "" when not a string */
bool json_bool(const json *value);
double json_number(const json *value); /* 0 when not a number */

/* A whole number within [min, max], or an error that names `what`. */
int json_integer(const json *value, const char *what, int64_t min, int64_t max, int64_t *ret,
                 struct error *error);

/* Writing: appends to a caller's buffer and never over its end. `used` may pass `size`: then the
 * text was cut, and used says how much room it would have taken (as snprintf does).
 *
 * What is written passes json_parse: bytes of a string that are no UTF-8, and NUL, become U+FFFD.
 * The caller's to avoid are integers beyond 2^53 and doubles from 1e308. */
struct json_writer {
    char *buffer;
    size_t size, used;
    bool comma; /* a comma is due before the next element */
};
void json_writer_init(struct json_writer *writer, char *buffer, size_t size);
void json_open(struct json_writer *writer, const char *key, char bracket); /* key NULL in arrays */
void json_close(struct json_writer *writer, char bracket);
void json_put_string(struct json_writer *writer, const char *key, const char *value, size_t length);
void json_put_text(struct json_writer *writer, const char *key, const char *value);
void json_put_int(struct json_writer *writer, const char *key, int64_t value);
void json_put_uint(struct json_writer *writer, const char *key, uint64_t value);
void json_put_double(struct json_writer *writer, const char *key,
                     double value); /* %.9g; null if not finite */
void json_put_exact(struct json_writer *writer, const char *key,
                    double value); /* reads back as the same value; null if not finite */
void json_put_bool(struct json_writer *writer, const char *key, bool value);
void json_put_null(struct json_writer *writer, const char *key);
/* A parsed value, with all it holds; whole numbers stay whole. */
void json_put_value(struct json_writer *writer, const char *key, const json *value);

/* Writes one JSON value; may be called twice, and does the same both times. */
typedef void (*json_write)(struct json_writer *writer, const void *context);
/* All that it writes, with a zero byte behind it, to be freed; NULL: no memory. */
char *json_written(json_write write, const void *context, size_t *ret_length);
