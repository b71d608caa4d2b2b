#include "gpu/weights/scales.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/base/cuda_error.h"
#include "gpu/base/device.h"
#include "gpu/checkpoint/column_groups.h"
#include "gpu/checkpoint/number.h"
#include "gpu/weights/packed.h"
#include "protocol/base/mix.h"

/* The scales of one tensor, whole, and its zeros. */
struct source_scales {
    float *at;
    uint8_t *zeros;         /* NULL: it has none */
    uint32_t *groups;       /* of each column; NULL: as they stand */
    uint32_t rows, columns; /* of the tensor, that have one scale; 0: all */
    uint32_t stride;        /* scales of a row */
    uint64_t count;
};

struct spreading {
    const struct loader *loader;
    void *pinned; /* device_traits.staging_bytes */
    struct error *error;
};

/* Of a weight, as the device has them. */
struct made {
    float *scales;
    uint8_t *zeros;
};

static void source_free(struct source_scales *source)
{
    free(source->at);
    free(source->zeros);
    free(source->groups);
}

static int scales_check(const char *name, const float *scales, uint64_t count, struct error *error)
{
    for (uint64_t i = 0; i < count; i++)
        if (!(scales[i] > 0) || !isfinite(scales[i]))
            return error_set(error, ERR_BAD_MODEL,
                             "tensor %s: value %" PRIu64 " is %g: a scale must be above 0", name, i,
                             (double)scales[i]);
    return 0;
}

/* Some tools have them [groups][rows]. */
static void turn(float *to, const float *from, const struct list_tensor *like)
{
    for (uint32_t i = 0; i < like->columns; i++)
        for (uint32_t j = 0; j < like->rows; j++)
            to[(uint64_t)j * like->columns + i] = from[(uint64_t)i * like->rows + j];
}

static int numbers_take(const struct spreading *to, const struct list_tensor *like,
                        const char *bytes, enum model_dtype dtype, const struct source_scales *ret)
{
    float *read = ret->at;
    bool turned = like->packing == PACKING_GPTQ || like->packing == PACKING_AWQ;
    if (turned && !(read = calloc(ret->count, sizeof *read)))
        return error_set(to->error, ERR_NO_MEMORY, "no memory for scales of %s", like->name);
    number_read(read, bytes, dtype, ret->count);
    int status = scales_check(like->name, read, ret->count, to->error);
    if (turned) {
        turn(ret->at, read, like);
        free(read);
    }
    return status;
}

/* Of those that are kept less one the greatest there is would stand for two: tools differ in it. */
static int zeros_raise(const char *name, uint8_t *zeros, uint64_t count, uint8_t greatest,
                       struct error *error)
{
    for (uint64_t i = 0; i < count; i++)
        if (zeros[i]++ == greatest)
            return error_set(error, ERR_BAD_MODEL,
                             "tensor %s: zero %" PRIu64 " is %u: kept less one it must be below "
                             "that",
                             name, i, greatest);
    return 0;
}

static int zeros_read(const struct spreading *to, const struct list_scheme *scheme,
                      const struct list_part *part, const struct source_scales *ret)
{
    const struct checkpoint *checkpoint = to->loader->source->checkpoint;
    const struct list_tensor *listed = &to->loader->source->list->tensors[part->zeros];
    struct words_window all = {0, listed->rows, 0, listed->columns};
    int status = packed_read(checkpoint, checkpoint_tensor(checkpoint, part->zeros), &all,
                             ret->zeros, to->error);
    if (!status && scheme->zeros_less_one)
        status = zeros_raise(listed->name, ret->zeros, ret->count,
                             scheme->elements == TENSOR_U4 ? 15 : 255, to->error);
    return status;
}

static struct column_groups groups_of(const struct weights_source *source,
                                      const struct list_weight *like, const struct list_part *part)
{
    return (struct column_groups){.name = source->list->tensors[part->groups].name,
                                  .columns = like->columns,
                                  .each = like->scheme.columns};
}

/* Again, for the file may be another than when the model was opened. */
static int groups_read(const struct spreading *to, const struct list_weight *like,
                       const struct list_part *part, uint32_t **ret)
{
    const struct weights_source *source = to->loader->source;
    struct column_groups of = groups_of(source, like, part);
    bool ordered = false;
    uint32_t *groups = calloc(like->columns, sizeof *groups);
    if (!groups)
        return error_set(to->error, ERR_NO_MEMORY, "no memory for groups of columns");
    int status =
        column_groups_read(source->checkpoint, part->groups, &of, groups, &ordered, to->error);
    if (status)
        free(groups);
    else
        *ret = groups;
    return status;
}

