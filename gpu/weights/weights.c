#include "gpu/weights/weights.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/memory/arena.h"

enum dtype weights_dtype(enum model_dtype dtype)
{
    return dtype == MODEL_F32 ? DTYPE_F32 : dtype == MODEL_BF16 ? DTYPE_BF16 : DTYPE_F16;
}

static enum dtype source_dtype(const struct weights_source *source, tensor_id tensor)
{
    return weights_dtype(source->checkpoint ? checkpoint_tensor(source->checkpoint, tensor)->dtype
                                            : source->own);
}

static bool is_quantized(const struct list_weight *weight)
{
    return weight->scheme.elements != TENSOR_NUMBERS;
}

enum format weights_format(enum tensor_elements elements)
{
    return elements == TENSOR_E4M3   ? FORMAT_E4M3
           : elements == TENSOR_U4   ? FORMAT_U4
           : elements == TENSOR_E2M1 ? FORMAT_E2M1
                                     : FORMAT_U8;
}

/* The dtype that a plain weight is kept in. */
static enum dtype kept_dtype(const struct weights_source *source, const struct list_weight *weight)
{
    if (weight->kind == WEIGHT_EXACT)
        return DTYPE_F32;
    if (weight->kind != WEIGHT_MATRIX || source->dtype != DTYPE_F32)
        return source->dtype;
    enum dtype first = source_dtype(source, weight->parts[0].tensor);
    for (uint32_t i = 1; i < weight->part_count; i++) {
        if (source_dtype(source, weight->parts[i].tensor) != first)
            return DTYPE_F32;
    }
    return first;
}

/* What this rank has of so many rows or columns that are shared out. */
struct share {
    uint32_t first, count;
};

static struct share share_of(const struct weights_source *source, uint32_t size, enum split split)
{
    uint32_t ranks = source->list->ranks;
    /* Of a vocabulary the last rank's may be smaller. */
    uint32_t count = split == SPLIT_VOCABULARY ? (size + ranks - 1) / ranks : size / ranks;
    uint32_t first = source->rank * count;
    return (struct share){first, count < size - first ? count : size - first};
}

static struct share rows_of(const struct weights_source *source, const struct list_weight *weight,
                            uint32_t rows)
{
    bool shared = weight->split == SPLIT_ROWS || weight->split == SPLIT_VOCABULARY;
    return shared ? share_of(source, rows, weight->split) : (struct share){0, rows};
}

/* Of its matrices. */
static struct share experts_of(const struct weights_source *source, const struct list_weight *weight)
{
    uint32_t experts = list_matrices(weight);
    return weight->split == SPLIT_EXPERTS ? share_of(source, experts, SPLIT_EXPERTS)
                                          : (struct share){0, experts};
}

uint32_t weights_experts(const struct weights_source *source, const struct list_weight *weight,
                         uint32_t *ret_first)
{
    struct share experts = experts_of(source, weight);
    *ret_first = experts.first;
    return experts.count;
}

static struct share columns_of(const struct weights_source *source,
                               const struct list_weight *weight)
{
    return weight->split == SPLIT_COLUMNS ? share_of(source, weight->columns, SPLIT_COLUMNS)
                                          : (struct share){0, weight->columns};
}

/* ---- the order of memory ---- */

static bool op_takes(const struct op *op, uint32_t weight)
{
    return op->weight == weight || op->bias == weight;
}

static bool is_taken(const struct weights_source *source, uint32_t weight)
{
    for (uint32_t i = 0; i < source->op_count; i++) {
        if (op_takes(&source->ops[i], weight))
            return true;
    }
    return false;
}

/* Before the layers, one of them, behind them. */
static int32_t layer_order(const struct list_weight *weight)
{
    return weight->layer == LAYER_FIRST ? -1 : weight->layer < 0 ? INT16_MAX : weight->layer;
}

/* Inside a layer matrices come first, then norms, then biases: what is small lies together. */
static bool stands_before(const struct list_weight *a, const struct list_weight *b)
{
    if (layer_order(a) != layer_order(b))
        return layer_order(a) < layer_order(b);
    return a->layer >= 0 && a->kind < b->kind;
}

/* What this rank's ops take, in the order of memory; *ret_count of them. They come nearly in
 * order. */
static weight_id *order_make(const struct weights_source *source, uint32_t *ret_count)
{
    const struct list_weight *weights = source->list->weights;
    weight_id *order = calloc(source->list->weight_count + 1, sizeof *order);
    uint32_t count = 0;
    for (uint32_t i = 0; order && i < source->list->weight_count; i++) {
        uint32_t at = count;
        if (!is_taken(source, i))
            continue;
        for (; at > 0 && stands_before(&weights[i], &weights[order[at - 1]]); at--)
            order[at] = order[at - 1];
        order[at] = (weight_id)i;
        count++;
    }
    *ret_count = count;
    return order;
}

