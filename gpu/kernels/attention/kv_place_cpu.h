/* Keys and values in their blocks, as the CPU bodies read and write them. */
#pragma once

#include "gpu/kernels/cpu/body.h"

/* One position of one KV head. Up to the end of its piece (in plain formats: of its block) the
 * next ones follow. */
struct kv_place {
    void *elements;
    float *scale; /* NULL: it is a number of its dtype */
};

/* `offset`: kv->k, or kv->v. */
static inline struct kv_place kv_place_of(const struct batch *batch, const struct kv_layer *kv,
                                          uint32_t head_dim, uint32_t slot, uint32_t position,
                                          uint32_t head, uint64_t offset)
{
    const struct batch_group *group = &batch->groups[kv->group];
    uint32_t size = batch->block_tokens, inside = position % size;
    char *at = body_block(group, body_table(group, slot, position / size)) + offset +
               head * kv_bytes(kv->format, 1, size, head_dim);
    if (kv->format != FORMAT_E4M3)
        return (struct kv_place){at + format_bytes(kv->format, inside, head_dim), NULL};
    char *piece = at + kv_bytes(kv->format, 1, inside / KV_PIECE * KV_PIECE, head_dim);
    float *scales = (float *)(void *)(piece + format_bytes(kv->format, KV_PIECE, head_dim));
    return (struct kv_place){piece + format_bytes(kv->format, inside % KV_PIECE, head_dim),
                             scales + inside % KV_PIECE};
}

/* Eight bits of positions that follow each other as numbers, [count][head_dim]. */
static inline void kv_widen(float *to, const struct kv_place *from, uint32_t count,
                            uint32_t head_dim)
{
    const uint8_t *bytes = from->elements;
    for (uint32_t i = 0; i < count * head_dim; i++)
        to[i] = e4m3_widen(bytes[i]) * from->scale[i / head_dim];
}

/* What x, computed in `dtype`, is divided by: see struct kv_layer. By bits: what is no number is
 * above all. */
static inline float kv_scale_of(const float *x, uint32_t head_dim, enum dtype dtype, float said)
{
    uint32_t greatest = 0;
    for (uint32_t i = 0; i < head_dim; i++) {
        uint32_t magnitude = float_bits(x[i]) & 0x7fffffffu;
        greatest = magnitude > greatest ? magnitude : greatest;
    }
    if (greatest >= KV_MAGNITUDE_END(dtype))
        return bits_float(0x7fc00000u);
    if (said != 0)
        return said;
    float scale = bits_float(greatest) / 448.0f;
    return greatest == 0 ? 1 : scale > KV_SCALE_MIN ? scale : KV_SCALE_MIN;
}

/* `said`: the checkpoint's scale of K, or of V. */
static inline void kv_store(const struct kv_place *to, const struct kv_layer *kv, const float *x,
                            uint32_t head_dim, enum dtype dtype, float said)
{
    if (kv->format != FORMAT_E4M3) {
        number_round(to->elements, x, (enum dtype)kv->format, head_dim);
        return;
    }
    float scale = kv_scale_of(x, head_dim, dtype, said);
    for (uint32_t i = 0; i < head_dim; i++)
        ((uint8_t *)to->elements)[i] = e4m3_round(x[i] / scale);
    *to->scale = scale;
}
