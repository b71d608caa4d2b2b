#include "daemon/base/model_list.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/model_name.h"
#include "daemon/base/option_table.h"

#define DIRECTORY_MAX 4095u

/* Of which each model may have its own. */
static const char *const own_options[] = {"served-model-name",
                                          "chat-template",
                                          "score-tokens",
                                          "score-template",
                                          "dtype",
                                          "quantize",
                                          "kv-dtype",
                                          "invariant",
                                          "dp",
                                          "tp",
                                          "ep",
                                          "pp",
                                          "steps-in-flight",
                                          "sequences-max",
                                          "step-tokens",
                                          "context-max",
                                          "block-tokens",
                                          "slab-size",
                                          "kv-max",
                                          "kv-idle-release",
                                          "cache-idle-release",
                                          "host-cache",
                                          "ttft-target",
                                          "itl-target",
                                          "speculate",
                                          "speculate-tokens",
                                          "draft-model",
                                          "step-timeout",
                                          "seed",
                                          "sleep-after"};

/* Which fit one model alone, and are not said of those behind the first. */
static const char *const first_options[] = {"served-model-name", "adapter",
                                            "adapter-dir",       "adapters-max",
                                            "chat-template",     "score-tokens",
                                            "score-template"};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

size_t model_list_name_length(const char *text, size_t length)
{
    const char *equals = memchr(text, '=', length);
    if (!equals || equals == text || text[0] == '/' || text[0] == '.')
        return 0;
    size_t name = (size_t)(equals - text);
    return memchr(text, ':', name) ? 0 : name;
}

/* ---- one model's options -----------------------------------------------------------------------
 */

static int set(struct options *options, const char *name, const char *text, size_t length,
               struct error *error)
{
    return option_set(options, option_find(name, strlen(name)), text, length, error);
}

static int copy(const struct options *options, struct options **ret_copy, struct error *error)
{
    struct options *made = malloc(sizeof(*made));
    int rc = made ? 0 : error_set(error, ERR_NO_MEMORY, "no memory for options");
    if (rc)
        return rc;
    *made = *options;
    for (uint32_t i = 0; i < option_count; i++)
        if (option_table[i].kind == OPTION_TEXT || option_table[i].kind == OPTION_LIST)
            *(char **)option_field(made, &option_table[i]) = NULL;
    for (uint32_t i = 0; !rc && i < option_count; i++) {
        const struct option *option = &option_table[i];
        if (option->kind != OPTION_TEXT && option->kind != OPTION_LIST)
            continue;
        const char *text = *(char *const *)((const char *)options + option->offset);
        rc = option_set(made, option, text, strlen(text), error);
    }
    if (rc)
        options_free(made);
    else
        *ret_copy = made;
    return rc;
}

/* The list of names begins with the model's. */
static int name_first(struct options *options, const char *name, size_t length, struct error *error)
{
    const struct option *option = option_find("served-model-name", strlen("served-model-name"));
    char *more = strdup(options->served_model_name);
    if (!more)
        return error_set(error, ERR_NO_MEMORY, "no memory for options");
    int rc = option_set(options, option, name, length, error);
    if (!rc && more[0])
        rc = option_add(options, option, more, strlen(more), error);
    free(more);
    return rc;
}

/* What all replicas of all models share is divided, where nothing else is said. */
static void share_out(struct options *options, uint32_t models)
{
    if (options->host_cache != OPTION_AUTO && options->host_cache > models)
        options->host_cache /= models;
}

static int add(struct model_list *list, const struct options *options, uint32_t models,
               struct option_word word, size_t name, struct error *error)
{
    const char *directory = name > 0 ? word.text + name + 1 : word.text;
    size_t length = name > 0 ? word.length - name - 1 : word.length;
    struct options *made;
    if (length == 0 || length > DIRECTORY_MAX)
        return error_limit(error, ERR_BAD_CONFIG, DIRECTORY_MAX, length,
                           "model: a directory has 1 to %u bytes", DIRECTORY_MAX);
    int rc = copy(options, &made, error);
    if (rc)
        return rc;
    for (size_t i = 0; !rc && list->count > 0 && i < COUNT(first_options); i++) {
        const struct option *option = option_find(first_options[i], strlen(first_options[i]));
        rc = option_set(made, option, option->default_text, strlen(option->default_text), error);
    }
    if (!rc)
        rc = set(made, "model", directory, length, error);
    if (!rc)
        rc = set(made, "model-option", "", 0, error);
    if (!rc && name > 0)
        rc = name_first(made, word.text, name, error);
    if (rc) {
        options_free(made);
        return rc;
    }
    share_out(made, models);
    list->at[list->count++] = made;
    return 0;
}

/* ---- what is said of one -----------------------------------------------------------------------
 */

static bool may_be_own(const struct option *option)
{
    for (size_t i = 0; i < COUNT(own_options); i++)
        if (strcmp(own_options[i], option->name) == 0)
            return true;
    return false;
}

/* The model whose first name it is; `count`: there is none. */
static uint32_t find(const struct model_list *list, const char *name, size_t length)
{
    uint32_t i = 0;
    for (; i < list->count; i++) {
        const char *names = list->at[i]->served_model_name;
        struct option_word word;
        if (option_next(&names, &word) && word.length == length &&
            memcmp(word.text, name, length) == 0)
            break;
    }
    return i;
}

