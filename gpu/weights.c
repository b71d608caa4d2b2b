#include "gpu/weights.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/cut.h"

enum dtype weights_dtype(enum model_dtype dtype)
{
    return dtype == MODEL_F32 ? DTYPE_F32 : dtype == MODEL_BF16 ? DTYPE_BF16 : DTYPE_F16;
}

/* Tensors that are fused: their roles, ended by WEIGHT_ROLES. */
typedef const enum weight_role fused_roles[4];

static fused_roles roles_qkv = {WEIGHT_Q, WEIGHT_K, WEIGHT_V, WEIGHT_ROLES};
static fused_roles roles_o = {WEIGHT_O, WEIGHT_ROLES};
static fused_roles roles_gate_up = {WEIGHT_GATE, WEIGHT_UP, WEIGHT_ROLES};
static fused_roles roles_down = {WEIGHT_DOWN, WEIGHT_ROLES};
static fused_roles roles_embed = {WEIGHT_EMBED, WEIGHT_ROLES};
static fused_roles roles_head = {WEIGHT_HEAD, WEIGHT_ROLES};
static fused_roles roles_qkv_bias = {WEIGHT_Q_BIAS, WEIGHT_K_BIAS, WEIGHT_V_BIAS, WEIGHT_ROLES};
static fused_roles roles_o_bias = {WEIGHT_O_BIAS, WEIGHT_ROLES};
static fused_roles roles_gate_up_bias = {WEIGHT_GATE_BIAS, WEIGHT_UP_BIAS, WEIGHT_ROLES};
static fused_roles roles_down_bias = {WEIGHT_DOWN_BIAS, WEIGHT_ROLES};
static fused_roles roles_input_norm = {WEIGHT_INPUT_NORM, WEIGHT_ROLES};
static fused_roles roles_post_norm = {WEIGHT_POST_NORM, WEIGHT_ROLES};
static fused_roles roles_q_norm = {WEIGHT_Q_NORM, WEIGHT_ROLES};
static fused_roles roles_k_norm = {WEIGHT_K_NORM, WEIGHT_ROLES};
static fused_roles roles_final_norm = {WEIGHT_FINAL_NORM, WEIGHT_ROLES};

static enum dtype source_dtype(const struct weights_source *source, enum weight_role role,
                               uint32_t layer)
{
    if (!source->checkpoint)
        return weights_dtype(source->config->dtype);
    return weights_dtype(checkpoint_weight(source->checkpoint, role, layer)->dtype);
}

/* The dtype that a fused matrix is kept in. */
static enum dtype matrix_dtype(const struct weights_source *source, const enum weight_role *roles,
                               uint32_t layer)
{
    if (source->dtype != DTYPE_F32)
        return source->dtype;
    enum dtype first = source_dtype(source, roles[0], layer);
    for (int i = 1; roles[i] != WEIGHT_ROLES; i++) {
        if (source_dtype(source, roles[i], layer) != first)
            return DTYPE_F32;
    }
    return first;
}

/* How a tensor is cut over the ranks. */
enum cut_kind { CUT_NOT, CUT_ROWS, CUT_COLUMNS, CUT_VOCABULARY };

static enum cut_kind cut_of(enum weight_role role)
{
    switch (role) {
    case WEIGHT_Q:
    case WEIGHT_K:
    case WEIGHT_V:
    case WEIGHT_Q_BIAS:
    case WEIGHT_K_BIAS:
    case WEIGHT_V_BIAS:
    case WEIGHT_GATE:
    case WEIGHT_UP:
    case WEIGHT_GATE_BIAS:
    case WEIGHT_UP_BIAS:
        return CUT_ROWS;
    case WEIGHT_O:
    case WEIGHT_DOWN:
        return CUT_COLUMNS;
    case WEIGHT_HEAD:
        return CUT_VOCABULARY;
    default:
        return CUT_NOT;
    }
}

/* This rank's part of a tensor. */
struct part_shape {
    uint32_t row, rows, column, columns;
};

static struct part_shape part_of(const struct weights_source *source, enum weight_role role)
{
    struct weight_shape whole = weight_shape(source->config, role);
    struct part_shape part = {.rows = whole.rows, .columns = whole.columns};
    uint32_t ranks = source->ranks > 1 ? source->ranks : 1;
    switch (cut_of(role)) {
    case CUT_ROWS:
        part.rows = whole.rows / ranks;
        break;
    case CUT_VOCABULARY: /* the last rank's may be smaller */
        part.rows = (whole.rows + ranks - 1) / ranks;
        break;
    case CUT_COLUMNS:
        part.columns = whole.columns / ranks;
        part.column = source->rank * part.columns;
        break;
    case CUT_NOT:
        return part;
    }
    if (cut_of(role) != CUT_COLUMNS) {
        part.row = source->rank * part.rows;
        if (part.rows > whole.rows - part.row)
            part.rows = whole.rows - part.row;
    }
    return part;
}

