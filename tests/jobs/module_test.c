/* Which modules are loaded, and why others are not. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gpu/jobs/elf.h"
#include "gpu/jobs/module.h"
#include "gpu/jobs/shape.h"
#include "tests/jobs/bench.h"
#include "tests/runner.h"

/* ---- files -------------------------------------------------------------------------------------
 */

static char folder[64];

static void make_folder(void)
{
    snprintf(folder, sizeof(folder), "/tmp/sluice-module-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void drop_folder(void)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    ck_assert_int_eq(system(command), 0);
}

static unsigned char *read_file(const char *path, size_t *ret_length)
{
    FILE *file = fopen(path, "rb");
    ck_assert_ptr_nonnull(file);
    ck_assert(!fseek(file, 0, SEEK_END));
    *ret_length = (size_t)ftell(file);
    rewind(file);
    unsigned char *bytes = malloc(*ret_length);
    ck_assert_uint_eq(fread(bytes, 1, *ret_length, file), *ret_length);
    fclose(file);
    return bytes;
}

static const char *put_file(const char *name, const void *bytes, size_t length, mode_t mode)
{
    static char path[128];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(bytes, 1, length, file), length);
    fclose(file);
    ck_assert_int_eq(chmod(path, mode), 0);
    return path;
}

static void refused(const char *path, const char *why)
{
    struct program program;
    struct error error;
    ck_assert_int_eq(module_load(path, "cpu", &program, &error), -ERR_BAD_CONFIG);
    ck_assert_msg(strstr(error.text, why) && strstr(error.text, path), "%s", error.text);
}

START_TEST(test_ours_is_loaded_and_says_what_it_is)
{
    struct program program;
    struct error error;
    ck_assert_msg(!module_load(AFFINE_CPU, "cpu", &program, &error), "%s", error.text);
    ck_assert_str_eq(program.name, "affine");
    ck_assert(program.input_count == 1 && program.parameter_count == 3 && program.cut_rows == 64);
    ck_assert_str_eq(program.parameters[1].name, "b");
}
END_TEST

START_TEST(test_who_may_write_to_it_and_its_folder)
{
    size_t length;
    unsigned char *bytes = read_file(AFFINE_CPU, &length);
    make_folder();
    refused(put_file("a.so", bytes, length, 0666), "written to by others");
    refused(put_file("a.so", bytes, length, 0664), "written to by others");
    refused(put_file("empty.so", bytes, 0, 0644), "empty");
    refused("/dev/null", "no regular file");
    refused("/nowhere/a.so", "No such file");
    const char *path = put_file("a.so", bytes, length, 0644);
    ck_assert_int_eq(chmod(folder, 0777), 0);
    refused(path, "its folder can be written to by others");
    ck_assert_int_eq(chmod(folder, 0700), 0);
    if (geteuid() == 0) {
        ck_assert_int_eq(chown(path, 12345, 12345), 0);
        refused(path, "belongs to uid 12345");
        ck_assert_int_eq(chown(path, 0, 0), 0);
    }
    struct program program, other;
    struct error error;
    ck_assert_msg(!module_load(path, "cpu", &program, &error), "%s", error.text);
    /* A second file is a second module, also where the first one's descriptor was. */
    ck_assert_msg(!module_load(AFFINE_CPU, "cpu", &other, &error), "%s", error.text);
    ck_assert(program.enqueue != other.enqueue);
    free(bytes);
    drop_folder();
}
END_TEST

START_TEST(test_a_module_needs_a_body_for_the_device)
{
    refused(FAULTY_CPU, "no body for the device cpu");
}
END_TEST

/* ---- what it calls -----------------------------------------------------------------------------
 */