static int source_read(const struct spreading *to, const struct list_part *part,
                       const struct source_scales *ret)
{
    const struct checkpoint *checkpoint = to->loader->source->checkpoint;
    const struct checkpoint_tensor *tensor = checkpoint_tensor(checkpoint, part->scale);
    const struct list_tensor *listed = &to->loader->source->list->tensors[part->scale];
    char *bytes = calloc(1, tensor->bytes);
    if (!bytes)
        return error_set(to->error, ERR_NO_MEMORY, "no memory for scales of %s", listed->name);
    int status = checkpoint_read(checkpoint, tensor, 0, tensor->bytes, bytes, to->error);
    if (!status)
        status = numbers_take(to, listed, bytes, tensor->dtype, ret);
    free(bytes);
    return status;
}

/* Around what gives the weight its deviation, by up to a quarter; zeros by one. */
static void source_make(const struct spreading *to, const struct list_weight *like,
                        const struct list_part *part, const struct source_scales *ret)
{
    const struct weights_source *source = to->loader->source;
    float middle = like->deviation / weights_deviation(like->scheme.elements);
    uint64_t key =
        mix64(source->seed + mix64(source->list->tensors[part->scale].number + (3ull << 32)));
    for (uint64_t i = 0; i < ret->count; i++) {
        uint64_t hash = mix64(key + i);
        ret->at[i] = middle * (0.75f + (float)(hash & 0xffff) * 0x1p-17f);
        if (ret->zeros && like->scheme.zeros)
            ret->zeros[i] = (uint8_t)(like->scheme.zero + (hash >> 16) % 3 - 1);
    }
}

/* The caller frees it. */
static int source_get(const struct spreading *to, const struct list_weight *like,
                      const struct list_part *part, struct source_scales *ret)
{
    const struct list_tensor *listed = &to->loader->source->list->tensors[part->scale];
    struct source_scales made = {.rows = like->scheme.rows,
                                 .columns = like->scheme.columns,
                                 .stride = listed->columns,
                                 .count = (uint64_t)listed->rows * listed->columns};
    bool zeros = elements_are_whole(like->scheme.elements);
    made.at = calloc(made.count, sizeof *made.at);
    made.zeros = zeros ? malloc(made.count) : NULL;
    int status =
        made.at && (made.zeros || !zeros)
            ? 0
            : error_set(to->error, ERR_NO_MEMORY, "no memory for scales of %s", listed->name);
    if (!status && zeros)
        memset(made.zeros, like->scheme.zero, made.count);
    if (!status && !to->loader->source->checkpoint)
        source_make(to, like, part, &made);
    else if (!status)
        status = source_read(to, part, &made);
    if (!status && to->loader->source->checkpoint && like->scheme.zeros)
        status = zeros_read(to, &like->scheme, part, &made);
    if (!status && like->ordered && !weights_ordered(to->loader->source, like))
        status = groups_read(to, like, part, &made.groups);
    if (status)
        source_free(&made);
    else
        *ret = made;
    return status;
}

/* Of every row of scales that the part has in the weight. */
static void spread(const struct made *to, const struct weight *weight,
                   const struct source_scales *from, const struct tensor_slice *place)
{
    uint32_t n = weight->scales.n, k = weight->scales.k, columns = list_scales(weight->k, k);
    for (uint32_t row = 0; row < place->rows; row += n ? n : place->rows) {
        uint64_t target = (n ? tensor_slice_row(place, row) / n : 0) * columns;
        uint64_t source = (from->rows ? (place->row + row) / from->rows : 0) * from->stride;
        for (uint32_t i = 0; i < columns; i++) {
            uint32_t column = place->column + i * k;
            uint32_t group = from->columns ? column / from->columns : 0;
            uint64_t at = source + (from->groups ? from->groups[column] : group);
            to->scales[target + i] = from->at[at];
            if (to->zeros)
                to->zeros[target + i] = from->zeros[at];
        }
    }
}

