/* The bits of a sequence's attention: not those of its neighbours, chunks, blocks or threads. */
#include <stdio.h>

#include "tests/gpu/kernels/attention.h"
#include "tests/gpu/kernels/suites.h"

#define LENGTH 530
#define SIZE_MAX_OF 1024 /* heads * dimension */

struct way {
    uint32_t chunk;      /* positions of a row; 0: one first row of 300, then single ones */
    uint32_t neighbours; /* rows of other slots in every step */
    uint32_t block_tokens, threads, slot;
    uint32_t neighbour_most; /* positions of theirs; on CUDA up to 8 go with single ones */
    bool little;             /* scratch for few of the splits' results */
};

static const struct way ways[] = {
    {LENGTH, 0, 32, 1, 0, 40, false}, {LENGTH, 0, 32, 2, 0, 40, false},
    {7, 0, 32, 2, 0, 40, false},      {7, 5, 16, 2, 3, 40, false},
    {100, 3, 64, 1, 2, 40, false},    {0, 2, 256, 2, 1, 40, false},
    {0, 1, 32, 2, 0, 8, false},       {0, 20, 32, 2, 5, 3, false},
    {8, 17, 32, 2, 9, 1, true},       {17, 2, 32, 2, 1, 12, true},
};

/* Dimensions that CUDA has tuned kernels for, and another. */
struct shape {
    uint32_t dim, heads, kv_heads;
    enum dtype dtype;
    bool eight, sinks;
    float softcap;
    uint32_t window;
};

static const struct shape shapes[] = {
    {48, 6, 2, DTYPE_F32, false, false, 0, 350},  {48, 6, 2, DTYPE_F16, false, false, 0, 350},
    {48, 6, 2, DTYPE_F32, true, false, 0, 350},   {48, 6, 2, DTYPE_F16, true, false, 0, 350},
    {64, 8, 2, DTYPE_BF16, false, true, 0, 0},    {64, 6, 2, DTYPE_F16, false, false, 0, 350},
    {128, 8, 2, DTYPE_BF16, false, false, 0, 0},  {128, 4, 4, DTYPE_F16, false, false, 20, 70},
    {96, 6, 2, DTYPE_BF16, false, false, 0, 300}, {256, 4, 1, DTYPE_BF16, false, false, 20, 300},
};

static uint32_t next_length(const struct way *way, uint32_t position)
{
    uint32_t wanted = way->chunk ? way->chunk : position ? 1 : 300;
    return LENGTH - position < wanted ? LENGTH - position : wanted;
}

static void one_step(struct scene *scene, const struct attention *a, const struct way *way,
                     uint32_t position, float *ret_out)
{
    static float all[(size_t)SCENE_TOKENS_MAX * SIZE_MAX_OF];
    const size_t size = (size_t)a->heads * a->head_dim;
    uint32_t count = next_length(way, position), at = 0;
    scene->counts = (struct batch_counts){0};
    for (uint32_t slot = 0; slot <= way->neighbours; slot++) {
        if (slot == way->slot) {
            at = scene->counts.tokens;
            scene_row(scene, slot, position, count, 0);
        } else {
            scene_row(scene, slot, 0, 1 + (position + slot) % way->neighbour_most, 0);
        }
    }
    scene_step(scene);
    attention_run(a, scene, all);
    memcpy(ret_out + position * size, all + at * size, count * size * sizeof *all);
}

static void run(const struct way *way, const struct shape *shape, float *ret_out)
{
    rig_seed(5);
    rig_threads(way->threads);
    struct scene scene = {.slots = 24,
                          .length_max = LENGTH,
                          .block_tokens = way->block_tokens,
                          .window = shape->window ? shape->window : LENGTH,
                          .layers = 1,
                          .kv_heads = shape->kv_heads,
                          .head_dim = shape->dim,
                          .kv_format = shape->eight ? FORMAT_E4M3 : format_plain(shape->dtype)};
    scene_begin(&scene);
    rig_seed(6);
    struct attention a = {.heads = shape->heads,
                          .kv_heads = shape->kv_heads,
                          .head_dim = shape->dim,
                          .group = shape->window ? 1 : 0,
                          .dtype = shape->dtype,
                          .normed = true,
                          .softcap = shape->softcap,
                          .sinks = shape->sinks,
                          .little = way->little,
                          .invariant = true,
                          .factor = 1,
                          .same_slot = way->slot + 1,
                          .kv_format = scene.kv_format};
    attention_begin(&a);
    for (uint32_t position = 0; position < LENGTH; position += next_length(way, position))
        one_step(&scene, &a, way, position, ret_out);
    scene_end(&scene);
}

START_TEST(a_sequence_has_the_same_bits_whatever_stands_beside_it)
{
    static float want[(size_t)LENGTH * SIZE_MAX_OF], got[(size_t)LENGTH * SIZE_MAX_OF];
    const struct shape *s = &shapes[_i];
    const size_t size = (size_t)s->heads * s->dim;
    run(&ways[0], s, want);
    for (size_t i = 1; i < sizeof ways / sizeof *ways; i++) {
        run(&ways[i], s, got);
        for (size_t j = 0; j < LENGTH * size; j++)
            ck_assert_msg(!memcmp(&want[j], &got[j], sizeof *got),
                          "%u of %u heads of %u in %s, window %u, cap %g, %s keys, rows of %u beside "
                          "%u of up to %u (way %zu): position %zu, element %zu is %a, not %a",
                          s->heads, s->kv_heads, s->dim, format_info(format_plain(s->dtype)).name,
                          s->window, (double)s->softcap, s->eight ? "e4m3" : "plain", ways[i].chunk,
                          ways[i].neighbours, ways[i].neighbour_most, i, j / size, j % size,
                          (double)got[j], (double)want[j]);
    }
}
END_TEST

Suite *attention_bits_suite(void)
{
    Suite *suite = suite_create("kernels: attention's bits");
    TCase *tcase = tcase_create("bits");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, a_sequence_has_the_same_bits_whatever_stands_beside_it, 0,
                        sizeof shapes / sizeof *shapes);
    suite_add_tcase(suite, tcase);
    return suite;
}
