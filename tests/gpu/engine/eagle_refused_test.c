/* Heads that are none for the model, or none at all, are refused by name. */
#include <string.h>

#include "tests/gpu/gpu_suites.h"
#include "tests/gpu/rig/heads.h"
#include "tests/gpu/rig/rig.h"
#include "tests/model/scratch.h"

static struct heads heads;

static void check_refused(const char *model, const char *head, const char *why)
{
    struct gpu_engine *engine = NULL;
    struct gpu_model facts;
    struct gpu_limits limits;
    struct error error = {0};
    struct gpu_options options = {
        .model = model, .draft_model = head, .tokens_max = 512, .slots_max = 64};
    ck_assert(rig_setup());
    ck_assert_int_lt(gpu_module.open(&options, &engine, &facts, &limits, &error), 0);
    ck_assert_msg(strstr(error.text, why) != NULL, "%s", error.text);
}

/* Of hidden states of another size, of fewer layers than are asked for; and one that is to be a
 * model by itself. */
START_TEST(a_head_of_another_model_is_refused)
{
    static const struct {
        const char *head, *model, *why;
    } cases[] = {
        {"llama-llama3-f32.part", "synthetic:tiny",
         "vocabulary is of 256 tokens, the model's of 512"},
        {"llama-llama3-f32.part", "tests/model/data/gemma-default-bf16",
         "states of a model 32 wide, and this one is 16"},
        {"qwen3-default-bf16.own", "tests/model/data/gemma2-default-bf16", "further back"},
        {"llama-deep-f16.default", "tests/model/data/llama-llama3-f32", "which layers it reads"},
        {"llama-llama3-f32.part", NULL, "a head that guesses for another model is none by itself"}};
    ck_assert(heads_read(cases[_i].head, &heads));
    if (cases[_i].model)
        check_refused(cases[_i].model, heads.directory, cases[_i].why);
    else
        check_refused(heads.directory, NULL, cases[_i].why);
}
END_TEST

static void token_beyond(const char *directory)
{
    const int64_t further = 1000;
    scratch_overwrite(directory, "model.safetensors", "d2t", &further, sizeof further);
}

static void token_twice(const char *directory)
{
    const int64_t further[] = {1, 0};
    scratch_overwrite(directory, "model.safetensors", "d2t", further, sizeof further);
}

static void token_least(const char *directory)
{
    const int64_t further = INT64_MIN;
    scratch_overwrite(directory, "model.safetensors", "d2t", &further, sizeof further);
}

static void layer_beyond(const char *directory)
{
    scratch_replace(directory, "config.json", "  0,\n  1,\n  1\n", "  0,\n  1,\n  2\n");
}

static void width_of_others(const char *directory)
{
    scratch_replace(directory, "config.json", "\"draft_vocab_size\"",
                    "\"target_hidden_size\": 64, \"draft_vocab_size\"");
}

static void layers_several(const char *directory)
{
    scratch_replace(directory, "config.json", "\"num_hidden_layers\": 1",
                    "\"num_hidden_layers\": 2");
}

static void form_of_others(const char *directory)
{
    scratch_replace(directory, "config.json", "\"draft_vocab_size\"",
                    "\"eagle_config\": {\"use_mtp_layernorm\": true}, \"draft_vocab_size\"");
}

static void tensor_missing(const char *directory)
{
    scratch_rename(directory, "model.safetensors", "midlayer.hidden_norm.weight", "hidden_norm");
}

START_TEST(a_head_that_is_wrong_is_refused)
{
    static const struct {
        void (*make)(const char *directory);
        const char *why;
    } cases[] = {
        {token_beyond, "d2t: element 0 names no token of 256"},
        {token_twice, "d2t: element 1 names no token of 256, or one that another has named"},
        {token_least, "d2t: element 0 names no token"},
        {layer_beyond, "layer 2 begins with, of a model with 2 layers"},
        {width_of_others, "tensor fc.weight: shape: [32, 96] is not [32, 192]"},
        {layers_several, "num_hidden_layers: 2 is not supported for a head (1 is)"},
        {form_of_others, "eagle_config.use_mtp_layernorm: true is not supported"},
        {tensor_missing, "midlayer.hidden_norm.weight"}};
    char directory[SCRATCH_PATH_MAX];
    ck_assert(heads_read("llama-llama3-f32.part", &heads));
    scratch_make(directory);
    scratch_copy(heads.directory, directory);
    cases[_i].make(directory);
    check_refused(heads.target, directory, cases[_i].why);
    scratch_remove(directory);
}
END_TEST

Suite *eagle_refused_suite(void)
{
    Suite *suite = suite_create("eagle_refused");
    TCase *tcase = tcase_create("eagle, refused");
    tcase_add_loop_test(tcase, a_head_of_another_model_is_refused, 0, 5);
    tcase_add_loop_test(tcase, a_head_that_is_wrong_is_refused, 0, 8);
    suite_add_tcase(suite, tcase);
    return suite;
}
