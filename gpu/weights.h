/* A model's weights on the device: fused, in the device's dtypes, in one piece of fixed memory.
 *
 * q, k and v stand below one another in one matrix, as do gate and up, so that a layer is four
 * products. Rows of a matrix are outputs, so a rank of a tensor-parallel group takes its heads'
 * rows of qkv and gate_up with their biases, the same columns of o and down, and its rows of the
 * head; the rest is on every rank. A stage of a pipeline holds its layers alone, the first the
 * embedding too, the last the last norm and the head. Where the device computes in float32,
 * matrices stay in the 16-bit dtype of the file: they are exact there, and half as many bytes to
 * read. Norms and biases are in the compute dtype.
 *
 * Thread: the rank's own. Memory is mem's, the array of layers is this module's.
 */
#pragma once

#include "gpu/kernels/place.h"
#include "gpu/mem.h"
#include "gpu/model/checkpoint.h"

struct layer_weights {
    struct weight qkv, o, gate_up, down;
    const void *input_norm, *post_norm;
    const void *q_norm, *k_norm; /* NULL: none, as for all biases */
    const void *qkv_bias, *o_bias, *gate_up_bias, *down_bias;
};

struct weights {
    struct weight embed, head; /* the same data where they are tied; none: no data */
    uint32_t head_first;       /* token of the head's first row */
    const void *final_norm;
    const float *inverse_frequency; /* [head_dim / 2] */
    enum dtype vector;              /* of norms and biases */
    struct layer_weights *layers;   /* of the stage */
    void *memory;
};

/* Where they come from: a checkpoint, or for a synthetic model a seed. */
struct weights_source {
    const struct model_config *config;
    const struct checkpoint *checkpoint; /* NULL: synthetic */
    enum dtype dtype;                    /* that the device computes in */
    uint64_t seed;
    uint32_t rank, ranks; /* this rank's part of how many; 0 of 0 is all of it */
    uint32_t first, end;  /* layers of its stage; an end of 0 is the last layer's */
};

/* One tensor of the source and its place in a fused weight. */
struct weights_part {
    enum weight_role role;
    uint32_t layer;
    void *to; /* device */
    enum dtype to_dtype;
    struct place place;
};

/* A checkpoint's dtype as kernels name it. */
enum dtype weights_dtype(enum model_dtype dtype);

/* The sizes of one rank's part: heads, kv_heads and intermediate are shared out. ERR_BAD_CONFIG
 * where they do not divide. */
int weights_share(const struct model_config *config, uint32_t ranks, struct model_config *ret,
                  struct error *error);

/* Of this rank. */
uint64_t weights_bytes(const struct weights_source *source);

/* Memory and addresses; nothing is filled. ERR_DEVICE_MEMORY names both numbers. */
int weights_open(struct weights *weights, struct mem *mem, const struct weights_source *source,
                 struct error *error);
void weights_close(struct weights *weights);

/* Every part, in the order of the layers. The caller frees the array. */
int weights_parts(const struct weights *weights, const struct weights_source *source,
                  struct weights_part **ret_parts, size_t *ret_count, struct error *error);
