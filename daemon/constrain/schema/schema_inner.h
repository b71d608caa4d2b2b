/* Between the files of a schema's reading. One thread.
 *
 * What a value must be is a list of parts that it must all meet: schemas, single keywords, and what
 * is left of those that were denied. schema_expand.c takes schemas apart, until each way in which
 * all of them can be met is a list of keywords that speak of the value itself; of each such list
 * the files of the types make the rules.
 */
#pragma once

#include "daemon/constrain/grammar/character.h"
#include "daemon/constrain/machine/language.h"
#include "daemon/constrain/schema/schema.h"

struct schema_path { /* where in the schema, from the inside out, for errors */
    const struct schema_path *up;
    const char *key;
};

enum schema_type {
    TYPE_NULL = 1,
    TYPE_BOOLEAN = 2,
    TYPE_INTEGER = 4,
    TYPE_FRACTION = 8, /* a number that is no integer */
    TYPE_STRING = 16,
    TYPE_ARRAY = 32,
    TYPE_OBJECT = 64,
    TYPE_NUMERIC = TYPE_INTEGER | TYPE_FRACTION,
    TYPE_ALL = 127
};

enum keyword_reader {
    READ_NOT,    /* refused */
    READ_SCALAR, /* stays as it is for the files of types */
    READ_ALL_OF,
    READ_ANY_OF,
    READ_ONE_OF,
    READ_CONTAINS,
    READ_DENIAL,
    READ_DEPENDENT,
    READ_IF,
    READ_ITEMS,
    READ_PROPERTIES,
    READ_REF,
    READ_REQUIRED,
    READ_TYPE
};

struct keyword {
    const char *name;
    enum keyword_reader reader;
    unsigned types;
};

enum part_kind {
    PART_SCHEMA,  /* all that `schema` says */
    PART_KEYWORD, /* what `keyword`, a member of `schema`, says */
    PART_NAME,    /* it is no object, or has the member `name` */
    PART_MEMBER,  /* it is no object, or has no member `name`, or that meets `schema` */
    PART_TYPES
};

struct part {
    const json *schema, *keyword;
    const char *name;
    uint16_t kind, types;
    uint32_t denied; /* the opposite; of PART_MEMBER: of what the schema says */
};

struct parts {
    struct part *list;
    uint32_t count, room;
};

struct schema_rule {
    struct schema_rule *next; /* of all */
    uint32_t rule, count;
    char path[128];
    struct part parts[];
};

struct known_rule { /* of a string, a number or names that are products of automata */
    struct known_rule *next;
    uint64_t hash;
    uint32_t rule;
    char key[];
};

struct schema_place {
    const json *schema, *target; /* of its $ref */
};

/* A value that is a text between marks (schema.h: struct schema_tags). */
struct schema_tagged_value {
    unsigned types;
    const char *except;
    uint32_t depth; /* of choices within choices */
};

struct schema_reader {
    struct grammar *grammar;
    const json *root;
    struct schema_rule *rules, *last; /* built one by one, as they are met */
    struct known_rule *known;
    struct language_store sets;  /* of patterns and lengths */
    struct schema_place *places; /* sorted by schema */
    uint32_t places_used, places_room;
    uint64_t steps;                     /* of looking up and comparing */
    struct schema_tagged_value *tagged; /* the value that is read is one; NULL: it is JSON */
};

/* Steps of a search that a schema can make long; false, and an error, after SCHEMA_STEPS_MAX. */
bool schema_spend(struct schema_reader *reader, uint64_t steps);
bool schema_step(struct schema_reader *reader); /* one */
/* Counts what a language took, and what making its machines did. */
void schema_work(struct schema_reader *reader, const struct language *language);
/* Whether a text is one of the language's, and what telling it takes is counted. At a limit neither
 * answer would be right, and the schema fails. */
bool schema_has(struct schema_reader *reader, struct language *language, const char *text,
                size_t length);
/* The rule that has this key; *ret_made: there was none, and it is to be built. What differs in any
 * way has another key. */
uint32_t schema_known(struct schema_reader *reader, const char *key, bool *ret_made);
/* What a schema says by this name; an eighth of a step for each that stands before it, as a schema
 * may have any number of members that mean nothing. */
const json *schema_said(struct schema_reader *reader, const json *schema, const char *name);
/* json_get and a list's member by such steps. */
const json *schema_get(struct schema_reader *reader, const json *object, const char *key);
bool schema_lists(struct schema_reader *reader, const json *list, const char *text);
bool schema_equal(struct schema_reader *reader, const json *left, const json *right);

