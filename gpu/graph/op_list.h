/* A model as data: the ops of a step in order, what they read and write, and which weights they
 * take. A family's file makes it (gpu/models/families, build.h); everything else derives from it:
 * what is loaded and where it lies, how it is shared out over ranks and stages, scratch, tuning,
 * and the launches (program.h).
 *
 * One list serves all ranks of a group: widths are a rank's. A value has a row for each token (or
 * for each token that was picked); a row's elements stand without gaps. Values that are there all
 * the time (the residual, its norm, what is to be added to it, angles) are apart from those of a
 * block, by which everything from one add to the residual to the next is meant: nothing of a block
 * outlives it, so blocks lie over one another, and blocks that begin alike share their values.
 *
 * A plain value but for its arrays, which op_list_free frees. Read by any thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpu/gpu.h"
#include "gpu/graph/rope_table.h"

#define LIST_NAME_MAX 96
#define LIST_VALUES_MAX 256
#define LIST_ROPES_MAX 2
#define LIST_PARTS_MAX 4
#define LIST_FEATURES 3u
#define LIST_NONE UINT16_MAX
#define LIST_TENSORS_MAX (1u << 19) /* each of an expert's matrices has some */
#define LIST_NO_TENSOR UINT32_MAX

typedef uint16_t value_id;
typedef uint16_t weight_id;
typedef uint32_t tensor_id;

enum op_kind {
#define OP(NAME, text) OP_##NAME,
#include "gpu/graph/ops.def"
#undef OP
    OP_KINDS
};

/* The rows that an op goes over. What goes over scored ones is run for a chunk of them at a time;
 * featured ones are all tokens of a head that reads what the model made of them (launch.takes). */
enum op_rows { ROWS_TOKENS, ROWS_SCORED, ROWS_SAMPLED, ROWS_FEATURED };

/* On which stages of a pipeline an op is, where it is of no layer. */
enum op_layer { LAYER_EVERY = -1, LAYER_FIRST = -2, LAYER_LAST = -3 };

/* How a weight is shared out over ranks. Its rows are outputs; of experts some may be whole. */
enum split { SPLIT_NOT, SPLIT_ROWS, SPLIT_COLUMNS, SPLIT_VOCABULARY, SPLIT_EXPERTS };

/* EXACT: a vector in float32, whatever is computed in. */
enum weight_kind { WEIGHT_MATRIX, WEIGHT_NORM, WEIGHT_HEAD_NORM, WEIGHT_BIAS, WEIGHT_EXACT };

/* What a tensor has: numbers as they are computed with, those of a format, or what such are
 * multiplied by. */
enum tensor_elements {
    TENSOR_NUMBERS,
    TENSOR_E4M3,
    TENSOR_U4, /* whole numbers of 4 and of 8 bits from 0, less a zero */
    TENSOR_U8,
    TENSOR_E2M1, /* in blocks of 32 columns, with exponents */
    TENSOR_SCALES,
    TENSOR_EXPONENTS, /* scales that are powers of two, a byte each */
    TENSOR_ZEROS_U4,
    TENSOR_ZEROS_U8,
    TENSOR_GROUPS, /* of each column, which group of scales is its */
    TENSOR_SIZES,  /* rows and columns once more */
    TENSOR_TOKENS, /* of a head that guesses: each token's number in the model's vocabulary, less its
                    * own */
};

/* How whole numbers and their scales lie in a checkpoint. */
enum list_packing { PACKING_NONE, PACKING_GPTQ, PACKING_AWQ, PACKING_COMPRESSED };

/* How a matrix is quantized, and what is done with the input of its product. */
enum scheme_input { INPUT_AS_IT_IS, INPUT_BY_TOKEN, INPUT_BY_GROUP, INPUT_BY_TENSOR };

struct list_scheme {
    enum tensor_elements elements; /* TENSOR_NUMBERS: it is not */
    uint32_t rows, columns;        /* of a tensor, that have one scale; 0: all */
    enum scheme_input input;       /* INPUT_BY_TENSOR: a scale that the checkpoint has */
    uint32_t group;                /* columns of the input that have one scale, INPUT_BY_GROUP */
    float bound;                   /* of a scale, INPUT_BY_TOKEN; 0: none */
    const char *scale;             /* "weight_scale", static */
    const char *zeros;             /* likewise, as many as scales; NULL: all are `zero` */
    uint8_t zero;
    bool made;           /* of numbers while they load: there is no tensor of scales */
    bool zeros_less_one; /* in the checkpoint */
    enum list_packing packing;
    const char *weight; /* "qweight", static; NULL: "weight" */
    const char *groups; /* likewise; NULL: columns are in groups as they stand */
    bool grouped;       /* it must be there; else it may be left out */
    const char *sizes;  /* likewise; NULL: none */
};

/* Scales along rows or columns of which `each` have one; 0: all. */
static inline uint32_t list_scales(uint32_t size, uint32_t each)
{
    return each ? (size + each - 1) / each : 1;
}

