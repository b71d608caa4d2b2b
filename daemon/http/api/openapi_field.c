/* What a field takes, as JSON Schema: by the words of its line in query/field.def. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/http/api/api.h"
#include "daemon/http/query/query_field.h"

#define TYPES_MAX 3

struct form {
    const char *words; /* with which the line begins */
    const char *types[TYPES_MAX];
    const char *item; /* of a list; NULL: of several types */
};

static const struct form forms[] = {
    /* the first that fits */
    {"string, list of strings, tokens", {"string", "array"}, NULL},
    {"string, list of strings", {"string", "array"}, "string"},
    {"string, list", {"string", "array"}, "object"},
    {"string", {"string"}, NULL},
    {"list of strings", {"array"}, "string"},
    {"list of texts", {"array"}, NULL},
    {"list of tokens", {"array"}, "integer"},
    {"list of", {"array"}, "object"},
    {"list", {"array"}, NULL},
    {"object", {"object"}, NULL},
    {"an object", {"object"}, NULL},
    {"a schema", {"object", "boolean", "string"}, NULL},
    {"boolean", {"boolean"}, NULL},
    {"integer", {"integer"}, NULL},
    {"the model's width", {"integer"}, NULL},
};

static const char *behind(const char *text, const char *with)
{
    size_t length = strlen(with);
    return strncmp(text, with, length) == 0 ? text + length : NULL;
}

/* null counts as not given, but of a field that must be given. */
static void put_types(struct json_writer *writer, const char *const *types, bool needed)
{
    json_open(writer, "type", '[');
    for (unsigned i = 0; i < TYPES_MAX && types[i]; i++)
        json_put_text(writer, NULL, types[i]);
    if (!needed)
        json_put_text(writer, NULL, "null");
    json_close(writer, ']');
}

/* ---- numbers -----------------------------------------------------------------------------------
 */

static bool begins_number(const char *text)
{
    return isdigit((unsigned char)text[0]) || text[0] == '-';
}

/* A whole number, also as 2^40. */
static int64_t take_number(const char **text)
{
    char *end;
    int64_t number = strtoll(*text, &end, 10);
    if (*end == '^')
        number = (int64_t)ldexp(1, (int)strtol(end + 1, &end, 10)); /* of 2 */
    *text = end;
    return number;
}

/* "A", "A to B", "above A, to B". */
static void put_bounds(struct json_writer *writer, const char *words)
{
    const char *above = behind(words, "above ");
    words = above ? above : words;
    json_put_int(writer, above ? "exclusiveMinimum" : "minimum", take_number(&words));
    const char *to = behind(words, above ? ", to " : " to ");
    if (to)
        json_put_int(writer, "maximum", take_number(&to));
}

/* ---- values that are listed --------------------------------------------------------------------
 */

/* The strings in quotation marks. */
static void put_quoted(struct json_writer *writer, const char *words, bool needed)
{
    json_open(writer, "enum", '[');
    while (*words == '"') {
        const char *end = strchr(words + 1, '"');
        json_put_string(writer, NULL, words + 1, (size_t)(end - words - 1));
        words = end + 1;
        words += strspn(words, ", ");
    }
    if (!needed)
        json_put_null(writer, NULL);
    json_close(writer, ']');
}

/* Strings of which it is one, or an object. */
static void put_choice(struct json_writer *writer, const char *words, bool needed)
{
    if (!strstr(words, "\", a ")) {
        put_quoted(writer, words, needed);
        return;
    }
    json_open(writer, "anyOf", '[');
    json_open(writer, NULL, '{');
    put_quoted(writer, words, needed);
    json_close(writer, '}');
    json_open(writer, NULL, '{');
    json_put_text(writer, "type", "object");
    json_close(writer, '}');
    json_close(writer, ']');
}

/* A list of just these: [] or ["text"]. */
static void put_list(struct json_writer *writer, const char *words, bool needed)
{
    static const char *const types[TYPES_MAX] = {"array"};
    put_types(writer, types, needed);
    if (words[1] == '"') {
        json_open(writer, "items", '{');
        put_quoted(writer, words + 1, true);
        json_close(writer, '}');
        json_put_int(writer, "minItems", 1);
    }
    json_put_int(writer, "maxItems", words[1] == '"');
}

static void put_only(struct json_writer *writer, const char *words, bool needed)
{
    json_open(writer, "enum", '[');
    if (begins_number(words))
        json_put_int(writer, NULL, take_number(&words));
    else
        json_put_bool(writer, NULL, words[0] == 't');
    if (!needed)
        json_put_null(writer, NULL);
    json_close(writer, ']');
}

/* ---- the words ---------------------------------------------------------------------------------
 */

static void put_form(struct json_writer *writer, const struct form *form, const char *words,
                     bool needed)
{
    put_types(writer, form->types, needed);
    if (form->item) {
        json_open(writer, "items", '{');
        json_put_text(writer, "type", form->item);
        json_close(writer, '}');
    }
    const char *most = behind(words, "list of up to ");
    if (most)
        json_put_int(writer, "maxItems", take_number(&most));
    const char *from = behind(words, "integer from ");
    if (from)
        put_bounds(writer, from);
    const char *bytes = behind(words, "string of ");
    if (bytes) {
        json_put_int(writer, "minLength", take_number(&bytes));
        bytes = behind(bytes, " to ");
        if (bytes)
            json_put_int(writer, "maxLength", take_number(&bytes));
    }
}

static void put_taken(struct json_writer *writer, const char *words, bool needed)
{
    static const char *const number[TYPES_MAX] = {"number"};
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++)
        if (behind(words, forms[i].words)) {
            put_form(writer, &forms[i], words, needed);
            return;
        }
    if (!words[0]) {
        json_put_text(writer, "type", "null");
    } else if (words[0] == '"') {
        put_choice(writer, words, needed);
    } else if (words[0] == '[') {
        put_list(writer, words, needed);
    } else if (strstr(words, "to ")) {
        put_types(writer, number, needed);
        put_bounds(writer, words);
    } else if (strcmp(words, "anything") != 0) {
        put_only(writer, words, needed);
    }
}

void openapi_field(struct json_writer *writer, const struct query_field *field, bool needed)
{
    json_open(writer, field->name, '{');
    json_put_text(writer, "description", field->meaning);
    if (field->takes[0])
        json_put_text(writer, "x-taken", field->takes);
    put_taken(writer, field->takes, needed);
    json_close(writer, '}');
}
