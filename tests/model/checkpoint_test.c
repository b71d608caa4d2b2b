#include "gpu/model/checkpoint.h"

#include <stdlib.h>
#include <string.h>

#include "tests/model/model_suites.h"
#include "tests/model/scratch.h"

#define SINGLE "tests/model/data/llama-bias-bf16"
#define SHARDED "tests/model/data/llama-llama3-bf16"
#define SINGLE_DATA (8 + 3504) /* of its model.safetensors */

static struct checkpoint *open_directory(const char *directory, struct model_config *ret_config)
{
    struct error error = {0};
    struct checkpoint *checkpoint = NULL;
    ck_assert_msg(model_config_load(directory, ret_config, &error) == 0, "%s", error.text);
    ck_assert_msg(checkpoint_open(directory, ret_config, &checkpoint, &error) == 0, "%s: %s",
                  directory, error.text);
    return checkpoint;
}

START_TEST(a_single_file_gives_each_weight_with_shape_dtype_and_place)
{
    struct model_config config;
    struct checkpoint *checkpoint = open_directory(SINGLE, &config);
    ck_assert_uint_eq(checkpoint_files(checkpoint), 1);
    ck_assert_uint_eq(checkpoint_bytes(checkpoint), 152512);
    ck_assert_uint_eq(weight_elements(&config) * 2, 152512);
    const struct checkpoint_tensor *down = checkpoint_weight(checkpoint, WEIGHT_DOWN, 0);
    ck_assert_ptr_nonnull(down);
    ck_assert_int_eq(down->dtype, MODEL_BF16);
    ck_assert_uint_eq(down->shape.rank, 2);
    ck_assert_uint_eq(down->shape.rows, 32);
    ck_assert_uint_eq(down->shape.columns, 48);
    ck_assert_uint_eq(down->bytes, 32 * 48 * 2);
    ck_assert_uint_eq(down->offset, SINGLE_DATA + 32896);
    const struct checkpoint_tensor *bias = checkpoint_weight(checkpoint, WEIGHT_UP_BIAS, 0);
    ck_assert_uint_eq(bias->shape.rank, 1);
    ck_assert_uint_eq(bias->shape.rows, 48);
    ck_assert_uint_eq(bias->shape.columns, 1);
    ck_assert_uint_eq(bias->offset, SINGLE_DATA + 39136);
    ck_assert_ptr_null(checkpoint_weight(checkpoint, WEIGHT_Q_NORM, 1));
    checkpoint_close(checkpoint);
}
END_TEST

START_TEST(a_weight_read_in_pieces_is_the_file_s_bytes)
{
    struct model_config config;
    struct checkpoint *checkpoint = open_directory(SINGLE, &config);
    size_t length = 0;
    char *file = scratch_read(SINGLE, "model.safetensors", &length);
    const struct checkpoint_tensor *embed = checkpoint_weight(checkpoint, WEIGHT_EMBED, 0);
    ck_assert_uint_eq(embed->bytes, 16384);
    char *bytes = malloc(embed->bytes);
    ck_assert_ptr_nonnull(bytes);
    for (uint64_t offset = 0; offset < embed->bytes; offset += 1000) {
        uint64_t left = embed->bytes - offset;
        size_t piece = left < 1000 ? (size_t)left : 1000;
        ck_assert_int_eq(checkpoint_read(checkpoint, embed, offset, piece, bytes + offset, NULL),
                         0);
    }
    ck_assert_mem_eq(bytes, file + SINGLE_DATA + 16384, embed->bytes);
    ck_assert_int_eq(checkpoint_read(checkpoint, embed, embed->bytes, 0, bytes, NULL), 0);
    free(bytes);
    free(file);
    checkpoint_close(checkpoint);
}
END_TEST

START_TEST(shards_give_each_weight_from_the_file_that_the_index_names)
{
    struct model_config config;
    struct checkpoint *checkpoint = open_directory(SHARDED, &config);
    ck_assert(config.tied);
    ck_assert_uint_eq(checkpoint_files(checkpoint), 3);
    ck_assert_uint_eq(checkpoint_bytes(checkpoint), 84288);
    ck_assert_ptr_null(checkpoint_weight(checkpoint, WEIGHT_HEAD, 0));
    uint32_t seen = 0;
    for (int role = 0; role < WEIGHT_ROLES; role++) {
        const struct checkpoint_tensor *tensor = checkpoint_weight(checkpoint, role, 0);
        if (tensor)
            seen |= 1u << tensor->file;
    }
    ck_assert_uint_eq(seen, 7);
    checkpoint_close(checkpoint);
}
END_TEST

