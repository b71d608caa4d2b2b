#include "daemon/base/option.h"
#include "daemon/base/api_key.h"
#include "daemon/base/grant.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/base/option_table.h"
#include "tests/daemon/daemon_suites.h"

static struct options *options;
static struct error error;

static void setup(void)
{
    ck_assert_int_eq(options_defaults(&options, &error), 0);
}

static void teardown(void)
{
    options_free(options);
}

static int read_text(const char *text)
{
    return options_read_text(options, "test.conf", text, strlen(text), &error);
}

START_TEST(the_table_is_consistent)
{
    for (uint32_t i = 0; i < option_count; i++) {
        const struct option *option = &option_table[i];
        ck_assert_ptr_eq(option_find(option->name, strlen(option->name)), option);
        ck_assert_ptr_null(strchr(option->name, '_'));
        ck_assert_uint_gt(strlen(option->help), 10);
        if (option->kind != OPTION_CHOICE)
            ck_assert_uint_le(option->min, option->max);
        for (uint32_t j = 0; j < i; j++) {
            ck_assert_str_ne(option_table[j].name, option->name);
            ck_assert_uint_ne(option_table[j].offset, option->offset);
        }
    }
    ck_assert_int_eq(options_check(options, &error), 0);
}
END_TEST

START_TEST(a_file_sets_values_with_units_and_comments)
{
    ck_assert_msg(read_text("# a comment\n\n  model =  /models/a b \nframe-max=32MiB\n"
                            "drain-timeout = 1500ms\nlog-requests = no\nlog-level = debug\r\n"
                            "queue-tokens = 5000\nkv-idle-release = 2 s") == 0,
                  "%s", error.text);
    ck_assert_str_eq(options->model, "/models/a b");
    ck_assert_uint_eq(options->frame_max, 32u << 20);
    ck_assert_uint_eq(options->drain_timeout, 1500000);
    ck_assert(!options->log_requests);
    ck_assert_int_eq(options_log_level(options), 7);
    ck_assert_uint_eq(options->queue_tokens, 5000);
    ck_assert_uint_eq(options->kv_idle_release, 2000000);
}
END_TEST

static const struct {
    const char *text, *says;
} wrong[] = {
    {"model", "test.conf:1: \"key = value\" expected"},
    {"\nmodle = x", "test.conf:2: there is no option \"modle\""},
    {"batch_max = 3", "there is no option \"batch_max\""},
    {"tp = 1\n# x\ntp = 1", "test.conf:3: tp was set in line 1 already"},
    {"pp = 0", "test.conf:1: pp: must lie between 1 and 8"},
    {"tp = 17", "tp: must lie between 0 and 16"},
    {"tp = -1", "tp: a whole number is expected"},
    {"tp = 1.5", "tp: a whole number"},
    {"tp = 99999999999999999999999", "tp: a whole number"},
    {"frame-max = 1mib", "frame-max: a whole number (such as"},
    {"frame-max = 99999999999GiB", "frame-max: a whole number (such as"},
    {"frame-max = 2GiB", "must lie between 4KiB and 1GiB"},
    {"drain-timeout = 5", "drain-timeout: a whole number (such as 250ms or 30s)"},
    {"log-requests = true", "log-requests: yes or no"},
    {"log-level = loud", "log-level: one of error|warning|notice|info|debug"},
    {"model = \x01", "test.conf:1: not a line of text"},
    {"model = \xff", "test.conf:1: not a line of text"},
};

START_TEST(mistakes_in_a_file_are_named_with_their_line)
{
    int rc = read_text(wrong[_i].text);
    ck_assert_int_eq(rc, -ERR_BAD_CONFIG);
    ck_assert_msg(strstr(error.text, wrong[_i].says) != NULL, "%s", error.text);
}
END_TEST

