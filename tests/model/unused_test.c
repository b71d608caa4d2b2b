/* Tensors of a checkpoint that the config gives no place: refused by name where they would change
 * what is computed, and left alone where they say nothing. */
#include "gpu/models/unused.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/models/model.h"
#include "tests/model/model_suites.h"
#include "tests/model/scratch.h"

#define WEIGHTS "model.safetensors"
#define BIASED "tests/model/data/llama-bias-bf16"
#define MIXTURE "tests/model/data/mixtral-default-bf16"
#define EXPERT "model.layers.0.block_sparse_moe.experts.7."
#define WHOLE "tests/model/quantized/llama-gptq-sym"
#define DOWN "model.layers.0.mlp.down_proj"
#define TAKES " as config.json makes it does not take it"

static char directory[SCRATCH_PATH_MAX];

static void setup(void)
{
    scratch_make(directory);
}

static void teardown(void)
{
    scratch_remove(directory);
}

static int load(struct error *error)
{
    struct model model;
    int rc = model_load(directory, 1, 0, &model, error);
    if (rc == 0)
        model_drop(&model);
    return rc;
}

static void refused(const char *text)
{
    struct error error = {0};
    ck_assert_int_eq(load(&error), -ERR_BAD_MODEL);
    ck_assert_str_eq(error.text, text);
}

static void taken(void)
{
    struct error error = {0};
    ck_assert_msg(load(&error) == 0, "%s", error.text);
}

/* The bytes of a tensor become `byte`, but for the first `skip`. */
static void tensor_set(const char *tensor, int byte, size_t skip)
{
    size_t length;
    char *file = scratch_read(directory, WEIGHTS, &length), key[128];
    uint64_t header;
    unsigned long begin = 0, end = 0;
    memcpy(&header, file, sizeof header);
    snprintf(key, sizeof key, "\"%s\"", tensor);
    const char *at = memmem(file, length, key, strlen(key));
    ck_assert_ptr_nonnull(at);
    ck_assert_int_eq(sscanf(strstr(at, "data_offsets"), "data_offsets\":[%lu,%lu", &begin, &end),
                     2);
    memset(file + 8 + header + begin + skip, byte, end - begin - skip);
    scratch_write(directory, WEIGHTS, file, length);
    free(file);
}

/* Of each of three layers' parts. */
static const char *const biases[] = {
    "model.layers.0.mlp.gate_proj.bias", "model.layers.0.mlp.up_proj.bias",
    "model.layers.0.mlp.down_proj.bias", "model.layers.1.mlp.gate_proj.bias",
    "model.layers.1.mlp.up_proj.bias",   "model.layers.1.mlp.down_proj.bias"};

#define BIASES (sizeof biases / sizeof *biases)

START_TEST(biases_of_a_model_without_any_are_refused_unless_all_are_zeros)
{
    scratch_copy(BIASED, directory);
    taken();
    scratch_replace(directory, "config.json", "\"mlp_bias\": true", "\"mlp_bias\": false");
    refused(WEIGHTS ": tensor model.layers.0.mlp.down_proj.bias: a llama" TAKES);
    for (size_t i = 0; i < BIASES; i++)
        tensor_set(biases[i], 0, 0);
    taken();
    for (size_t skip = 1; skip < 64; skip += 31) { /* the first and the last byte are looked at */
        tensor_set(biases[5], 1, 64 - skip);
        refused(WEIGHTS ": tensor model.layers.1.mlp.down_proj.bias: a llama" TAKES);
        tensor_set(biases[5], 0, 0);
    }
    taken();
}
END_TEST

START_TEST(a_bias_of_gptq_is_refused_unless_it_is_zeros)
{
    scratch_copy(WHOLE, directory);
    scratch_rename(directory, WEIGHTS, DOWN ".g_idx", DOWN ".bias");
    refused(WEIGHTS ": tensor " DOWN ".bias: a llama" TAKES);
    tensor_set(DOWN ".bias", 0, 0);
    taken();
}
END_TEST

