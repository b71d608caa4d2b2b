#include "daemon/base/adapter_name.h"

#include <stdio.h>
#include <string.h>

#include "daemon/base/option.h"

static int add(struct adapter_names *names, struct option_word word, struct error *error)
{
    const char *equals = memchr(word.text, '=', word.length);
    size_t length = equals ? (size_t)(equals - word.text) : 0;
    size_t rest = equals ? word.length - length - 1 : 0;
    if (names->count == GPU_ADAPTERS_MAX)
        return error_limit(error, ERR_BAD_CONFIG, GPU_ADAPTERS_MAX, GPU_ADAPTERS_MAX + 1,
                           "adapter: at most %d are served", GPU_ADAPTERS_MAX);
    if (length == 0 || length >= MODEL_NAME_SIZE || rest == 0 || rest >= ADAPTER_DIRECTORY_SIZE)
        return error_set(error, ERR_BAD_CONFIG,
                         "adapter: %.*s is not NAME=DIR, of 1 to %d and 1 to %d bytes",
                         (int)(word.length < 64 ? word.length : 64), word.text,
                         MODEL_NAME_SIZE - 1, ADAPTER_DIRECTORY_SIZE - 1);
    char *name = names->at[names->count].name;
    snprintf(name, MODEL_NAME_SIZE, "%.*s", (int)length, word.text);
    snprintf(names->at[names->count].directory, ADAPTER_DIRECTORY_SIZE, "%.*s", (int)rest,
             equals + 1);
    if (adapter_names_find(names, name))
        return error_set(error, ERR_BAD_CONFIG, "adapter: %s stands there twice", name);
    names->count++;
    return 0;
}

int adapter_names_read(struct adapter_names *ret_names, const char *list, struct error *error)
{
    struct option_word word;
    int rc = 0;
    ret_names->count = 0;
    while (!rc && option_next(&list, &word))
        rc = add(ret_names, word, error);
    return rc;
}

int adapter_names_apart(const struct adapter_names *names, const struct model_names *models,
                        struct error *error)
{
    for (uint32_t i = 0; i < names->count; i++)
        if (model_names_has(models, names->at[i].name))
            return error_set(error, ERR_BAD_CONFIG, "adapter: %s is a name of the model",
                             names->at[i].name);
    return 0;
}

void adapter_names_give(const struct adapter_names *names, struct gpu_adapter ret[GPU_ADAPTERS_MAX])
{
    for (uint32_t i = 0; i < names->count; i++)
        ret[i] = (struct gpu_adapter){names->at[i].name, names->at[i].directory};
}

uint32_t adapter_names_find(const struct adapter_names *names, const char *name)
{
    for (uint32_t i = 0; i < names->count; i++)
        if (strcmp(names->at[i].name, name) == 0)
            return i + 1;
    return 0;
}
