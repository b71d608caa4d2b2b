#include "tests/gpu/rig/reference.h"

#include <assert.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/base/json.h"

static int compare(const void *a, const void *b)
{
    return strcmp(a, b);
}

uint32_t reference_names(char names[REFERENCES_MAX][REFERENCE_NAME])
{
    DIR *directory = opendir(REFERENCE_DATA);
    if (!directory)
        return 0;
    uint32_t count = 0;
    for (struct dirent *entry; (entry = readdir(directory));) {
        if (!strchr(entry->d_name, '-'))
            continue;
        assert(count < REFERENCES_MAX && strlen(entry->d_name) < REFERENCE_NAME);
        strcpy(names[count++], entry->d_name);
    }
    closedir(directory);
    qsort(names, count, sizeof names[0], compare);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i += ENGINE_CLIENT_THIN, kept++)
        memmove(names[kept], names[i], sizeof names[0]);
    return kept;
}

uint32_t reference_families(char names[REFERENCES_MAX][REFERENCE_NAME], uint32_t each)
{
    uint32_t count = reference_names(names), kept = 0, seen = 0;
    char family[REFERENCE_NAME] = "";
    for (uint32_t i = 0; i < count; i++) {
        size_t length = strcspn(names[i], "-") + 1;
        seen = strncmp(family, names[i], length) ? 0 : seen + 1;
        memcpy(family, names[i], length);
        if (seen < each)
            memmove(names[kept++], names[i], sizeof names[0]);
    }
    return kept;
}

uint32_t reference_floats(const json *list, float *to, uint32_t max)
{
    uint32_t count = 0;
    for (const json *value = json_child(list); value && count < max; value = json_next(value))
        to[count++] = (float)json_number(value);
    return count;
}

uint32_t reference_ids(const json *list, int32_t *to, uint32_t max)
{
    uint32_t count = 0;
    for (const json *value = json_child(list); value && count < max; value = json_next(value))
        to[count++] = (int32_t)json_number(value);
    return count;
}

static void prompt_read(const json *from, struct reference_prompt *to)
{
    to->count = reference_ids(json_get(from, "tokens"), to->tokens, REFERENCE_TOKENS);
    (void)reference_floats(json_get(from, "logprobs"), to->logprobs, REFERENCE_TOKENS);
    const json *greedy = json_get(from, "greedy");
    (void)reference_ids(json_get(greedy, "tokens"), to->greedy, REFERENCE_GREEDY);
    (void)reference_floats(json_get(greedy, "logprobs"), to->greedy_logprobs, REFERENCE_GREEDY);
    (void)reference_floats(json_get(greedy, "margins"), to->margins, REFERENCE_GREEDY);
    to->detailed = json_get(from, "hidden_last") != NULL;
    (void)reference_ids(json_get(from, "top_ids"), to->top_ids, REFERENCE_TOKENS);
    (void)reference_floats(json_get(from, "top_logprobs"), to->top_logprobs, REFERENCE_TOKENS);
    to->hidden = reference_floats(json_get(from, "hidden_last"), to->hidden_last, REFERENCE_HIDDEN);
    (void)reference_floats(json_get(from, "hidden_mean"), to->hidden_mean, REFERENCE_HIDDEN);
}

/* Whether its config.json counts experts, under any of the names that families have for it. */
static bool has_experts(const char *directory)
{
    static char text[1 << 14];
    char path[300];
    snprintf(path, sizeof path, "%s/config.json", directory);
    FILE *file = fopen(path, "r");
    if (!file)
        return false;
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    return strstr(text, "\"num_local_experts\"") || strstr(text, "\"num_experts\"") ||
           strstr(text, "\"n_routed_experts\"");
}

bool reference_read(const char *name, struct reference *ret)
{
    memset(ret, 0, sizeof *ret);
    snprintf(ret->directory, sizeof ret->directory, "%s/%s", REFERENCE_DATA, name);
    char path[300];
    snprintf(path, sizeof path, "%s/reference.json", ret->directory);
    FILE *file = fopen(path, "r");
    if (!file)
        return false;
    static char text[1 << 20];
    size_t length = fread(text, 1, sizeof text, file);
    fclose(file);
    json *document = NULL;
    struct json_bounds bounds = {.bytes_max = sizeof text, .depth_max = 8};
    struct error error;
    if (json_parse(text, length, bounds, &document, &error))
        return false;
    ret->bf16_mean_error = json_number(json_get(document, "bf16_mean_error"));
    ret->bf16_max_error = json_number(json_get(document, "bf16_max_error"));
    ret->experts = has_experts(ret->directory);
    uint32_t count = 0;
    const json *prompt = json_child(json_get(document, "prompts"));
    for (; prompt && count < REFERENCE_PROMPTS; prompt = json_next(prompt))
        prompt_read(prompt, &ret->prompts[count++]);
    json_free(document);
    return count == REFERENCE_PROMPTS;
}