/* `zeros`: the tensor's values are zeros. */
static const struct rest {
    const char *model, *from, *to, *type;
    bool zeros, taken;
} rests[] = {
    /* scales and orders that the scheme has no place for */
    {WHOLE, DOWN ".g_idx", DOWN ".perm", "llama", false, false},
    {WHOLE, DOWN ".g_idx", DOWN ".perm", "llama", true, false},
    {WHOLE, DOWN ".g_idx", "model.norm_f.weight", "llama", false, false},
    {WHOLE, DOWN ".g_idx", "lm_head.bias", "llama", false, false},
    {WHOLE, DOWN ".g_idx", "lm_head.bias", "llama", true, true},
    {WHOLE, DOWN ".g_idx", "model.layers.0.weight_zero_point", "llama", true, true},
    /* what says nothing, or is of another part */
    {WHOLE, DOWN ".g_idx", "model.layers.0.inv_freq", "llama", false, true},
    {WHOLE, DOWN ".g_idx", "model.layers.0.mlp.q_scale", "llama", false, true},
    {WHOLE, DOWN ".g_idx", "model.layers.99.eh_proj.weight", "llama", false, true},
    {WHOLE, DOWN ".g_idx", "model.layers.1.eh_proj.weight", "llama", false, false},
    {WHOLE, DOWN ".g_idx", "model.layers.x.eh_proj.weight", "llama", false, false},
    {WHOLE, DOWN ".g_idx", "model.layers.99", "llama", false, false},
    {WHOLE, DOWN ".g_idx", "vision_tower.norm.weight", "llama", false, true},
    {WHOLE, DOWN ".g_idx", "lm_head_2.weight", "llama", false, true},
};

START_TEST(what_the_config_gives_no_place_is_refused_where_it_would_change_results)
{
    const struct rest *rest = &rests[_i];
    char text[256];
    scratch_copy(rest->model, directory);
    scratch_rename(directory, WEIGHTS, rest->from, rest->to);
    if (rest->zeros)
        tensor_set(rest->to, 0, 0);
    snprintf(text, sizeof text, WEIGHTS ": tensor %s: a %s" TAKES, rest->to, rest->type);
    if (rest->taken)
        taken();
    else
        refused(text);
}
END_TEST

/* The router has a row for each, and there is a matrix of each. */
START_TEST(a_mixture_has_as_many_experts_as_its_config_says)
{
    struct error error = {0};
    scratch_copy(MIXTURE, directory);
    taken();
    scratch_replace(directory, "config.json", "\"num_local_experts\": 8",
                    "\"num_local_experts\": 7");
    ck_assert_int_eq(load(&error), -ERR_BAD_MODEL);
    ck_assert_str_eq(error.text, WEIGHTS ": tensor model.layers.0.block_sparse_moe.gate.weight: shape: "
                                         "[8, 32] is not [7, 32], as config.json makes it");
    scratch_replace(directory, "config.json", "\"num_local_experts\": 7",
                    "\"num_local_experts\": 8");
    scratch_rename(directory, WEIGHTS, EXPERT "w2.weight", EXPERT "w4.weight");
    ck_assert_int_eq(load(&error), -ERR_BAD_MODEL);
    ck_assert_ptr_nonnull(strstr(error.text, EXPERT "w2.weight"));
}
END_TEST

START_TEST(a_head_beside_a_tied_embedding_is_that_embedding)
{
    scratch_copy(BIASED, directory);
    taken();
    scratch_replace(directory, "config.json", "\"model_type\"",
                    "\"tie_word_embeddings\": true, \"model_type\"");
    taken();
    scratch_rename(directory, WEIGHTS, "lm_head.weight", "lm_head.w");
    refused(WEIGHTS ": tensor lm_head.w: a llama" TAKES);
}
END_TEST

Suite *unused_suite(void)
{
    Suite *suite = suite_create("unused tensors");
    TCase *tcase = tcase_create("unused");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, biases_of_a_model_without_any_are_refused_unless_all_are_zeros);
    tcase_add_test(tcase, a_bias_of_gptq_is_refused_unless_it_is_zeros);
    tcase_add_loop_test(tcase,
                        what_the_config_gives_no_place_is_refused_where_it_would_change_results, 0,
                        (int)(sizeof rests / sizeof *rests));
    tcase_add_test(tcase, a_mixture_has_as_many_experts_as_its_config_says);
    tcase_add_test(tcase, a_head_beside_a_tied_embedding_is_that_embedding);
    suite_add_tcase(suite, tcase);
    return suite;
}
