/* The layer that most families share: attention, then an MLP of two halves, with a norm before
 * each; and the whole model of such layers. Any thread. */
#pragma once

#include "gpu/models/base/family.h"

/* config's qkv_bias, o_bias, mlp_bias, qk_norm and windows say what is in it. */
void decoder_build(struct build *b, const struct model_config *config);

/* The same with tensors of other names; parts of one name take its rows in turn. */
struct experts_names;
struct decoder_names {
    const char *q, *k, *v, *gate, *up;
    const char *behind_attention, *behind_mlp; /* norms of what they give; NULL: none */
    const struct experts_names *experts;       /* NULL: all layers are dense */
};
extern const struct decoder_names decoder_names_plain; /* q_proj ... up_proj */
void decoder_build_of(struct build *b, const struct model_config *config,
                      const struct decoder_names *names);

/* A layer's halves: attention of x, which is normed, and an MLP with its norm; both are added. */
void decoder_attention(struct build *b, const struct model_config *config,
                       const struct decoder_names *names, uint32_t layer, value_id x);
void decoder_mlp(struct build *b, const struct model_config *config,
                 const struct decoder_names *names);

/* How config's heads are rotated, for the parts that are q and k. */
struct head_order decoder_order(const struct model_config *config);

/* num_key_value_heads; absent: all heads, or refused where it is required. */
int decoder_kv_heads(const struct fields *fields, bool required, struct model_config *config);
/* head_dim; absent: `otherwise`, 0: hidden over heads. */
int decoder_head_dim(const struct fields *fields, uint32_t otherwise, struct model_config *config);
/* layer_types: sliding_attention has that window. */
int decoder_layer_types(const struct fields *fields, uint32_t window, struct model_config *config);
/* layer_types, or use_sliding_window and max_window_layers. */
int decoder_windows(const struct fields *fields, struct model_config *config);