static inline bool elements_are_whole(enum tensor_elements elements)
{
    return elements == TENSOR_U4 || elements == TENSOR_U8;
}

/* A tensor of a checkpoint, whole. */
struct list_tensor {
    enum tensor_elements elements;
    enum list_packing packing;
    char name[LIST_NAME_MAX];
    uint32_t rank, rows, columns; /* columns: 1 where the rank is 1 */
    uint32_t experts; /* of so many, one behind another, each of these sizes; 0: it is one */
    bool transposed;  /* each is [columns][rows] */
    uint32_t number;  /* of its synthetic values */
};

/* How a model has the elements of a head that are rotated: the first `rotary`, in pairs that are
 * half of those apart, or adjacent. Kernels rotate element i with element i + head_dim / 2, so such
 * rows change places while they are loaded (kernels/load/tensor_slice.h). */
struct head_order {
    uint32_t head_dim, rotary; /* head_dim 0: as it stands */
    bool adjacent;
};

/* Rows of a tensor; parts of one tensor take its rows in turn. */
struct list_part {
    tensor_id tensor;
    uint32_t row, rows;
    struct head_order order;
    tensor_id scale, zeros, groups, sizes, input_scale; /* where the scheme has such */
};

/* Parts that stand below one another in one matrix, or behind one another in a vector. Of experts
 * there are so many such matrices, or vectors, one behind another; parts name the first one's
 * tensors, or one tensor that has all (list_expert_part). */
struct list_weight {
    struct list_part parts[LIST_PARTS_MAX];
    uint32_t part_count;
    uint32_t experts; /* 0: it is one matrix, and none of theirs */
    bool stacked;     /* a tensor has those of all experts, and all parts are of it */
    uint32_t beside;  /* tensors of scales and the like of each expert */
    uint32_t columns; /* of a matrix */
    enum weight_kind kind;
    enum split split;
    int16_t layer;         /* or an op_layer */
    float mean, deviation; /* of synthetic values */
    struct list_scheme scheme;
    float input_scale; /* INPUT_BY_TENSOR */
    bool ordered;      /* columns are not in groups as they stand */
};

/* Of one of the weight's experts: those of the next are as many numbers on as there are parts, and
 * what they come with as many as one has of it; or they are rows of the same tensors. */
static inline struct list_part list_expert_part(const struct list_weight *weight, uint32_t part,
                                                uint32_t expert)
{
    struct list_part of = weight->parts[part];
    uint32_t on = expert * weight->beside;
    if (weight->stacked) {
        for (uint32_t i = 0; i < weight->part_count; i++)
            of.row += expert * weight->parts[i].rows;
        return of;
    }
    of.tensor += expert * weight->part_count;
    of.scale += on;
    of.zeros += on;
    of.groups += of.groups == LIST_NO_TENSOR ? 0 : on;
    of.sizes += on;
    of.input_scale += on;
    return of;
}

/* How many matrices a weight is. */
static inline uint32_t list_matrices(const struct list_weight *weight)
{
    return weight->experts ? weight->experts : 1;
}

/* Elements of a value, as the rank that runs it has them. */
enum value_type {
    VALUE_COMPUTE, /* what the rank computes in */
    VALUE_F32,
    VALUE_SUM,               /* what is added to the residual, see list.sums_rounded */
    VALUE_STATE,             /* 8 bytes */
    VALUE_ATTENTION_SCRATCH, /* as large as the op says, see attention.h */
    VALUE_SAMPLE_SCRATCH,
};

enum value_rows { VALUE_OF_TOKENS, VALUE_OF_PICKED };

struct list_value {
    uint32_t width;
    enum value_type type;
    enum value_rows rows;
    bool common;     /* it is there all the time */
    uint32_t once;   /* elements that it has besides those of its rows */
    value_id before; /* of the block: what it stands behind; LIST_NONE: it begins */
    value_id of;     /* it is elements `first` and on of each row of that one; LIST_NONE: its own */
    uint32_t first;
    uint32_t heads, head_dim; /* VALUE_ATTENTION_SCRATCH */
};

/* What x, one row of it, becomes: x / rms(x) * w; * (1 + w); (x - mean) / deviation * w + bias. */
enum norm_kind { NORM_RMS, NORM_RMS_PLUS_ONE, NORM_LAYER };
enum activation_kind { ACTIVATION_SILU, ACTIVATION_GELU_TANH };
/* What a row's products with the router become before the greatest are taken: of all experts
 * together, or each by itself. */
enum route_score { ROUTE_SOFTMAX, ROUTE_SIGMOID };

