#include "tests/gpu/kernels/scene.h"

#define SLAB_BLOCKS 3u
#define SPARE_BLOCKS 5 /* that no table names */

static void upload(const void *device, const void *from, size_t bytes)
{
    OK(cudaMemcpyAsync((void *)(uintptr_t)device, from, bytes, cudaMemcpyHostToDevice, rig_stream));
}

static void make_group(struct scene *scene, struct batch_group *group, uint32_t window)
{
    uint32_t blocks_max = (scene->length_max + scene->block_tokens - 1) / scene->block_tokens;
    uint32_t total = scene->slots * blocks_max + SPARE_BLOCKS;
    uint32_t slab_blocks = rig_apart() ? 1 : SLAB_BLOCKS;
    uint32_t slabs = (total + slab_blocks - 1) / slab_blocks, *numbers = malloc(total * 4);
    size_t block_bytes = scene->layers * 2 * kv_bytes(scene->kv_format, scene->kv_heads,
                                                      scene->block_tokens, scene->head_dim);
    block_bytes = (block_bytes + 255) / 256 * 256;
    void **bases = malloc(slabs * sizeof *bases);
    for (uint32_t i = 0; i < slabs; i++)
        bases[i] = rig_new(NULL, slab_blocks * block_bytes);
    for (uint32_t i = 0; i < total; i++)
        numbers[i] = i;
    for (uint32_t i = total - 1; i; i--) {
        uint32_t j = rig_between(0, i), number = numbers[i];
        numbers[i] = numbers[j];
        numbers[j] = number;
    }
    *group = (struct batch_group){
        .tables = rig_new(numbers, (size_t)scene->slots * blocks_max * sizeof *numbers),
        .slabs = rig_new(bases, slabs * sizeof *bases),
        .block_bytes = block_bytes,
        .blocks_max = blocks_max,
        .slab_blocks = slab_blocks,
        .window = window,
    };
    free(numbers);
    free(bases);
}

void scene_begin(struct scene *scene)
{
    struct batch *batch = &scene->batch;
    const uint32_t none = 0;
    *batch = (struct batch){
        .counts = rig_new(NULL, sizeof scene->counts),
        .rows = rig_new(NULL, sizeof scene->rows),
        .token_id = rig_new(NULL, SCENE_TOKENS_MAX * 4),
        .token_row = rig_new(NULL, SCENE_TOKENS_MAX * 4),
        .token_position = rig_new(NULL, SCENE_TOKENS_MAX * 4),
        .sample_row = rig_new(NULL, SCENE_ROWS_MAX * 4),
        .sample_token = rig_new(NULL, SCENE_ROWS_MAX * 4),
        .slots = rig_new(NULL, scene->slots * sizeof(struct batch_slot)),
        .bias = rig_new(NULL, (size_t)scene->slots * GPU_BIAS_MAX * sizeof(struct gpu_bias)),
        .seen = rig_new(NULL, (size_t)scene->slots * scene->vocab * 2),
        .pool = rig_new(NULL, (size_t)scene->slots * scene->hidden * sizeof(float)),
        .next_item = rig_new(&none, sizeof none),
        .block_tokens = scene->block_tokens,
    };
    scene->slot = calloc(scene->slots, sizeof *scene->slot);
    scene->bias = calloc((size_t)scene->slots * GPU_BIAS_MAX, sizeof *scene->bias);
    for (uint32_t i = 0; i < scene->slots; i++)
        scene->slot[i] = (struct batch_slot){.sampler.top_p = 1, .sampler.repetition_penalty = 1};
    if (scene->kv_heads) {
        make_group(scene, &batch->groups[0], 0);
        make_group(scene, &batch->groups[1], scene->window);
    }
    scene->counts = (struct batch_counts){0};
}

void scene_end(struct scene *scene)
{
    free(scene->slot);
    free(scene->bias);
    rig_end();
}

