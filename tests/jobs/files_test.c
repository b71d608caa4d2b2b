/* sluice job on a daemon: files of NumPy's and images in, files and pictures out. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/tensor/array_file.h"
#include "protocol/base/tensor.h"
#include "tests/client/program.h"
#include "tests/daemon/rig/spawn.h"
#include "tests/jobs/service_suites.h"

static struct spawn spawn;
static struct program program;

static void setup(void)
{
    static char state_dir[80];
    const char *const environment[] = {state_dir, NULL};
    const char *const arguments[] = {"--program", AFFINE_CPU, "--program",     RELEVANCE_CPU,
                                     "--device",  "cpu",      "--cpu-threads", "2",
                                     NULL};
    spawn_make(&spawn);
    setenv("SLUICE_SOCKET", spawn.socket, 1);
    snprintf(state_dir, sizeof(state_dir), "STATE_DIRECTORY=%s", spawn.directory);
    spawn_start(&spawn, arguments, environment);
    spawn_await_ready(&spawn);
}

static void teardown(void)
{
    kill(spawn.pid, SIGTERM);
    ck_assert_int_eq(spawn_wait(&spawn), 0);
    spawn_free(&spawn);
}

static void write_npy(const char *path, uint32_t count)
{
    char header[128];
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    memset(header, ' ', sizeof(header));
    memcpy(header, "\x93NUMPY\x01\x00\x76\x00", 10);
    int length = snprintf(header + 10, 118,
                          "{'descr': '<f4', 'fortran_order': False, 'shape': (%u,), }", count);
    header[10 + length] = ' ';
    header[127] = '\n';
    fwrite(header, 1, sizeof(header), file);
    for (uint32_t i = 0; i < count; i++) {
        float value = (float)i;
        fwrite(&value, sizeof(value), 1, file);
    }
    fclose(file);
}

static void check_npy(const char *path, uint32_t count, float a, float b)
{
    static char bytes[1 << 20];
    FILE *file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    size_t length = fread(bytes, 1, sizeof(bytes), file);
    fclose(file);
    unlink(path);
    ck_assert_uint_gt(length, count * sizeof(float));
    ck_assert_uint_eq((length - count * sizeof(float)) % 64, 0);
    uint32_t wrong = 0;
    for (uint32_t i = 0; i < count; i++) {
        float value;
        memcpy(&value, bytes + length - (count - i) * sizeof(float), sizeof(value));
        wrong += value != a * (float)i + b;
    }
    ck_assert_uint_eq(wrong, 0);
}

START_TEST(sluice_job_reads_and_writes_files_of_numpys)
{
    char in[2][96], out[2][96], option[4][256], line[512], lines[96];
    for (int i = 0; i < 2; i++) {
        snprintf(in[i], sizeof(in[i]), "%s/x%d.npy", spawn.directory, i);
        snprintf(out[i], sizeof(out[i]), "%s/y%d.npy", spawn.directory, i);
        snprintf(option[i], sizeof(option[i]), "x=%s", in[i]);
        snprintf(option[2 + i], sizeof(option[2 + i]), "y=%s", out[i]);
        write_npy(in[i], i ? 100000 : 7); /* the second by shared memory */
    }
    program_run(&program, "job", "affine", "--input", option[0], "--input", option[1], "--output",
                option[2], "--output", option[3], "--parameter", "a=2", "--parameter=b=-1.5", NULL);
    ck_assert_msg(program.status == 0, "%s", program.err_text);
    check_npy(out[0], 7, 2, -1.5f);
    check_npy(out[1], 100000, 2, -1.5f);
    snprintf(lines, sizeof(lines), "%s/lines", spawn.directory);
    FILE *file = fopen(lines, "w");
    ck_assert_ptr_nonnull(file);
    snprintf(line, sizeof(line), "{\"inputs\":{\"x\":\"%s\"},\"outputs\":{\"y\":\"%s\"}}\n", in[0],
             out[0]);
    fputs(line, file);
    fputs("{\"inputs\":{\"x\":\"/none.npy\"}}\n", file);
    snprintf(line, sizeof(line),
             "{\"inputs\":{\"x\":\"%s\"},\"outputs\":{\"y\":\"%s\"},\"parameters\":{\"b\":3}}",
             in[1], out[1]);
    fputs(line, file);
    fclose(file);
    program_run(&program, "job", "affine", "--file", lines, "--json", NULL);
    ck_assert_int_eq(program.status, 2);
    ck_assert_ptr_nonnull(strstr(program.err_text, "line 2: /none.npy: No such file or directory"));
    ck_assert_ptr_nonnull(strstr(program.out_text, "\"index\":1,\"finish_reason\":\"stop\""));
    check_npy(out[0], 7, 1, 0);
    check_npy(out[1], 100000, 1, 3);
    program_run(&program, "job", "affine", "--input", option[0], "--output", "z=/none", NULL);
    ck_assert_int_eq(program.status, 2);
    program_run(&program, "job", "nothing", "--input", option[0], NULL);
    ck_assert_int_eq(program.status, 1);
    unlink(lines);
    unlink(in[0]);
    unlink(in[1]);
}
END_TEST

