/* What the CUDA device computes in, by option and by what a model's matrices come in. No GPU. */
#include "gpu/gpu.h"
#include "tests/gpu/gpu_suites.h"
#include "tests/gpu/rig/reference.h"

static const struct {
    const char *model, *own;
} models[] = {
    {REFERENCE_DATA "/llama-default-bf16", "bf16"},
    {REFERENCE_DATA "/mistral-full-f16", "f16"},
    {REFERENCE_DATA "/llama-llama3-f32", "bf16"},
    {"synthetic:tiny", "bf16"},
    {"synthetic:llama-3.1-8b", "bf16"},
};

START_TEST(a_model_is_computed_in_its_own_dtype_or_in_what_is_asked_for)
{
    static const char *const asked[] = {[GPU_DTYPE_BF16] = "bf16", [GPU_DTYPE_F16] = "f16"};
    for (int dtype = GPU_DTYPE_AUTO; dtype <= GPU_DTYPE_F16; dtype++) {
        struct gpu_options options = {.model = models[_i].model, .dtype = (enum gpu_dtype)dtype};
        struct gpu_model model;
        struct error error;
        ck_assert_int_eq(gpu_module.check(&options, &model, &error), 0);
        ck_assert_str_eq(model.dtype, dtype ? asked[dtype] : models[_i].own);
    }
}
END_TEST

Suite *dtype_suite(void)
{
    Suite *suite = suite_create("dtype");
    TCase *tcase = tcase_create("dtype");
    tcase_add_loop_test(tcase, a_model_is_computed_in_its_own_dtype_or_in_what_is_asked_for, 0,
                        sizeof models / sizeof *models);
    suite_add_tcase(suite, tcase);
    return suite;
}