START_TEST(a_flag_goes_over_the_environment_goes_over_the_file_goes_over_the_default)
{
    char path[] = "/tmp/sluice-option-XXXXXX", unknown[64];
    int fd = mkstemp(path);
    const char *text = "tp = 2\npp = 2\nbatch-max = 2\n";
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    char *argv[] = {
        "sluiced", "--config", path, "--batch-max=4", "--log-requests", "--profile-steps",
        "9",       "/p.json",  NULL};
    char *environment[] = {"HOME=/", "SLUICE_PP=3", "SLUICE_BATCH_MAX=3", "SLUICE_PPP=3", NULL};
    struct option_command command;
    struct options *loaded;
    int rc = options_load(8, argv, environment, &loaded, &command, unknown, &error);
    unlink(path);
    ck_assert_msg(rc == 0, "%s", error.text);
    ck_assert_uint_eq(loaded->tp, 2);
    ck_assert_uint_eq(loaded->pp, 3);
    ck_assert_uint_eq(loaded->batch_max, 4);
    ck_assert_uint_eq(loaded->n_max, 128);
    ck_assert(loaded->log_requests);
    ck_assert_uint_eq(loaded->profile_steps, 9);
    ck_assert_str_eq(loaded->profile_file, "/p.json");
    ck_assert_str_eq(unknown, "SLUICE_PPP");
    options_free(loaded);
}
END_TEST

static const struct {
    const char *argv[5];
    const char *says;
} misused[] = {
    {{"model"}, "\"model\" is not a flag"},
    {{"--modle", "x"}, "there is no flag \"--modle\""},
    {{"--model"}, "--model needs a value"},
    {{"--tp", "1", "--tp=1"}, "--tp was given twice"},
    {{"--tp", "99"}, "--tp: must lie between"},
    {{"--"}, "is not a flag"},
    {{"--socket", ""}, "--socket: the path is empty"},
    {{"--socket="}, "--socket: the path is empty"},
    {{"--profile-steps", "1", "a", "--profile-file", "b"}, "--profile-file was given twice"},
    {{"--config", "/a", "--config", "/b"}, "--config was given twice"},
    {{"--calibrate-page=/a", "--calibrate-page", "/b"}, "--calibrate-page was given twice"},
    {{"--calibrate-page"}, "--calibrate-page needs a value"},
    {{"--calibrate-store", "/a", "--calibrate-store=/b"}, "--calibrate-store was given twice"},
    {{"--http", "unix:/a", "--http", ""}, "--http: one of several values is empty"},
    {{"--http", "", "--http", "unix:/a"}, "--http: one of several values is empty"},
};

/* Of each option, whatever its kind: what is said twice holds twice, or is refused. */
START_TEST(nothing_that_repeats_is_lost)
{
    const struct option *option = &option_table[_i];
    char flag[64], line[512], variable[192], unknown[64], one[128], both[260];
    bool list = option->kind == OPTION_LIST;
    option_show(options, option, one, sizeof(one));
    if (list || option->kind == OPTION_TEXT)
        snprintf(one, sizeof(one), "%s", strcmp(option->name, "model") == 0 ? "a=x" : "x");
    snprintf(both, sizeof(both), "%s,%s", one, one);
    snprintf(flag, sizeof(flag), "--%s", option->name);
    char *argv[] = {"sluiced", flag, one, flag, one, NULL};
    int flags = options_read_flags(options, 5, argv, &error);
    ck_assert_msg(flags == (list ? 0 : -ERR_USAGE), "%s", option->name);
    snprintf(variable, sizeof(variable), "SLUICE_%s", option->name);
    for (char *c = variable; *c; c++)
        *c = *c == '-' ? '_' : *c;
    snprintf(variable + strlen(variable), 64, "=%.60s", one);
    char *environment[] = {variable, variable, NULL};
    int variables = options_read_environment(options, environment, unknown, &error);
    ck_assert_msg(variables == (list ? 0 : -ERR_BAD_CONFIG), "%s", option->name);
    snprintf(line, sizeof(line), "%s = %s\n%s = %s\n", option->name, one, option->name, one);
    ck_assert_msg(read_text(line) == (list ? 0 : -ERR_BAD_CONFIG), "%s", option->name);
    if (list) {
        option_show(options, option, line, sizeof(line));
        ck_assert_str_eq(line, both); /* and the last source alone */
    }
}
END_TEST

