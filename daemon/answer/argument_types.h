/* Of what types a tool's parameters may be, by its schema: for formats that write strings without
 * quotes, so that the text alone does not say it. A member's own schema is looked at, references
 * within the document, and allOf, anyOf and oneOf. What takes more steps is not known.
 */
#pragma once

#include "daemon/base/buffer.h"
#include "protocol/base/json.h"

enum argument_type {
    ARGUMENT_NULL = 1,
    ARGUMENT_BOOLEAN = 2,
    ARGUMENT_NUMBER = 4,
    ARGUMENT_STRING = 8,
    ARGUMENT_ARRAY = 16,
    ARGUMENT_OBJECT = 32,
    ARGUMENT_ANY = 63
};

#define ARGUMENT_STEPS_MAX 65536u /* of looking up, for one tool */

/* For each of the parameters in their order, up to `max`; 0: nothing is said. How many there are.
 */
size_t argument_types_list(const json *parameters, uint8_t *types, size_t max);
/* A tool's, as answer_reader.types has them: for each parameter the tool's name, a 0, the
 * parameter's, a 0, and a byte; of all tools one behind the other, and a 0. False: no memory. */
bool argument_types_add(struct buffer *buffer, const char *tool, const json *parameters,
                        const uint8_t *types, size_t count);
/* What was added, with the 0 behind it, for the caller to free; the buffer is empty. NULL: no
 * memory, or not `all` was added. */
char *argument_types_end(struct buffer *buffer, bool all);
/* 0: not known. */
unsigned argument_types_find(const char *types, const char *tool, size_t tool_length,
                             const char *key, size_t length);
