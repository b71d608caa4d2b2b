/* What the program tells of a daemon and does to it, against the stub; its help, and the model of a
 * pipeline. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "protocol/base/json.h"
#include "tests/client/command_suites.h"
#include "tests/client/program.h"
#include "tests/client/stub.h"

static struct stub *stub;
static struct program program;

static void start(const struct stub_options *options)
{
    const char *path;
    stub = stub_start(options, &path);
    setenv("SLUICE_SOCKET", path, 1);
}

static void setup(void)
{
    start(&(struct stub_options){0});
}

static void teardown(void)
{
    stub_stop(stub);
}

static void restart(const struct stub_options *options)
{
    teardown();
    start(options);
}

static json *parse_line(const char *text)
{
    static const struct json_bounds bounds = {.bytes_max = 1 << 20, .depth_max = 16};
    struct error error = {0};
    json *document = NULL;
    ck_assert_msg(json_parse(text, strcspn(text, "\n"), bounds, &document, &error) == 0, "%s: %s",
                  error.text, text);
    return document;
}

START_TEST(questions_are_answered_as_tables_and_as_json)
{
    program_run(&program, "health", NULL);
    ck_assert_int_eq(program.status, 0);
    ck_assert_ptr_nonnull(strstr(program.out_text, "status"));
    program_run(&program, "health", "--json", NULL);
    ck_assert_str_eq(program.out_text, "{\"status\":\"ok\",\"ready\":true}\n");
    program_run(&program, "model", NULL);
    ck_assert_ptr_nonnull(strstr(program.out_text, "synthetic:null"));
    program_run(&program, "stats", NULL);
    ck_assert_ptr_nonnull(strstr(program.out_text, "requests_total"));
    ck_assert_ptr_nonnull(strstr(program.out_text, "p99.9"));
    ck_assert_ptr_nonnull(strstr(program.out_text, "1.500"));
    static const char *const lines[] = {"up for ", "now ",         "requests ", "ended ",
                                        "tokens ", "first token ", "between ",  "end to end ",
                                        "KV ",     "cache ",       "memory ",   "formats ", ""};
    const char *line = program.out_text;
    for (size_t i = 0; i < 13; i++, line = strchr(line, '\n') + 1) /* those that matter */
        ck_assert_msg(strncmp(line, lines[i], strlen(lines[i])) == 0, "line %zu: %s", i, line);
    ck_assert(strncmp(line - 1, "\n", 1) == 0 && line[-2] == '\n');
    ck_assert_ptr_nonnull(strstr(program.out_text, "requests       3 accepted"));
    ck_assert_ptr_nonnull(strstr(
        program.out_text, "formats        e4m3 3 MiB, bf16 1 MiB, KV fp8, 132 bytes a token\n\n"));
    json *stats = NULL;
    program_run(&program, "stats", "--json", NULL);
    stats = parse_line(program.out_text);
    ck_assert_int_eq((int)json_number(json_get(json_get(stats, "counters"), "requests_total")), 3);
    json_free(stats);
}
END_TEST

START_TEST(a_daemon_that_loads_is_not_healthy_yet)
{
    restart(&(struct stub_options){.loading = true});
    program_run(&program, "health", NULL);
    ck_assert_int_eq(program.status, 4);
}
END_TEST

START_TEST(a_request_is_cancelled_by_its_number)
{
    const char *const arguments[] = {"generate", "--tokens", "250,1", NULL};
    static struct program other;
    char number[16];
    program_start(&program, -1, arguments);
    while (atomic_load(&stub_counts(stub)->accepted) < 1)
        usleep(1000);
    sprintf(number, "%d", STUB_REQUEST_FIRST);
    program_run(&other, "cancel", number, NULL);
    ck_assert_int_eq(other.status, 0);
    program_finish(&program);
    ck_assert_int_eq(program.status, 1);
    ck_assert_ptr_nonnull(strstr(program.err_text, "cancelled"));
}
END_TEST

START_TEST(draining_and_resuming)
{
    program_run(&program, "drain", NULL);
    ck_assert_int_eq(program.status, 0);
    program_run(&program, "generate", "--tokens", "1", NULL);
    ck_assert_int_eq(program.status, 4);
    ck_assert_ptr_nonnull(strstr(program.err_text, "draining"));
    program_run(&program, "resume", NULL);
    ck_assert_int_eq(program.status, 0);
    program_run(&program, "generate", "--tokens", "1", "--max-tokens", "1", NULL);
    ck_assert_int_eq(program.status, 0);
}
END_TEST

START_TEST(every_command_has_help)
{
    static const char *const names[] = {"generate", "score",  "embed", "stats", "health",
                                        "model",    "cancel", "drain", "resume"};
    program_run(&program, "--help", NULL);
    ck_assert_int_eq(program.status, 0);
    ck_assert_ptr_nonnull(strstr(program.out_text, names[_i]));
    program_run(&program, names[_i], "--help", NULL);
    ck_assert_int_eq(program.status, 0);
    ck_assert_ptr_nonnull(strstr(program.out_text, "--socket"));
    for (const char *line = program.out_text; *line; line = strchr(line, '\n') + 1)
        ck_assert_uint_le(strcspn(line, "\n"), 100);
    program_run(&program, "help", names[_i], NULL);
    ck_assert_int_eq(program.status, 0);
}
END_TEST

