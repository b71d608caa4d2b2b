#include "gpu/models/quantization/quantization.h"

#include <stdio.h>
#include <string.h>

#include "gpu/models/quantization/name_pattern.h"
#include "gpu/models/quantization/quantization_keys.h"

#define BLOCK QUANTIZATION_BLOCK
#define HELD QUANTIZATION_KEY
#define NONE (QUANTIZATION_IGNORED + 1)

/* ---- names ---- */

int quantization_name_add(const struct fields *fields, const char *key, const json *value,
                          const char *name, uint32_t group, struct quantization *to)
{
    size_t length = strlen(name);
    if (!strncmp(name, "re:", 3)) {
        bool patterns = to->rule == NAMES_WHOLE || to->rule == NAMES_FIRST;
        int cases = patterns ? name_pattern_cases(name + 3) : -1;
        if (cases < 0 || (uint32_t)cases > QUANTIZATION_CASES_MAX - to->cases)
            return field_refuse(fields, key, value,
                                "a pattern that is understood, all with at most 256 cases");
        to->cases += (uint32_t)cases;
    }
    if (length + 2 > QUANTIZATION_TEXT_MAX - to->text_bytes)
        return error_limit(
            fields->error, ERR_BAD_MODEL, QUANTIZATION_TEXT_MAX, to->text_bytes + length + 2,
            "%s: " HELD ": names take more than %u bytes", fields->file, QUANTIZATION_TEXT_MAX);
    to->text[to->text_bytes++] = (char)group;
    memcpy(to->text + to->text_bytes, name, length + 1);
    to->text_bytes += (uint32_t)length + 1;
    return 0;
}

int quantization_name(const struct fields *fields, const char *key, const json *value,
                      uint32_t group, struct quantization *to)
{
    if (!json_is_string(value) || !*json_string(value))
        return field_refuse(fields, key, value, "the name of a module");
    return quantization_name_add(fields, key, value, json_string(value), group, to);
}

int quantization_names(const struct fields *fields, const char *key, uint32_t group,
                       struct quantization *to)
{
    const json *list = field_get(fields, key);
    int rc = 0;
    if (list && !json_is_array(list))
        return field_refuse(fields, key, list, "a list of names");
    for (const json *value = json_child(list); !rc && value; value = json_next(value))
        rc = quantization_name(fields, key, value, group, to);
    return rc;
}

/* Parts of `name`, between dots, at its begin or its end. */
static bool is_sequence_of(const char *parts, const char *name)
{
    size_t length = strlen(parts), whole = strlen(name);
    if (length > whole)
        return false;
    if (!strncmp(parts, name, length) && (name[length] == '.' || !name[length]))
        return true;
    return !strcmp(name + whole - length, parts) && name[whole - length - 1] == '.';
}

/* `*` is any letters; the name may go on behind a dot. Back to the last * is far enough. */
static bool is_wild(const char *wild, const char *name)
{
    const char *star = NULL, *tried = NULL;
    for (;;) {
        if (*wild == '*') {
            star = wild++;
            tried = name;
        } else if (!*wild && (!*name || *name == '.')) {
            return true;
        } else if (*name && *wild == *name) {
            wild++;
            name++;
        } else if (star && *tried) {
            wild = star + 1;
            name = ++tried;
        } else {
            return false;
        }
    }
}

static bool name_means(const struct quantization *quantization, const char *name,
                       const char *module)
{
    if (quantization->rule == NAMES_SEQUENCE)
        return is_sequence_of(name, module);
    if (quantization->rule == NAMES_INSIDE)
        return strstr(module, name) != NULL;
    if (quantization->rule == NAMES_WILD)
        return is_wild(name, module);
    if (!strncmp(name, "re:", 3))
        return name_pattern_match(name + 3, module) > 0;
    return !strcmp(name, module);
}

static bool is_class(const char *name)
{
    return !strcmp(name, "Linear"); /* what all matrices but the embedding are */
}

/* What is ignored is; then what is named counts before what is of a class. */
static uint32_t group_of(const struct quantization *quantization, const char *module)
{
    uint32_t named = NONE, classed = quantization->all ? 0 : NONE;
    for (uint32_t at = 0; at < quantization->text_bytes;) {
        uint32_t group = (unsigned char)quantization->text[at];
        const char *name = quantization->text + at + 1;
        bool class = quantization->rule == NAMES_WHOLE && is_class(name);
        bool meant = class || name_means(quantization, name, module);
        if (group == QUANTIZATION_IGNORED && meant)
            return NONE;
        if (meant && class && classed > group)
            classed = group;
        if (meant && !class && named > group)
            named = group;
        at += (uint32_t)strlen(name) + 2;
    }
    return named < QUANTIZATION_IGNORED ? named : classed;
}

static uint32_t first_of(const struct quantization *quantization, const char *module, bool all)
{
    for (uint32_t at = 0; at < quantization->text_bytes;) {
        const char *name = quantization->text + at + 1;
        if (name_means(quantization, name, module))
            return (unsigned char)quantization->text[at];
        at += (uint32_t)strlen(name) + 2;
    }
    return all ? 0 : NONE;
}

const struct list_scheme *quantization_scheme(const struct quantization *quantization,
                                              const char *module, bool head)
{
    uint32_t group = NONE;
    if (quantization->rule == NAMES_FIRST)
        group = first_of(quantization, module, head ? quantization->head : quantization->all);
    else if (!head || quantization->rule == NAMES_WHOLE)
        group = group_of(quantization, module);
    else if (quantization->head) /* a key of its own */
        group = 0;
    return group < quantization->groups ? &quantization->schemes[group] : NULL;
}

