#include "gpu/kernels/draft/features.h"

#include <string.h>

#include "gpu/kernels/cpu/body.h"

#define PLACES (FEATURES_KEPT + 1)

static size_t features_bytes(const struct features *features)
{
    return features->width * dtype_bytes(features->dtype);
}

static char *place_at(const struct features *features, uint32_t slot, uint32_t place)
{
    return body_at(features->kept, features->dtype, (size_t)slot * PLACES + place, features->width);
}

static void keep_row(const void *params, uint32_t index)
{
    const struct keep_args *args = params;
    const struct features *features = &args->features;
    const struct batch_counts *counts = dev(args->batch.counts);
    if (index >= counts->rows)
        return;
    const struct batch_row *row = (const struct batch_row *)dev(args->batch.rows) + index;
    uint32_t *positions = (uint32_t *)dev(features->positions) + (size_t)row->slot * PLACES;
    size_t bytes = features_bytes(features);
    uint32_t before = (row->position - 1) % FEATURES_KEPT;
    uint32_t first = row->q_len > FEATURES_KEPT ? row->q_len - FEATURES_KEPT : 0;
    ((struct features_row *)dev(features->rows))[row->slot] =
        (struct features_row){row->position, row->token};
    if (row->position > 0)
        memcpy(place_at(features, row->slot, FEATURES_KEPT), place_at(features, row->slot, before),
               bytes);
    positions[FEATURES_KEPT] = row->position > 0 ? positions[before] : FEATURES_NONE;
    for (uint32_t i = first; i < row->q_len; i++) {
        uint32_t position = row->position + i;
        memcpy(place_at(features, row->slot, position % FEATURES_KEPT),
               body_at(features->step, features->dtype, row->token + i, features->width), bytes);
        positions[position % FEATURES_KEPT] = position;
    }
}

cudaError_t op_keep(const struct keep_args *args, cudaStream_t stream)
{
    return body_launch(stream, "keep", keep_row, args, sizeof *args, args->batch.rows_max);
}

/* NULL: nobody kept it. */
static const void *features_find(const struct features_args *args, uint32_t slot, uint32_t position)
{
    const struct features *features = &args->features;
    const struct batch_slot *state = (const struct batch_slot *)dev(args->batch.slots) + slot;
    const struct features_row *row = (const struct features_row *)dev(features->rows) + slot;
    const uint32_t *positions = (const uint32_t *)dev(features->positions) + (size_t)slot * PLACES;
    if (position < state->first)
        return NULL;
    if (args->step && position >= row->position)
        return body_at(features->step, features->dtype, row->token + position - row->position,
                       features->width);
    uint32_t place = args->step ? FEATURES_KEPT : position % FEATURES_KEPT;
    return positions[place] == position ? place_at(features, slot, place) : NULL;
}

static void features_token(const void *params, uint32_t token)
{
    const struct features_args *args = params;
    const struct batch *batch = &args->batch;
    const struct batch_counts *counts = dev(batch->counts);
    if (token >= counts->tokens)
        return;
    uint32_t row = ((const uint32_t *)dev(batch->token_row))[token];
    uint32_t slot = ((const struct batch_row *)dev(batch->rows))[row].slot;
    uint32_t position = ((const uint32_t *)dev(batch->token_position))[token];
    const void *from = features_find(args, slot, position);
    void *out = body_at(args->out, args->features.dtype, token, args->features.width);
    if (from)
        memcpy(out, from, features_bytes(&args->features));
    else
        memset(out, 0, features_bytes(&args->features));
}

cudaError_t op_features(const struct features_args *args, cudaStream_t stream)
{
    return body_launch(stream, "features", features_token, args, sizeof *args,
                       args->batch.tokens_max);
}
