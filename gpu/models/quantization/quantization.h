/* What quantization_config of config.json says: which schemes there are, and which modules are of
 * which. What is not computed as it is meant is refused by name.
 *
 * Read: "fp8" (a scale for a tensor, or for blocks of 128 x 128), "fbgemm_fp8", "modelopt" in FP8,
 * "compressed-tensors" of formats "float-quantized" (a scale for a tensor, a row or a block; inputs
 * as they are, by token, by group or by a scale of the checkpoint) and "pack-quantized", "gptq",
 * "awq" and "auto-round" (whole numbers of 4 and 8 bits, a scale for a row or for groups of its
 * columns), "mxfp4" (of experts that one tensor has, as gpt-oss is published).
 *
 * A plain value: copy it. The file is untrusted; the memory is fixed. Any thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "gpu/checkpoint/checkpoint.h"
#include "gpu/checkpoint/config_field.h"
#include "gpu/graph/op_list.h"

#define QUANTIZATION_GROUPS_MAX 8
#define MXFP4_BLOCK 32 /* columns that have one scale */
#define QUANTIZATION_TEXT_MAX (24u << 10) /* of all names together */
#define QUANTIZATION_CASES_MAX 256        /* of all names that are patterns, "re:..." */

/* How a name of a list says which modules it means. */
enum names_rule {
    NAMES_WHOLE,    /* as compressed-tensors: the name, a pattern from its start on, or a class */
    NAMES_SEQUENCE, /* as transformers' fp8: parts of the name, at its begin or at its end */
    NAMES_INSIDE,   /* as awq: letters anywhere in the name */
    NAMES_WILD,     /* as modelopt: the name, or its parent's, with * for any letters */
    NAMES_FIRST,    /* as gptq's `dynamic`: the first that means it, a name or a pattern */
};

/* Which scales the checkpoint has for keys and values in eight bits. */
enum kv_scheme {
    KV_SCHEME_UNSAID,  /* those of the layers that have some */
    KV_SCHEME_TENSOR,  /* one for K and one for V of every layer */
    KV_SCHEME_DYNAMIC, /* none */
    KV_SCHEME_OTHER,   /* not such as are used here: only who wants eight bits is refused */
};

struct quantization {
    uint32_t groups; /* 0: nothing is quantized */
    enum kv_scheme kv;
    struct list_scheme schemes[QUANTIZATION_GROUPS_MAX];
    enum names_rule rule;
    bool all;                   /* what no name means is of the first group */
    bool head; /* the output matrix is of the first group, where no name says it (NAMES_FIRST) or
                * whatever names say; NAMES_WHOLE: as named */
    uint32_t text_bytes, cases; /* used of the following */
    char text[QUANTIZATION_TEXT_MAX]; /* for each name: its group, and the name up to its NUL */
};

/* The group of the names that are not quantized. */
#define QUANTIZATION_IGNORED QUANTIZATION_GROUPS_MAX

/* Of the config's quantization_config, which may be absent. ERR_BAD_MODEL with field and value. */
int quantization_read(const struct fields *config, struct quantization *ret);
/* Files by which tools say the same where config.json does not, one for each number; NULL behind
 * the last. Of the one that is there. */
const char *quantization_file(size_t number);
int quantization_read_apart(size_t number, const struct fields *file, struct quantization *ret);

/* The scheme of a module, "model.layers.0.mlp.down_proj", that is the output matrix or is not;
 * NULL: it is not quantized. */
const struct list_scheme *quantization_scheme(const struct quantization *quantization,
                                              const char *module, bool head);

/* The list's matrices get their schemes, and the list the tensors of their scales. Tables of
 * embeddings are not quantized, so a tied head is not; nor are routers of mixtures, whatever names
 * say. `checkpoint` is NULL for a synthetic model. ERR_BAD_MODEL where parts that are one matrix,
 * or a layer's experts, are of different schemes; ERR_BAD_CONFIG where ranks would share out
 * columns of experts inside a group. */
int quantization_apply(const struct quantization *quantization, const char *head,
                       const struct checkpoint *checkpoint, struct op_list *list,
                       struct error *error);
/* Instead, where matrices of numbers are to be quantized while they load: e4m3 with a scale for each
 * channel, inputs by token. */
void quantization_make(const char *head, struct op_list *list);
/* The list gets the tensors of the scales of K and V: those that `scheme` says, or those there are.
 * Read once the checkpoint is matched; ERR_BAD_MODEL where one is no positive number. */
int kv_scales_add(enum kv_scheme scheme, const struct checkpoint *checkpoint, struct op_list *list,
                  struct error *error);
int kv_scales_read(const struct checkpoint *checkpoint, struct op_list *list, struct error *error);

/* A tensor of one scale. */
int quantization_scale(const struct checkpoint *checkpoint, const struct op_list *list,
                       tensor_id number, float *ret, struct error *error);
/* Once the checkpoint, if there is one, is matched: scales of inputs, and whether columns are in
 * groups of another order. ERR_BAD_MODEL where a scale is no positive number, a group does not
 * exist, a size is another, or parts of a matrix do not agree. */
int quantization_values(const struct checkpoint *checkpoint, struct op_list *list,
                        struct error *error);
