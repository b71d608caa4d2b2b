#include "daemon/answer/call_object.h"

#include <string.h>

enum state { OPEN, FIRST_KEY, KEY, IN_KEY, COLON, VALUE, IN_NAME, IN_VALUE, BEHIND };
enum member { OTHER, NAME, ARGUMENTS };

bool call_name_takes(char byte)
{
    return (unsigned char)byte > ' ' && byte != '"' && byte != '\\' && byte != 0x7f;
}

void call_object_begin(struct call_object *object)
{
    object->state = OPEN;
    object->has_arguments = false;
    object->name_length = 0;
}

static enum call_object_result to(struct call_object *object, enum state state)
{
    object->state = (uint8_t)state;
    return CALL_OBJECT_MORE;
}

static bool key_is(const struct call_object *object, const char *key)
{
    return object->key_length == strlen(key) && memcmp(object->key, key, object->key_length) == 0;
}

static enum call_object_result in_key(struct call_object *object, char byte)
{
    if (byte == '"') {
        object->member = key_is(object, "name")                                        ? NAME
                         : key_is(object, "arguments") || key_is(object, "parameters") ? ARGUMENTS
                                                                                       : OTHER;
        return to(object, COLON);
    }
    if (byte == '\\' || object->key_length == sizeof(object->key))
        return CALL_OBJECT_BAD;
    object->key[object->key_length++] = byte;
    return CALL_OBJECT_MORE;
}

/* What comes a second time, or before the name, makes it no call. */
static enum call_object_result value(struct call_object *object, char byte)
{
    object->scan = (struct json_scan){0};
    if (object->member == NAME && (byte != '"' || object->name_length > 0))
        return CALL_OBJECT_BAD;
    if (object->member == NAME)
        return to(object, IN_NAME);
    object->state = IN_VALUE;
    enum json_scan_result result = json_scan_byte(&object->scan, byte);
    if (object->member == OTHER)
        return result == JSON_SCAN_BAD ? CALL_OBJECT_BAD : CALL_OBJECT_MORE;
    if (byte != '{' || object->name_length == 0 || object->has_arguments)
        return CALL_OBJECT_BAD;
    object->has_arguments = true;
    return CALL_OBJECT_ARGUMENTS;
}

static enum call_object_result in_name(struct call_object *object, char byte)
{
    if (byte == '"')
        return object->name_length > 0 ? to(object, BEHIND) : CALL_OBJECT_BAD;
    if (!call_name_takes(byte) || object->name_length == CALL_NAME_MAX)
        return CALL_OBJECT_BAD;
    object->name[object->name_length++] = byte;
    return CALL_OBJECT_MORE;
}

static enum call_object_result behind(struct call_object *object, char byte)
{
    if (json_scan_space(byte))
        return CALL_OBJECT_MORE;
    if (byte == ',')
        return to(object, KEY);
    return byte == '}' && object->name_length > 0 ? CALL_OBJECT_CLOSED : CALL_OBJECT_BAD;
}

static enum call_object_result in_value(struct call_object *object, char byte)
{
    enum json_scan_result result = json_scan_byte(&object->scan, byte);
    if (result == JSON_SCAN_BAD)
        return CALL_OBJECT_BAD;
    if (result != JSON_SCAN_MORE)
        object->state = BEHIND;
    if (result == JSON_SCAN_BEFORE)
        return behind(object, byte);
    return object->member == ARGUMENTS ? CALL_OBJECT_ARGUMENTS : CALL_OBJECT_MORE;
}

enum call_object_result call_object_byte(struct call_object *object, char byte)
{
    bool inside = object->state == IN_KEY || object->state == IN_NAME || object->state == IN_VALUE;
    if (!inside && json_scan_space(byte))
        return CALL_OBJECT_MORE;
    switch ((enum state)object->state) {
    case OPEN:
        return byte == '{' ? to(object, FIRST_KEY) : CALL_OBJECT_BAD;
    case FIRST_KEY:
    case KEY:
        object->key_length = 0;
        return byte == '"' ? to(object, IN_KEY) : CALL_OBJECT_BAD;
    case IN_KEY:
        return in_key(object, byte);
    case COLON:
        return byte == ':' ? to(object, VALUE) : CALL_OBJECT_BAD;
    case VALUE:
        return value(object, byte);
    case IN_NAME:
        return in_name(object, byte);
    case IN_VALUE:
        return in_value(object, byte);
    case BEHIND:
        return behind(object, byte);
    }
    return CALL_OBJECT_BAD;
}