int weights_share(const struct model_config *config, uint32_t ranks, struct model_config *ret,
                  struct error *error)
{
    const struct {
        const char *what;
        uint32_t size;
    } sizes[] = {{"attention heads", config->heads},
                 {"key and value heads", config->kv_heads},
                 {"intermediate columns", config->intermediate}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        if (sizes[i].size % ranks)
            return error_limit(error, ERR_BAD_CONFIG, sizes[i].size, ranks,
                               "tp is %u: the model's %u %s do not divide by it", ranks,
                               sizes[i].size, sizes[i].what);
    }
    if (config->vocab < ranks * ranks)
        return error_limit(error, ERR_BAD_CONFIG, config->vocab, ranks,
                           "tp is %u: a vocabulary of %u is too small", ranks, config->vocab);
    *ret = *config;
    ret->heads /= ranks;
    ret->kv_heads /= ranks;
    ret->intermediate /= ranks;
    return 0;
}

static uint32_t end_of(const struct weights_source *source)
{
    return source->end ? source->end : source->config->layers;
}

static bool is_last(const struct weights_source *source)
{
    return end_of(source) == source->config->layers;
}

static bool has_embed(const struct weights_source *source)
{
    return source->first == 0 || (source->config->tied && is_last(source));
}

static uint32_t rows_of(const struct weights_source *source, const enum weight_role *roles)
{
    uint32_t rows = 0;
    for (int i = 0; roles[i] != WEIGHT_ROLES; i++)
        rows += part_of(source, roles[i]).rows;
    return rows;
}

static struct weight matrix_cut(struct cutter *cutter, const struct weights_source *source,
                                const enum weight_role *roles, uint32_t layer)
{
    struct weight weight = {
        .dtype = matrix_dtype(source, roles, layer),
        .n = rows_of(source, roles),
        .k = part_of(source, roles[0]).columns,
    };
    weight.data = cut(cutter, (uint64_t)weight.n * weight.k * dtype_bytes(weight.dtype));
    return weight;
}

static const void *vector_cut(struct cutter *cutter, const struct weights_source *source,
                              const enum weight_role *roles)
{
    if (!weight_present(source->config, roles[0]))
        return NULL;
    return cut(cutter, (uint64_t)rows_of(source, roles) * dtype_bytes(source->dtype));
}

static void layer_cut(struct cutter *cutter, const struct weights_source *source, uint32_t layer,
                      struct layer_weights *ret)
{
    *ret = (struct layer_weights){
        .qkv = matrix_cut(cutter, source, roles_qkv, layer),
        .o = matrix_cut(cutter, source, roles_o, layer),
        .gate_up = matrix_cut(cutter, source, roles_gate_up, layer),
        .down = matrix_cut(cutter, source, roles_down, layer),
        .input_norm = vector_cut(cutter, source, roles_input_norm),
        .post_norm = vector_cut(cutter, source, roles_post_norm),
        .q_norm = vector_cut(cutter, source, roles_q_norm),
        .k_norm = vector_cut(cutter, source, roles_k_norm),
        .qkv_bias = vector_cut(cutter, source, roles_qkv_bias),
        .o_bias = vector_cut(cutter, source, roles_o_bias),
        .gate_up_bias = vector_cut(cutter, source, roles_gate_up_bias),
        .down_bias = vector_cut(cutter, source, roles_down_bias),
    };
}

static void head_cut(struct weights *weights, struct cutter *cutter,
                     const struct weights_source *source)
{
    struct part_shape head = part_of(source, WEIGHT_HEAD);
    weights->final_norm = vector_cut(cutter, source, roles_final_norm);
    weights->head_first = head.row;
    if (!source->config->tied) {
        weights->head = matrix_cut(cutter, source, roles_head, 0);
        return;
    }
    weights->head = weights->embed;
    weights->head.n = head.rows;
    weights->head.data = (const char *)weights->embed.data +
                         (uint64_t)head.row * head.columns * dtype_bytes(weights->embed.dtype);
}

static uint64_t weights_cut(struct weights *weights, char *base,
                            const struct weights_source *source)
{
    struct cutter cutter = {.base = base};
    weights->vector = source->dtype;
    if (has_embed(source))
        weights->embed = matrix_cut(&cutter, source, roles_embed, 0);
    for (uint32_t i = source->first; i < end_of(source); i++) {
        struct layer_weights layer;
        layer_cut(&cutter, source, i, &layer);
        if (weights->layers)
            weights->layers[i - source->first] = layer;
    }
    weights->inverse_frequency = cut(&cutter, source->config->rope.pairs * sizeof(float));
    if (is_last(source))
        head_cut(weights, &cutter, source);
    return cutter.at;
}

uint64_t weights_bytes(const struct weights_source *source)
{
    struct weights weights = {0};
    return weights_cut(&weights, NULL, source);
}

