/* A model's hyperparameters, as its family reads them; included by gpu/models and by what asks for
 * the ends and the sampling, and by nobody else: what a model computes, its list of ops says.
 *
 * The files that they come from (config.h) are untrusted: every number is held to a range, and the
 * product of any two sizes here fits 64 bits with room to spare. What Sluice does not compute
 * exactly as the model's authors meant it is refused by name.
 *
 * A plain value: copy it. Any thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpu/checkpoint/model_dtype.h"
#include "gpu/graph/op_list.h"
#include "gpu/models/base/rope_config.h"
#include "gpu/models/quantization/quantization.h"
#include "protocol/base/sampler.h"

#define MODEL_LAYERS_MAX 256
#define MODEL_HIDDEN_MAX 65536 /* also q and kv width */
#define MODEL_INTERMEDIATE_MAX 262144
#define MODEL_HEADS_MAX 512
#define MODEL_EXPERTS_MAX 512    /* as kernels/experts/route.h has it */
#define MODEL_EXPERTS_TOP_MAX 32 /* likewise */
#define MODEL_VOCAB_MAX 1048576
#define MODEL_EOS_MAX 16

struct family;

/* How names of tensors begin. */
struct tensor_names {
    const char *model;  /* before "embed_tokens" and "norm" */
    const char *layers; /* of a layer's, with %u for its number */
    const char *head;   /* the whole name */
    bool tableless;     /* it has no embedding of its own: of a head that guesses */
};

/* The hyperparameters of all families: each reads and uses its own. */
struct model_config {
    const struct family *family;
    enum model_dtype dtype; /* as the config says; each tensor names its own */
    uint32_t layers, hidden, intermediate, heads, kv_heads, head_dim, vocab;
    uint32_t context_max; /* positions that the model is meant for, yarn's extension included */
    float norm_eps;
    float attention_scale;                                           /* head_dim ^ -0.5 */
    float embedding_multiplier, residual_multiplier, logits_scaling; /* 1 but for Granite */
    bool qkv_bias, o_bias, mlp_bias;
    enum activation_kind activation;
    const struct tensor_names *names;        /* of the checkpoint; never NULL */
    float attention_softcap, logits_softcap; /* 0: none */
    bool qk_norm;                            /* RMSNorm over each head of q and k, before rope */
    bool qk_norm_wide;                       /* and over the whole of each */
    bool norms_before; /* of Gemma: none stands behind attention and the MLP */
    bool tied;         /* the output matrix is the embedding */
    bool classifies;   /* a head of classes stands in place of the one for tokens
                          (gpu/models/class_head.h) */
    /* Of a head the part that is rotated: what the family says where the files do not; 0: all, and
     * files that say less are refused. */
    float rotary_factor;
    uint32_t rotary; /* elements of a head that are */
    bool adjacent;   /* elements 2 i and 2 i + 1 are a pair, not those half of `rotary` apart */
    bool longrope_by_names; /* the kinds "su" and "yarn" are longrope, too */
    struct model_rope rope;
    struct model_rope
        rope_local; /* of layers with a window, where the family has another for them */
    struct model_rope rope_long; /* longrope: in place of `rope` where the context is longer than */
    uint32_t rope_original;      /* so many positions, see rope_choose; 0: another kind */
    uint32_t window[MODEL_LAYERS_MAX]; /* of each layer; 0: it sees all */
    bool no_rope[MODEL_LAYERS_MAX];    /* the layer's q and k are not rotated */
    /* Mixtures of experts: of how many each row goes through how many, their MLP's size, and that
     * of the one that all rows go through (0: none). */
    uint32_t experts, experts_top, experts_intermediate, shared_intermediate;
    bool experts_whole;      /* ranks share them out, not columns of each; no file says so */
    bool experts_normalised; /* weights of a row's experts add up to 1 */
    float experts_scale;     /* of a row's weights */
    float swiglu_alpha, swiglu_limit; /* of experts that clamp */
    bool dense[MODEL_LAYERS_MAX];     /* the layer has one MLP and no experts */
    /* A head that guesses for another model, and is none by itself: how many of that model's tokens
     * it knows (0: it is no head), that model's width, and the layers of it whose residual, as they
     * begin, it reads. */
    uint32_t draft_vocab, target_hidden;
    bool captured_said; /* else the model's layers decide which */
    uint32_t captured[LIST_FEATURES];
    bool normed_residual; /* its residual begins with the normed state */
    int32_t bos_id;       /* -1: none */
    uint32_t eos_count;
    int32_t eos_ids[MODEL_EOS_MAX]; /* of config.json and generation_config.json, each once */
    /* What a request takes where it is silent (generation_config.json): greedy unless do_sample is
     * true, and no limit that the file does not name. */
    struct sampler sampler;
    uint32_t max_tokens; /* 0: not said */
    struct quantization quantization;
};