static const struct {
    const char *source;
    const char *flags; /* "-c": it is not linked */
    const char *why;
    int cuda;
} modules[] = {
    {"int cudaDeviceSynchronize(void); int f(void) { return cudaDeviceSynchronize(); }", "",
     "cudaDeviceSynchronize, which a program may not: it waits", 1},
    {"int cudaMemcpy_ptds(void); int f(void) { return cudaMemcpy_ptds(); }", "", "it waits", 1},
    {"int cudaMalloc(void); int f(void) { return cudaMalloc(); }", "", "from the allocator", 1},
    {"int cudaFree(void); int f(void) { return cudaFree(); }", "", "goes with the batch", 1},
    {"int cudaMemsetAsync(void); int f(void) { return cudaMemsetAsync(); }", "",
     "--default-stream per-thread", 1},
    {"int cuLaunchKernel(void); int f(void) { return cuLaunchKernel(); }", "", "CUDA's driver", 1},
    {"void *dlsym(void *, const char *); void *f(void) { return dlsym(0, \"a\"); }", "",
     "cannot be looked at", 0},
    {"int fork(void); int f(void) { return fork(); }", "", "does not survive", 0},
    {"int cudaGetDevice(int *); int f(void) { return cudaGetDevice(0); }", "",
     "is for the CPU device", 0},
    {"int nowhere_at_all(void); int f(void) { return nowhere_at_all(); }", "",
     "undefined symbol: nowhere_at_all", 0},
    {"const char mark[] = \"libcudart_static_0123\"; void *dlsym(void *, const char *); "
     "void *f(void) { return dlsym(0, mark); }",
     "", "-cudart shared", 1},
    {"__attribute__((section(\".nv_fatbin\"))) const int code = 1;", "", "does not need libcudart",
     1},
    {"int f(void) { return 0; }", "-c", "not a shared object", 0},
};

START_TEST(test_what_a_program_may_not_call_is_refused_by_name)
{
    char command[600];
    struct program program;
    struct error error;
    make_folder();
    snprintf(command, sizeof(command), "printf '%%s' '%s' | " COMPILER
             " -x c -shared -fPIC -w -o %s/m.so - 2>/dev/null",
             modules[_i].source, folder);
    if (modules[_i].flags[0])
        snprintf(command, sizeof(command), "printf '%%s' '%s' | " COMPILER " -x c -c -o %s/m.so -",
                 modules[_i].source, folder);
    ck_assert_int_eq(system(command), 0);
    snprintf(command, sizeof(command), "%s/m.so", folder);
    ck_assert_int_eq(
        module_load(command, modules[_i].cuda ? "cuda" : "cpu", &program, &error), -ERR_BAD_CONFIG);
    ck_assert_msg(strstr(error.text, modules[_i].why) != NULL, "%s", error.text);
    drop_folder();
}
END_TEST

/* Whatever the bytes are, they are read within their bounds: the sanitizers look on. */
START_TEST(test_broken_elf_files_are_refused_or_read_and_nothing_worse)
{
    size_t length;
    unsigned char *bytes = read_file(AFFINE_CPU, &length);
    unsigned char *own = malloc(length); /* of exactly this size each time */
    uint64_t state = 7;
    struct error error;
    uint32_t refusals = 0;
    ck_assert_int_eq(elf_check(bytes, length, 0, &error), 0);
    for (size_t cut = 0; cut < length; cut += cut < 256 ? 1 : 997) {
        unsigned char *part = malloc(cut ? cut : 1);
        memcpy(part, bytes, cut);
        ck_assert_int_ne(elf_check(part, cut, 0, &error), 0);
        free(part);
    }
    for (int i = 0; i < 3000; i++) {
        memcpy(own, bytes, length);
        size_t table = length - length / 4; /* header and table of sections are where it hurts */
        for (uint32_t j = 0; j < 1 + bench_draw(&state, 4); j++) {
            size_t at = bench_draw(&state, 2) ? bench_draw(&state, 64)
                                              : table + bench_draw(&state, (uint32_t)(length / 4));
            own[at] = (unsigned char)bench_draw(&state, 256);
        }
        refusals += elf_check(own, length, i & 1, &error) != 0;
    }
    ck_assert_uint_gt(refusals, 100);
    free(own);
    free(bytes);
}
END_TEST

