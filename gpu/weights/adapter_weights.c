#include "gpu/weights/adapter_weights.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/base/cuda_error.h"

static_assert(ADAPT_PARTS == LIST_PARTS_MAX, "kernels know all parts of a weight");
static_assert(ADAPT_RANK_MAX == ADAPTER_RANK_MAX, "and all ranks");
static_assert(ADAPT_LIST == ADAPTERS_LIST, "and have room for their list");
static_assert(ADAPT_SUMS(17) == ADAPTERS_SUMS(17), "and for their sums");

#define STAGING_PIECE (1u << 20)

struct opening {
    struct adapter_weights *weights;
    const struct adapters *adapters;
    struct adapter_layers layers;
    const struct weights_source *like;
    struct streams *lane;
    struct mem *mem; /* NULL: what is there is used */
    struct error *error;
};

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

/* A and B, into memory of their own or into the place's. */
static int load(const struct opening *opening, const struct weights_source *source, uint32_t at)
{
    struct adapter_weights *own = opening->weights;
    struct weights *weights = &own->at[at];
    _Atomic uint32_t unseen = 0; /* the base's progress stands for all */
    struct loader loader = {.lane = opening->lane,
                            .mem = opening->mem,
                            .staging = opening->mem ? NULL : &own->staging,
                            .source = source,
                            .weights = weights,
                            .progress = &unseen};
    int rc = own->each ? weights_place(weights, source, own->memory + at * own->each, own->each,
                                       opening->error)
                       : weights_open(weights, opening->mem, source, opening->error);
    return rc ? rc : loader_run(&loader, opening->error);
}

static int adapter_read(const struct opening *opening, const struct adapter *adapter, uint32_t at)
{
    struct weights_source source;
    struct op *ops;
    int rc =
        source_make(adapter, opening->layers, opening->like, &source, &ops, opening->error);
    if (!rc && source.op_count > 0)
        rc = load(opening, &source, at);
    free(ops);
    return rc;
}

/* ---- room for others ---- */

/* What a place takes at most; 0: there are none but those of the start. */
static int each_bytes(const struct adapters *adapters, struct adapter_layers layers,
                      const struct weights_source *like, uint64_t *ret_bytes, struct error *error)
{
    struct weights_source source;
    struct op *ops;
    *ret_bytes = 0;
    if (adapters->places == adapters->count)
        return 0;
    int rc = source_make(&adapters->widest, layers, like, &source, &ops, error);
    source.own = MODEL_F32; /* no file's elements take more */
    if (!rc)
        *ret_bytes = mem_round(weights_bytes(&source) + 1);
    free(ops);
    return rc;
}

/* Whole rows go through. */
static uint64_t piece_bytes(const struct adapters *adapters)
{
    const struct op_list *list = &adapters->widest.list;
    uint64_t bytes = STAGING_PIECE;
    for (uint32_t i = 0; i < list->weight_count; i++)
        if (bytes < list->weights[i].columns * sizeof(float))
            bytes = list->weights[i].columns * sizeof(float);
    return mem_round(bytes);
}

