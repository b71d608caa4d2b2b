#include "gpu/weights/adapter_weights.h"

#include <assert.h>
#include <stdlib.h>

#include "gpu/base/cuda_error.h"

static_assert(ADAPT_PARTS == LIST_PARTS_MAX, "kernels know all parts of a weight");
static_assert(ADAPT_RANK_MAX == ADAPTER_RANK_MAX, "and all ranks");

struct opening {
    struct adapter_weights *weights;
    const struct adapters *adapters;
    struct adapter_layers layers;
    const struct weights_source *like;
    struct streams *lane;
    struct mem *mem;
    struct error *error;
};

static int load(const struct opening *opening, const struct weights_source *source,
                struct weights *weights)
{
    _Atomic uint32_t unseen = 0; /* the base's progress stands for all */
    struct loader loader = {.lane = opening->lane,
                            .mem = opening->mem,
                            .source = source,
                            .weights = weights,
                            .progress = &unseen};
    int rc = weights_open(weights, opening->mem, source, opening->error);
    return rc ? rc : loader_run(&loader, opening->error);
}

/* An adapter's part of these layers; the caller frees *ret_ops. */
static int source_make(const struct adapter *adapter, struct adapter_layers layers,
                       const struct weights_source *like, struct weights_source *ret,
                       struct op **ret_ops, struct error *error)
{
    *ret = *like;
    *ret_ops = NULL;
    int rc = op_list_stage(&adapter->list, layers.first, layers.end, ret_ops, &ret->op_count, error);
    ret->list = &adapter->list;
    ret->checkpoint = adapter->checkpoint;
    ret->ops = *ret_ops;
    return rc;
}

static int adapter_open(const struct opening *opening, uint32_t number)
{
    struct weights_source source;
    struct op *ops;
    int rc = source_make(&opening->adapters->at[number], opening->layers, opening->like, &source,
                         &ops, opening->error);
    if (!rc && source.op_count > 0)
        rc = load(opening, &source, &opening->weights->at[number]);
    free(ops);
    return rc;
}

int adapter_weights_bytes(const struct adapters *adapters, struct adapter_layers layers,
                          const struct weights_source *like, uint64_t *ret_bytes,
                          struct error *error)
{
    uint64_t bytes = 0;
    int rc = 0;
    for (uint32_t i = 0; !rc && i < adapters->count; i++) {
        struct weights_source source;
        struct op *ops;
        rc = source_make(&adapters->at[i], layers, like, &source, &ops, error);
        if (!rc)
            bytes += weights_bytes(&source);
        free(ops);
    }
    *ret_bytes = bytes;
    return rc;
}

static struct adapt_place place_of(const struct adapter *adapter, const struct weights *weights,
                                   uint32_t site)
{
    struct adapt_place place = {.rank = adapter->config.rank, .scale = adapter->config.scale};
    for (uint32_t p = 0; weights->at && p < LIST_PARTS_MAX; p++) {
        weight_id a = adapter->a[site][p], b = adapter->b[site][p];
        if (a == LIST_NONE || !weights->at[a].data)
            continue;
        uint32_t from = 0;
        while (adapter->a[site][from] != a)
            from++;
        place.parts[p] =
            (struct adapt_part){.a = weights->at[a].data,
                                .b = weights->at[b].data,
                                .a_dtype = format_info(weights->at[a].format).dtype,
                                .b_dtype = format_info(weights->at[b].format).dtype,
                                .from = from};
    }
    return place;
}

/* Through this thread's own stream; the pinned copy stays, as that of angles does. */
static int table_send(const struct opening *opening)
{
    const struct adapters *adapters = opening->adapters;
    struct error *error = opening->error;
    uint64_t bytes = (uint64_t)adapters->site_count * adapters->count * sizeof(struct adapt_place);
    void *pinned = NULL, *device = NULL;
    int rc = mem_pinned(opening->mem, bytes, &pinned, error);
    if (!rc)
        rc = mem_fixed(opening->mem, bytes, &device, error);
    if (rc)
        return rc;
    struct adapt_place *to = pinned;
    for (uint32_t site = 0; site < adapters->site_count; site++)
        for (uint32_t i = 0; i < adapters->count; i++)
            *to++ = place_of(&adapters->at[i], &opening->weights->at[i], site);
    CUDA_TRY(cudaMemcpyAsync(device, pinned, bytes, cudaMemcpyHostToDevice, cudaStreamPerThread),
             error);
    opening->weights->places = device;
    return 0;
}

int adapter_weights_open(struct adapter_weights *weights, const struct adapters *adapters,
                         struct adapter_layers layers, const struct weights_source *like,
                         struct streams *lane, struct mem *mem, struct error *error)
{
    *weights = (struct adapter_weights){.count = adapters->count, .rank_max = adapters->rank_max};
    if (!adapters->count)
        return 0;
    weights->at = calloc(adapters->count, sizeof *weights->at);
    if (!weights->at) {
        weights->count = 0;
        return error_set(error, ERR_NO_MEMORY, "no memory for %u adapters", adapters->count);
    }
    struct opening opening = {weights, adapters, layers, like, lane, mem, error};
    int rc = 0;
    for (uint32_t i = 0; !rc && i < adapters->count; i++)
        rc = adapter_open(&opening, i);
    return rc ? rc : table_send(&opening);
}

void adapter_weights_close(struct adapter_weights *weights)
{
    for (uint32_t i = 0; i < weights->count; i++)
        weights_close(&weights->at[i]);
    free(weights->at);
    *weights = (struct adapter_weights){.count = 0};
}