/* ---- what it says of itself --------------------------------------------------------------------
 */

static const struct sluice_size bad_size[] = {{"n", 0, 5}};
static const struct sluice_size no_size[] = {{"n", 6, 5}};
static const struct sluice_tensor bad_dtype[] = {{"x", 99, 1, {SLUICE_SIZE(0)}}};
static const struct sluice_tensor bad_rank[] = {{"x", SLUICE_F32, 7, {1}}};
static const struct sluice_tensor bad_shape[] = {{"x", SLUICE_F32, 1, {SLUICE_SIZE(1)}}};
static const struct sluice_tensor zero[] = {{"x", SLUICE_F32, 1, {0}}};
static const struct sluice_tensor huge[] = {{"x", SLUICE_F32, 2, {1 << 30, 1 << 30}}};
static const struct sluice_tensor fixed[] = {{"x", SLUICE_F32, 1, {4}}};
static const struct sluice_tensor second[] = {{"x", SLUICE_F32, 2, {4, SLUICE_SIZE(0)}}};
static const struct sluice_parameter bad_bounds[] = {
    {"a", "", SLUICE_NUMBER, 0, {.number = 5}, {.number = 0}, {.number = 1}}};
static const struct sluice_parameter bad_type[] = {{"a", "", 9, 0, {0}, {0}, {0}}};
static const struct sluice_parameter twice[] = {
    {"a", "", SLUICE_SWITCH, 0, {0}, {0}, {0}}, {"a", "", SLUICE_SWITCH, 0, {0}, {0}, {0}}};

static const struct sluice_parameter wide_size[] = {
    {"n", "", SLUICE_INTEGER, 0, {.integer = 5}, {.integer = 0}, {.integer = 6}}};
static const struct sluice_parameter number_size[] = {
    {"n", "", SLUICE_NUMBER, 0, {.number = 5}, {.number = 5}, {.number = 6}}};
static const struct sluice_parameter own_size[] = {
    {"n", "", SLUICE_INTEGER, 0, {.integer = 5}, {.integer = 5}, {.integer = 6}}};

static void spoil(struct sluice_program *said, int number)
{
    switch (number) {
    case 0: said->abi = SLUICE_PROGRAM_ABI + 1; break;
    case 1: said->name = NULL; break;
    case 2: said->name = "Upper"; break;
    case 3: said->name = ""; break;
    case 4: said->summary = "two\nlines"; break;
    case 5: said->summary = "\xff"; break;
    case 6: said->input_count = 0; break;
    case 7: said->input_count = 9; break;
    case 8: said->inputs = NULL; break;
    case 9: said->outputs = NULL; break;
    case 10: said->size_count = 5; break;
    case 11: said->sizes = NULL; break;
    case 12: said->sizes = bad_size; break;
    case 13: said->sizes = no_size; break;
    case 14: said->inputs = bad_dtype; break;
    case 15: said->inputs = bad_rank; break;
    case 16: said->inputs = bad_shape; break;
    case 17: said->inputs = zero; break;
    case 18: said->inputs = huge; break;
    case 19: said->inputs = fixed; break; /* n is in no input */
    case 20: said->parameter_count = 17; break;
    case 21: said->parameters = NULL; break;
    case 22: said->parameters = bad_bounds; said->parameter_count = 1; break;
    case 23: said->parameters = bad_type; said->parameter_count = 1; break;
    case 24: said->parameters = twice; break;
    case 25: said->stream_count = 5; break;
    case 26: said->event_count = 9; break;
    case 27: said->flags = 2; break;
    case 28: said->enqueue = NULL; break;
    case 29: said->batch_scratch = UINT64_MAX; break;
    case 30: said->cut_rows = 8; said->inputs = second; break;
    case 31: said->cut_rows = 8; said->outputs = fixed; break;
    case 32: said->cut_rows = UINT64_MAX; break;
    case 33:
    case 34:
        said->cut_rows = 0;
        said->inputs = fixed;
        said->parameters = number == 33 ? wide_size : number_size;
        said->parameter_count = 1;
        break;
    }
}

