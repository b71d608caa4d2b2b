/* How config.json's rope becomes the frequencies that heads are rotated by. */
#include "gpu/models/base/rope_config.h"
#include "gpu/models/config.h"

#include "tests/model/config_text.h"
#include "tests/model/model_suites.h"

/* Both spellings of the same rope, and corners of where theta stands. */
static const struct {
    const char *old, *new;
    enum model_rope_kind kind;
    uint32_t context;
} spellings[] = {
    {"", "\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":10000}", MODEL_ROPE_DEFAULT,
     512},
    {"\"rope_theta\":500000,\"rope_scaling\":null",
     "\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":500000}", MODEL_ROPE_DEFAULT,
     512},
    {"\"rope_theta\":5000", "\"rope_theta\":5000,\"rope_parameters\":{\"rope_type\":\"default\"}",
     MODEL_ROPE_DEFAULT, 512},
    {"\"rope_theta\":5000", "\"rope_theta\":77,\"rope_parameters\":{\"rope_theta\":5000}",
     MODEL_ROPE_DEFAULT, 512},
    {"\"rope_scaling\":{\"type\":\"linear\",\"factor\":4}",
     "\"rope_parameters\":{\"rope_type\":\"linear\",\"rope_theta\":10000.0,\"factor\":4.0}",
     MODEL_ROPE_LINEAR, 512},
    {"\"rope_theta\":500000,\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,"
     "\"low_freq_factor\":1,\"high_freq_factor\":4,\"original_max_position_embeddings\":64}",
     "\"rope_parameters\":{\"rope_type\":\"llama3\",\"rope_theta\":500000,\"factor\":8,"
     "\"low_freq_factor\":1,\"high_freq_factor\":4,\"original_max_position_embeddings\":64}",
     MODEL_ROPE_LLAMA3, 512},
    {"\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":8,\"original_max_position_embeddings\":"
     "100}",
     "\"max_position_embeddings\":100,\"rope_parameters\":{\"rope_type\":\"yarn\",\"factor\":8}",
     MODEL_ROPE_YARN, 800},
    {"\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":8,\"original_max_position_embeddings\":"
     "64}",
     "\"rope_parameters\":{\"rope_type\":\"yarn\",\"factor\":null,"
     "\"original_max_position_embeddings\":64}",
     MODEL_ROPE_YARN, 512},
};

START_TEST(both_spellings_of_rope_give_the_same_frequencies)
{
    struct model_config old, new;
    struct error error = {0};
    ck_assert_msg(config_with(spellings[_i].old, &old, &error) == 0, "%s", error.text);
    ck_assert_msg(config_with(spellings[_i].new, &new, &error) == 0, "%s", error.text);
    ck_assert_int_eq(old.rope.kind, spellings[_i].kind);
    ck_assert_mem_eq(&old.rope, &new.rope, sizeof(old.rope));
    ck_assert_uint_eq(old.context_max, spellings[_i].context);
    ck_assert_uint_eq(new.context_max, spellings[_i].context);
}
END_TEST

START_TEST(rope_scaling_wins_over_rope_parameters)
{
    struct model_config both, alone;
    ck_assert_int_eq(config_with("\"rope_scaling\":{\"type\":\"linear\",\"factor\":4},"
                                 "\"rope_parameters\":{\"rope_type\":\"default\"}",
                                 &both, NULL),
                     0);
    ck_assert_int_eq(
        config_with("\"rope_scaling\":{\"type\":\"linear\",\"factor\":4}", &alone, NULL), 0);
    ck_assert_mem_eq(&both.rope, &alone.rope, sizeof(both.rope));
}
END_TEST

/* What a context of so many tokens is rotated by; head_dim is 8. */
static const struct {
    const char *changes;
    uint32_t context_max;
    bool is_long;
    double slowest, attention; /* of the last pair that is rotated */
} longropes[] = {
    {LONGROPE("64", "[1,1,1,2]", "[1,1,1,4]"), 0, true, 0.001 / 4, 1.224744871391589},
    {LONGROPE("64", "[1,1,1,2]", "[1,1,1,4]"), 65, true, 0.001 / 4, 1.224744871391589},
    {LONGROPE("64", "[1,1,1,2]", "[1,1,1,4]"), 64, false, 0.001 / 2, 1.224744871391589},
    {LONGROPE("512", "[1,1,1,2]", "[1,1,1,4]"), 0, false, 0.001 / 2, 1},
    {LONGROPE("512", "[1,1,1,2]", "[1,1,1,4]"), 5000, false, 0.001 / 2, 1},
    {LONGROPE("64", "[1,1,2]", "[1,1,4]") ",\"partial_rotary_factor\":0.75", 0, true,
     0.0021544346900318843 / 4, 1.224744871391589},
    {"\"rope_scaling\":{\"rope_type\":\"longrope\",\"original_max_position_embeddings\":8,"
     "\"factor\":"
     "8,\"short_factor\":[1,1,1,2],\"long_factor\":[1,1,1,4]}",
     0, true, 0.001 / 4, 1.4142135623730951},
    {PHI3 ",\"original_max_position_embeddings\":4,\"rope_parameters\":{\"type\":\"su\","
          "\"attention_factor\":1.5,\"original_max_position_embeddings\":1000,"
          "\"short_factor\":[1,1,1,2],\"long_factor\":[1,1,1,4]}",
     0, true, 0.001 / 4, 1.5},
    {PHI3, 0, false, 0.001, 1},
};

START_TEST(longrope_is_by_the_longest_sequence_there_can_be)
{
    struct model_config config;
    struct error error = {0};
    ck_assert_msg(config_with(longropes[_i].changes, &config, &error) == 0, "%s", error.text);
    ck_assert_int_eq(rope_choose(&config, longropes[_i].context_max), longropes[_i].is_long);
    double slowest = (double)config.rope.inverse_frequency[config.rotary / 2 - 1];
    ck_assert_double_eq_tol(slowest, longropes[_i].slowest, 1e-9);
    ck_assert_double_eq_tol((double)config.rope.attention, longropes[_i].attention, 1e-6);
    for (uint32_t i = config.rotary / 2; i < config.rope.pairs; i++)
        ck_assert(config.rope.inverse_frequency[i] == 0);
}
END_TEST

Suite *rope_suite(void)
{
    Suite *suite = suite_create("model rope");
    TCase *tcase = tcase_create("rope");
    tcase_add_loop_test(tcase, both_spellings_of_rope_give_the_same_frequencies, 0,
                        sizeof(spellings) / sizeof(spellings[0]));
    tcase_add_test(tcase, rope_scaling_wins_over_rope_parameters);
    tcase_add_loop_test(tcase, longrope_is_by_the_longest_sequence_there_can_be, 0,
                        sizeof(longropes) / sizeof(longropes[0]));
    suite_add_tcase(suite, tcase);
    return suite;
}