struct op {
    uint8_t kind, rows;
    int16_t layer;
    value_id in[3], out; /* LIST_NONE: none */
    weight_id weight, bias;
    union {
        struct {
            enum norm_kind kind;
            float eps;
            uint32_t size; /* OP_HEAD_NORM: of a head */
        } norm;            /* NORM_LAYER: op.bias; OP_WIDE_NORM: see ops.def */
        struct {
            enum split split; /* COLUMNS: every rank has a part of each sum */
        } matmul;
        struct {
            uint32_t site;
            enum split split; /* of the product before it */
        } adapt; /* in: x, scratch, y; out: y again; weight: the product's */
        struct {
            enum activation_kind kind;
            bool gated; /* of two halves; else of each element */
        } activation;
        struct {
            float by;
        } scale; /* OP_EMBED, OP_ADD, OP_GATHER */
        struct {
            uint16_t table; /* OP_ANGLES, OP_ROPE */
            uint32_t head_dim;
        } rope; /* in[2]: the angles */
        struct {
            uint16_t group, layer; /* of KV; the layer's number among the group's */
            uint32_t heads, kv_heads, head_dim;
            float scale, softcap;
            /* OP_KV_WRITE: scales of K and V in eight bits, and the tensors that say them. */
            float k_scale, v_scale;
            tensor_id k_tensor, v_tensor; /* LIST_NO_TENSOR: the checkpoint has none */
        } attention; /* OP_KV_WRITE too; OP_ATTENTION: op.weight is of sinks, or LIST_NONE */
        struct {
            float cap;
        } softcap;
        struct {
            uint32_t part; /* of LIST_FEATURES */
        } capture;
        struct {
            bool own; /* where the row goes on from what it was, that; else in[0] always */
        } state;
        struct {
            uint32_t count, top;
            uint32_t own; /* experts of a rank: all, of each a part, or as many whole ones */
            enum route_score score;
            bool normalised; /* the weights of a row's experts add up to 1 */
            /* One more weight, of what all rows go through: by the router's last row, or 1. */
            bool shared;
            float scale; /* of the others */
            bool spread; /* OP_EXPERTS: of a row's input for all its pairs, else of each pair's */
            bool gated;  /* and two halves become one */
            enum activation_kind activation;
            float alpha, limit; /* of one that is clamped (kernels/experts/experts.h); 0: it is not */
            bool added;         /* OP_ROUTE: the bias is the logits', not the choice's */
        } experts; /* OP_ROUTE, OP_SEGMENTS, OP_EXPERTS, OP_COMBINE */
    };
};

/* Layers that share block tables: a window and a size of K and V. */
struct list_group {
    uint32_t window, layers;
    uint32_t kv_heads, head_dim;
    uint32_t position_bytes; /* of a layer, where it is no K and V; else 0 */
};

struct op_list {
    uint32_t ranks; /* that share each layer */
    uint32_t layers, hidden, vocab;
    struct op *ops;
    struct list_value *values;
    struct list_weight *weights;
    struct list_tensor *tensors;
    uint32_t op_count, value_count, weight_count, tensor_count;
    value_id residual, normed, sum, squares, logits; /* LIST_NONE: the model has none */
    value_id angles[LIST_ROPES_MAX];
    bool sums_rounded; /* what is added to the residual is not float32, but as all is computed */
    uint32_t rope_count;
    struct model_rope ropes[LIST_ROPES_MAX];
    uint32_t group_count;
    struct list_group groups[GPU_GROUPS_MAX];
    /* Of a head that guesses; else 0. */
    uint32_t features;    /* width of what it reads of the model, LIST_FEATURES layers' residuals */
    uint32_t draft_vocab; /* tokens that it knows */
    tensor_id draft_tokens; /* which they are; LIST_NO_TENSOR: the first ones */
};

void op_list_free(struct op_list *list);
const char *op_name(enum op_kind kind); /* "matmul" */

/* Elements of all tensors but what quantized ones come with: what a model is called by ("1.2
 * billion parameters"). */
uint64_t op_list_elements(const struct op_list *list);
/* Whether anything is multiplied at all. */
static inline bool op_list_computes(const struct op_list *list)
{
    return list->weight_count > 0;
}
bool op_list_has(const struct op_list *list, enum op_kind kind);
/* The weight that has a part of that name, LIST_NONE: there is none. */
weight_id op_list_weight(const struct op_list *list, const char *tensor);
/* One more tensor behind the others, its number. ERR_BAD_MODEL, ERR_NO_MEMORY. */
int op_list_tensor_add(struct op_list *list, const struct list_tensor *tensor, tensor_id *ret,
                       struct error *error);
/* The tensor that the first product reads: what a model's matrices come in is its dtype. */
tensor_id op_list_first_matrix(const struct op_list *list);

/* The ops of layers `first` up to `end`, with what is before the first layer and behind the last
 * where they are the model's; in fresh memory, *ret_count of them. ERR_NO_MEMORY. */
int op_list_stage(const struct op_list *list, uint32_t first, uint32_t end, struct op **ret_ops,
                  uint32_t *ret_count, struct error *error);