static int send(const struct spreading *to, void *device, const char *from, uint64_t bytes)
{
    struct error *error = to->error;
    for (uint64_t at = 0; at < bytes; at += device_traits.staging_bytes) {
        uint64_t left = bytes - at;
        uint64_t size = left < device_traits.staging_bytes ? left : device_traits.staging_bytes;
        memcpy(to->pinned, from + at, size);
        CUDA_TRY(cudaMemcpyAsync((char *)device + at, to->pinned, size, cudaMemcpyHostToDevice,
                                 cudaStreamPerThread),
                 error);
        CUDA_TRY(cudaStreamSynchronize(cudaStreamPerThread), error);
    }
    return 0;
}

/* ---- exponents ---- */

/* As many to a row of the tensor as it has blocks. */
struct exponents {
    uint8_t *from, *to; /* of the rank's rows: whole ones of the tensor; as the device has them */
    uint32_t rows, stride, columns;
};

/* Around what gives the weight its deviation: at most once that and twice. */
static void exponents_make(const struct spreading *to, const struct list_weight *like,
                           const struct list_tensor *listed, uint64_t first,
                           const struct exponents *ret)
{
    int middle = ilogbf(like->deviation / weights_deviation(like->scheme.elements)) + 127;
    uint64_t key = mix64(to->loader->source->seed + mix64(listed->number + (3ull << 32)));
    for (uint64_t i = 0; i < (uint64_t)ret->rows * ret->stride; i++)
        ret->from[i] = (uint8_t)(middle + (int)(mix64(key + first + i) & 1));
}

static int exponents_read(const struct spreading *to, const struct list_part *part, uint64_t first,
                          const struct exponents *ret)
{
    const struct weights_source *source = to->loader->source;
    uint64_t bytes = (uint64_t)ret->rows * ret->stride;
    int status =
        checkpoint_read(source->checkpoint, checkpoint_tensor(source->checkpoint, part->scale),
                        first, bytes, ret->from, to->error);
    const uint8_t *none = status ? NULL : memchr(ret->from, 255, bytes);
    if (none)
        return error_set(to->error, ERR_BAD_MODEL,
                         "tensor %s: value %" PRIu64 " is 255: a scale must be a number",
                         source->list->tensors[part->scale].name,
                         first + (uint64_t)(none - ret->from));
    return status;
}

static void exponents_place(const struct exponents *of, const struct tensor_slice *place,
                            uint32_t each)
{
    for (uint32_t row = 0; row < of->rows; row++)
        memcpy(of->to + tensor_slice_row(place, row) * of->columns,
               of->from + (uint64_t)row * of->stride + place->column / each, of->columns);
}

/* Of one expert's matrix; a scale for each row and block of it. */
static int exponents_load(const struct spreading *to, weight_id number, uint32_t expert,
                          const struct weight *weight)
{
    const struct weights_source *source = to->loader->source;
    const struct list_weight *like = &source->list->weights[number];
    struct list_part part = list_expert_part(like, 0, expert);
    struct tensor_slice place = weights_scales(source, number, 0).place;
    const struct list_tensor *listed = &source->list->tensors[part.scale];
    struct exponents of = {.rows = place.rows,
                           .stride = listed->columns,
                           .columns = list_scales(weight->k, weight->scales.k)};
    uint64_t first = (part.row + place.row) * of.stride;
    of.from = malloc((uint64_t)of.rows * of.stride);
    of.to = malloc((uint64_t)of.rows * of.columns);
    int status = of.from && of.to ? 0
                                  : error_set(to->error, ERR_NO_MEMORY,
                                              "no memory for scales of %s", listed->name);
    if (!status && source->checkpoint)
        status = exponents_read(to, &part, first, &of);
    else if (!status)
        exponents_make(to, like, listed, first, &of);
    if (!status) {
        exponents_place(&of, &place, like->scheme.columns);
        status = send(to, (void *)weight->scales.data, (const char *)of.to,
                      (uint64_t)of.rows * of.columns);
    }
    free(of.from);
    free(of.to);
    return status;
}

/* ---- matrices ---- */