int weights_open(struct weights *weights, struct mem *mem, const struct weights_source *source,
                 struct error *error)
{
    memset(weights, 0, sizeof *weights);
    uint64_t bytes = weights_bytes(source);
    uint64_t device_free = atomic_load_explicit(&mem->numbers.device_free, memory_order_relaxed);
    if (bytes > device_free)
        return error_limit(error, ERR_DEVICE_MEMORY, device_free, bytes,
                           "the weights take %" PRIu64 " bytes, and %" PRIu64
                           " are free on the device",
                           bytes, device_free);
    int status = mem_fixed(mem, bytes, &weights->memory, error);
    if (status)
        return status;
    uint32_t layers = end_of(source) - source->first;
    weights->layers = calloc(layers, sizeof *weights->layers);
    if (!weights->layers)
        return error_set(error, ERR_NO_MEMORY, "no memory for %u layers", layers);
    (void)weights_cut(weights, weights->memory, source);
    return 0;
}

void weights_close(struct weights *weights)
{
    free(weights->layers);
    weights->layers = NULL;
}

/* ---- parts ---- */

struct part_list {
    const struct weights_source *source;
    struct weights_part *parts;
    size_t count;
};

static void matrix_parts(struct part_list *list, const struct weight *weight,
                         const enum weight_role *roles, uint32_t layer)
{
    uint32_t to = 0;
    for (int i = 0; roles[i] != WEIGHT_ROLES; i++) {
        struct part_shape shape = part_of(list->source, roles[i]);
        list->parts[list->count++] = (struct weights_part){
            .role = roles[i],
            .layer = layer,
            .to = (void *)weight->data,
            .to_dtype = weight->dtype,
            .place = {.row = shape.row,
                      .rows = shape.rows,
                      .column = shape.column,
                      .columns = shape.columns,
                      .width = weight_shape(list->source->config, roles[i]).columns,
                      .to = to,
                      .run = shape.rows,
                      .step = shape.rows,
                      .to_stride = weight->k},
        };
        to += shape.rows;
    }
}

/* A vector is one row. */
static void vector_parts(struct part_list *list, const void *vector, enum dtype dtype,
                         const enum weight_role *roles, uint32_t layer)
{
    if (!vector)
        return;
    char *to = (char *)vector;
    for (int i = 0; roles[i] != WEIGHT_ROLES; i++) {
        struct part_shape shape = part_of(list->source, roles[i]);
        uint32_t columns = shape.rows;
        list->parts[list->count++] = (struct weights_part){
            .role = roles[i],
            .layer = layer,
            .to = to,
            .to_dtype = dtype,
            .place = {.rows = 1,
                      .column = shape.row,
                      .columns = columns,
                      .width = weight_shape(list->source->config, roles[i]).rows,
                      .run = 1,
                      .step = 1,
                      .to_stride = columns},
        };
        to += (size_t)columns * dtype_bytes(dtype);
    }
}

static void layer_parts(struct part_list *list, const struct weights *weights, uint32_t i)
{
    const struct layer_weights *layer = &weights->layers[i - list->source->first];
    matrix_parts(list, &layer->qkv, roles_qkv, i);
    matrix_parts(list, &layer->o, roles_o, i);
    matrix_parts(list, &layer->gate_up, roles_gate_up, i);
    matrix_parts(list, &layer->down, roles_down, i);
    vector_parts(list, layer->input_norm, weights->vector, roles_input_norm, i);
    vector_parts(list, layer->post_norm, weights->vector, roles_post_norm, i);
    vector_parts(list, layer->q_norm, weights->vector, roles_q_norm, i);
    vector_parts(list, layer->k_norm, weights->vector, roles_k_norm, i);
    vector_parts(list, layer->qkv_bias, weights->vector, roles_qkv_bias, i);
    vector_parts(list, layer->o_bias, weights->vector, roles_o_bias, i);
    vector_parts(list, layer->gate_up_bias, weights->vector, roles_gate_up_bias, i);
    vector_parts(list, layer->down_bias, weights->vector, roles_down_bias, i);
}

int weights_parts(const struct weights *weights, const struct weights_source *source,
                  struct weights_part **ret_parts, size_t *ret_count, struct error *error)
{
    size_t most = (size_t)WEIGHT_ROLES * (source->config->layers + 1);
    struct part_list list = {.source = source, .parts = calloc(most, sizeof *list.parts)};
    if (!list.parts)
        return error_set(error, ERR_NO_MEMORY, "no memory for a list of %zu tensors", most);
    if (has_embed(source))
        matrix_parts(&list, &weights->embed, roles_embed, 0);
    for (uint32_t i = source->first; i < end_of(source); i++)
        layer_parts(&list, weights, i);
    vector_parts(&list, weights->final_norm, weights->vector, roles_final_norm, 0);
    if (is_last(source) && !source->config->tied)
        matrix_parts(&list, &weights->head, roles_head, 0);
    assert(list.count <= most);
    *ret_parts = list.parts;
    *ret_count = list.count;
    return 0;
}
