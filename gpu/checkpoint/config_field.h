/* Typed fields of a JSON object of a model file, each held to a range.
 *
 * A field that is absent or null leaves the value untouched, so the caller's initial value is the
 * default. Errors are ERR_BAD_MODEL: "config.json: rope_scaling.factor: -1 is no number from ...".
 * Any thread; borrows from the document.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "protocol/base/error.h"
#include "protocol/base/json.h"

struct fields {
    const json *object;
    const char *file;   /* "config.json" */
    const char *parent; /* "rope_scaling", or NULL at the top */
    struct error *error;
};

const json *field_get(const struct fields *fields, const char *name); /* NULL: absent or null */
int field_require(const struct fields *fields, const char *name);

int field_integer(const struct fields *fields, const char *name, int64_t min, int64_t max,
                  int64_t *value);
int field_size(const struct fields *fields, const char *name, uint32_t max,
               uint32_t *value); /* 1.. */
int field_number(const struct fields *fields, const char *name, double min, double max,
                 double *value);
int field_flag(const struct fields *fields, const char *name, bool *value);
int field_string(const struct fields *fields, const char *name, const char **value);

/* Refuses a value: "FILE: FIELD: VALUE is not WANTED". `wanted` says what would have been right. */
int field_refuse(const struct fields *fields, const char *name, const json *value,
                 const char *wanted);

/* As a message shows it: strings quoted, cut and printable; "a list", "an object". */
#define FIELD_SHOWN_MAX 64
void field_show(const json *value, char shown[FIELD_SHOWN_MAX]);
