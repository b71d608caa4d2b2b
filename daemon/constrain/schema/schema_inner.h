/* Between the files of a schema's reading. One thread. */
#pragma once

#include "daemon/constrain/schema/schema.h"

struct schema_path { /* where in the schema, from the inside out, for errors */
    const struct schema_path *up;
    const char *key;
};

struct schema_rule {
    const json *schema;
    const char *ref; /* "#/$defs/..." */
    uint32_t rule;
};

struct schema_reader {
    struct grammar *grammar;
    const json *root;
    struct schema_rule *rules; /* of what is referred to; built one by one, as they are met */
    uint32_t rules_used, rules_room;
    uint32_t steps; /* of looking up and comparing */
};

enum schema_type {
    TYPE_NULL = 1,
    TYPE_BOOLEAN = 2,
    TYPE_INTEGER = 4,
    TYPE_NUMBER = 8,
    TYPE_STRING = 16,
    TYPE_ARRAY = 32,
    TYPE_OBJECT = 64,
    TYPE_ALL = 127
};

/* One step of a search that a schema can make long; false, and an error, after SCHEMA_STEPS_MAX. */
bool schema_step(struct schema_reader *reader);
/* json_get and a list's member by such steps. */
const json *schema_get(struct schema_reader *reader, const json *object, const char *key);
bool schema_lists(struct schema_reader *reader, const json *list, const char *text);

void schema_path_write(const struct schema_path *path, char *text, size_t size);
/* `what` says what is wrong with the keyword. */
void schema_refuse(struct schema_reader *reader, const struct schema_path *path,
                   const char *keyword, const char *what);

uint32_t schema_value(struct schema_reader *reader, uint32_t from, const json *schema,
                      const struct schema_path *path);
uint32_t schema_object(struct schema_reader *reader, uint32_t from, const json *schema,
                       const struct schema_path *path);
uint32_t schema_array(struct schema_reader *reader, uint32_t from, const json *schema,
                      const struct schema_path *path);
uint32_t schema_string(struct schema_reader *reader, uint32_t from, const json *schema,
                       const struct schema_path *path);
uint32_t schema_number(struct schema_reader *reader, uint32_t from, const json *schema, bool whole,
                       const struct schema_path *path);

/* A count such as minItems; `otherwise` where it is absent. */
uint32_t schema_count(struct schema_reader *reader, const json *schema, const char *keyword,
                      uint32_t otherwise, const struct schema_path *path);
/* What a schema's values can be, seen without what it refers to: TYPE_ALL where it says nothing. */
unsigned schema_types(struct schema_reader *reader, const json *schema,
                      const struct schema_path *path);
/* The whole of what a schema says must be what its keywords of these names say. */
bool schema_alone(struct schema_reader *reader, const json *schema, const char *const *beside,
                  const char *keyword, const struct schema_path *path);
unsigned schema_type_of(const json *value);
/* Of anyOf, oneOf or allOf. */
uint32_t schema_branches(struct schema_reader *reader, uint32_t from, const json *schema,
                         const char *keyword, const struct schema_path *path);
/* What a reference leads to in the document: "#", or "#/" and a JSON pointer. NULL: nothing there.
 */
const json *schema_find(struct schema_reader *reader, const char *ref);
