#include "gpu/checkpoint/config_field.h"

#include <stdio.h>

#include "protocol/base/number.h"

#define NAME_MAX_SHOWN 40

void field_show(const json *value, char shown[FIELD_SHOWN_MAX])
{
    if (json_is_string(value)) {
        const char *text = json_string(value);
        size_t used = 0;
        shown[used++] = '"';
        for (; *text && used < NAME_MAX_SHOWN; text++)
            shown[used++] = *text >= ' ' && *text < 127 ? *text : '?';
        snprintf(shown + used, FIELD_SHOWN_MAX - used, *text ? "...\"" : "\"");
    } else if (json_is_number(value)) {
        number_show(shown, json_number(value));
    } else if (json_is_bool(value)) {
        snprintf(shown, FIELD_SHOWN_MAX, json_bool(value) ? "true" : "false");
    } else if (json_is_array(value)) {
        snprintf(shown, FIELD_SHOWN_MAX, "a list");
    } else if (json_is_object(value)) {
        snprintf(shown, FIELD_SHOWN_MAX, "an object");
    } else {
        snprintf(shown, FIELD_SHOWN_MAX, "null");
    }
}

static const char *parent_of(const struct fields *fields)
{
    return fields->parent ? fields->parent : "";
}

static const char *dot_of(const struct fields *fields)
{
    return fields->parent ? "." : "";
}

int field_refuse(const struct fields *fields, const char *name, const json *value,
                 const char *wanted)
{
    char shown[FIELD_SHOWN_MAX];
    field_show(value, shown);
    return error_set(fields->error, ERR_BAD_MODEL, "%s: %s%s%s: %s is not %s", fields->file,
                     parent_of(fields), dot_of(fields), name, shown, wanted);
}

const json *field_get(const struct fields *fields, const char *name)
{
    const json *value = json_get(fields->object, name);
    return value && !json_is_null(value) ? value : NULL;
}

int field_require(const struct fields *fields, const char *name)
{
    if (field_get(fields, name))
        return 0;
    return error_set(fields->error, ERR_BAD_MODEL, "%s: %s%s%s: missing", fields->file,
                     parent_of(fields), dot_of(fields), name);
}

/* Whether the field is given, with a number in range; `wanted` says which one is refused otherwise.
 */
static int field_range(const struct fields *fields, const char *name, double min, double max,
                       bool whole, bool *ret_given, double *ret_number)
{
    const json *given = field_get(fields, name);
    double number = json_number(given);
    *ret_given = given;
    *ret_number = number;
    if (!given || (json_is_number(given) && number >= min && number <= max &&
                   (!whole || number == (double)(int64_t)number)))
        return 0;
    char wanted[96], low[NUMBER_SHOWN_MAX], high[NUMBER_SHOWN_MAX];
    number_show(low, min);
    number_show(high, max);
    snprintf(wanted, sizeof(wanted), "a %snumber from %s to %s", whole ? "whole " : "", low, high);
    return field_refuse(fields, name, given, wanted);
}

int field_integer(const struct fields *fields, const char *name, int64_t min, int64_t max,
                  int64_t *value)
{
    bool given;
    double number;
    int rc = field_range(fields, name, (double)min, (double)max, true, &given, &number);
    if (rc == 0 && given)
        *value = (int64_t)number;
    return rc;
}

int field_size(const struct fields *fields, const char *name, uint32_t max, uint32_t *value)
{
    int64_t number = *value;
    int rc = field_integer(fields, name, 1, max, &number);
    if (rc == 0)
        *value = (uint32_t)number;
    return rc;
}

int field_number(const struct fields *fields, const char *name, double min, double max,
                 double *value)
{
    bool given;
    double number;
    int rc = field_range(fields, name, min, max, false, &given, &number);
    if (rc == 0 && given)
        *value = number;
    return rc;
}

int field_flag(const struct fields *fields, const char *name, bool *value)
{
    const json *given = field_get(fields, name);
    if (!given)
        return 0;
    if (!json_is_bool(given))
        return field_refuse(fields, name, given, "true or false");
    *value = json_bool(given);
    return 0;
}

int field_string(const struct fields *fields, const char *name, const char **value)
{
    const json *given = field_get(fields, name);
    if (!given)
        return 0;
    if (!json_is_string(given))
        return field_refuse(fields, name, given, "a string");
    *value = json_string(given);
    return 0;
}
