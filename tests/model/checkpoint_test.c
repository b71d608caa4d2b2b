#include "gpu/models/config.h"
#include "gpu/models/model.h"

#include <stdlib.h>
#include <string.h>

#include "tests/model/model_suites.h"
#include "tests/model/scratch.h"

#define SINGLE "tests/model/data/llama-bias-bf16"
#define SHARDED "tests/model/data/llama-llama3-bf16"
#define SINGLE_DATA (8 + 3504) /* of its model.safetensors */

static struct model open_directory(const char *directory)
{
    struct error error = {0};
    struct model model;
    ck_assert_msg(model_load(directory, 1, 0, &model, &error) == 0, "%s: %s", directory, error.text);
    return model;
}

/* NULL: the model has no such tensor. */
static const struct checkpoint_tensor *find(const struct model *model, const char *name)
{
    for (uint32_t i = 0; i < model->list.tensor_count; i++) {
        if (!strcmp(model->list.tensors[i].name, name))
            return checkpoint_tensor(model->checkpoint, i);
    }
    return NULL;
}

START_TEST(a_single_file_gives_each_weight_with_shape_dtype_and_place)
{
    struct model model = open_directory(SINGLE);
    const struct checkpoint *checkpoint = model.checkpoint;
    ck_assert_uint_eq(checkpoint_files(checkpoint), 1);
    ck_assert_uint_eq(checkpoint_bytes(checkpoint), 152512);
    ck_assert_uint_eq(op_list_elements(&model.list) * 2, 152512);
    const struct checkpoint_tensor *down = find(&model, "model.layers.0.mlp.down_proj.weight");
    ck_assert_ptr_nonnull(down);
    ck_assert_int_eq(down->dtype, MODEL_BF16);
    ck_assert_uint_eq(down->shape.rank, 2);
    ck_assert_uint_eq(down->shape.rows, 32);
    ck_assert_uint_eq(down->shape.columns, 48);
    ck_assert_uint_eq(down->bytes, 32 * 48 * 2);
    ck_assert_uint_eq(down->offset, SINGLE_DATA + 32896);
    const struct checkpoint_tensor *bias = find(&model, "model.layers.0.mlp.up_proj.bias");
    ck_assert_uint_eq(bias->shape.rank, 1);
    ck_assert_uint_eq(bias->shape.rows, 48);
    ck_assert_uint_eq(bias->shape.columns, 1);
    ck_assert_uint_eq(bias->offset, SINGLE_DATA + 39136);
    ck_assert_ptr_null(find(&model, "model.layers.1.self_attn.q_norm.weight"));
    model_drop(&model);
}
END_TEST

START_TEST(a_weight_read_in_pieces_is_the_file_s_bytes)
{
    struct model model = open_directory(SINGLE);
    const struct checkpoint *checkpoint = model.checkpoint;
    size_t length = 0;
    char *file = scratch_read(SINGLE, "model.safetensors", &length);
    const struct checkpoint_tensor *embed = find(&model, "model.embed_tokens.weight");
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
    model_drop(&model);
}
END_TEST

START_TEST(shards_give_each_weight_from_the_file_that_the_index_names)
{
    struct model model = open_directory(SHARDED);
    const struct checkpoint *checkpoint = model.checkpoint;
    ck_assert(model.config.tied);
    ck_assert_uint_eq(checkpoint_files(checkpoint), 3);
    ck_assert_uint_eq(checkpoint_bytes(checkpoint), 84288);
    ck_assert_ptr_null(find(&model, "lm_head.weight"));
    uint32_t seen = 0;
    for (uint32_t i = 0; i < model.list.tensor_count; i++)
        seen |= 1u << checkpoint_tensor(checkpoint, i)->file;
    ck_assert_uint_eq(seen, 7);
    model_drop(&model);
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
    ck_assert_int_eq(model_config_load(directory, &config, NULL), 0);
    ck_assert(!config.tied);
    struct model model = open_directory(directory);
    ck_assert(model.config.tied);
    model_drop(&model);
    scratch_remove(directory);
}
END_TEST

START_TEST(a_file_cut_short_after_opening_is_an_error_of_the_read)
{
    char directory[SCRATCH_PATH_MAX];
    scratch_make(directory);
    scratch_copy(SINGLE, directory);
    struct model model = open_directory(directory);
    const struct checkpoint *checkpoint = model.checkpoint;
    scratch_truncate(directory, "model.safetensors", SINGLE_DATA + 100);
    const struct checkpoint_tensor *head = find(&model, "lm_head.weight");
    char bytes[200];
    struct error error = {0};
    ck_assert_int_eq(checkpoint_read(checkpoint, head, 0, 100, bytes, &error), 0);
    ck_assert_int_eq(checkpoint_read(checkpoint, head, 0, 200, bytes, &error), -ERR_BAD_MODEL);
    ck_assert_str_eq(error.text, "model.safetensors: ends at byte 3612, 3712 were expected");
    model_drop(&model);
    scratch_remove(directory);
}
END_TEST

START_TEST(every_tensor_has_a_name_and_a_number_of_its_own)
{
    struct model model = open_directory(SINGLE);
    const struct list_tensor *tensors = model.list.tensors;
    for (uint32_t i = 0; i < model.list.tensor_count; i++) {
        for (uint32_t j = 0; j < i; j++) {
            ck_assert_str_ne(tensors[i].name, tensors[j].name);
            ck_assert_uint_ne(tensors[i].number, tensors[j].number);
        }
    }
    ck_assert_str_eq(tensors[0].name, "model.embed_tokens.weight");
    ck_assert_ptr_nonnull(find(&model, "model.layers.1.mlp.up_proj.weight"));
    model_drop(&model);
}
END_TEST

START_TEST(the_demo_model_opens)
{
    struct model model = open_directory("deploy/demo-model");
    ck_assert_uint_eq(op_list_elements(&model.list), 2231040);
    ck_assert_uint_eq(model.config.eos_count, 1);
    ck_assert_int_eq(model.config.eos_ids[0], 256);
    ck_assert_uint_eq(model.config.max_tokens, 256);
    ck_assert_float_eq(model.config.sampler.temperature, 0);
    model_drop(&model);
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
    tcase_add_test(tcase, every_tensor_has_a_name_and_a_number_of_its_own);
    tcase_add_test(tcase, the_demo_model_opens);
    suite_add_tcase(suite, tcase);
    return suite;
}