static int shown(size_t length)
{
    return (int)(length < 64 ? length : 64);
}

/* What one model's options become by it; `seen`: which were said of it before. */
static int say(struct options *options, const struct option *option, const char *value,
               size_t length, bool *seen, struct error *error)
{
    bool names = strcmp(option->name, "served-model-name") == 0; /* behind the model's own */
    bool more = option->kind == OPTION_LIST && (*seen || names);
    if (*seen && !more)
        return error_set(error, ERR_BAD_CONFIG, "%s stands there twice", option->name);
    *seen = true;
    return (more ? option_add : option_set)(options, option, value, length, error);
}

static int say_word(const struct model_list *list, struct option_word word,
                    bool seen[MODEL_LIST_MAX][OPTIONS_MAX], struct error *error)
{
    struct error why;
    const char *equals = memchr(word.text, '=', word.length);
    const char *colon = equals ? memrchr(word.text, ':', (size_t)(equals - word.text)) : NULL;
    if (!colon)
        return error_set(error, ERR_BAD_CONFIG, "model-option: %.*s is not NAME:OPTION=VALUE",
                         shown(word.length), word.text);
    const size_t name = (size_t)(colon - word.text), of = (size_t)(equals - colon - 1);
    const struct option *option = option_find(colon + 1, of);
    const uint32_t at = find(list, word.text, name);
    if (at == list->count)
        return error_set(error, ERR_BAD_CONFIG, "model-option: no model is called %.*s",
                         shown(name), word.text);
    if (!option || !may_be_own(option))
        return error_set(error, ERR_BAD_CONFIG, "model-option: no model has a %.*s of its own",
                         shown(of), colon + 1);
    int rc = say(list->at[at], option, equals + 1, word.length - name - of - 2,
                 &seen[at][option - option_table], &why);
    return rc ? error_set(error, why.code, "model-option: %.*s: %s", shown(name), word.text,
                          why.text)
              : 0;
}

static int say_all(const struct model_list *list, const char *said, struct error *error)
{
    bool seen[MODEL_LIST_MAX][OPTIONS_MAX] = {{false}};
    struct option_word word;
    int rc = 0;
    while (!rc && option_next(&said, &word))
        rc = say_word(list, word, seen, error);
    return rc;
}

/* ---- all together ------------------------------------------------------------------------------
 */

/* None is called as another is. */
static int check_apart(const struct model_list *list, struct error *error)
{
    struct model_names names[MODEL_LIST_MAX];
    int rc = 0;
    for (uint32_t i = 0; !rc && i < list->count; i++) {
        rc = model_names_read(&names[i], list->at[i]->served_model_name, "", error);
        for (uint32_t j = 0; !rc && j < i; j++)
            for (uint32_t k = 0; k < names[i].count; k++)
                if (model_names_has(&names[j], names[i].names[k]))
                    rc = error_set(error, ERR_BAD_CONFIG, "model: two are called %s",
                                   names[i].names[k]);
    }
    return rc;
}

static int add_all(struct model_list *list, const struct options *options, struct error *error)
{
    const char *text = options->model;
    struct option_word word;
    uint32_t models = 0;
    int rc = 0;
    if (!model_list_name_length(text, strlen(text))) /* as it stands, commas and all */
        return add(list, options, 1, (struct option_word){text, strlen(text)}, 0, error);
    for (const char *rest = text; option_next(&rest, &word);)
        models++;
    if (models > MODEL_LIST_MAX)
        return error_limit(error, ERR_BAD_CONFIG, MODEL_LIST_MAX, models,
                           "model: at most %d are served", MODEL_LIST_MAX);
    while (!rc && option_next(&text, &word)) {
        size_t name = model_list_name_length(word.text, word.length);
        if (name == 0)
            rc = error_set(error, ERR_BAD_CONFIG, "model: %.*s has no name: NAME=DIR",
                           (int)(word.length < 64 ? word.length : 64), word.text);
        else
            rc = add(list, options, models, word, name, error);
    }
    return rc;
}

int model_list_make(const struct options *options, struct model_list *ret_list, struct error *error)
{
    struct model_list list = {.count = 0};
    int rc = options->model[0] ? add_all(&list, options, error) : 0;
    if (!rc)
        rc = say_all(&list, options->model_option, error);
    if (!rc)
        rc = check_apart(&list, error);
    for (uint32_t i = 0; !rc && i < list.count; i++)
        rc = options_check_model(list.at[i], error);
    if (rc) {
        model_list_free(&list);
        return rc;
    }
    *ret_list = list;
    return 0;
}

int model_list_version(const struct options *options, const char *directory,
                       struct options **ret_options, struct error *error)
{
    struct options *made = NULL;
    int rc = copy(options, &made, error);
    if (!rc && directory[0])
        rc = set(made, "model", directory, strlen(directory), error);
    if (rc) {
        if (made)
            options_free(made);
        return rc;
    }
    made->profile_steps = 0;
    *ret_options = made;
    return 0;
}

void model_list_free(struct model_list *list)
{
    for (uint32_t i = 0; i < list->count; i++)
        options_free(list->at[i]);
    list->count = 0;
}
