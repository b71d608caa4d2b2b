/* JSON Schema, draft 2020-12 and what older drafts still write, as part of a grammar.
 *
 * Kept: type, enum, const, $ref within the document ($id, $anchor, pointers), allOf, anyOf, oneOf,
 * not, if, then, else, dependentRequired, dependentSchemas, dependencies; properties, required,
 * additionalProperties, patternProperties of up to 4 patterns, propertyNames, minProperties,
 * maxProperties; items, prefixItems, additionalItems, minItems, maxItems, contains without these
 * two, uniqueItems of up to 8 listed values; minLength, maxLength, pattern (found anywhere), format
 * (those of formats.def); minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf of up to
 * 4096 (times a power of ten below). All of them beside each other, as long as what their meeting
 * takes is within the limits. Denied, by not, by else or by a oneOf whose branches overlap: type,
 * const, enum, required, properties, bounds and counts, pattern, and what is made of these.
 *
 * Every other assertion is refused with its path and name. Annotations and unknown keywords pass.
 * One thread.
 */
#pragma once

#include "daemon/constrain/grammar/json_rules.h"

#define SCHEMA_VALUES_MAX (1u << 16)
#define SCHEMA_DEPTH_MAX 64u
#define SCHEMA_STEPS_MAX (8u << 20) /* of searches in it */

enum schema_tag { SCHEMA_TAG_KEY, SCHEMA_TAG_VALUE, SCHEMA_TAG_END };

/* The node behind it; the error stays in the grammar. */
uint32_t schema_build(struct grammar *grammar, uint32_t from, const char *text, size_t length);
/* An object whose members stand as texts between marks, in the schema's order: strings without
 * quotes, all else as JSON. What such a text is taken for depends on the types that the reader of
 * it reckons with: strings are left out that it would take for something else. */
struct schema_tags {
    const json *types;  /* for each of `properties` those types, by name */
    const char *except; /* no string has this text; "": any may be */
    /* The node behind one of the marks. */
    uint32_t (*put)(void *context, uint32_t from, enum schema_tag tag);
    void *context;
};
uint32_t schema_tagged(struct grammar *grammar, uint32_t from, const char *text, size_t length,
                       const struct schema_tags *tags);
/* A JSON array of strings, any of which it may be, bare. */
uint32_t schema_choices(struct grammar *grammar, uint32_t from, const char *text, size_t length);
