#include "daemon/text/field.h"

#include <stdio.h>
#include <string.h>

#define SHOWN_MAX 40

struct field field_of(const struct field *parent, const char *key)
{
    struct field field = {.value = json_get(parent->value, key)};
    int used = parent->path[0] ? snprintf(field.path, sizeof(field.path), "%s.", parent->path) : 0;
    if (used >= 0 && (size_t)used < sizeof(field.path))
        snprintf(field.path + used, sizeof(field.path) - (size_t)used, "%s", key);
    return field;
}

struct field field_at(const struct field *parent, const json *element, size_t index)
{
    struct field field = {.value = element};
    char number[24];
    snprintf(number, sizeof(number), "[%zu]", index);
    size_t room = sizeof(field.path) - sizeof(number);
    size_t length = strnlen(parent->path, room);
    memcpy(field.path, parent->path, length);
    strcpy(field.path + length, number);
    return field;
}

static bool named(const char *names, const char *key)
{
    size_t length = strlen(key);
    if (length == 0 || strchr(key, ' '))
        return false;
    for (const char *at = strstr(names, key); at; at = strstr(at + 1, key))
        if ((at == names || at[-1] == ' ') && (at[length] == ' ' || at[length] == 0))
            return true;
    return false;
}

int field_unknown(const struct field *object, const char *what, const char *name,
                  struct error *error)
{
    char shown[SHOWN_MAX + 1];
    size_t length = strnlen(name, SHOWN_MAX);
    for (size_t i = 0; i < length; i++)
        shown[i] = name[i] >= ' ' && name[i] < 0x7f ? name[i] : '?';
    shown[length] = 0;
    return error_set(error, ERR_UNSUPPORTED, "tokenizer.json: %s: %s \"%s\" is not supported",
                     object->path[0] ? object->path : "top level", what, shown);
}

int field_wrong(const struct field *object, const char *key, const char *expected,
                struct error *error)
{
    return error_set(error, ERR_BAD_MODEL, "tokenizer.json: %s%s%s: %s", object->path,
                     object->path[0] && key[0] ? "." : "", key, expected);
}

int field_only(const struct field *object, const char *names, struct error *error)
{
    if (!json_is_object(object->value))
        return field_wrong(object, "", "an object expected", error);
    for (const json *member = json_child(object->value); member; member = json_next(member))
        if (!named(names, json_key(member)))
            return field_unknown(object, "field", json_key(member), error);
    return 0;
}

int field_type(const struct field *object, const char **ret_type, struct error *error)
{
    const json *type = json_get(object->value, "type");
    if (!json_is_string(type))
        return field_wrong(object, "type", "a string expected", error);
    *ret_type = json_string(type);
    return 0;
}

int field_bool(const struct field *object, const char *key, bool *ret_value, struct error *error)
{
    const json *value = json_get(object->value, key);
    if (!value || json_is_null(value))
        return 0;
    if (!json_is_bool(value))
        return field_wrong(object, key, "true or false expected", error);
    *ret_value = json_bool(value);
    return 0;
}

int field_text(const struct field *object, const char *key, const char **ret_value,
               struct error *error)
{
    const json *value = json_get(object->value, key);
    if (!value || json_is_null(value))
        return 0;
    if (!json_is_string(value))
        return field_wrong(object, key, "a string expected", error);
    *ret_value = json_string(value);
    return 0;
}

int field_steps(const struct field *field, const char *key, field_reader read, void *context,
                struct error *error)
{
    char names[FIELD_PATH_MAX];
    const char *type = NULL;
    size_t index = 0;
    if (!field->value || json_is_null(field->value))
        return 0;
    int code = field_type(field, &type, error);
    if (code)
        return code;
    if (strcmp(type, "Sequence") != 0)
        return read(context, field, type, error);
    snprintf(names, sizeof(names), "type %s", key);
    if ((code = field_only(field, names, error)))
        return code;
    struct field list = field_of(field, key);
    if (!json_is_array(list.value))
        return field_wrong(field, key, "an array expected", error);
    for (const json *child = json_child(list.value); child; child = json_next(child)) {
        struct field step = field_at(&list, child, index++);
        if ((code = field_type(&step, &type, error)) || (code = read(context, &step, type, error)))
            return code;
    }
    return 0;
}