START_TEST(a_checkpoint_without_lm_head_is_tied)
{
    char directory[SCRATCH_PATH_MAX];
    scratch_make(directory);
    scratch_copy(SHARDED, directory);
    scratch_replace(directory, "config.json", "\"tie_word_embeddings\": true",
                    "\"tie_word_embeddings\": false");
    struct model_config config;
    struct error error = {0};
    struct checkpoint *checkpoint = NULL;
    ck_assert_int_eq(model_config_load(directory, &config, &error), 0);
    ck_assert(!config.tied);
    ck_assert_msg(checkpoint_open(directory, &config, &checkpoint, &error) == 0, "%s", error.text);
    ck_assert(config.tied);
    checkpoint_close(checkpoint);
    scratch_remove(directory);
}
END_TEST

START_TEST(a_file_cut_short_after_opening_is_an_error_of_the_read)
{
    char directory[SCRATCH_PATH_MAX];
    scratch_make(directory);
    scratch_copy(SINGLE, directory);
    struct model_config config;
    struct checkpoint *checkpoint = open_directory(directory, &config);
    scratch_truncate(directory, "model.safetensors", SINGLE_DATA + 100);
    const struct checkpoint_tensor *head = checkpoint_weight(checkpoint, WEIGHT_HEAD, 0);
    char bytes[200];
    struct error error = {0};
    ck_assert_int_eq(checkpoint_read(checkpoint, head, 0, 100, bytes, &error), 0);
    ck_assert_int_eq(checkpoint_read(checkpoint, head, 0, 200, bytes, &error), -ERR_BAD_MODEL);
    ck_assert_str_eq(error.text, "model.safetensors: ends at byte 3612, 3712 were expected");
    checkpoint_close(checkpoint);
    scratch_remove(directory);
}
END_TEST

START_TEST(every_present_weight_has_a_name_of_its_own)
{
    struct model_config config;
    struct checkpoint *checkpoint = open_directory(SINGLE, &config);
    char names[WEIGHT_ROLES][WEIGHT_NAME_MAX];
    for (int role = 0; role < WEIGHT_ROLES; role++) {
        weight_name(role, 12, names[role]);
        for (int before = 0; before < role; before++)
            ck_assert_str_ne(names[role], names[before]);
    }
    ck_assert_str_eq(names[WEIGHT_EMBED], "model.embed_tokens.weight");
    ck_assert_str_eq(names[WEIGHT_UP], "model.layers.12.mlp.up_proj.weight");
    ck_assert(weight_per_layer(WEIGHT_UP) && !weight_per_layer(WEIGHT_HEAD));
    checkpoint_close(checkpoint);
}
END_TEST

START_TEST(the_demo_model_opens)
{
    struct model_config config;
    struct checkpoint *checkpoint = open_directory("deploy/demo-model", &config);
    ck_assert_uint_eq(weight_elements(&config), 2429184);
    ck_assert_uint_eq(config.eos_count, 1);
    ck_assert_int_eq(config.eos_ids[0], 256);
    ck_assert_uint_eq(config.sampling.max_tokens, 16);
    ck_assert_float_eq(config.sampling.temperature, 0);
    checkpoint_close(checkpoint);
}
END_TEST

Suite *checkpoint_suite(void)
{
    Suite *suite = suite_create("checkpoint");
    TCase *tcase = tcase_create("checkpoint");
    tcase_add_test(tcase, a_single_file_gives_each_weight_with_shape_dtype_and_place);
    tcase_add_test(tcase, a_weight_read_in_pieces_is_the_file_s_bytes);
    tcase_add_test(tcase, shards_give_each_weight_from_the_file_that_the_index_names);
    tcase_add_test(tcase, a_checkpoint_without_lm_head_is_tied);
    tcase_add_test(tcase, a_file_cut_short_after_opening_is_an_error_of_the_read);
    tcase_add_test(tcase, every_present_weight_has_a_name_of_its_own);
    tcase_add_test(tcase, the_demo_model_opens);
    suite_add_tcase(suite, tcase);
    return suite;
}
