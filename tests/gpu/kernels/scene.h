/* Slots with KV, and steps over them: what the engine's first kernel would have written.
 *
 * Set the members of the first part, scene_begin, then for each step scene_row for every row and
 * scene_step. Two layer groups always exist; the second one has `window`. Blocks are placed at
 * random; what no table names is poison. Freed by rig_end and scene_end.
 */
#pragma once

#include "gpu/kernels/attention/attention.h"
#include "gpu/kernels/common/batch.h"
#include "tests/gpu/kernels/rig.h"

#define SCENE_TOKENS_MAX 1024
#define SCENE_ROWS_MAX 64
#define SCENE_BOUND_SLACK 3 /* how far the bound of samples may lie above their count */

struct scene {
    uint32_t slots, length_max, block_tokens, window;
    uint32_t layers, kv_heads, head_dim;
    enum format kv_format;
    uint32_t vocab, hidden;

    struct batch batch; /* for launches; bounds may be wider than counts */
    struct batch_counts counts;
    struct batch_row rows[SCENE_ROWS_MAX];
    int32_t ids[SCENE_TOKENS_MAX];
    struct batch_slot *slot; /* [slots] host copies, uploaded by scene_step, read by scene_slots */
    struct gpu_bias *bias;   /* [slots][GPU_BIAS_MAX], likewise */
};

void scene_begin(struct scene *scene);
void scene_end(struct scene *scene);

/* A row of random ids within the vocabulary (0 when there is none). */
void scene_row(struct scene *scene, uint32_t slot, uint32_t position, uint32_t q_len,
               uint32_t want);
/* Uploads the rows and forgets them: counts stay for the test to read. */
void scene_step(struct scene *scene);
void scene_slots(struct scene *scene); /* device to host */

/* All that a group's blocks hold, by malloc. */
void *scene_cache(const struct scene *scene, uint32_t group, size_t *ret_bytes);

struct kv_layer scene_layer(const struct scene *scene, uint32_t group, uint32_t layer);
