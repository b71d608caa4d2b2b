/* The bits of a sequence's attention: not those of its neighbours, chunks, blocks or threads. */
#include "tests/gpu/kernels/attention.h"
#include "tests/gpu/kernels/suites.h"

#define LENGTH 530
#define HEADS 6
#define DIM 48
#define OUT_SIZE ((size_t)LENGTH * HEADS * DIM)

struct way {
    uint32_t chunk;      /* positions of a row; 0: one first row of 300, then single ones */
    uint32_t neighbours; /* rows of other slots in every step */
    uint32_t block_tokens, threads, slot;
};

static const struct way ways[] = {
    {LENGTH, 0, 32, 1, 0}, {LENGTH, 0, 32, 2, 0}, {7, 0, 32, 2, 0},
    {7, 5, 16, 2, 3},      {100, 3, 64, 1, 2},    {0, 2, 256, 2, 1},
};

static uint32_t next_length(const struct way *way, uint32_t position)
{
    uint32_t wanted = way->chunk ? way->chunk : position ? 1 : 300;
    return LENGTH - position < wanted ? LENGTH - position : wanted;
}

static void one_step(struct scene *scene, const struct attention *a, const struct way *way,
                     uint32_t position, float *ret_out)
{
    static float all[(size_t)SCENE_TOKENS_MAX * HEADS * DIM];
    uint32_t count = next_length(way, position), at = 0;
    scene->counts = (struct batch_counts){0};
    for (uint32_t slot = 0; slot <= way->neighbours; slot++) {
        if (slot == way->slot) {
            at = scene->counts.tokens;
            scene_row(scene, slot, position, count, 0);
        } else {
            scene_row(scene, slot, 0, 1 + (position + slot) % 40, 0);
        }
    }
    scene_step(scene);
    attention_run(a, scene, all);
    memcpy(ret_out + (size_t)position * HEADS * DIM, all + (size_t)at * HEADS * DIM,
           (size_t)count * HEADS * DIM * sizeof *all);
}

static void run(const struct way *way, enum dtype dtype, bool eight, float *ret_out)
{
    rig_seed(5);
    rig_threads(way->threads);
    struct scene scene = {.slots = 6,
                          .length_max = LENGTH,
                          .block_tokens = way->block_tokens,
                          .window = 350,
                          .layers = 1,
                          .kv_heads = 2,
                          .head_dim = DIM,
                          .kv_format = eight ? FORMAT_E4M3 : format_plain(dtype)};
    scene_begin(&scene);
    rig_seed(6);
    struct attention a = {.heads = HEADS,
                          .kv_heads = 2,
                          .head_dim = DIM,
                          .group = 1,
                          .dtype = dtype,
                          .normed = true,
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
    static float want[OUT_SIZE], got[OUT_SIZE];
    enum dtype dtype = _i % 2 ? DTYPE_F16 : DTYPE_F32;
    run(&ways[0], dtype, _i / 2, want);
    for (size_t i = 1; i < sizeof ways / sizeof *ways; i++) {
        run(&ways[i], dtype, _i / 2, got);
        for (size_t j = 0; j < OUT_SIZE; j++)
            ck_assert_msg(!memcmp(&want[j], &got[j], sizeof *got), "way %zu: position %zu differs",
                          i, j / HEADS / DIM);
    }
}
END_TEST

Suite *attention_bits_suite(void)
{
    Suite *suite = suite_create("kernels: attention's bits");
    TCase *tcase = tcase_create("bits");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, a_sequence_has_the_same_bits_whatever_stands_beside_it, 0, 4);
    suite_add_tcase(suite, tcase);
    return suite;
}