/* ---- scales ---- */

static uint32_t common_divisor(uint32_t a, uint32_t b)
{
    return b ? common_divisor(b, a % b) : a;
}

/* Rows of a weight that have one scale, 0: all. Those of several tensors have their own; blocks end
 * with each part of a tensor, and with what a rank has of it; rows that change places have each
 * its own. */
static uint32_t scale_rows(const struct weights_source *source, const struct list_weight *like)
{
    uint32_t rows = like->scheme.rows;
    for (uint32_t i = 0; i < like->part_count; i++) {
        const struct list_part *part = &like->parts[i];
        if (!rows && part->tensor != like->parts[0].tensor)
            return 1;
        if (!rows)
            continue;
        if (part->order.head_dim)
            return 1;
        rows = common_divisor(rows, part->row);
        if (i + 1 < like->part_count || source->list->ranks > 1)
            rows = common_divisor(rows, rows_of(source, like, part->rows).count);
        if (like->split == SPLIT_VOCABULARY) /* the last rank's may be fewer */
            rows =
                common_divisor(rows, (part->rows + source->list->ranks - 1) / source->list->ranks);
    }
    return rows;
}

static bool columns_are_shared(const struct weights_source *source, const struct list_weight *like)
{
    return like->split == SPLIT_COLUMNS && source->list->ranks > 1;
}

bool weights_ordered(const struct weights_source *source, const struct list_weight *like)
{
    return like->ordered && !columns_are_shared(source, like);
}

/* What is above is of each expert's matrix alike. A rank has some columns of each group that is in
 * no order: each has its own scale then. */
static uint32_t scale_columns(const struct weights_source *source, const struct list_weight *like)
{
    uint32_t columns = like->scheme.columns;
    if (like->ordered && columns_are_shared(source, like))
        return 1;
    if (columns && columns_are_shared(source, like))
        columns = common_divisor(columns, columns_of(source, like).count);
    return columns;
}

static struct weight_input input_of(const struct list_weight *like)
{
    static const enum weight_rounding roundings[] = {[INPUT_AS_IT_IS] = ROUNDING_NONE,
                                                     [INPUT_BY_TOKEN] = ROUNDING_TOKEN,
                                                     [INPUT_BY_GROUP] = ROUNDING_GROUP,
                                                     [INPUT_BY_TENSOR] = ROUNDING_STATIC};
    return (struct weight_input){.rounding = roundings[like->scheme.input],
                                 .group = like->scheme.group,
                                 .scale = like->scheme.input == INPUT_BY_TOKEN ? like->scheme.bound
                                                                               : like->input_scale};
}

static void scales_cut(struct arena *cutter, const struct weights_source *source,
                       const struct list_weight *like, struct weight *weight)
{
    uint32_t n = scale_rows(source, like), k = scale_columns(source, like);
    uint64_t experts = experts_of(source, like).count;
    weight->scales = (struct weight_scales){.dtype = DTYPE_F32,
                                            .n = n,
                                            .k = k,
                                            .exponents = like->scheme.elements == TENSOR_E2M1};
    uint64_t count = experts * weight_scale_count(weight);
    weight->scales.data = cut(cutter, count * weight_scale_bytes(&weight->scales));
    if (elements_are_whole(like->scheme.elements))
        weight->zeros = cut(cutter, count);
    if (weights_ordered(source, like))
        weight->order = cut(cutter, experts * weight->k * sizeof *weight->order);
    weight->input = input_of(like);
    if (like->experts && weight->input.rounding == ROUNDING_STATIC)
        weight->input.scales = cut(cutter, experts * sizeof *weight->input.scales);
}

/* ---- memory ---- */

static struct weight weight_cut(struct arena *cutter, const struct weights_source *source,
                                const struct list_weight *like)
{
    bool quantized = is_quantized(like);
    struct weight weight = {.format = quantized ? weights_format(like->scheme.elements)
                                                : format_plain(kept_dtype(source, like)),
                            .k = columns_of(source, like).count};
    for (uint32_t i = 0; i < like->part_count; i++)
        weight.n += rows_of(source, like, like->parts[i].rows).count;
    uint64_t bytes = format_bytes(weight.format, weight.n, weight.k);
    weight.data = cut(cutter, bytes * experts_of(source, like).count);
    if (quantized)
        scales_cut(cutter, source, like, &weight);
    return weight;
}

/* First: the first ops take them. */
static void ropes_cut(struct weights *weights, struct arena *cutter, const struct op_list *list)
{
    for (uint32_t i = 0; i < list->rope_count; i++)
        weights->inverse_frequency[i] = cut(cutter, list->ropes[i].pairs * sizeof(float));
    weights->tables = cutter->at;
}

