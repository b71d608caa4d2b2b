#include "gpu/weights/scales.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/base/cuda_error.h"
#include "gpu/base/device.h"
#include "gpu/checkpoint/number.h"

/* The scales of one tensor, whole. */
struct source_scales {
    float *at;
    uint32_t rows, columns; /* of the tensor, that have one scale; 0: all */
    uint32_t stride;        /* scales of a row */
};

struct spreading {
    const struct loader *loader;
    void *pinned; /* device_traits.staging_bytes */
    struct error *error;
};

static uint32_t count_of(uint32_t size, uint32_t each)
{
    return each ? (size + each - 1) / each : 1;
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

/* The caller frees ret->at. */
static int source_read(const struct spreading *to, const struct list_weight *like, uint32_t part,
                       struct source_scales *ret)
{
    const struct checkpoint *checkpoint = to->loader->source->checkpoint;
    const struct list_tensor *listed = &to->loader->source->list->tensors[like->parts[part].scale];
    const struct checkpoint_tensor *tensor = checkpoint_tensor(checkpoint, like->parts[part].scale);
    uint64_t count = (uint64_t)listed->rows * listed->columns;
    float *made = calloc(count, sizeof *made);
    char *bytes = calloc(1, tensor->bytes);
    int status = made && bytes ? 0
                               : error_set(to->error, ERR_NO_MEMORY, "no memory for scales of %s",
                                           listed->name);
    if (!status)
        status = checkpoint_read(checkpoint, tensor, 0, tensor->bytes, bytes, to->error);
    if (!status) {
        number_read(made, bytes, tensor->dtype, count);
        status = scales_check(listed->name, made, count, to->error);
    }
    free(bytes);
    if (status) {
        free(made);
        return status;
    }
    *ret = (struct source_scales){made, like->scheme.rows, like->scheme.columns, listed->columns};
    return 0;
}

/* Of every row of scales that the part has in the weight. */
static void spread(float *to, const struct weight *weight, const struct source_scales *from,
                   const struct tensor_slice *place)
{
    uint32_t n = weight->scales.n, k = weight->scales.k, columns = count_of(weight->k, k);
    for (uint32_t row = 0; row < place->rows; row += n ? n : place->rows) {
        uint64_t target = n ? tensor_slice_row(place, row) / n : 0;
        uint64_t source = from->rows ? (place->row + row) / from->rows : 0;
        for (uint32_t i = 0; i < columns; i++) {
            uint32_t column = place->column + i * k;
            to[target * columns + i] =
                from->at[source * from->stride + (from->columns ? column / from->columns : 0)];
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

static int weight_load(const struct spreading *to, weight_id number)
{
    const struct weights_source *source = to->loader->source;
    const struct list_weight *like = &source->list->weights[number];
    const struct weight *weight = &to->loader->weights->at[number];
    uint64_t count =
        (uint64_t)count_of(weight->n, weight->scales.n) * count_of(weight->k, weight->scales.k);
    float *made = calloc(count, sizeof *made);
    int status = made ? 0 : error_set(to->error, ERR_NO_MEMORY, "no memory for scales");
    for (uint32_t i = 0; !status && i < like->part_count; i++) {
        struct weights_scales of = weights_scales(source, number, i);
        struct source_scales from;
        status = source_read(to, like, i, &from);
        if (status)
            break;
        spread(made, weight, &from, &of.place);
        free(from.at);
    }
    if (!status)
        status = send(to, (void *)weight->scales.data, (const char *)made, count * sizeof *made);
    free(made);
    return status;
}

int scales_load(const struct loader *loader, struct error *error)
{
    struct spreading to = {.loader = loader, .error = error};
    int status = 0;
    for (uint32_t i = 0; !status && i < loader->source->list->weight_count; i++) {
        if (!loader->weights->at[i].scales.data)
            continue;
        if (!to.pinned)
            status = mem_pinned(loader->mem, device_traits.staging_bytes, &to.pinned, error);
        if (!status)
            status = weight_load(&to, (weight_id)i);
    }
    if (to.pinned)
        mem_pinned_free(loader->mem, to.pinned);
    return status;
}
