/* What /metrics says is well formed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/http/caller.h"
#include "tests/http/http_suites.h"

static struct site site;

static void set_up(void)
{
    site_make(&site);
}

static void tear_down(void)
{
    site_free(&site);
}

/* The value behind `name` at the start of a line; -1: there is none. */
static double figure(const char *text, const char *name)
{
    size_t length = strlen(name);
    for (const char *line = text; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
        if (strncmp(line, name, length) == 0 && line[length] == ' ')
            return strtod(line + length, NULL);
    return -1;
}

START_TEST(metrics_are_well_formed)
{
    static char text[1 << 17];
    char name[128] = "", type[32] = "";
    double last = 0;
    struct gpu_model *model = &site.world.server.models[0].info;
    model->formats[0] = (struct gpu_format){"e4m3", 7000};
    model->formats[1] = (struct gpu_format){"bf16", 500};
    model->format_count = 2;
    model->kv_token_bytes = 132;
    snprintf(model->kv_dtype, sizeof model->kv_dtype, "fp8");
    site.world.replica.figures.running = 3;
    hist_add(&site.world.replica.figures.time_to_first_token, 700);
    hist_add(&site.world.replica.figures.time_to_first_token, 3000000);
    ck_assert_uint_eq(fetch(&site, "/metrics", NULL, text, sizeof(text)), 200);
    ck_assert_double_eq(figure(text, "sluice_num_requests_running"), 3);
    ck_assert_double_eq(figure(text, "sluice_replica_running{replica=\"0\"}"), 3);
    ck_assert_double_ge(
        figure(text, "sluice_gpu_memory_bytes{replica=\"0\",gpu=\"0\",kind=\"weights\"}"), 0);
    ck_assert_double_eq(figure(text, "sluice_replica_running{replica=\"1\"}"), -1);
    ck_assert_double_eq(figure(text, "sluice_time_to_first_token_seconds_bucket{le=\"0.0005\"}"),
                        0);
    ck_assert_double_eq(figure(text, "sluice_time_to_first_token_seconds_bucket{le=\"0.001\"}"), 1);
    ck_assert_double_eq(figure(text, "sluice_time_to_first_token_seconds_bucket{le=\"+Inf\"}"), 2);
    ck_assert_double_eq(figure(text, "sluice_time_to_first_token_seconds_count"), 2);
    ck_assert_double_eq(figure(text, "sluice_weight_bytes{format=\"e4m3\"}"), 7000);
    ck_assert_double_eq(figure(text, "sluice_weight_bytes{format=\"bf16\"}"), 500);
    ck_assert_double_eq(figure(text, "sluice_kv_token_bytes{format=\"fp8\"}"), 132);
    /* Each sample stands behind the type of its family; buckets never fall. */
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        char word[128];
        if (sscanf(line, "# TYPE %127s %31s", name, type) == 2) {
            last = 0;
            continue;
        }
        if (line[0] == '#')
            continue;
        ck_assert_int_eq(sscanf(line, "%127[^ {]", word), 1);
        ck_assert_msg(strncmp(word, name, strlen(name)) == 0, "%s under %s", word, name);
        bool counts = strlen(name) > 6 && strcmp(name + strlen(name) - 6, "_total") == 0;
        ck_assert_msg(counts == (strcmp(type, "counter") == 0), "%s is a %s", name, type);
        if (strstr(word, "_bucket")) {
            double value = strtod(strrchr(line, ' '), NULL);
            ck_assert_double_ge(value, last);
            last = value;
        }
    }
}
END_TEST

Suite *metrics_suite(void)
{
    Suite *suite = suite_create("metrics");
    TCase *tests = tcase_create("metrics");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_test(tests, metrics_are_well_formed);
    suite_add_tcase(suite, tests);
    return suite;
}