int adapter_weights_bytes(const struct adapters *adapters, struct adapter_layers layers,
                          const struct weights_source *like, uint64_t *ret_bytes,
                          struct error *error)
{
    uint64_t bytes = 0, each;
    int rc = each_bytes(adapters, layers, like, &each, error);
    if (!rc && each)
        bytes = adapters->places * each + loader_staging_bytes(piece_bytes(adapters));
    for (uint32_t i = 0; !rc && !each && i < adapters->count; i++) {
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

static int room_take(const struct opening *opening)
{
    struct adapter_weights *weights = opening->weights;
    struct error *error = opening->error;
    struct loader_staging *staging = &weights->staging;
    int rc = each_bytes(opening->adapters, opening->layers, opening->like, &weights->each, error);
    if (rc || !weights->each)
        return rc;
    staging->piece = piece_bytes(opening->adapters);
    uint64_t bytes = loader_staging_bytes(staging->piece);
    void *memory = NULL;
    rc = mem_fixed(opening->mem, weights->count * weights->each, &memory, error);
    weights->memory = memory;
    if (!rc)
        rc = mem_fixed(opening->mem, bytes, &staging->device, error);
    if (!rc)
        rc = mem_pinned(opening->mem, bytes, &staging->pinned, error);
    if (rc)
        return rc;
    /* Behind the steps' in priority. */
    struct streams *aside = &weights->aside;
    CUDA_TRY(cudaStreamCreateWithPriority(&aside->compute, cudaStreamNonBlocking, 0), error);
    CUDA_TRY(cudaStreamCreateWithPriority(&aside->bulk_in, cudaStreamNonBlocking, 0), error);
    return 0;
}

/* ---- the table ---- */

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
    struct adapter_weights *weights = opening->weights;
    struct error *error = opening->error;
    uint64_t bytes = (uint64_t)adapters->site_count * weights->count * sizeof(struct adapt_place);
    void *pinned = NULL, *device = NULL;
    int rc = mem_pinned(opening->mem, bytes, &pinned, error);
    if (!rc)
        rc = mem_fixed(opening->mem, bytes, &device, error);
    if (rc)
        return rc;
    memset(pinned, 0, bytes);
    weights->table = pinned;
    for (uint32_t site = 0; site < adapters->site_count; site++)
        for (uint32_t i = 0; i < adapters->count; i++)
            weights->table[(uint64_t)site * weights->count + i] =
                place_of(&adapters->at[i], &weights->at[i], site);
    CUDA_TRY(cudaMemcpyAsync(device, pinned, bytes, cudaMemcpyHostToDevice, cudaStreamPerThread),
             error);
    weights->places = device;
    return 0;
}

int adapter_weights_open(struct adapter_weights *weights, const struct adapters *adapters,
                         struct adapter_layers layers, const struct weights_source *like,
                         struct streams *lane, struct mem *mem, struct error *error)
{
    *weights = (struct adapter_weights){.count = adapters->places, .rank_max = adapters->rank_max};
    if (!weights->count)
        return 0;
    weights->at = calloc(weights->count, sizeof *weights->at);
    if (!weights->at) {
        weights->count = 0;
        return error_set(error, ERR_NO_MEMORY, "no memory for %u adapters", adapters->places);
    }
    struct opening opening = {weights, adapters, layers, like, lane, mem, error};
    int rc = room_take(&opening);
    for (uint32_t i = 0; !rc && i < adapters->count; i++)
        rc = adapter_read(&opening, &adapters->at[i], i);
    return rc ? rc : table_send(&opening);
}

int adapter_weights_load(struct adapter_weights *weights, const struct adapters *adapters,
                         struct adapter_layers layers, const struct adapter *adapter,
                         uint32_t number, const struct weights_source *like, struct error *error)
{
    struct opening opening = {weights, adapters, layers, like, &weights->aside, NULL, error};
    uint32_t at = number - 1;
    assert(weights->each && at < weights->count);
    weights_close(&weights->at[at]);
    int rc = adapter_read(&opening, adapter, at);
    for (uint32_t site = 0; !rc && site < adapters->site_count; site++) {
        uint64_t entry = (uint64_t)site * weights->count + at;
        weights->table[entry] = place_of(adapter, &weights->at[at], site);
        CUDA_TRY(cudaMemcpyAsync((void *)(weights->places + entry), &weights->table[entry],
                                 sizeof *weights->table, cudaMemcpyHostToDevice,
                                 weights->aside.compute),
                 error);
    }
    if (rc)
        return rc;
    CUDA_TRY(cudaStreamSynchronize(weights->aside.compute), error);
    return 0;
}

void adapter_weights_close(struct adapter_weights *weights)
{
    if (weights->aside.compute)
        (void)cudaStreamDestroy(weights->aside.compute);
    if (weights->aside.bulk_in)
        (void)cudaStreamDestroy(weights->aside.bulk_in);
    for (uint32_t i = 0; i < weights->count; i++)
        weights_close(&weights->at[i]);
    free(weights->at);
    *weights = (struct adapter_weights){.count = 0};
}
