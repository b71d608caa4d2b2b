/* What a model is: everything that the engine and the scheduler need to know before a weight is
 * read.
 *
 * Made from config.json and generation_config.json of a Hugging Face directory, in both spellings
 * of the rope parameters, or from the name of a synthetic shape (synthetic.h). The files are
 * untrusted: every number is held to a range, and the product of any two sizes here fits 64 bits
 * with room to spare. What Sluice does not compute exactly as the model's authors meant it is
 * refused by name.
 *
 * A plain value: copy it. Any thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol/base/error.h"

#define MODEL_LAYERS_MAX 256
#define MODEL_HIDDEN_MAX 65536 /* also q and kv width */
#define MODEL_INTERMEDIATE_MAX 262144
#define MODEL_HEADS_MAX 512
#define MODEL_HEAD_DIM_MAX 256
#define MODEL_VOCAB_MAX 1048576
#define MODEL_CONTEXT_MAX 16777216
#define MODEL_EOS_MAX 16
#define MODEL_GROUPS_MAX 2
#define MODEL_ROPE_PAIRS_MAX (MODEL_HEAD_DIM_MAX / 2)
#define MODEL_CONFIG_BYTES_MAX (1u << 20)

enum model_arch { MODEL_LLAMA, MODEL_MISTRAL, MODEL_QWEN2, MODEL_QWEN3 };
enum model_dtype { MODEL_F32, MODEL_F16, MODEL_BF16 };
enum model_rope_kind { MODEL_ROPE_DEFAULT, MODEL_ROPE_LINEAR, MODEL_ROPE_LLAMA3, MODEL_ROPE_YARN };

/* Rotation of pair i (elements i and i + head_dim / 2 of a head) at position p:
 * angle = p * inverse_frequency[i] in float32, cosine and sine times `attention`. */
struct model_rope {
    enum model_rope_kind kind;
    uint32_t pairs;  /* head_dim / 2 */
    float attention; /* 1 but for yarn */
    float inverse_frequency[MODEL_ROPE_PAIRS_MAX];
};

/* Layers that share a kind of attention share block tables. */
struct model_group {
    uint32_t window; /* a token sees itself and the window - 1 tokens before it; 0: all */
    uint32_t layers;
};

/* What a request takes where it is silent (generation_config.json): greedy unless do_sample is
 * true, and no limit that the file does not name. */
struct model_sampling {
    float temperature;   /* 0: greedy */
    float top_p;         /* 1: off */
    float min_p;         /* 0: off */
    float repetition;    /* 1: off */
    uint32_t top_k;      /* 0: off */
    uint32_t max_tokens; /* 0: not said */
};

struct model_config {
    enum model_arch arch;
    enum model_dtype dtype; /* as the config says; each tensor names its own */
    uint32_t layers, hidden, intermediate, heads, kv_heads, head_dim, vocab;
    uint32_t context_max; /* positions that the model is meant for, yarn's extension included */
    float norm_eps;
    float attention_scale; /* head_dim ^ -0.5 */
    bool qkv_bias, o_bias, mlp_bias;
    bool qk_norm; /* RMSNorm over each head of q and k, before rope */
    bool tied;    /* the output matrix is the embedding */
    struct model_rope rope;
    uint32_t groups_count; /* 1, or 2 where full and windowed layers mix */
    struct model_group groups[MODEL_GROUPS_MAX];
    uint8_t layer_group[MODEL_LAYERS_MAX];
    int32_t bos_id; /* -1: none */
    uint32_t eos_count;
    int32_t eos_ids[MODEL_EOS_MAX]; /* of config.json and generation_config.json, each once */
    struct model_sampling sampling;
};

/* Reads directory/config.json and, where it exists, directory/generation_config.json.
 * ERR_BAD_MODEL with file, field and value. */
int model_config_load(const char *directory, struct model_config *ret, struct error *error);

/* The same from texts in memory; generation may be NULL. */
int model_config_parse(const char *config, size_t config_length, const char *generation,
                       size_t generation_length, struct model_config *ret, struct error *error);

const char *model_arch_name(enum model_arch arch);    /* "llama" */
const char *model_dtype_name(enum model_dtype dtype); /* "BF16", as in safetensors */
uint32_t model_dtype_bytes(enum model_dtype dtype);