/* The bytes; with a base and an array, the addresses as well. */
static uint64_t weights_cut(struct weights *weights, char *base,
                            const struct weights_source *source, const weight_id *order,
                            uint32_t count)
{
    const struct op_list *list = source->list;
    struct arena cutter = {.base = base};
    weights->vector = source->dtype;
    ropes_cut(weights, &cutter, list);
    for (uint32_t i = 0; i < count; i++) {
        struct weight weight = weight_cut(&cutter, source, &list->weights[order[i]]);
        if (weights->at)
            weights->at[order[i]] = weight;
        if (weights->ends)
            weights->ends[order[i]] = cutter.at;
    }
    struct share head = share_of(source, list->vocab, SPLIT_VOCABULARY);
    weights->vocabulary_first = head.first;
    weights->vocabulary_rows = head.count;
    return cutter.at;
}

uint64_t weights_bytes(const struct weights_source *source)
{
    struct weights weights = {0};
    uint32_t count;
    weight_id *order = order_make(source, &count);
    uint64_t bytes = order ? weights_cut(&weights, NULL, source, order, count) : 0;
    free(order);
    return bytes;
}

void weights_cost(const struct weights_source *source, uint64_t bytes[FORMATS])
{
    for (uint32_t i = 0; i < source->list->weight_count; i++) {
        struct arena cutter = {.base = NULL};
        if (!is_taken(source, i))
            continue;
        struct weight weight = weight_cut(&cutter, source, &source->list->weights[i]);
        bytes[weight.format] += cutter.at;
    }
}

static int memory_take(struct weights *weights, struct mem *mem,
                       const struct weights_source *source, const weight_id *order, uint32_t count,
                       struct error *error)
{
    uint64_t bytes = weights_cut(weights, NULL, source, order, count);
    uint64_t device_free = atomic_load_explicit(&mem->numbers.device_free, memory_order_relaxed);
    if (bytes > device_free)
        return error_limit(error, ERR_DEVICE_MEMORY, device_free, bytes,
                           "the weights take %" PRIu64 " bytes, and %" PRIu64
                           " are free on the device",
                           bytes, device_free);
    int status = mem_fixed(mem, bytes, &weights->memory, error);
    weights->bytes = bytes;
    if (!status)
        (void)weights_cut(weights, weights->memory, source, order, count);
    return status;
}

int weights_open(struct weights *weights, struct mem *mem, const struct weights_source *source,
                 struct error *error)
{
    uint32_t count = 0;
    *weights = (struct weights){.at = NULL};
    if (!op_list_computes(source->list))
        return 0;
    weight_id *order = order_make(source, &count);
    weights->at = calloc(source->list->weight_count, sizeof *weights->at);
    weights->ends = calloc(source->list->weight_count, sizeof *weights->ends);
    int status = order && weights->at && weights->ends
                     ? memory_take(weights, mem, source, order, count, error)
                     : error_set(error, ERR_NO_MEMORY, "no memory for a list of %u weights",
                                 source->list->weight_count);
    free(order);
    return status;
}

int weights_place(struct weights *weights, const struct weights_source *source, void *memory,
                  uint64_t bytes, struct error *error)
{
    uint32_t count = 0;
    *weights = (struct weights){.at = NULL};
    weight_id *order = order_make(source, &count);
    weights->at = calloc(source->list->weight_count + 1, sizeof *weights->at);
    int status = 0;
    if (!order || !weights->at)
        status = error_set(error, ERR_NO_MEMORY, "no memory for a list of %u weights",
                           source->list->weight_count);
    else if (weights_cut(weights, NULL, source, order, count) > bytes)
        status = error_set(error, ERR_TOO_LARGE, "it takes more than the %" PRIu64
                           " bytes of its place", bytes);
    else
        (void)weights_cut(weights, memory, source, order, count);
    weights->memory = memory;
    free(order);
    return status;
}

void weights_close(struct weights *weights)
{
    free(weights->at);
    free(weights->ends);
    weights->at = NULL;
    weights->ends = NULL;
}

/* ---- parts ---- */

float weights_deviation(enum tensor_elements elements)
{
    return elements == TENSOR_E4M3   ? 64
           : elements == TENSOR_U4   ? 2.5f
           : elements == TENSOR_E2M1 ? 1.5f
                                     : 32;
}

static struct slice_order order_of(const struct list_part *part)
{
    return (struct slice_order){.head_dim = part->order.head_dim,
                                .rotary = part->order.rotary,
                                .adjacent = part->order.adjacent};
}

