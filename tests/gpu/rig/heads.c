#include "tests/gpu/rig/heads.h"

#include <stdio.h>
#include <string.h>

#include "protocol/base/json.h"
#include "tests/gpu/rig/reference.h"

static bool guesses_read(const json *from, struct heads_guesses *to)
{
    to->count = reference_ids(json_get(from, "tokens"), to->behind, HEADS_BEHIND);
    return to->count > 0 &&
           reference_ids(json_get(from, "guesses"), to->tokens, HEADS_STEPS) == HEADS_STEPS &&
           reference_floats(json_get(from, "logprobs"), to->logprobs, HEADS_STEPS) == HEADS_STEPS &&
           reference_floats(json_get(from, "margins"), to->margins, HEADS_STEPS) == HEADS_STEPS;
}

static bool prompt_read(const json *from, struct heads_prompt *to)
{
    to->count = reference_ids(json_get(from, "tokens"), to->tokens, HEADS_TOKENS);
    const json *round = json_child(json_get(from, "rounds"));
    for (uint32_t i = 0; i < HEADS_ROUNDS; i++, round = json_next(round)) {
        if (!round || !guesses_read(round, &to->rounds[i]))
            return false;
    }
    return to->count > 0;
}

bool heads_read(const char *name, struct heads *ret)
{
    static char text[1 << 16];
    char path[200];
    memset(ret, 0, sizeof *ret);
    snprintf(ret->directory, sizeof ret->directory, HEADS_DATA "%s", name);
    snprintf(path, sizeof path, "%s/reference.json", ret->directory);
    FILE *file = fopen(path, "r");
    if (!file)
        return false;
    size_t length = fread(text, 1, sizeof text, file);
    fclose(file);
    json *document = NULL;
    struct json_bounds bounds = {.bytes_max = sizeof text, .depth_max = 8};
    struct error error;
    if (json_parse(text, length, bounds, &document, &error))
        return false;
    snprintf(ret->target, sizeof ret->target, "%s", json_string(json_get(document, "target")));
    const json *prompt = json_child(json_get(document, "prompts"));
    uint32_t count = 0;
    while (prompt && count < HEADS_PROMPTS && prompt_read(prompt, &ret->prompts[count])) {
        prompt = json_next(prompt);
        count++;
    }
    json_free(document);
    return count == HEADS_PROMPTS && ret->target[0];
}
