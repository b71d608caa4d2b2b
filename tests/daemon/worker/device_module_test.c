#include "daemon/worker/device_module.h"

#include <stdio.h>
#include <string.h>

#include "tests/daemon/daemon_suites.h"

#define UUID "GPU-8a56a4bc-a0de-2c9f-4a5c-2d1fbc2e7a10"
#define MIG "MIG-2f0b1a5e-7f16-5a4e-9c3a-6f1f5d0c9b77"

static const struct {
    const char *gpus;
    uint32_t need;
    const char *visible, *list; /* list: NULL = refused, and then */
    const char *says;
} cases[] = {
    {"", 1, NULL, "0", NULL},
    {"", 2, NULL, "0,1", NULL},
    {"3", 1, NULL, "3", NULL},
    {"5,2", 2, NULL, "5,2", NULL},
    {" 5 , 2", 2, NULL, "5,2", NULL},
    {"5, ,2", 3, NULL, NULL, "with commas between"},
    {UUID, 1, NULL, UUID, NULL},
    {MIG, 1, "0", MIG, NULL},
    {UUID ",0", 2, NULL, UUID ",0", NULL},
    {"MIG-GPU-8a56a4bc-a0de-2c9f-4a5c-2d1fbc2e7a10/1/0", 1, NULL,
     "MIG-GPU-8a56a4bc-a0de-2c9f-4a5c-2d1fbc2e7a10/1/0", NULL},
    /* Within what others left to this process. */
    {"", 1, UUID, UUID, NULL},
    {"1", 1, "4," UUID, UUID, NULL},
    {"", 2, "6,7", "6,7", NULL},
    {"2", 1, "6,7", NULL, "leaves no number 2"},
    {"0", 1, "", NULL, "leaves no number 0"},
    {"0,1", 1, NULL, NULL, "2 given, dp * tp * pp is 1"},
    {"0", 2, NULL, NULL, "1 given, dp * tp * pp is 2"},
    {"0,0", 2, NULL, NULL, "0 stands there twice"},
    {"1000", 1, NULL, NULL, "numbers, GPU-"},
    {"-1", 1, NULL, NULL, "numbers, GPU-"},
    {"0,", 1, NULL, NULL, "numbers, GPU-"},
    {",0", 1, NULL, NULL, "numbers, GPU-"},
    {"0,,1", 2, NULL, NULL, "numbers, GPU-"},
    {"GPU-", 1, NULL, NULL, "numbers, GPU-"},
    {"GPU-xyz", 1, NULL, NULL, "numbers, GPU-"},
    {"TPU-0", 1, NULL, NULL, "numbers, GPU-"},
};

START_TEST(gpus_are_chosen_by_number_and_by_uuid)
{
    char list[DEVICE_LIST_MAX];
    struct error error;
    uint32_t count;
    int rc = device_module_visible(cases[_i].gpus, cases[_i].need, cases[_i].visible, list, &count,
                                   &error);
    if (cases[_i].list) {
        ck_assert_msg(rc == 0, "%s", error.text);
        ck_assert_str_eq(list, cases[_i].list);
        ck_assert_uint_eq(count, cases[_i].need);
    } else {
        ck_assert_int_eq(rc, -ERR_BAD_CONFIG);
        ck_assert_msg(strstr(error.text, cases[_i].says) != NULL, "%s", error.text);
    }
}
END_TEST

START_TEST(without_a_number_of_devices_the_list_says_it)
{
    char list[DEVICE_LIST_MAX];
    struct error error;
    uint32_t count;
    ck_assert_int_eq(device_module_visible("2,0,3", 0, NULL, list, &count, &error), 0);
    ck_assert_uint_eq(count, 3);
    ck_assert_str_eq(list, "2,0,3");
    ck_assert_int_eq(device_module_visible("", 0, NULL, list, &count, &error), 0);
    ck_assert_uint_eq(count, 0);
    ck_assert_str_eq(list, "");
}
END_TEST

START_TEST(a_list_that_is_too_long_is_refused)
{
    char gpus[1024], list[DEVICE_LIST_MAX];
    struct error error;
    uint32_t count;
    memset(gpus, '1', sizeof(gpus) - 1);
    gpus[sizeof(gpus) - 1] = '\0';
    ck_assert_int_eq(device_module_visible(gpus, 1, NULL, list, &count, &error), -ERR_BAD_CONFIG);
    for (size_t i = 1; i < sizeof(gpus) - 1; i += 2)
        gpus[i] = ',';
    ck_assert_int_eq(device_module_visible(gpus, 16, NULL, list, &count, &error), -ERR_BAD_CONFIG);
}
END_TEST

START_TEST(the_word_of_dtype_is_what_the_device_is_asked_for)
{
    static const char *const words[] = {
        [GPU_DTYPE_AUTO] = "auto", [GPU_DTYPE_BF16] = "bf16", [GPU_DTYPE_F16] = "f16"};
    const int numbers[1] = {0};
    struct options *options = NULL;
    struct error error;
    ck_assert_int_eq(options_defaults(&options, &error), 0);
    ck_assert_int_eq(device_module_options(options, numbers).dtype, GPU_DTYPE_AUTO);
    for (int i = 0; i < 3; i++) {
        char text[32];
        size_t length = (size_t)snprintf(text, sizeof(text), "dtype = %s\n", words[i]);
        ck_assert_int_eq(options_read_text(options, "file", text, length, &error), 0);
        ck_assert_int_eq(device_module_options(options, numbers).dtype, i);
    }
    options_free(options);
}
END_TEST

START_TEST(the_word_of_quantize_is_what_the_device_is_asked_for)
{
    const int numbers[1] = {0};
    struct options *options = NULL;
    struct error error;
    ck_assert_int_eq(options_defaults(&options, &error), 0);
    ck_assert_int_eq(device_module_options(options, numbers).quantize, GPU_QUANTIZE_NONE);
    ck_assert_int_eq(options_read_text(options, "file", "quantize = fp8\n", 15, &error), 0);
    ck_assert_int_eq(device_module_options(options, numbers).quantize, GPU_QUANTIZE_FP8);
    ck_assert_int_ne(options_read_text(options, "file", "quantize = fp4\n", 15, &error), 0);
    options_free(options);
}
END_TEST

Suite *device_suite(void)
{
    Suite *suite = suite_create("device");
    TCase *tcase = tcase_create("device");
    tcase_add_loop_test(tcase, gpus_are_chosen_by_number_and_by_uuid, 0,
                        (int)(sizeof(cases) / sizeof(cases[0])));
    tcase_add_test(tcase, without_a_number_of_devices_the_list_says_it);
    tcase_add_test(tcase, a_list_that_is_too_long_is_refused);
    tcase_add_test(tcase, the_word_of_dtype_is_what_the_device_is_asked_for);
    tcase_add_test(tcase, the_word_of_quantize_is_what_the_device_is_asked_for);
    suite_add_tcase(suite, tcase);
    return suite;
}