/* Of a matrix, the weight's only one or the expert's. */
static int weight_spread(const struct spreading *to, weight_id number, uint32_t expert,
                         const struct made *made)
{
    const struct weights_source *source = to->loader->source;
    const struct list_weight *like = &source->list->weights[number];
    const struct weight *weight = &to->loader->weights->at[number];
    for (uint32_t i = 0; i < like->part_count; i++) {
        struct weights_scales of = weights_scales(source, number, i);
        struct list_part part = list_expert_part(like, i, expert);
        struct source_scales from;
        int status = source_get(to, like, &part, &from);
        if (status)
            return status;
        spread(made, weight, &from, &of.place);
        source_free(&from);
    }
    return 0;
}

static int matrix_load(const struct spreading *to, weight_id number, uint32_t expert,
                       const struct weight *weight)
{
    uint64_t count = weight_scale_count(weight);
    struct made made = {.scales = calloc(count, sizeof *made.scales),
                        .zeros = weight->zeros ? calloc(count, 1) : NULL};
    int status = made.scales && (made.zeros || !weight->zeros)
                     ? 0
                     : error_set(to->error, ERR_NO_MEMORY, "no memory for scales");
    if (!status)
        status = weight_spread(to, number, expert, &made);
    if (!status)
        status = send(to, (void *)weight->scales.data, (const char *)made.scales,
                      count * sizeof *made.scales);
    if (!status && made.zeros)
        status = send(to, (void *)weight->zeros, (const char *)made.zeros, count);
    free(made.scales);
    free(made.zeros);
    return status;
}

/* The order of columns on the device, and here for those who read the elements. */
static int order_load(const struct spreading *to, weight_id number, uint32_t expert,
                      const struct weight *weight, uint32_t *order)
{
    const struct weights_source *source = to->loader->source;
    const struct list_weight *like = &source->list->weights[number];
    struct list_part part = list_expert_part(like, 0, expert);
    struct column_groups of = groups_of(source, like, &part);
    uint32_t *groups = NULL;
    int status = groups_read(to, like, &part, &groups);
    if (!status)
        status = column_groups_order(&of, groups, order, to->error);
    if (!status)
        status = send(to, (void *)weight->order, (const char *)order, weight->k * sizeof *order);
    free(groups);
    return status;
}

/* Of the expert's inputs, which are one matrix's. */
static int input_load(const struct spreading *to, weight_id number, uint32_t expert,
                      const struct weight *weight)
{
    const struct weights_source *source = to->loader->source;
    const struct list_weight *like = &source->list->weights[number];
    struct list_part part = list_expert_part(like, 0, expert);
    float scale = like->input_scale;
    struct source_scales one = {.at = &scale, .count = 1};
    part.scale = part.input_scale;
    int status = source->checkpoint ? source_read(to, &part, &one) : 0;
    if (!status)
        status = send(to, (void *)weight->input.scales, (const char *)&scale, sizeof scale);
    return status;
}

/* Every matrix of it; `order` is the caller's, in any case. */
static int weight_load(const struct spreading *to, weight_id number, uint32_t **order)
{
    const struct weight *all = &to->loader->weights->at[number];
    uint32_t first = 0, count = weights_experts(to->loader->source,
                                                &to->loader->source->list->weights[number], &first);
    if (all->order && !(*order = calloc((size_t)count * all->k, sizeof **order)))
        return error_set(to->error, ERR_NO_MEMORY, "no memory for groups of columns");
    int status = 0;
    for (uint32_t e = 0; !status && e < count; e++) {
        struct weight weight = weight_of_expert(all, e);
        status = weight.scales.exponents ? exponents_load(to, number, first + e, &weight)
                                         : matrix_load(to, number, first + e, &weight);
        if (!status && weight.order)
            status = order_load(to, number, first + e, &weight, *order + (size_t)e * all->k);
        if (!status && weight.input.scales)
            status = input_load(to, number, first + e, &weight);
    }
    return status;
}

int scales_load(const struct loader *loader, uint32_t **orders, struct error *error)
{
    struct spreading to = {.loader = loader, .error = error};
    int status = 0;
    for (uint32_t i = 0; !status && i < loader->source->list->weight_count; i++) {
        if (!loader->weights->at[i].scales.data || loader->source->list->weights[i].scheme.made)
            continue;
        if (!to.pinned)
            status = mem_pinned(loader->mem, device_traits.staging_bytes, &to.pinned, error);
        if (!status)
            status = weight_load(&to, (weight_id)i, &orders[i]);
    }
    if (to.pinned)
        (void)mem_pinned_free(loader->mem, to.pinned, NULL);
    return status;
}