void schema_path_write(const struct schema_path *path, char *text, size_t size);
/* `what` says what is wrong with the keyword. */
void schema_refuse(struct schema_reader *reader, const struct schema_path *path,
                   const char *keyword, const char *what);
/* NULL: an annotation, or one that says nothing there. */
const struct keyword *schema_keyword(const json *member);
/* A whole number up to 2^20, such as minItems has. */
uint32_t schema_whole(struct schema_reader *reader, const json *member,
                      const struct schema_path *path);
unsigned schema_type_of(const json *value);
unsigned schema_types(struct schema_reader *reader, const json *type,
                      const struct schema_path *path);

/* What `schema`, which has a $ref, refers to; NULL: nothing in this document. */
const json *schema_target(struct schema_reader *reader, const json *schema);
bool schema_places(struct schema_reader *reader);

void parts_add(struct schema_reader *reader, struct parts *parts, struct part part);
void parts_free(struct parts *parts);
struct part part_schema(const json *schema, bool denied);
/* The values of a part that is a keyword of this name, and not denied; else NULL. */
const json *part_says(const struct part *part, const char *name);

/* Each way in which all parts can be met: as keywords, names, members, and the types that are left.
 * Where a choice is all that there is, `value` is called for its branches instead. */
struct schema_ways {
    void (*way)(void *context, const struct part *parts, uint32_t count, unsigned types);
    void (*value)(void *context, const struct part *parts, uint32_t count);
    void *context;
};
void schema_expand(struct schema_reader *reader, const struct part *parts, uint32_t count,
                   const struct schema_ways *ways, const struct schema_path *path);
/* Whether no value can meet both, as far as can be seen. */
bool schema_apart(struct schema_reader *reader, const json *left, const json *right);
/* Whether a constant meets a part: 1, 0, or -1 where that is not known. */
int schema_admits(struct schema_reader *reader, const struct part *part, const json *value);

/* The document, or NULL: no JSON, or over the limits. */
json *schema_parse(struct grammar *grammar, const char *text, size_t length);
void schema_reader_free(struct schema_reader *reader);
/* The same for a text between marks, by reader->tagged. */
uint32_t schema_value_tagged(struct schema_reader *reader, uint32_t from, const struct part *parts,
                             uint32_t count, const struct schema_path *path);
/* Builds what was called for, which may call for more. */
void schema_rules(struct schema_reader *reader);
/* The node behind a value that meets all of the parts. */
uint32_t schema_value(struct schema_reader *reader, uint32_t from, const struct part *parts,
                      uint32_t count, const struct schema_path *path);

/* What the types make of a way's parts. */
struct way {
    const struct part *parts;
    uint32_t count;
    unsigned types;
    const struct schema_path *path;
};
/* The next keyword of that name from *at on, that is not denied. */
const json *way_next(const struct way *way, const char *name, uint32_t *at);
/* The greatest of all lower bounds and the least of all upper ones, denials included. */
void way_counts(struct schema_reader *reader, const struct way *way, const char *min,
                const char *max, uint32_t *ret_min, uint32_t *ret_max);
uint32_t schema_constants(struct schema_reader *reader, uint32_t from, const struct way *way,
                          const json *values);
uint32_t schema_object(struct schema_reader *reader, uint32_t from, const struct way *way);
uint32_t schema_array(struct schema_reader *reader, uint32_t from, const struct way *way);
uint32_t schema_string(struct schema_reader *reader, uint32_t from, const struct way *way);
uint32_t schema_number(struct schema_reader *reader, uint32_t from, const struct way *way);

/* One condition more of a text, which stands in quotes where its form is JSON's: a pattern, a
 * number of characters, or that it is none of some. */
bool schema_text_length(struct schema_reader *reader, struct language *language, uint32_t min,
                        uint32_t max, enum character_form form);
bool schema_text_except(struct schema_reader *reader, struct language *language,
                        const char *const *texts, uint32_t count, enum character_form form);
/* Those of a text between marks: it has not the closing mark, and is taken for no other type. */
bool schema_text_tagged(struct schema_reader *reader, struct language *language, const char *path);
/* Whether a listed text may stand between marks. */
bool schema_tagged_takes(struct schema_reader *reader, const char *text,
                         const struct schema_path *path);
bool schema_text_pattern(struct schema_reader *reader, struct language *language, const char *text,
                         bool found, bool denied, enum character_form form, const char *path);
const char *schema_format(const char *name); /* its pattern; NULL: not known */
bool schema_matches(struct schema_reader *reader, const char *pattern, const char *text,
                    const struct schema_path *path);
