/* Embeddings in and out, and blocks moved. */
#include "gpu/kernels/sampling/mean_pool.h"

#include <math.h>

#include "gpu/kernels/step/copy_blocks.h"
#include "gpu/kernels/step/embed.h"
#include "tests/gpu/kernels/scene.h"
#include "tests/gpu/kernels/suites.h"

#define SIZE 700
#define LENGTH 40

START_TEST(embed_looks_up_a_row_per_token)
{
    enum dtype from = (enum dtype)(_i % 3), to = (enum dtype)(_i / 3 % 3);
    float scale = _i < 9 ? 0 : 12; /* 0 stands for 1 */
    rig_begin();
    struct scene scene = {.slots = 3, .vocab = 50, .hidden = 1};
    scene_begin(&scene);
    scene_row(&scene, 1, 5, 31, 0);
    scene_row(&scene, 0, 0, 9, 0);
    scene_step(&scene);
    struct tensor table = tensor_random(from, 1, 50 * SIZE, 1);
    struct tensor out = tensor_poison(to, scene.batch.tokens_max, SIZE);
    struct embed_args args = {
        .batch = scene.batch,
        .table = {.data = table.device, .format = format_plain(from), .n = 50, .k = SIZE},
        .out = out.device,
        .stride = out.stride,
        .out_dtype = to,
        .scale = scale};
    OK(op_embed(&args, rig_stream));
    ck_assert(tensor_untouched(&out, 40));
    tensor_read(&out);
    for (uint32_t t = 0; t < 40; t++)
        for (uint32_t i = 0; i < SIZE; i++)
            check_close((double)tensor_at(&out, t, i),
                        (double)table.host[(size_t)scene.ids[t] * SIZE + i] * (_i < 9 ? 1 : 12), to,
                        _i < 9 ? 0 : 1e-6);
    scene_end(&scene);
}
END_TEST

/* Slot 1's sequence of LENGTH states, pooled in chunks beside others; the mean as float32. */
static void pooled(uint32_t chunk, uint32_t normalize, struct tensor *states, float *ret_mean)
{
    rig_begin();
    struct scene scene = {.slots = 3, .vocab = 2, .hidden = SIZE};
    scene_begin(&scene);
    rig_seed(3);
    *states = tensor_random(DTYPE_F32, LENGTH, SIZE, 1);
    for (uint32_t position = 0, count; position < LENGTH; position += count) {
        count = LENGTH - position < chunk ? LENGTH - position : chunk;
        scene.counts = (struct batch_counts){0};
        scene_row(&scene, 1, position, count, GPU_POOL_ADD | GPU_POOL_OUT);
        scene_row(&scene, 2, 7, 3, 0); /* no pooling: its sum stays poison */
        struct batch_embed embeds[2] = {{0, 0, 1, normalize}, {0, count - 1, 0, normalize}};
        scene.counts.embeds = 2;
        scene_step(&scene);
        struct mean_pool_args args = {.batch = scene.batch,
                                      .hidden = (float *)states->device + position * states->stride,
                                      .size = SIZE,
                                      .stride = states->stride,
                                      .dtype = DTYPE_F32,
                                      .out = rig_new(NULL, 3 * SIZE * sizeof(float))};
        args.batch.embeds = rig_new(embeds, sizeof embeds);
        args.batch.embeds_max = 3;
        OK(op_mean_pool_add(&args, rig_stream));
        OK(op_mean_pool_out(&args, rig_stream));
        rig_read(ret_mean, args.out, 3 * SIZE * sizeof(float));
    }
    uint32_t untouched[SIZE];
    rig_read(untouched, scene.batch.pool + 2 * SIZE, sizeof untouched);
    for (uint32_t i = 0; i < SIZE; i++)
        ck_assert_uint_eq(untouched[i], 0xa5a5a5a5u);
    states->host = memcpy(malloc((size_t)LENGTH * states->stride * sizeof(float)), states->host,
                          (size_t)LENGTH * states->stride * sizeof(float));
    scene_end(&scene);
}

