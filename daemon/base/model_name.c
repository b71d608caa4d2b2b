#include "daemon/base/model_name.h"

#include <stdio.h>
#include <string.h>

#include "daemon/base/option.h"
#include "gpu/gpu.h"

_Static_assert(MODEL_NAME_SIZE == sizeof(((struct gpu_model *)0)->id), "a model's own name fits");

static int add(struct model_names *names, struct option_word word, struct error *error)
{
    if (word.length == 0 || word.length >= MODEL_NAME_SIZE)
        return error_limit(error, ERR_BAD_CONFIG, MODEL_NAME_SIZE - 1, word.length,
                           "served-model-name: a name has 1 to %d bytes", MODEL_NAME_SIZE - 1);
    if (names->count == MODEL_NAMES_MAX)
        return error_limit(error, ERR_BAD_CONFIG, MODEL_NAMES_MAX, MODEL_NAMES_MAX + 1,
                           "served-model-name: at most %d names", MODEL_NAMES_MAX);
    char *name = names->names[names->count];
    snprintf(name, MODEL_NAME_SIZE, "%.*s", (int)word.length, word.text);
    if (model_names_has(names, name))
        return error_set(error, ERR_BAD_CONFIG, "served-model-name: %s stands there twice", name);
    names->count++;
    return 0;
}

int model_names_read(struct model_names *ret_names, const char *list, const char *own,
                     struct error *error)
{
    struct model_names names = {.count = 0};
    struct option_word word;
    int rc = 0;
    while (!rc && option_next(&list, &word))
        rc = add(&names, word, error);
    if (rc)
        return rc;
    if (names.count == 0)
        snprintf(names.names[names.count++], MODEL_NAME_SIZE, "%s", own);
    *ret_names = names;
    return 0;
}

bool model_names_has(const struct model_names *names, const char *name)
{
    for (uint32_t i = 0; i < names->count; i++)
        if (strcmp(names->names[i], name) == 0)
            return true;
    return false;
}
