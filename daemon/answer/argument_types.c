#include "daemon/answer/argument_types.h"

#include <string.h>

#define DEPTH_MAX 16u
#define KEY_MAX 256u

struct search {
    const json *root;
    uint32_t steps;
};

static unsigned types_of(struct search *search, const json *schema, unsigned depth);

/* ---- by a schema -------------------------------------------------------------------------------
 */

static const json *member(struct search *search, const json *object, const char *key)
{
    if (!json_is_object(object))
        return NULL;
    for (const json *one = json_child(object); one && search->steps < ARGUMENT_STEPS_MAX;
         one = json_next(one), search->steps++)
        if (strcmp(json_key(one), key) == 0)
            return one;
    return NULL;
}

/* A part of a pointer, without its ~0 and ~1. False: too long. */
static bool unescape(const char *part, size_t length, char *key)
{
    size_t used = 0;
    for (size_t i = 0; i < length && used < KEY_MAX; i++) {
        bool escape =
            part[i] == '~' && i + 1 < length && (part[i + 1] == '0' || part[i + 1] == '1');
        key[used++] = !escape ? part[i] : part[++i] == '0' ? '~' : '/';
    }
    key[used] = '\0';
    return used < KEY_MAX;
}

/* What "#/a/b" is; NULL: no such place in the document. */
static const json *target(struct search *search, const char *pointer)
{
    const json *at = search->root;
    char key[KEY_MAX + 1];
    if (*pointer++ != '#')
        return NULL;
    while (at && *pointer == '/') {
        size_t length = strcspn(++pointer, "/");
        at = unescape(pointer, length, key) ? member(search, at, key) : NULL;
        pointer += length;
    }
    return *pointer ? NULL : at;
}

static unsigned type_named(const char *name)
{
    static const struct {
        const char *name;
        unsigned type;
    } types[] = {{"null", ARGUMENT_NULL},      {"boolean", ARGUMENT_BOOLEAN},
                 {"integer", ARGUMENT_NUMBER}, {"number", ARGUMENT_NUMBER},
                 {"string", ARGUMENT_STRING},  {"array", ARGUMENT_ARRAY},
                 {"object", ARGUMENT_OBJECT}};
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (strcmp(name, types[i].name) == 0)
            return types[i].type;
    return 0;
}

static unsigned type_of_value(const json *value)
{
    return json_is_null(value)     ? ARGUMENT_NULL
           : json_is_bool(value)   ? ARGUMENT_BOOLEAN
           : json_is_number(value) ? ARGUMENT_NUMBER
           : json_is_string(value) ? ARGUMENT_STRING
           : json_is_array(value)  ? ARGUMENT_ARRAY
                                   : ARGUMENT_OBJECT;
}

enum list { NAMES, VALUES, ALL_OF, ANY_OF };

/* Of all in a list together. */
static unsigned types_of_list(struct search *search, const json *list, enum list kind,
                              unsigned depth)
{
    unsigned types = kind == ALL_OF ? ARGUMENT_ANY : 0;
    for (const json *one = json_child(list); one && search->steps < ARGUMENT_STEPS_MAX;
         one = json_next(one), search->steps++) {
        if (kind == NAMES) {
            types |= type_named(json_string(one));
        } else if (kind == VALUES) {
            types |= type_of_value(one);
        } else {
            unsigned some = types_of(search, one, depth + 1);
            some = some ? some : ARGUMENT_ANY;
            types = kind == ALL_OF ? types & some : types | some;
        }
    }
    return types;
}

/* What a keyword says; 0: nothing of types. */
static unsigned types_by(struct search *search, const json *keyword, unsigned depth)
{
    const char *name = json_key(keyword);
    if (strcmp(name, "type") == 0)
        return json_is_array(keyword) ? types_of_list(search, keyword, NAMES, depth)
                                      : type_named(json_string(keyword));
    if (strcmp(name, "const") == 0)
        return type_of_value(keyword);
    if (strcmp(name, "enum") == 0)
        return types_of_list(search, keyword, VALUES, depth);
    if (strcmp(name, "$ref") == 0)
        return types_of(search, target(search, json_string(keyword)), depth + 1);
    if (strcmp(name, "allOf") == 0)
        return types_of_list(search, keyword, ALL_OF, depth);
    if (strcmp(name, "anyOf") == 0 || strcmp(name, "oneOf") == 0)
        return types_of_list(search, keyword, ANY_OF, depth);
    return 0;
}

static unsigned types_of(struct search *search, const json *schema, unsigned depth)
{
    unsigned types = ARGUMENT_ANY;
    bool said = false;
    if (!schema || !json_is_object(schema) || depth > DEPTH_MAX)
        return 0;
    for (const json *one = json_child(schema); one && search->steps < ARGUMENT_STEPS_MAX;
         one = json_next(one), search->steps++) {
        unsigned some = types_by(search, one, depth);
        said |= some != 0;
        types &= some ? some : ARGUMENT_ANY;
    }
    return said && search->steps < ARGUMENT_STEPS_MAX ? types : 0;
}

size_t argument_types_list(const json *parameters, uint8_t *types, size_t max)
{
    struct search search = {.root = parameters};
    const json *properties = member(&search, parameters, "properties");
    size_t count = 0;
    const json *one = json_is_object(properties) ? json_child(properties) : NULL;
    for (; one && count < max; one = json_next(one))
        types[count++] = (uint8_t)types_of(&search, one, 0);
    return count;
}

/* ---- by name -----------------------------------------------------------------------------------
 */

bool argument_types_add(struct buffer *buffer, const char *tool, const json *parameters,
                        const uint8_t *types, size_t count)
{
    const json *one = json_child(json_get(parameters, "properties"));
    bool added = true;
    for (size_t i = 0; i < count && one && added; i++, one = json_next(one)) {
        const char type = (char)types[i];
        added = buffer_append(buffer, tool, strlen(tool) + 1, SIZE_MAX) &&
                buffer_append(buffer, json_key(one), strlen(json_key(one)) + 1, SIZE_MAX) &&
                buffer_append(buffer, &type, 1, SIZE_MAX);
    }
    return added;
}

char *argument_types_end(struct buffer *buffer, bool all)
{
    char *types = all && buffer_append(buffer, "", 1, SIZE_MAX) ? buffer->data : NULL;
    if (types)
        *buffer = (struct buffer){0};
    else
        buffer_free(buffer);
    return types;
}

static bool is_text(const char *text, size_t text_length, const char *other, size_t length)
{
    return text_length == length && memcmp(text, other, length) == 0;
}

unsigned argument_types_find(const char *types, const char *tool, size_t tool_length,
                             const char *key, size_t length)
{
    for (const char *at = types; at && *at;) {
        size_t name = strlen(at), parameter = strlen(at + name + 1);
        const char *type = at + name + parameter + 2;
        if (is_text(at, name, tool, tool_length) && is_text(at + name + 1, parameter, key, length))
            return (unsigned char)*type;
        at = type + 1;
    }
    return 0;
}
