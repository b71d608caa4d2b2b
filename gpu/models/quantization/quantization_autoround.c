/* What AutoRound says in a format of its own: whole numbers that lie as those of gptq or of awq do,
 * with other bits and groups for modules that are named. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "gpu/models/quantization/quantization_keys.h"

#define PATTERN_MAX 256

/* ---- names ---- */

static bool is_pattern(const char *name)
{
    return name[strcspn(name, "*+?^$()[]{}|\\")] != '\0';
}

/* Whether there is a "|" outside of parentheses. */
static bool has_cases(const char *pattern)
{
    int depth = 0;
    for (; *pattern; pattern++) {
        if (*pattern == '\\' && pattern[1])
            pattern++;
        else if (*pattern == '(' || *pattern == ')')
            depth += *pattern == '(' ? 1 : -1;
        else if (*pattern == '|' && !depth)
            return true;
    }
    return false;
}

/* Anywhere in a name, as a pattern from its start on. */
static void anywhere(const char *pattern, char ret[PATTERN_MAX])
{
    const bool cases = has_cases(pattern);
    snprintf(ret, PATTERN_MAX, *pattern == '^' && !cases ? "re:%s%s%s" : "re:.*%s%s%s",
             cases ? "(?:" : "", pattern, cases ? ")" : "");
}

/* ---- modules of their own ---- */

/* `extra_config` of one of them. */
static int extra_read(const struct fields *fields, const struct list_scheme *base,
                      struct quantization *to, uint32_t *ret_group)
{
    static const char *const known[] = {"bits", "group_size", "sym", NULL};
    struct list_scheme scheme = *base;
    int64_t bits = 0;
    bool symmetric = true;
    int rc = field_integer(fields, "bits", 1, 64, &bits);
    if (rc == 0 && bits >= QUANTIZATION_BITS_ALL) {
        *ret_group = QUANTIZATION_IGNORED;
        return 0;
    }
    if (rc == 0)
        rc = quantization_known_of(fields, known, quantization_autoround_keys);
    if (rc == 0 && bits)
        rc = quantization_bits(fields, "bits", &scheme);
    if (rc == 0 && field_get(fields, "group_size"))
        rc = quantization_group_size(fields, "group_size", &scheme);
    if (rc == 0)
        rc = field_flag(fields, "sym", &symmetric); /* the zeros say it, too */
    if (rc == 0 && base->packing == PACKING_AWQ && scheme.elements != TENSOR_U4)
        rc = field_refuse(fields, "bits", field_get(fields, "bits"), "supported for awq (4 is)");
    if (rc == 0)
        rc = quantization_alone(fields);
    return rc ? rc : quantization_group(fields, &scheme, to, ret_group);
}

/* Names count before patterns, so they come first. */
static int extras_read(const struct fields *fields, bool patterns, struct quantization *to)
{
    static const char key[] = "extra_config";
    char path[QUANTIZATION_PATH_MAX];
    const struct fields list = quantization_fields(fields, key, path);
    const struct list_scheme base = to->schemes[0];
    int rc = 0;
    if (quantization_unsaid(list.object))
        return 0;
    if (!json_is_object(list.object))
        return field_refuse(fields, key, list.object, "an object");
    for (const json *value = json_child(list.object); !rc && value; value = json_next(value)) {
        const char *name = json_key(value);
        char inner_path[QUANTIZATION_PATH_MAX], pattern[PATTERN_MAX];
        const struct fields inner = quantization_fields(&list, name, inner_path);
        uint32_t group = 0;
        if (!json_is_object(value))
            rc = field_refuse(&list, name, value, "an object");
        if (rc || is_pattern(name) != patterns)
            continue;
        rc = extra_read(&inner, &base, to, &group);
        anywhere(name, pattern);
        if (rc == 0)
            rc = quantization_name_add(&list, name, value, patterns ? pattern : name, group, to);
    }
    return rc;
}

/* ---- blocks ---- */