START_TEST(pooling_gives_mean_and_last_state_with_the_same_bits_in_any_chunks)
{
    static const uint32_t chunks[] = {1, 7, LENGTH};
    uint32_t normalize = (uint32_t)_i;
    float whole[3 * SIZE], got[3 * SIZE];
    struct tensor states;
    pooled(LENGTH, normalize, &states, whole);
    double length[2] = {0}, want[2][SIZE];
    for (uint32_t i = 0; i < SIZE; i++) {
        want[0][i] = 0;
        for (uint32_t p = 0; p < LENGTH; p++)
            want[0][i] += (double)tensor_at(&states, p, i) / LENGTH;
        want[1][i] = (double)tensor_at(&states, LENGTH - 1, i);
        for (uint32_t e = 0; e < 2; e++)
            length[e] += want[e][i] * want[e][i];
    }
    for (uint32_t e = 0; e < 2; e++)
        for (uint32_t i = 0; i < SIZE; i++)
            check_close((double)whole[e * SIZE + i], want[e][i] / (normalize ? sqrt(length[e]) : 1),
                        DTYPE_F32, 1e-6);
    uint32_t beyond;
    memcpy(&beyond, &whole[2 * SIZE], sizeof beyond);
    ck_assert_uint_eq(beyond, 0xa5a5a5a5u);
    free(states.host);
    for (uint32_t c = 0; c < 3; c++) {
        pooled(chunks[c], normalize, &states, got);
        ck_assert_mem_eq(got, whole, 2 * SIZE * sizeof *got);
        free(states.host);
    }
}
END_TEST

START_TEST(a_vector_of_zeros_stays_one_when_normalized)
{
    rig_begin();
    struct scene scene = {.slots = 1, .vocab = 2, .hidden = 5};
    scene_begin(&scene);
    scene_row(&scene, 0, 0, 1, 0);
    scene.counts.embeds = 1;
    scene_step(&scene);
    float zeros[5] = {0}, out[5];
    struct batch_embed embed = {0, 0, 0, 1};
    struct mean_pool_args args = {.batch = scene.batch,
                                  .hidden = rig_new(zeros, sizeof zeros),
                                  .size = 5,
                                  .stride = 5,
                                  .out = rig_new(NULL, sizeof out)};
    args.batch.embeds = rig_new(&embed, sizeof embed);
    args.batch.embeds_max = 1;
    OK(op_mean_pool_out(&args, rig_stream));
    rig_read(out, args.out, sizeof out);
    ck_assert_mem_eq(out, zeros, sizeof out);
    scene_end(&scene);
}
END_TEST

START_TEST(moves_copy_whole_blocks_and_nothing_else)
{
    rig_begin();
    struct scene scene = {.slots = 4,
                          .length_max = 64,
                          .block_tokens = 16,
                          .layers = 2,
                          .kv_heads = 2,
                          .head_dim = 8,
                          .vocab = 2,
                          .hidden = 1};
    scene_begin(&scene);
    struct gpu_move moves[3] = {{1, 2, 3}, {1, 7, 0}, {1, 1, 5}};
    scene.counts.moves = 2; /* the third is none */
    scene_step(&scene);
    struct batch_group *group = &scene.batch.groups[1];
    size_t bytes = group->block_bytes;
    void *slabs[9];
    uint32_t each = group->slab_blocks;
    rig_read(slabs, group->slabs, 9 / each * sizeof *slabs);
    unsigned char *block = malloc(bytes);
    for (uint32_t i = 0; i < 9; i++) {
        memset(block, (int)i, bytes);
        OK(cudaMemcpyAsync((char *)slabs[i / each] + i % each * bytes, block, bytes,
                           cudaMemcpyHostToDevice, rig_stream));
        rig_wait();
    }
    struct copy_blocks_args args = {.batch = scene.batch};
    args.batch.moves = rig_new(moves, sizeof moves);
    args.batch.moves_max = 3;
    OK(op_copy_blocks(&args, rig_stream));
    static const unsigned char want[9] = {7, 1, 2, 2, 4, 5, 6, 7, 8};
    for (uint32_t i = 0; i < 9; i++) {
        rig_read(block, (char *)slabs[i / each] + i % each * bytes, bytes);
        for (size_t j = 0; j < bytes; j++)
            ck_assert_uint_eq(block[j], want[i]);
    }
    free(block);
    scene_end(&scene);
}
END_TEST

Suite *pool_suite(void)
{
    Suite *suite = suite_create("kernels: embeddings and blocks");
    TCase *tcase = tcase_create("pool");
    tcase_add_loop_test(tcase, embed_looks_up_a_row_per_token, 0, 18);
    tcase_add_loop_test(tcase, pooling_gives_mean_and_last_state_with_the_same_bits_in_any_chunks,
                        0, 2);
    tcase_add_test(tcase, a_vector_of_zeros_stays_one_when_normalized);
    tcase_add_test(tcase, moves_copy_whole_blocks_and_nothing_else);
    suite_add_tcase(suite, tcase);
    return suite;
}
