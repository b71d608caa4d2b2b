/* Every limit at its smallest accepted value: a daemon that starts serves the smallest request, and
 * one that could not says so and does not start. `--check` says the same. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/option_table.h"
#include "tests/daemon/daemon_suites.h"
#include "tests/daemon/rig/smallest.h"

#define TRIES_MAX 40

static struct spawn spawn;

static void setup(void)
{
    spawn_make(&spawn);
}

static void teardown(void)
{
    spawn_free(&spawn);
}

/* ---- one daemon --------------------------------------------------------------------------------
 */

/* 0: it serves, and has been ended; else its exit code. */
static int outcome(const char *model, const char *name, const char *value)
{
    char flag[80];
    snprintf(flag, sizeof(flag), "--%s", name);
    const char *const arguments[] = {"--model", model, "--device", "cpu", flag, value, NULL};
    return smallest_outcome(&spawn, arguments);
}

static int checked(const char *model, const char *name, const char *value)
{
    char flag[80];
    snprintf(flag, sizeof(flag), "--%s", name);
    const char *const arguments[] = {"--model", model, "--device", "cpu",
                                     flag,      value, "--check",  NULL};
    spawn_start(&spawn, arguments, NULL);
    return spawn_wait(&spawn);
}

/* ---- options -----------------------------------------------------------------------------------
 */

static bool is_limit(const struct option *option)
{
    return option->kind == OPTION_COUNT || option->kind == OPTION_BYTES ||
           option->kind == OPTION_TIME;
}

static void try(const struct option *option, uint64_t least)
{
    char value[32];
    bool time = option->kind == OPTION_TIME;
    snprintf(value, sizeof(value), "%" PRIu64 "%s", time ? least / 1000 : least, time ? "ms" : "");
    int code = outcome("synthetic:null", option->name, value);
    ck_assert_msg(code == 0 || code == 78, "--%s %s: exit code %d", option->name, value, code);
    if (code)
        ck_assert_msg(spawn_logs(&spawn, option->name), "--%s %s: not named", option->name,
                      value);
    ck_assert_msg(checked("synthetic:null", option->name, value) == code, "--%s %s --check",
                  option->name, value);
}

static const struct option *limit(int number)
{
    for (uint32_t i = 0; i < option_count; i++)
        if (is_limit(&option_table[i]) && number-- == 0)
            return &option_table[i];
    return NULL;
}

START_TEST(a_limit_at_its_least_is_refused_or_serves)
{
    const struct option *option = limit(_i);
    try(option, option->min);
    /* 0 is something else there. */
    if (option->min == 0)
        try(option, option->kind == OPTION_TIME ? 1000 : 1);
}
END_TEST

static uint64_t needed(const char *model, const char *name)
{
    static char text[1 << 16];
    FILE *file = fopen(spawn.log, "r");
    ck_assert_ptr_nonnull(file);
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    fclose(file);
    const char *last = NULL;
    for (const char *at = text; (at = strstr(at, "at least ")); at += 9)
        last = at + 9;
    ck_assert_msg(last && strstr(text, name), "%s --%s: %s", model, name, text);
    return strtoull(last, NULL, 10);
}

static const struct {
    const char *model, *name;
} sizes[] = {
    {"synthetic:null", "kv-max"},
    {"deploy/demo-model", "kv-max"},
    {"synthetic:tiny", "kv-max"},
    {"synthetic:null", "host-cache"},
    {"deploy/demo-model", "host-cache"},
    {"synthetic:null", "gpu-memory-max"},
    {"deploy/demo-model", "gpu-memory-max"},
};

/* From refusal to refusal what is said to be needed grows, and then it is enough. */
START_TEST(what_is_said_to_be_needed_at_least_is_enough)
{
    const char *model = sizes[_i].model, *name = sizes[_i].name;
    bool exact = strcmp(name, "gpu-memory-max") != 0;
    uint64_t bytes = 1;
    char value[32];
    int code;
    for (int i = 0;; i++) {
        snprintf(value, sizeof(value), "%" PRIu64, bytes);
        code = outcome(model, name, value);
        if (code == 0)
            break;
        ck_assert_int_eq(code, 78);
        uint64_t more = needed(model, name);
        ck_assert_uint_gt(more, bytes);
        ck_assert_int_lt(i, exact ? 1 : TRIES_MAX);
        bytes = more;
    }
    ck_assert_uint_gt(bytes, 1);
    ck_assert_int_eq(checked(model, name, value), 0);
    snprintf(value, sizeof(value), "%" PRIu64, bytes - 1);
    ck_assert_int_eq(outcome(model, name, value), 78);
    if (exact)
        ck_assert_int_eq(checked(model, name, value), 78);
}
END_TEST

START_TEST(a_context_beyond_the_models_is_told)
{
    ck_assert_int_eq(outcome("synthetic:null", "context-max", "100000"), 0);
    ck_assert(spawn_logs(&spawn, "context-max is 100000, the model supports 8192 tokens"));
    ck_assert_int_eq(checked("synthetic:null", "context-max", "100000"), 0);
    ck_assert(spawn_logs(&spawn, "8192 tokens, the model's: context-max is 100000"));
    ck_assert_int_eq(checked("synthetic:null", "context-max", "8192"), 0);
    ck_assert(!spawn_logged(&spawn, "context-max is 8192"));
}
END_TEST

Suite *least_suite(void)
{
    Suite *suite = suite_create("least");
    TCase *tcase = tcase_create("least");
    tcase_set_timeout(tcase, 240);
    tcase_add_checked_fixture(tcase, setup, teardown);
    int limits = 0;
    while (limit(limits))
        limits++;
    tcase_add_loop_test(tcase, a_limit_at_its_least_is_refused_or_serves, 0, limits);
    tcase_add_loop_test(tcase, what_is_said_to_be_needed_at_least_is_enough, 0,
                        (int)(sizeof(sizes) / sizeof(sizes[0])));
    tcase_add_test(tcase, a_context_beyond_the_models_is_told);
    suite_add_tcase(suite, tcase);
    return suite;
}