/* Of a matrix: rows of the tensor below one another. */
static struct tensor_slice matrix_place(const struct weights_source *source,
                                        const struct list_weight *weight,
                                        const struct list_part *part, uint32_t to)
{
    struct share rows = rows_of(source, weight, part->rows);
    struct share columns = columns_of(source, weight);
    return (struct tensor_slice){.row = part->row + rows.first,
                                 .rows = rows.count,
                                 .column = columns.first,
                                 .columns = columns.count,
                                 .width = weight->columns,
                                 .to = to,
                                 .run = rows.count,
                                 .step = rows.count,
                                 .to_stride = columns.count,
                                 .order = order_of(part)};
}

/* A vector is one row; one column where its elements change their order. */
static struct tensor_slice vector_place(const struct weights_source *source,
                                        const struct list_weight *weight,
                                        const struct list_part *part)
{
    struct share rows = rows_of(source, weight, part->rows);
    if (part->order.head_dim)
        return (struct tensor_slice){.row = part->row + rows.first,
                                     .rows = rows.count,
                                     .columns = 1,
                                     .width = 1,
                                     .run = rows.count,
                                     .step = rows.count,
                                     .to_stride = 1,
                                     .order = order_of(part)};
    return (struct tensor_slice){.rows = 1,
                                 .column = part->row + rows.first,
                                 .columns = rows.count,
                                 .width = source->list->tensors[part->tensor].rows,
                                 .run = 1,
                                 .step = 1,
                                 .to_stride = rows.count};
}

/* What synthetic elements are before their scale, which gives them the deviation of the list: wide
 * enough for the format, and next to none is cut. */
static void synthetic_set(struct weights_part *part, const struct list_weight *like)
{
    part->mean = like->mean;
    part->deviation = like->deviation;
    if (is_quantized(like)) {
        part->mean = like->scheme.zero;
        part->deviation = weights_deviation(like->scheme.elements);
    }
}

/* Of one of the rank's experts, or of all there is. */
static void parts_add(struct weights_part *parts, size_t *count,
                      const struct weights_source *source, weight_id number, uint32_t expert,
                      const struct weight *weight)
{
    const struct list_weight *like = &source->list->weights[number];
    bool matrix = like->kind == WEIGHT_MATRIX;
    uint32_t to = 0;
    for (uint32_t i = 0; i < like->part_count; i++) {
        struct list_part part =
            list_expert_part(like, i, experts_of(source, like).first + expert);
        struct weight of = weight_of_expert(weight, expert);
        char *at = (char *)of.data;
        struct weights_part *made = &parts[(*count)++];
        *made = (struct weights_part){
            .tensor = part.tensor,
            .weight = number,
            .expert = expert,
            .to = matrix ? at : at + format_bytes(weight->format, to, 1),
            .to_dtype = format_info(weight->format).dtype,
            .format = weight->format,
            .scales = like->scheme.made ? (float *)of.scales.data : NULL,
            .place =
                matrix ? matrix_place(source, like, &part, to) : vector_place(source, like, &part),
            .transposed = source->list->tensors[part.tensor].transposed,
        };
        if (is_quantized(like)) /* bytes */
            made->place.to_stride = (uint32_t)format_bytes(weight->format, 1, weight->k);
        synthetic_set(made, like);
        to += rows_of(source, like, part.rows).count;
    }
}

struct weights_scales weights_scales(const struct weights_source *source, weight_id weight,
                                     uint32_t part)
{
    const struct list_weight *like = &source->list->weights[weight];
    uint32_t to = 0;
    for (uint32_t i = 0; i < part; i++)
        to += rows_of(source, like, like->parts[i].rows).count;
    return (struct weights_scales){.weight = weight,
                                   .part = part,
                                   .place = matrix_place(source, like, &like->parts[part], to)};
}

/* How many matrices a weight is. */
static uint32_t matrices_of(const struct weights_source *source, weight_id weight)
{
    return experts_of(source, &source->list->weights[weight]).count;
}

int weights_parts(const struct weights *weights, const struct weights_source *source,
                  struct weights_part **ret_parts, size_t *ret_count, struct error *error)
{
    uint32_t count = 0;
    size_t added = 0, most = 1;
    weight_id *order = order_make(source, &count);
    for (uint32_t i = 0; order && i < count; i++)
        most += (size_t)LIST_PARTS_MAX * matrices_of(source, order[i]);
    struct weights_part *parts = calloc(most, sizeof *parts);
    if (!order || !parts) {
        free(order);
        free(parts);
        return error_set(error, ERR_NO_MEMORY, "no memory for a list of %u weights", count);
    }
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t e = 0; e < matrices_of(source, order[i]); e++)
            parts_add(parts, &added, source, order[i], e, &weights->at[order[i]]);
    }
    free(order);
    *ret_parts = parts;
    *ret_count = added;
    return 0;
}
