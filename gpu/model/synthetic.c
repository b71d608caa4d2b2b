#include "gpu/model/synthetic.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define PREFIX "synthetic:"

/* The published config.json of each model, without its end tokens: random weights mean nothing by
 * them, and a load test wants the lengths that it asked for. */
static const struct {
    const char *name, *config;
} shapes[] = {
    {"tiny",
     "{\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":256,\"intermediate_size\":512,"
     "\"num_hidden_layers\":4,\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":64,"
     "\"vocab_size\":512,\"max_position_embeddings\":4096,\"rms_norm_eps\":1e-5,"
     "\"tie_word_embeddings\":true,\"dtype\":\"bfloat16\",\"rope_theta\":10000}"},
    {"llama-3.2-1b",
     "{\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":2048,\"intermediate_size\":8192,"
     "\"num_hidden_layers\":16,\"num_attention_heads\":32,\"num_key_value_heads\":8,"
     "\"head_dim\":64,\"vocab_size\":128256,\"max_position_embeddings\":131072,"
     "\"rms_norm_eps\":1e-5,\"tie_word_embeddings\":true,\"dtype\":\"bfloat16\","
     "\"rope_theta\":500000,\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":32,"
     "\"low_freq_factor\":1,\"high_freq_factor\":4,\"original_max_position_embeddings\":8192}}"},
    {"llama-3.1-8b",
     "{\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":4096,\"intermediate_size\":14336,"
     "\"num_hidden_layers\":32,\"num_attention_heads\":32,\"num_key_value_heads\":8,"
     "\"head_dim\":128,\"vocab_size\":128256,\"max_position_embeddings\":131072,"
     "\"rms_norm_eps\":1e-5,\"dtype\":\"bfloat16\","
     "\"rope_theta\":500000,\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,"
     "\"low_freq_factor\":1,\"high_freq_factor\":4,\"original_max_position_embeddings\":8192}}"},
    {"llama-3.1-70b",
     "{\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":8192,\"intermediate_size\":28672,"
     "\"num_hidden_layers\":80,\"num_attention_heads\":64,\"num_key_value_heads\":8,"
     "\"head_dim\":128,\"vocab_size\":128256,\"max_position_embeddings\":131072,"
     "\"rms_norm_eps\":1e-5,\"dtype\":\"bfloat16\","
     "\"rope_theta\":500000,\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,"
     "\"low_freq_factor\":1,\"high_freq_factor\":4,\"original_max_position_embeddings\":8192}}"},
    {"qwen2.5-7b",
     "{\"architectures\":[\"Qwen2ForCausalLM\"],\"hidden_size\":3584,\"intermediate_size\":18944,"
     "\"num_hidden_layers\":28,\"num_attention_heads\":28,\"num_key_value_heads\":4,"
     "\"vocab_size\":152064,\"max_position_embeddings\":32768,\"rms_norm_eps\":1e-6,"
     "\"dtype\":\"bfloat16\",\"rope_theta\":1000000}"},
    {"qwen3-0.6b",
     "{\"architectures\":[\"Qwen3ForCausalLM\"],\"hidden_size\":1024,\"intermediate_size\":3072,"
     "\"num_hidden_layers\":28,\"num_attention_heads\":16,\"num_key_value_heads\":8,"
     "\"head_dim\":128,\"vocab_size\":151936,\"max_position_embeddings\":40960,"
     "\"rms_norm_eps\":1e-6,\"tie_word_embeddings\":true,\"dtype\":\"bfloat16\","
     "\"rope_theta\":1000000}"},
    {"mistral-7b",
     "{\"architectures\":[\"MistralForCausalLM\"],\"hidden_size\":4096,"
     "\"intermediate_size\":14336,\"num_hidden_layers\":32,\"num_attention_heads\":32,"
     "\"num_key_value_heads\":8,\"vocab_size\":32000,\"max_position_embeddings\":32768,"
     "\"rms_norm_eps\":1e-5,\"sliding_window\":4096,\"dtype\":\"bfloat16\",\"rope_theta\":10000}"},
    {"tiny-wide", /* heads for four devices */
     "{\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":256,\"intermediate_size\":512,"
     "\"num_hidden_layers\":2,\"num_attention_heads\":8,\"num_key_value_heads\":4,\"head_dim\":32,"
     "\"vocab_size\":512,\"max_position_embeddings\":4096,\"rms_norm_eps\":1e-5,"
     "\"tie_word_embeddings\":true,\"dtype\":\"bfloat16\",\"rope_theta\":10000}"},
};

#define SHAPES (sizeof(shapes) / sizeof(shapes[0]))

bool synthetic_is_null(const char *model)
{
    return strcmp(model, "null") == 0;
}

bool synthetic_is(const char *model)
{
    return synthetic_is_null(model) || strncmp(model, PREFIX, strlen(PREFIX)) == 0;
}

const char *synthetic_name(size_t i)
{
    return i < SHAPES ? shapes[i].name : NULL;
}

static int refuse_name(const char *name, struct error *error)
{
    char known[256];
    size_t used = 0;
    for (size_t i = 0; i < SHAPES; i++)
        used += (size_t)snprintf(known + used, sizeof(known) - used, "%s%s", i ? ", " : "",
                                 shapes[i].name);
    return error_set(error, ERR_BAD_MODEL, "synthetic shape \"%.64s\" is unknown (known: %s)", name,
                     known);
}

int synthetic_config(const char *model, struct model_config *ret, struct error *error)
{
    assert(synthetic_is(model));
    const char *name = synthetic_is_null(model) ? "tiny" : model + strlen(PREFIX);
    for (size_t i = 0; i < SHAPES; i++)
        if (strcmp(name, shapes[i].name) == 0)
            return model_config_parse(shapes[i].config, strlen(shapes[i].config), NULL, 0, ret,
                                      error);
    return refuse_name(name, error);
}