void scene_row(struct scene *scene, uint32_t slot, uint32_t position, uint32_t q_len, uint32_t want)
{
    struct batch_counts *counts = &scene->counts;
    ck_assert_uint_lt(counts->rows, SCENE_ROWS_MAX);
    ck_assert_uint_le(counts->tokens + q_len, SCENE_TOKENS_MAX);
    scene->rows[counts->rows++] = (struct batch_row){
        .slot = slot, .position = position, .q_len = q_len, .token = counts->tokens, .want = want};
    for (uint32_t i = 0; i < q_len; i++)
        scene->ids[counts->tokens++] = scene->vocab ? (int32_t)rig_between(0, scene->vocab - 1) : 0;
}

static void upload_lists(struct scene *scene)
{
    static uint32_t token_row[SCENE_TOKENS_MAX], token_position[SCENE_TOKENS_MAX];
    uint32_t sample_row[SCENE_ROWS_MAX], sample_token[SCENE_ROWS_MAX];
    scene->counts.samples = 0;
    for (uint32_t r = 0; r < scene->counts.rows; r++) {
        const struct batch_row *row = &scene->rows[r];
        for (uint32_t i = 0; i < row->q_len; i++) {
            token_row[row->token + i] = r;
            token_position[row->token + i] = row->position + i;
        }
        if (row->want & GPU_SAMPLE) {
            for (uint32_t i = row->q_len - row->drafts; i <= row->q_len; i++) {
                ck_assert_uint_lt(scene->counts.samples, SCENE_ROWS_MAX);
                sample_row[scene->counts.samples] = r;
                sample_token[scene->counts.samples++] = row->token + i - 1;
            }
        }
    }
    upload(scene->batch.token_row, token_row, scene->counts.tokens * 4);
    upload(scene->batch.token_position, token_position, scene->counts.tokens * 4);
    upload(scene->batch.sample_row, sample_row, scene->counts.samples * 4);
    upload(scene->batch.sample_token, sample_token, scene->counts.samples * 4);
    rig_wait();
}

void scene_step(struct scene *scene)
{
    struct batch *batch = &scene->batch;
    upload_lists(scene);
    upload(batch->counts, &scene->counts, sizeof scene->counts);
    upload(batch->rows, scene->rows, scene->counts.rows * sizeof *scene->rows);
    upload(batch->token_id, scene->ids, scene->counts.tokens * sizeof *scene->ids);
    upload(batch->slots, scene->slot, scene->slots * sizeof *scene->slot);
    upload(batch->bias, scene->bias, (size_t)scene->slots * GPU_BIAS_MAX * sizeof *scene->bias);
    rig_wait();
    batch->rows_max = scene->counts.rows + rig_between(0, 3);
    batch->tokens_max = scene->counts.tokens + rig_between(0, 3);
    batch->samples_max = scene->counts.samples + rig_between(0, SCENE_BOUND_SLACK);
    attention_bounds_clear(batch);
    for (uint32_t r = 0; r < scene->counts.rows; r++)
        attention_bounds_add(batch, scene->rows[r].position, scene->rows[r].q_len);
}

void scene_slots(struct scene *scene)
{
    rig_read(scene->slot, scene->batch.slots, scene->slots * sizeof *scene->slot);
}

void *scene_cache(const struct scene *scene, uint32_t group, size_t *ret_bytes)
{
    const struct batch_group *from = &scene->batch.groups[group];
    uint32_t total = scene->slots * from->blocks_max + SPARE_BLOCKS;
    uint32_t slabs = (total + from->slab_blocks - 1) / from->slab_blocks;
    size_t each = from->slab_blocks * from->block_bytes;
    char *out = malloc(slabs * each);
    for (uint32_t i = 0; i < slabs; i++) {
        void *slab;
        rig_read(&slab, (const void *const *)from->slabs + i, sizeof slab);
        rig_read(out + i * each, slab, each);
    }
    *ret_bytes = slabs * each;
    return out;
}

struct kv_layer scene_layer(const struct scene *scene, uint32_t group, uint32_t layer)
{
    uint64_t bytes =
        kv_bytes(scene->kv_format, scene->kv_heads, scene->block_tokens, scene->head_dim);
    return (struct kv_layer){2 * layer * bytes, (2 * layer + 1) * bytes, group, scene->kv_format};
}
