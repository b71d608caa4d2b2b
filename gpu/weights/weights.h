/* A model's weights on the device: in the device's dtypes, in one piece of fixed memory.
 *
 * Which there are the rank's ops say (op_list.h). Tensors that a list puts into one weight stand
 * below one another in one matrix, so that they are one product. A rank of a tensor-parallel group
 * has its part of each weight as the weight says; a stage of a pipeline those that its ops name.
 * Where the device computes in float32, matrices stay in the 16-bit dtype of the file: they are
 * exact there, and half as many bytes to read. Norms and biases are in the compute dtype. Those
 * that a checkpoint has quantized keep its elements, with scales in float32: one for all where all
 * rows have the same, else one for each row, or for blocks of a size that divides the checkpoint's
 * and ends with each part and each rank. Of experts scales, zeros and orders lie behind one another
 * as their elements do; of e2m1 scales stay bytes.
 *
 * Thread: the rank's own. Memory is mem's, the arrays are this module's.
 */
#pragma once

#include "gpu/checkpoint/checkpoint.h"
#include "gpu/graph/op_list.h"
#include "gpu/kernels/load/tensor_slice.h"
#include "gpu/memory/pools.h"

struct weights {
    struct weight *at;         /* by weight_id; without data: not this rank's. A vector has k 1 */
    uint64_t *ends; /* by weight_id: bytes of `memory` up to its end; NULL: memory of the caller's */
    uint64_t tables; /* and up to that of the tables of angles, which stand first */
    uint32_t vocabulary_first; /* token of the first row of the head that is this rank's */
    uint32_t vocabulary_rows;  /* and how many */
    const float *inverse_frequency[LIST_ROPES_MAX];
    enum dtype vector; /* of norms and biases */
    void *memory;
    uint64_t bytes;
};

/* Where they come from: a checkpoint, or for a synthetic model a seed. */
struct weights_source {
    const struct op_list *list;
    const struct op *ops; /* of the rank */
    uint32_t op_count;
    const struct checkpoint *checkpoint; /* NULL: synthetic */
    enum model_dtype own;                /* of a synthetic model's tensors */
    enum dtype dtype;                    /* that the device computes in */
    uint64_t seed;
    uint32_t rank; /* of list->ranks */
};

/* One tensor's rows of the source and their place in a weight. */
struct weights_part {
    tensor_id tensor;
    weight_id weight;
    uint32_t expert;       /* of the rank's; 0 where it is one matrix */
    const uint32_t *order; /* the tensor's column that each of the weight's is; NULL: its own */
    void *to; /* device */
    enum dtype to_dtype;
    enum format format; /* plain: to_dtype tells it; else elements stay as they are */
    float *scales; /* device, of the weight's rows, to be made with its elements; NULL: not so */
    struct tensor_slice place;
    bool transposed; /* in the checkpoint: [columns][rows], of each expert */
    float mean, deviation; /* of synthetic values, before their scale */
};

/* Of quantized elements. */
enum format weights_format(enum tensor_elements elements);

/* A checkpoint's dtype as kernels name it. */
enum dtype weights_dtype(enum model_dtype dtype);

/* Of this rank. */
uint64_t weights_bytes(const struct weights_source *source);
/* The same by format, without tables of angles; added to. */
void weights_cost(const struct weights_source *source, uint64_t bytes[FORMATS]);

/* Of a synthetic quantized tensor's elements, before their scale. */
float weights_deviation(enum tensor_elements elements);

/* What a rank's scales and zeros are of: the part of each tensor, as weights_parts has the
 * elements. */
struct weights_scales {
    weight_id weight;
    uint32_t part;
    struct tensor_slice place; /* of the elements */
};

/* How many matrices of a weight are the rank's, and the first: 1 and 0 where it is none of
 * experts. */
uint32_t weights_experts(const struct weights_source *source, const struct list_weight *weight,
                         uint32_t *ret_first);

/* Of part `part`, of each expert alike, where the weight has scales. */
struct weights_scales weights_scales(const struct weights_source *source, weight_id weight,
                                     uint32_t part);

/* Columns stand group by group, and weight.order names those of x. Where ranks share them out they
 * stand as the checkpoint has them, for groups are of uneven length there. */
bool weights_ordered(const struct weights_source *source, const struct list_weight *weight);

/* Memory and addresses; nothing is filled. ERR_DEVICE_MEMORY names both numbers. */
int weights_open(struct weights *weights, struct mem *mem, const struct weights_source *source,
                 struct error *error);
/* The same in memory that is there; ERR_TOO_LARGE where `bytes` do not hold it. Any thread. */
int weights_place(struct weights *weights, const struct weights_source *source, void *memory,
                  uint64_t bytes, struct error *error);
void weights_close(struct weights *weights);

/* Every part, in the order of memory. The caller frees the array. */
int weights_parts(const struct weights *weights, const struct weights_source *source,
                  struct weights_part **ret_parts, size_t *ret_count, struct error *error);