START_TEST(a_list_is_walked_without_its_blanks)
{
    struct option_word word;
    const char *list = " a,b b ,,c,", *expected[] = {"a", "b b", "", "c"};
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
        ck_assert(option_next(&list, &word));
        ck_assert_uint_eq(word.length, strlen(expected[i]));
        ck_assert_int_eq(strncmp(word.text, expected[i], word.length), 0);
    }
    ck_assert(!option_next(&list, &word));
}
END_TEST

START_TEST(mistakes_on_the_command_line_are_named)
{
    char *argv[7] = {"sluiced"}, unknown[64];
    int argc = 1;
    struct option_command command;
    struct options *loaded;
    for (; argc < 6 && misused[_i].argv[argc - 1]; argc++)
        argv[argc] = (char *)(uintptr_t)misused[_i].argv[argc - 1];
    int rc = options_load(argc, argv, NULL, &loaded, &command, unknown, &error);
    ck_assert_int_eq(rc, -ERR_USAGE);
    ck_assert_msg(strstr(error.text, misused[_i].says) != NULL, "%s", error.text);
}
END_TEST

START_TEST(what_is_printed_reads_back_to_the_same)
{
    char *text = NULL;
    size_t length = 0;
    ck_assert_int_eq(
        read_text("model = /m\nframe-max = 5000\nkv-idle-release = 1001ms\ndevice = cpu\n"
                  "log-requests = no"),
        0);
    FILE *file = open_memstream(&text, &length);
    options_print_config(options, file);
    fclose(file);
    struct options *again;
    ck_assert_int_eq(options_defaults(&again, &error), 0);
    ck_assert_msg(options_read_text(again, "printed", text, length, &error) == 0, "%s", error.text);
    for (uint32_t i = 0; i < option_count; i++)
        ck_assert_msg(option_equal(options, again, &option_table[i]), "%s", option_table[i].name);
    options_free(again);
    free(text);
}
END_TEST

START_TEST(only_reloadable_options_may_change)
{
    struct options *next;
    ck_assert_int_eq(options_defaults(&next, &error), 0);
    const struct option *batch = option_find("batch-max", 9), *model = option_find("model", 5);
    ck_assert_int_eq(option_set(next, batch, "7", 1, &error), 0);
    ck_assert_int_eq(options_reloadable(options, next, &error), 0);
    ck_assert_int_eq(option_set(next, model, "/m", 2, &error), 0);
    ck_assert_int_eq(options_reloadable(options, next, &error), -ERR_BAD_CONFIG);
    ck_assert_ptr_nonnull(strstr(error.text, "model cannot change"));
    options_free(next);
}
END_TEST

START_TEST(a_number_may_be_left_to_the_daemon_where_that_is_its_default)
{
    const struct option *host = option_find("host-cache", 10);
    char text[64];
    ck_assert_int_eq(read_text(""), 0);
    ck_assert_uint_eq(options->host_cache, OPTION_AUTO);
    option_show(options, host, text, sizeof(text));
    ck_assert_str_eq(text, "auto");
    ck_assert_int_eq(read_text("host-cache = 3MiB"), 0);
    ck_assert_uint_eq(options->host_cache, 3u << 20);
    ck_assert_int_eq(read_text("host-cache = auto"), 0);
    ck_assert_uint_eq(options->host_cache, OPTION_AUTO);
    ck_assert_int_eq(read_text("host-cache = none"), -ERR_BAD_CONFIG);
    ck_assert_ptr_nonnull(strstr(error.text, "or auto, is expected"));
    ck_assert_int_eq(read_text("kv-max = auto"), -ERR_BAD_CONFIG);
}
END_TEST