/* ---- values ---- */

struct fields quantization_fields(const struct fields *parent, const char *key,
                                  char path[QUANTIZATION_PATH_MAX])
{
    snprintf(path, QUANTIZATION_PATH_MAX, "%s%s%.64s", parent->parent ? parent->parent : "",
             parent->parent ? "." : "", key);
    return (struct fields){field_get(parent, key), parent->file, path, parent->error};
}

bool quantization_unsaid(const json *value)
{
    return !value || json_is_null(value) || (json_is_bool(value) && !json_bool(value)) ||
           ((json_is_array(value) || json_is_object(value)) && !json_count(value));
}

static bool has_key(const char *const *keys, const char *key)
{
    while (*keys && strcmp(*keys, key) != 0)
        keys++;
    return *keys != NULL;
}

/* What is said and not known would change what is computed. */
int quantization_known_of(const struct fields *fields, const char *const *keys,
                          const char *const *more)
{
    for (const json *value = json_child(fields->object); value; value = json_next(value))
        if (!quantization_unsaid(value) && !has_key(keys, json_key(value)) &&
            !has_key(more, json_key(value)))
            return field_refuse(fields, json_key(value), value, "supported");
    return 0;
}

int quantization_known(const struct fields *fields, const char *const *keys)
{
    static const char *const none[] = {NULL};
    return quantization_known_of(fields, keys, none);
}

static bool schemes_are_one(const struct list_scheme *a, const struct list_scheme *b)
{
    return a->elements == b->elements && a->columns == b->columns && a->zeros == b->zeros &&
           a->zero == b->zero && a->grouped == b->grouped;
}

int quantization_group(const struct fields *fields, const struct list_scheme *scheme,
                       struct quantization *to, uint32_t *ret)
{
    uint32_t group = 0;
    while (group < to->groups && !schemes_are_one(&to->schemes[group], scheme))
        group++;
    if (group == QUANTIZATION_GROUPS_MAX)
        return error_limit(fields->error, ERR_BAD_MODEL, QUANTIZATION_GROUPS_MAX, group + 1,
                           "%s: %s: more than %u schemes", fields->file, fields->parent,
                           QUANTIZATION_GROUPS_MAX);
    to->schemes[group] = *scheme;
    to->groups += group == to->groups;
    *ret = group;
    return 0;
}

int quantization_word(const struct fields *fields, const char *key, const char *word)
{
    const char *said = word;
    int rc = field_string(fields, key, &said);
    char wanted[64];
    if (rc || !strcmp(said, word))
        return rc;
    snprintf(wanted, sizeof wanted, "supported (%s is)", word);
    return field_refuse(fields, key, field_get(fields, key), wanted);
}

int quantization_block(const struct fields *fields, const char *key)
{
    const json *list = field_get(fields, key);
    const json *rows = json_child(list), *columns = rows ? json_next(rows) : NULL;
    if (json_is_array(list) && json_count(list) == 2 && json_number(rows) == BLOCK &&
        json_number(columns) == BLOCK)
        return 0;
    return list ? field_refuse(fields, key, list, "supported ([128, 128] is)")
                : field_require(fields, key);
}

/* ---- all of it ---- */

static const struct {
    const char *method;
    int (*read)(const struct fields *fields, struct quantization *to);
} methods[] = {
#define METHOD(word, reader) {word, quantization_##reader},
#define ALIAS METHOD
#include "gpu/models/quantization/quantization_methods.def"
};

#define METHOD(word, reader) " " word
#define ALIAS(word, reader)
static const char method_wanted[] = "supported (these are:"
#include "gpu/models/quantization/quantization_methods.def"
                                    ")";

static int method_read(const struct fields *fields, struct quantization *ret)
{
    const json *method = field_get(fields, "quant_method");
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (!strcmp(json_string(method), methods[i].method))
            return methods[i].read(fields, ret);
    return field_refuse(fields, "quant_method", method, method_wanted);
}

int quantization_read(const struct fields *config, struct quantization *ret)
{
    struct fields fields = {field_get(config, HELD), config->file, HELD, config->error};
    if (!fields.object)
        return 0;
    if (!json_is_object(fields.object))
        return field_refuse(config, HELD, fields.object, "an object");
    int rc = field_require(&fields, "quant_method");
    return rc ? rc : method_read(&fields, ret);
}

/* ---- files of their own ---- */

static const struct {
    const char *file, *key; /* key: where it is in the file; NULL: it is all of it */
    int (*read)(const struct fields *fields, struct quantization *to);
} files[] = {{"hf_quant_config.json", "quantization", quantization_modelopt},
             {"quantize_config.json", NULL, quantization_gptq},
             {"quant_config.json", NULL, quantization_awq}};

const char *quantization_file(size_t number)
{
    return number < sizeof files / sizeof *files ? files[number].file : NULL;
}

int quantization_read_apart(size_t number, const struct fields *file, struct quantization *ret)
{
    const char *key = files[number].key;
    struct fields fields = *file;
    if (key) {
        const json *object = field_get(file, key);
        fields = (struct fields){object, file->file, key, file->error};
        if (!json_is_object(object))
            return object ? field_refuse(file, key, object, "an object") : field_require(file, key);
    }
    if (!key && field_get(&fields, "quant_method"))
        return method_read(&fields, ret);
    return files[number].read(&fields, ret);
}