START_TEST(test_what_it_says_of_itself_is_checked)
{
    struct sluice_program said = bench_staged;
    struct program program = {.name = "as it was"};
    struct error error = {.code = 0};
    spoil(&said, _i);
    ck_assert_int_eq(program_read(&said, &program, &error), -ERR_BAD_CONFIG);
    ck_assert(error.text[0] && !strcmp(program.name, "as it was"));
}
END_TEST

static const char *too_many(const struct sluice_item *item)
{
    return item->sizes[0] > 5 ? "six are too many" : NULL;
}

START_TEST(test_a_size_may_be_a_parameter_and_items_may_be_refused)
{
    struct sluice_program said = bench_staged;
    struct sluice_item item = {.values = {{.integer = 6}}};
    struct program program;
    struct error error;
    said.cut_rows = 0;
    said.inputs = fixed;
    said.parameters = own_size;
    said.parameter_count = 1;
    ck_assert_msg(!program_read(&said, &program, &error), "%s", error.text);
    ck_assert_int_eq(program.sizes[0].parameter, 0);
    shape_values(&program, item.values, item.sizes);
    ck_assert_uint_eq(item.sizes[0], 6);
    ck_assert_int_eq(shape_check(&program, &item, &error), 0);
    said.check = too_many;
    ck_assert_msg(!program_read(&said, &program, &error), "%s", error.text);
    ck_assert_int_eq(shape_check(&program, &item, &error), -ERR_BAD_VALUE);
    ck_assert_str_eq(error.text, "program staged: six are too many");
    /* An input's dimension is that, whatever parameters are named. */
    said.inputs = bench_staged.inputs;
    ck_assert_msg(!program_read(&said, &program, &error), "%s", error.text);
    ck_assert_int_eq(program.sizes[0].parameter, -1);
}
END_TEST

START_TEST(test_modules_of_an_older_interface_are_loaded_and_of_a_newer_one_refused)
{
    struct sluice_program said = bench_staged;
    struct program program;
    struct error error;
    char why[64];
    said.check = too_many;
    for (uint32_t abi = 0; abi < SLUICE_PROGRAM_ABI + 2; abi++) {
        said.abi = abi;
        int rc = program_read(&said, &program, &error);
        if (abi >= 1 && abi <= SLUICE_PROGRAM_ABI) {
            ck_assert_msg(rc == 0, "%s", error.text);
            ck_assert_int_eq(program.check != NULL, abi > 1); /* in 1 something else is there */
            continue;
        }
        snprintf(why, sizeof(why), "interface version %u, this daemon knows 1 to %u", abi,
                 SLUICE_PROGRAM_ABI);
        ck_assert_int_eq(rc, -ERR_BAD_CONFIG);
        ck_assert_msg(strstr(error.text, why) != NULL, "%s", error.text);
    }
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("module");
    TCase *tests = tcase_create("module");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, test_ours_is_loaded_and_says_what_it_is);
    tcase_add_test(tests, test_who_may_write_to_it_and_its_folder);
    tcase_add_test(tests, test_a_module_needs_a_body_for_the_device);
    tcase_add_loop_test(tests, test_what_a_program_may_not_call_is_refused_by_name, 0,
                        sizeof(modules) / sizeof(modules[0]));
    tcase_add_test(tests, test_broken_elf_files_are_refused_or_read_and_nothing_worse);
    tcase_add_loop_test(tests, test_what_it_says_of_itself_is_checked, 0, 35);
    tcase_add_test(tests, test_a_size_may_be_a_parameter_and_items_may_be_refused);
    tcase_add_test(tests, test_modules_of_an_older_interface_are_loaded_and_of_a_newer_one_refused);
    suite_add_tcase(suite, tests);
    return suite;
}