/* A scene with one patch of many colours, as PNG. */
static void write_image(const char *path)
{
    enum { WIDTH = 320, HEIGHT = 200 };
    static unsigned char pixels[HEIGHT][WIDTH][3];
    struct error error;
    for (int y = 0; y < HEIGHT; y++)
        for (int x = 0; x < WIDTH; x++)
            for (int i = 0; i < 3; i++)
                pixels[y][x][i] = (unsigned char)(x > 130 && x < 190 && y > 80 && y < 120
                                                      ? (x * 31 + y * 17) * (i + 1)
                                                      : 90 + y / 20);
    ck_assert_msg(!array_write_picture(path, WIDTH, HEIGHT, pixels[0][0], &error), "%s",
                  error.text);
}

static void check_budgets(const char *path, uint64_t rows, uint64_t columns, int64_t total)
{
    sluice_array array;
    struct error error;
    void *data;
    ck_assert_msg(!array_read(path, &array, &data, &error), "%s", error.text);
    ck_assert(array.dtype == TENSOR_I32 && array.rank == 2);
    ck_assert(array.shape[0] == rows && array.shape[1] == columns);
    const int32_t *budgets = data;
    for (uint64_t i = 0; i < rows * columns; i++) {
        ck_assert(budgets[i] >= 64 && budgets[i] <= 400);
        ck_assert(i == rows * columns / 2 || budgets[i] <= budgets[rows * columns / 2]);
        total -= budgets[i];
    }
    ck_assert_int_eq(total, 0);
    free(data);
    unlink(path);
}

/* As large as the image; where the budgets are greatest, lighter. */
static void check_picture(const char *path)
{
    sluice_array array;
    struct error error;
    void *data;
    ck_assert_msg(!array_read(path, &array, &data, &error), "%s", error.text);
    ck_assert(array.rank == 3 && array.shape[0] == 200 && array.shape[1] == 320);
    const unsigned char *pixels = data, *middle = pixels + (100 * 320 + 160) * 3;
    ck_assert_int_gt(middle[0], pixels[(130 * 320 + 10) * 3] + 50);
    free(data);
    unlink(path);
}

START_TEST(sluice_job_reads_images_and_draws_budgets)
{
    char image[96], out[96], input[128], output[128], picture[128];
    snprintf(image, sizeof(image), "%s/image.png", spawn.directory);
    snprintf(out, sizeof(out), "%s/b.npy", spawn.directory);
    snprintf(picture, sizeof(picture), "%s/out.png", spawn.directory);
    snprintf(input, sizeof(input), "image=%s", image);
    snprintf(output, sizeof(output), "budgets=%s", out);
    write_image(image);
    program_run(&program, "job", "relevance", "--input", input, "--output", output, "--picture",
                picture, NULL);
    ck_assert_msg(program.status == 0, "%s", program.err_text);
    check_budgets(out, 5, 5, 4096);
    check_picture(picture);
    program_run(&program, "job", "relevance", "--input", input, "--output", output, "--parameter",
                "rows=3", "--parameter", "columns=7", "--parameter", "total=2000", NULL);
    ck_assert_msg(program.status == 0, "%s", program.err_text);
    check_budgets(out, 3, 7, 2000);
    program_run(&program, "job", "relevance", "--input", input, "--picture", picture, "--parameter",
                "total=1599", NULL);
    ck_assert_int_eq(program.status, 1);
    ck_assert_msg(strstr(program.err_text, "total is less than 64 tokens"), "%s", program.err_text);
    program_run(&program, "job", "relevance", "--input", input, "--parameter", "rows=2.5", NULL);
    ck_assert_int_ne(program.status, 0);
    program_run(&program, "job", "relevance", "--input", input, "--input", input, "--picture",
                picture, NULL);
    ck_assert_int_eq(program.status, 2);
    ck_assert(strstr(program.err_text, "--picture is of one item") && access(picture, F_OK) != 0);
    unlink(image);
}
END_TEST

START_TEST(a_line_of_results_is_whole_however_long_names_are)
{
    enum { NAME = 200, TIMES = 18 };
    char in[96], folder[512], path[4096], option[4160], strange[NAME + 1];
    memset(strange, 1, NAME); /* each of six characters in JSON */
    strange[NAME] = '\0';
    snprintf(folder, sizeof(folder), "%s/%s", spawn.directory, strange);
    ck_assert_int_eq(mkdir(folder, 0700), 0);
    int used = snprintf(path, sizeof(path), "%s", folder);
    for (int i = 0; i < TIMES; i++)
        used += snprintf(path + used, sizeof(path) - (size_t)used, "/../%s", strange);
    snprintf(option, sizeof(option), "y=%s/y.npy", path);
    snprintf(in, sizeof(in), "x=%s/x.npy", spawn.directory);
    write_npy(in + 2, 7);
    program_run(&program, "job", "affine", "--input", in, "--output", option, "--json", NULL);
    ck_assert_msg(program.status == 0, "%s", program.err_text);
    size_t length = strlen(program.out_text);
    ck_assert_uint_gt(length, 6 * NAME * TIMES);
    ck_assert_str_eq(program.out_text + length - 2, "}\n");
    check_npy(option + 2, 7, 1, 0);
    unlink(in + 2);
    rmdir(folder);
}
END_TEST

Suite *files_suite(void)
{
    Suite *suite = suite_create("files");
    TCase *tests = tcase_create("files");
    tcase_set_timeout(tests, 120);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, sluice_job_reads_and_writes_files_of_numpys);
    tcase_add_test(tests, sluice_job_reads_images_and_draws_budgets);
    tcase_add_test(tests, a_line_of_results_is_whole_however_long_names_are);
    suite_add_tcase(suite, tests);
    return suite;
}
