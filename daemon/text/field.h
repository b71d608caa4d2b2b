/* Reading the components of a tokenizer.json strictly: every error names the field by its path,
 * such as "pre_tokenizer.pretokenizers[1].pattern". Any thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "protocol/base/error.h"
#include "protocol/base/json.h"

#define FIELD_PATH_MAX 128

/* A component and where it stands. */
struct field {
    const json *value;
    char path[FIELD_PATH_MAX];
};

struct field field_of(const struct field *parent, const char *key);
struct field field_at(const struct field *parent, const json *element, size_t index);

/* Every member of the object is one of `names` (separated by single spaces), or it is refused. */
int field_only(const struct field *object, const char *names, struct error *error);

/* The component's "type". The text is borrowed from the document. */
int field_type(const struct field *object, const char **ret_type, struct error *error);

/* A member that may be absent or null, which leaves `*ret_value` at what it was. */
int field_bool(const struct field *object, const char *key, bool *ret_value, struct error *error);
int field_text(const struct field *object, const char *key, const char **ret_value,
               struct error *error);

/* A component, or each of those that a Sequence lists under `key`, in their order: what reads one
 * is given its type. Absent or null: nothing. */
typedef int (*field_reader)(void *context, const struct field *field, const char *type,
                            struct error *error);
int field_steps(const struct field *field, const char *key, field_reader read, void *context,
                struct error *error);

/* "PATH: TYPE is not supported", as ERR_UNSUPPORTED; the name is cut and cleaned before it is
 * shown. */
int field_unknown(const struct field *object, const char *what, const char *name,
                  struct error *error);
int field_wrong(const struct field *object, const char *key, const char *expected,
                struct error *error);
