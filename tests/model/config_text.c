#include "tests/model/config_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const base[][2] = {
    {"architectures", "[\"LlamaForCausalLM\"]"},
    {"model_type", "\"llama\""},
    {"vocab_size", "256"},
    {"hidden_size", "32"},
    {"intermediate_size", "48"},
    {"num_hidden_layers", "2"},
    {"num_attention_heads", "4"},
    {"num_key_value_heads", "2"},
    {"hidden_act", "\"silu\""},
    {"max_position_embeddings", "512"},
    {"rms_norm_eps", "1e-05"},
    {"torch_dtype", "\"bfloat16\""},
};

static void append(char text[CONFIG_TEXT_MAX], size_t *used, const char *part)
{
    int length = snprintf(text + *used, CONFIG_TEXT_MAX - *used, "%s", part);
    *used += (size_t)length;
    if (*used >= CONFIG_TEXT_MAX)
        abort();
}

static bool names(const char *changes, const char *sign, const char *name)
{
    char quoted[80];
    snprintf(quoted, sizeof(quoted), "\"%s%s\":", sign, name);
    return strstr(changes, quoted);
}

void config_text(const char *changes, char text[CONFIG_TEXT_MAX])
{
    size_t used = 0;
    changes = changes ? changes : "";
    append(text, &used, "{");
    const char *separator = "";
    for (size_t i = 0; i < sizeof(base) / sizeof(base[0]); i++) {
        if (names(changes, "", base[i][0]) || names(changes, "-", base[i][0]))
            continue;
        append(text, &used, separator);
        append(text, &used, "\"");
        append(text, &used, base[i][0]);
        append(text, &used, "\":");
        append(text, &used, base[i][1]);
        separator = ",";
    }
    if (*changes) {
        append(text, &used, separator);
        append(text, &used, changes);
    }
    append(text, &used, "}");
}

int config_with(const char *changes, struct model_config *ret, struct error *error)
{
    char text[CONFIG_TEXT_MAX];
    config_text(changes, text);
    return model_config_parse(text, strlen(text), NULL, 0, ret, error);
}