START_TEST(relations_between_options_are_checked)
{
    ck_assert_int_eq(read_text("output-high = 8MiB\noutput-max = 1MiB"), 0);
    ck_assert_int_eq(options_check(options, &error), -ERR_BAD_CONFIG);
    ck_assert_ptr_nonnull(strstr(error.text, "output-high must be below output-max"));
    ck_assert_int_eq(read_text("output-max = 16MiB\nprofile-steps = 5"), 0);
    ck_assert_int_eq(options_check(options, &error), -ERR_BAD_CONFIG);
    ck_assert_ptr_nonnull(strstr(error.text, "are given together"));
}
END_TEST

static const struct {
    const char *text, *says; /* says NULL: right */
} users[] = {
    {"", NULL},
    {"1000:priority=3, root:priority=-8,key/one:priority=7", NULL},
    {"1000", "users: WHO:priority=NUMBER is expected, not \"1000\""},
    {"1000:weight=3,root:weight=10000:priority=2", NULL},
    {"1000:share=3",
     "users: 1000: priority=NUMBER or weight=NUMBER is expected, each once, not \"share=3\""},
    {"1000:weight=3:weight=4", "each once, not \"weight=4\""},
    {"1000:weight=3:", "each once, not \"\""},
    {"1000:weight=0", "weight must lie between 1 and 10000"},
    {"1000:weight=10001", "weight must lie between 1 and 10000"},
    {"1000:weight=", "users: 1000: weight=NUMBER"},
    {"1000:priority=", "users: 1000: priority=NUMBER"},
    {"1000:priority=3x", "users: 1000: priority=NUMBER"},
    {"1000:priority=--3", "users: 1000: priority=NUMBER"},
    {"1000:priority=8", "priority must lie between -8 and 7"},
    {"1000:priority=99999999999999999999", "priority must lie between -8 and 7"},
    {"1000:priority=1,1000:priority=2", "users: 1000 stands there twice"},
    {"no-such-user-here:priority=1", "users: there is no user \"no-such-user-here\""},
    {":priority=1", "users: there is no user \"\""},
    {"99999999999:priority=1", "there is no user"},
    {"key/:priority=1", "there is no user"},
};

START_TEST(users_are_read_or_named)
{
    char line[256];
    snprintf(line, sizeof(line), "users = %s", users[_i].text);
    ck_assert_int_eq(read_text(line), 0);
    int rc = options_check(options, &error);
    ck_assert_int_eq(rc, users[_i].says ? -ERR_BAD_CONFIG : 0);
    if (users[_i].says)
        ck_assert_msg(strstr(error.text, users[_i].says) != NULL, "%s", error.text);
}
END_TEST

static const struct {
    const char *text, *says; /* says NULL: right */
} webs[] = {
    {"http-names = llm.example.com, localhost2\nhttp-names = third", NULL},
    {"http-names = *.example.com", "http-names: \"*.example.com\" is no name of a host"},
    {"http-names = a:80", "http-names: \"a:80\""},
    {"http-names = a,,b", "http-names: \"\""},
    {"cors-origins = https://a.b, http://localhost:3000,https://[::1]:8443,http://1.2.3.4", NULL},
    {"cors-origins = *", "cors-origins: \"*\": no *"},
    {"cors-origins = https://*.a.b", "no *"},
    {"cors-origins = null", "http://HOST[:PORT] or https://HOST[:PORT] is expected"},
    {"cors-origins = a.b", "is expected"},
    {"cors-origins = https://", "is expected"},
    {"cors-origins = https://a.b/", "no path and no /"},
    {"cors-origins = https://a.b/x", "no path"},
    {"cors-origins = https://a.b:", "nothing but a port"},
    {"cors-origins = https://a.b:44x", "nothing but a port"},
    {"cors-origins = https://a.b:443", "browsers leave this port away"},
    {"cors-origins = http://a.b:80", "browsers leave this port away"},
    {"cors-origins = http://a.b:443", NULL},
    {"cors-origins = https://A.b", "small letters"},
    {"cors-origins = https://a b", "nothing but a port"},
    {"cors-origins = https://[::1", "a host is expected"},
    {"cors-origins = https://a.b\ninsecure-loopback = yes", "exclude each other"},
    {"trusted-keys = web", "trusted-keys needs an api-key-file"},
    {"trusted-keys = web\napi-key-file = /k", NULL},
    {"trusted-keys = web,\ntrusted-keys = ,x\napi-key-file = /k", "1 to 64 bytes"},
};