/* Four batches of three stages: 12 units one after the other, 6 at once. */
START_TEST(the_model_of_a_pipeline_is_drawn)
{
    program_run(&program, "timeline", "--simulate", "4", NULL);
    ck_assert_int_eq(program.status, 0);
    ck_assert_str_eq(program.out_text, "t = 0: [H2D0]\n"
                                       "t = 1: [K0][H2D1]\n"
                                       "t = 2: [D2H0][K1][H2D2]\n"
                                       "t = 3: [D2H1][K2][H2D3]\n"
                                       "t = 4: [D2H2][K3]\n"
                                       "t = 5: [D2H3]\n"
                                       "4 batches of 3 stages: sequential 12, pipelined 6, 2.00 x\n");
    /* The slowest stage says how long many take: 1 + 3 * 4 + 2 where the kernels take 4. */
    program_run(&program, "timeline", "--simulate", "3", "--times", "1,4,2", NULL);
    ck_assert_str_eq(program.out_text,
                     "3 batches of 3 stages: sequential 21, pipelined 15, 1.40 x\n");
    program_run(&program, "timeline", "--simulate", "1000000", "--times=1,1,1", NULL);
    ck_assert_str_eq(program.out_text,
                     "1000000 batches of 3 stages: sequential 3e+06, pipelined 1e+06, 3.00 x\n");
    static const char *const wrong[] = {"1,1", "1,1,1,1", "0,1,1", "a,b,c", "1,nan,1", "-1,1,1", ""};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        program_run(&program, "timeline", "--simulate", "3", "--times", wrong[i], NULL);
        ck_assert_int_eq(program.status, 2);
    }
    static const char *const apart[][2] = {
        {"--simulate=3", "--svg=x"}, {"--simulate=3", "--json"}, {"--times=1,1,1", "--chunks=3"}};
    for (size_t i = 0; i < sizeof(apart) / sizeof(apart[0]); i++) {
        program_run(&program, "timeline", apart[i][0], apart[i][1], NULL);
        ck_assert_int_eq(program.status, 2);
    }
}
END_TEST

static void make_sluiced(const char *folder)
{
    char path[64];
    snprintf(path, sizeof(path), "%s/sluiced", folder);
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fputs("#!/bin/sh\necho \"$@\"\nexit 3\n", file);
    fclose(file);
    ck_assert_int_eq(chmod(path, 0755), 0);
}

/* It becomes sluiced, whose arguments and end are its own. */
START_TEST(calibrating_is_what_sluiced_does)
{
    char folder[] = "/tmp/sluice-calibrate-XXXXXX", path[4096], file[64];
    const char *old = getenv("PATH");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s:%s", folder, old);
    snprintf(file, sizeof(file), "%s/sluiced", folder);
    setenv("PATH", folder, 1);
    program_run(&program, "calibrate", "a.so", NULL);
    ck_assert_int_eq(program.status, 1);
    ck_assert_ptr_nonnull(strstr(program.err_text, "sluiced, which does it, is not here"));
    make_sluiced(folder);
    setenv("PATH", path, 1);
    program_run(&program, "calibrate", "a.so", NULL);
    ck_assert_int_eq(program.status, 3);
    ck_assert_str_eq(program.out_text, "--program a.so --calibrate\n");
    program_run(&program, "calibrate", "--store", "s.conf", "a.so", "--page=p.html", NULL);
    ck_assert_str_eq(program.out_text, "--program a.so --calibrate --calibrate-page p.html "
                                       "--calibrate-store s.conf\n");
    program_run(&program, "calibrate", NULL);
    ck_assert_int_eq(program.status, 2);
    program_run(&program, "-i", "jobs", "calibrate", "a.so", NULL);
    ck_assert_int_eq(program.status, 2);
    program_run(&program, "calibrate", "a.so", "b.so", NULL);
    ck_assert_int_eq(program.status, 2);
    ck_assert(!unlink(file) && !rmdir(folder));
}
END_TEST

START_TEST(the_version_is_printed)
{
    program_run(&program, "--version", NULL);
    ck_assert_str_eq(program.out_text, "sluice " SLUICE_VERSION "\n");
}
END_TEST

Suite *control_suite(void)
{
    Suite *suite = suite_create("control");
    TCase *tcase = tcase_create("stub");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, questions_are_answered_as_tables_and_as_json);
    tcase_add_test(tcase, a_daemon_that_loads_is_not_healthy_yet);
    tcase_add_test(tcase, a_request_is_cancelled_by_its_number);
    tcase_add_test(tcase, draining_and_resuming);
    tcase_add_loop_test(tcase, every_command_has_help, 0, 9);
    tcase_add_test(tcase, the_model_of_a_pipeline_is_drawn);
    tcase_add_test(tcase, calibrating_is_what_sluiced_does);
    tcase_add_test(tcase, the_version_is_printed);
    suite_add_tcase(suite, tcase);
    return suite;
}
