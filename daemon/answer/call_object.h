/* The object that most models write for a call of a tool: {"name": NAME, "arguments": {...}}, byte
 * by byte. The name comes first; "parameters" is "arguments" by another word, and other members are
 * read over. Pure.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/answer/json_scan.h"

#define CALL_NAME_MAX 256u

enum call_object_result {
    CALL_OBJECT_MORE,
    CALL_OBJECT_ARGUMENTS, /* the byte is one of the arguments; the name is known */
    CALL_OBJECT_CLOSED,    /* the object ends with this byte */
    CALL_OBJECT_BAD        /* it is no call, or ceased to be JSON: no more calls follow */
};

struct call_object {
    uint8_t state;
    uint8_t member;
    bool has_arguments; /* they have begun */
    uint16_t name_length, key_length;
    struct json_scan scan;
    char name[CALL_NAME_MAX];
    char key[16];
};

void call_object_begin(struct call_object *object);
/* The first byte is the opening bracket. */
enum call_object_result call_object_byte(struct call_object *object, char byte);
/* Whether a name may be a tool's: no spaces, quotes, backslashes or controls. */
bool call_name_takes(char byte);