START_TEST(names_origins_and_trusted_keys_are_read_or_named)
{
    ck_assert_int_eq(read_text(webs[_i].text), 0);
    int rc = options_check(options, &error);
    ck_assert_msg(rc == (webs[_i].says ? -ERR_BAD_CONFIG : 0), "%s", webs[_i].text);
    if (webs[_i].says)
        ck_assert_msg(strstr(error.text, webs[_i].says) != NULL, "%s", error.text);
}
END_TEST

START_TEST(what_users_are_granted_is_theirs)
{
    struct grants grants;
    ck_assert_int_eq(grants_read(&grants, "7:priority=3,root:priority=-2 key/k:priority=5", NULL),
                     0);
    ck_assert_int_eq(grants_priority(&grants, 7, false, 0), 3);
    ck_assert_int_eq(grants_priority(&grants, 8, false, 0), 0);
    ck_assert_int_eq(grants_priority(&grants, 8, true, 0), 7);
    ck_assert_int_eq(grants_priority(&grants, 0, false, 4), -2);
    ck_assert_int_eq(grants_priority(&grants, keys_user_of("k", 1), false, 0), 5);
    ck_assert_uint_eq(grants_weight(&grants, 7, 100), 100);
    ck_assert_int_eq(grants_read(&grants, "1:priority=9", NULL), -ERR_BAD_CONFIG);
    ck_assert_uint_eq(grants.count, 3); /* untouched */
    ck_assert_int_eq(grants_read(&grants, "7:weight=30,root:weight=5:priority=-2", NULL), 0);
    ck_assert_uint_eq(grants_weight(&grants, 7, 100), 30);
    ck_assert_int_eq(grants_priority(&grants, 7, false, 1), 1);
    ck_assert_uint_eq(grants_weight(&grants, 0, 100), 5);
    ck_assert_int_eq(grants_priority(&grants, 0, false, 1), -2);
    ck_assert_uint_eq(grants_weight(&grants, 8, 100), 100);
}
END_TEST

Suite *option_suite(void)
{
    Suite *suite = suite_create("option");
    TCase *tcase = tcase_create("option");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, the_table_is_consistent);
    tcase_add_test(tcase, a_file_sets_values_with_units_and_comments);
    tcase_add_loop_test(tcase, mistakes_in_a_file_are_named_with_their_line, 0,
                        (int)(sizeof(wrong) / sizeof(wrong[0])));
    tcase_add_test(tcase,
                   a_flag_goes_over_the_environment_goes_over_the_file_goes_over_the_default);
    tcase_add_loop_test(tcase, mistakes_on_the_command_line_are_named, 0,
                        (int)(sizeof(misused) / sizeof(misused[0])));
    tcase_add_loop_test(tcase, nothing_that_repeats_is_lost, 0, (int)option_count);
    tcase_add_test(tcase, a_list_is_walked_without_its_blanks);
    tcase_add_test(tcase, what_is_printed_reads_back_to_the_same);
    tcase_add_test(tcase, only_reloadable_options_may_change);
    tcase_add_test(tcase, a_number_may_be_left_to_the_daemon_where_that_is_its_default);
    tcase_add_test(tcase, relations_between_options_are_checked);
    tcase_add_loop_test(tcase, users_are_read_or_named, 0, (int)(sizeof(users) / sizeof(users[0])));
    tcase_add_loop_test(tcase, names_origins_and_trusted_keys_are_read_or_named, 0,
                        (int)(sizeof(webs) / sizeof(webs[0])));
    tcase_add_test(tcase, what_users_are_granted_is_theirs);
    suite_add_tcase(suite, tcase);
    return suite;
}
