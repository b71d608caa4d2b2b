#include "gpu/models/generation.h"

#include <string.h>

#include "tests/model/config_text.h"
#include "tests/model/model_suites.h"

static int parse(const char *changes, const char *generation, struct model_config *ret,
                 struct error *error)
{
    char text[CONFIG_TEXT_MAX];
    config_text(changes, text);
    return model_config_parse(text, strlen(text), generation, strlen(generation), ret, error);
}

static const struct {
    const char *changes, *generation;
    uint32_t count;
    int32_t ids[4], bos;
} ends[] = {
    {"\"eos_token_id\":7", "{}", 1, {7}, -1},
    {"\"eos_token_id\":null,\"bos_token_id\":null",
     "{\"eos_token_id\":9,\"bos_token_id\":1}",
     1,
     {9},
     1},
    {"\"eos_token_id\":7,\"bos_token_id\":2", "{\"eos_token_id\":[7,3]}", 2, {7, 3}, 2},
    {"\"eos_token_id\":[5,6,5]", "{\"eos_token_id\":[3,6]}", 3, {5, 6, 3}, -1},
    {"\"bos_token_id\":-1", "{\"eos_token_id\":[]}", 0, {0}, -1},
};

START_TEST(the_end_tokens_of_both_files_add_up)
{
    struct model_config config;
    struct error error = {0};
    ck_assert_msg(parse(ends[_i].changes, ends[_i].generation, &config, &error) == 0, "%s",
                  error.text);
    ck_assert_uint_eq(config.eos_count, ends[_i].count);
    ck_assert_mem_eq(config.eos_ids, ends[_i].ids, ends[_i].count * sizeof(int32_t));
    ck_assert_int_eq(config.bos_id, ends[_i].bos);
}
END_TEST

static const struct {
    const char *generation;
    struct sampler sampler;
    uint32_t max_tokens;
} samplings[] = {
    {"{}", {0, 1, 0, 0, 1, 0, 0}, 0},
    {"{\"do_sample\":false,\"temperature\":0.7,\"top_k\":20}", {0, 1, 0, 20, 1, 0, 0}, 0},
    {"{\"do_sample\":true}", {1, 1, 0, 0, 1, 0, 0}, 0},
    {"{\"do_sample\":true,\"temperature\":0.6,\"top_p\":0.95,\"top_k\":20,\"min_p\":0.05,"
     "\"repetition_penalty\":1.05,\"max_new_tokens\":64,\"transformers_version\":\"5.17.0\"}",
     {0.6f, 0.95f, 0.05f, 20, 1.05f, 0, 0},
     64},
    {"{\"do_sample\":true,\"temperature\":null,\"top_p\":null}", {1, 1, 0, 0, 1, 0, 0}, 0},
};

START_TEST(sampling_is_greedy_unless_the_file_says_to_sample)
{
    struct model_config config;
    struct error error = {0};
    const struct sampler *wanted = &samplings[_i].sampler;
    ck_assert_msg(parse("", samplings[_i].generation, &config, &error) == 0, "%s", error.text);
    ck_assert_mem_eq(&config.sampler, wanted, sizeof *wanted); /* it has no padding */
    ck_assert_uint_eq(config.max_tokens, samplings[_i].max_tokens);
}
END_TEST

static const struct {
    const char *generation, *text;
} refusals[] = {
    {"[]", "not an object"},
    {"{\"do_sample\":1}", "do_sample: 1 is not true or false"},
    {"{\"temperature\":-1}", "temperature: -1 is not a number from 0 to 100"},
    {"{\"temperature\":\"hot\"}", "temperature: \"hot\" is not a number from 0 to 100"},
    {"{\"top_p\":0}", "top_p: 0 is not a number from 0.000001 to 1"},
    {"{\"min_p\":2}", "min_p: 2 is not a number from 0 to 1"},
    {"{\"top_k\":1.5}", "top_k: 1.5 is not a whole number from 0 to 1048576"},
    {"{\"repetition_penalty\":0}", "repetition_penalty: 0 is not a number from 0.001 to 100"},
    {"{\"max_new_tokens\":0}", "max_new_tokens: 0 is not a whole number from 1 to 16777216"},
    {"{\"eos_token_id\":300}", "eos_token_id: 300 is not a token id from 0 to 255"},
};

START_TEST(each_refusal_of_the_second_file_names_it)
{
    struct model_config config;
    struct error error = {0};
    ck_assert_int_eq(parse("", refusals[_i].generation, &config, &error), -ERR_BAD_MODEL);
    ck_assert_int_eq(strncmp(error.text, "generation_config.json: ", 24), 0);
    ck_assert_str_eq(error.text + 24, refusals[_i].text);
}
END_TEST

Suite *generation_suite(void)
{
    Suite *suite = suite_create("model generation config");
    TCase *tcase = tcase_create("generation");
    tcase_add_loop_test(tcase, the_end_tokens_of_both_files_add_up, 0,
                        sizeof(ends) / sizeof(ends[0]));
    tcase_add_loop_test(tcase, sampling_is_greedy_unless_the_file_says_to_sample, 0,
                        sizeof(samplings) / sizeof(samplings[0]));
    tcase_add_loop_test(tcase, each_refusal_of_the_second_file_names_it, 0,
                        sizeof(refusals) / sizeof(refusals[0]));
    suite_add_tcase(suite, tcase);
    return suite;
}
