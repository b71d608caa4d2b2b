/* JSON Schema, draft 2020-12, as part of a grammar.
 *
 * Kept: type, enum, const, properties, required, additionalProperties, items, prefixItems,
 * minItems, maxItems, minLength, maxLength, pattern (found anywhere), format (those of
 * formats.def), minimum, maximum, exclusiveMinimum, exclusiveMaximum, anyOf, oneOf whose branches
 * exclude each other by type or by listed
 * texts, allOf of one, $ref within the document, $defs; true and false. Every
 * other assertion, and those beside each other that would have to be intersected, is refused with
 * its path and name. Annotations and unknown keywords pass. One thread.
 */
#pragma once

#include "daemon/constrain/grammar/json_rules.h"

#define SCHEMA_VALUES_MAX (1u << 16)
#define SCHEMA_DEPTH_MAX 64u
#define SCHEMA_STEPS_MAX (4u << 20) /* of searches in it */

/* The node behind it; the error stays in the grammar. */
uint32_t schema_build(struct grammar *grammar, uint32_t from, const char *text, size_t length);
/* A JSON array of strings, any of which it may be, bare. */
uint32_t schema_choices(struct grammar *grammar, uint32_t from, const char *text, size_t length);
