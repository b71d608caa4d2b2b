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

/* The node behind it; the error stays in the grammar. */
uint32_t schema_build(struct grammar *grammar, uint32_t from, const char *text, size_t length);
/* A JSON array of strings, any of which it may be, bare. */
uint32_t schema_choices(struct grammar *grammar, uint32_t from, const char *text, size_t length);