/* What begins with letters: those are no pattern. */
static int block_add(const struct fields *fields, const char *key, const json *value,
                     const char *name, size_t length, struct quantization *to)
{
    char pattern[PATTERN_MAX] = "re:";
    size_t at = strlen(pattern);
    for (size_t i = 0; i < length; i++) {
        bool letter = isalnum((unsigned char)name[i]) || name[i] == '_' || name[i] == '-';
        if ((!letter && name[i] != '.') || at + 3 > sizeof pattern)
            return field_refuse(fields, key, value, "names of modules");
        if (!letter)
            pattern[at++] = '\\';
        pattern[at++] = name[i];
    }
    pattern[at] = '\0';
    return length ? quantization_name_add(fields, key, value, pattern, 0, to)
                  : field_refuse(fields, key, value, "names of modules");
}

/* "model.layers", or several with commas, or a list of such: nothing outside of them. */
static int blocks_read(const struct fields *fields, const char *key, struct quantization *to)
{
    const json *said = field_get(fields, key);
    const json *value = json_is_array(said) ? json_child(said) : said;
    int rc = 0;
    if (quantization_unsaid(said))
        return 0;
    to->all = false;
    for (; !rc && value; value = json_is_array(said) ? json_next(value) : NULL) {
        const char *name = json_string(value);
        if (!json_is_string(value))
            return field_refuse(fields, key, value, "names of modules");
        do {
            size_t length = strcspn(name, ",");
            rc = block_add(fields, key, value, name, length, to);
            name += length + (name[length] == ',');
        } while (!rc && *name);
    }
    return rc;
}

/* ---- all of it ---- */

static int packing_read(const struct fields *fields, struct list_scheme *ret)
{
    static const char key[] = "packing_format";
    const char *format = "";
    int rc = field_require(fields, key); /* without it older ones kept zeros in two ways */
    if (rc == 0)
        rc = field_string(fields, key, &format);
    if (rc)
        return rc;
    if (!strcmp(format, "auto_round:auto_gptq"))
        *ret = quantization_gptq_scheme();
    else if (!strcmp(format, "auto_round:auto_awq"))
        *ret = quantization_awq_scheme();
    else
        return field_refuse(fields, key, field_get(fields, key),
                            "supported (auto_round:auto_gptq and auto_round:auto_awq are)");
    return 0;
}

int quantization_autoround(const struct fields *fields, struct quantization *to)
{
    static const char *const known[] = {"quant_method",
                                        "packing_format",
                                        "bits",
                                        "group_size",
                                        "sym",
                                        "backend",
                                        "quant_lm_head",
                                        "extra_config",
                                        "block_name_to_quantize",
                                        "to_quant_block_names",
                                        NULL};
    struct list_scheme *scheme = &to->schemes[0];
    bool symmetric = true;
    to->groups = 1;
    to->all = true;
    to->rule = NAMES_FIRST;
    int rc = quantization_known_of(fields, known, quantization_autoround_keys);
    if (rc == 0)
        rc = packing_read(fields, scheme);
    if (rc == 0)
        rc = quantization_bits(fields, "bits", scheme);
    if (rc == 0 && scheme->packing == PACKING_AWQ && scheme->elements != TENSOR_U4)
        rc = field_refuse(fields, "bits", field_get(fields, "bits"), "supported for awq (4 is)");
    if (rc == 0)
        rc = quantization_group_size(fields, "group_size", scheme);
    if (rc == 0)
        rc = field_flag(fields, "sym", &symmetric); /* the zeros say it, too */
    if (rc == 0)
        rc = field_flag(fields, "quant_lm_head", &to->head);
    if (rc == 0)
        rc = quantization_alone(fields);
    if (rc == 0)
        rc = extras_read(fields, false, to);
    if (rc == 0)
        rc = extras_read(fields, true, to);
    if (rc == 0)
        rc = blocks_read(fields, "block_name_to_quantize", to);
    return rc ? rc : blocks_read(fields, "to_quant_block_names", to);
}
