/* Configurations that are drawn, over all options that are numbers, near the least of each: one
 * that cannot serve the smallest request is refused at the start by an option's name, and `--check`
 * says so; every other serves it. Nothing in between. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/base/option_table.h"
#include "tests/daemon/rig/smallest.h"
#include "tests/hostile/start_suites.h"
#include "tests/sim/chance.h"

#define DRAWN_MAX 3

static struct spawn spawn;

/* Some options at values that the table allows. */
struct drawn {
    const struct option *options[DRAWN_MAX];
    char flags[DRAWN_MAX][80], values[DRAWN_MAX][32];
    uint32_t count;
    char words[256]; /* for messages */
};

static void setup(void)
{
    spawn_make(&spawn);
}

static void teardown(void)
{
    spawn_free(&spawn);
}

static bool is_limit(const struct option *option)
{
    return option->kind == OPTION_COUNT || option->kind == OPTION_BYTES ||
           option->kind == OPTION_TIME;
}

/* Up to 2^shift times the least; 0 means something else where it is allowed. */
static void add(struct drawn *drawn, const struct option *option, uint32_t shift)
{
    bool time = option->kind == OPTION_TIME;
    uint64_t least = option->min ? option->min : time ? 1000 : 1, value = least << shift;
    uint32_t at = drawn->count;
    for (uint32_t i = 0; i < at; i++)
        if (drawn->options[i] == option)
            return;
    if (value > option->max)
        value = option->max;
    drawn->options[at] = option;
    snprintf(drawn->flags[at], sizeof(drawn->flags[at]), "--%s", option->name);
    snprintf(drawn->values[at], sizeof(drawn->values[at]), "%" PRIu64 "%s",
             time ? value / 1000 : value, time ? "ms" : "");
    size_t used = strlen(drawn->words);
    snprintf(drawn->words + used, sizeof(drawn->words) - used, " %s %s", drawn->flags[at],
             drawn->values[at]);
    drawn->count++;
}

static const struct option *any_limit(uint64_t *random)
{
    for (;;) {
        const struct option *option = &option_table[chance_below(random, option_count)];
        if (is_limit(option))
            return option;
    }
}

static int run(const struct drawn *drawn, bool check)
{
    const char *arguments[6 + 2 * DRAWN_MAX] = {"--model", "synthetic:null", "--device", "cpu"};
    uint32_t count = 4;
    for (uint32_t i = 0; i < drawn->count; i++) {
        arguments[count++] = drawn->flags[i];
        arguments[count++] = drawn->values[i];
    }
    if (!check)
        return smallest_outcome(&spawn, arguments);
    arguments[count] = "--check";
    spawn_start(&spawn, arguments, NULL);
    return spawn_wait(&spawn);
}

static bool named(const struct drawn *drawn)
{
    for (uint32_t i = 0; i < drawn->count; i++)
        if (spawn_logged(&spawn, drawn->options[i]->name))
            return true;
    return false;
}

/* What the device's memory holds beside the KV is only known once the model is loaded. */
static bool needs_loading(const struct drawn *drawn)
{
    for (uint32_t i = 0; i < drawn->count; i++)
        if (strncmp(drawn->options[i]->name, "gpu-memory", 10) == 0)
            return true;
    return false;
}

static void try(const struct drawn *drawn)
{
    int code = run(drawn, false);
    ck_assert_msg(code == 0 || code == 78, "%s: exit code %d", drawn->words, code);
    ck_assert_msg(code == 0 || named(drawn), "%s: none of them is named", drawn->words);
    int checked = run(drawn, true);
    ck_assert_msg(checked == code || (checked == 0 && needs_loading(drawn)), "%s: %d, --check %d",
                  drawn->words, code, checked);
}

START_TEST(what_is_drawn_serves_or_is_refused)
{
    uint64_t random = 1000 + (uint64_t)_i;
    struct drawn one = {0}, some = {0};
    if (!is_limit(&option_table[_i]))
        return;
    add(&one, &option_table[_i], 0);
    try(&one);
    add(&some, &option_table[_i], chance_below(&random, 5));
    add(&some, any_limit(&random), chance_below(&random, 5));
    add(&some, any_limit(&random), chance_below(&random, 5));
    try(&some);
}
END_TEST

Suite *limits_suite(void)
{
    Suite *suite = suite_create("limits");
    TCase *tcase = tcase_create("limits");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, what_is_drawn_serves_or_is_refused, 0, (int)option_count);
    suite_add_tcase(suite, tcase);
    return suite;
}
