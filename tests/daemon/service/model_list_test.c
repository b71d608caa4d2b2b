/* Several models: what the options say of each. */
#include "daemon/base/model_list.h"

#include <stdio.h>
#include <string.h>

#include "daemon/base/option_table.h"
#include "tests/daemon/daemon_suites.h"

static struct options *options;
static struct model_list list;
static struct error error;

static void setup(void)
{
    ck_assert_int_eq(options_defaults(&options, &error), 0);
    list = (struct model_list){.count = 0};
}

static void teardown(void)
{
    model_list_free(&list);
    options_free(options);
}

static void give(const char *name, const char *value)
{
    ck_assert_msg(
        option_set(options, option_find(name, strlen(name)), value, strlen(value), &error) == 0,
        "%s", error.text);
}

static void make(const char *models, const char *said)
{
    give("model", models);
    give("model-option", said);
    ck_assert_msg(model_list_make(options, &list, &error) == 0, "%s", error.text);
}

START_TEST(one_directory_is_what_it_was)
{
    make("/models/a,b", "");
    ck_assert_uint_eq(list.count, 1);
    ck_assert_str_eq(list.at[0]->model, "/models/a,b");
    ck_assert_str_eq(list.at[0]->served_model_name, "");
}
END_TEST

START_TEST(names_are_told_from_directories)
{
    static const struct {
        const char *text;
        size_t length;
    } words[] = {{"a=/x", 1}, {"org/a=/x", 5}, {"/x=y", 0},          {"./x=y", 0},
                 {"=/x", 0},  {"x", 0},        {"synthetic:a=b", 0}, {"a=synthetic:tiny", 1}};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        ck_assert_uint_eq(model_list_name_length(words[i].text, strlen(words[i].text)),
                          words[i].length);
}
END_TEST

START_TEST(each_has_its_directory_its_name_and_what_is_said_of_it)
{
    give("context-max", "100");
    give("host-cache", "4GiB");
    give("adapter", "poet=/p");
    give("chat-template", "/t");
    make("a=/x,org/b=synthetic:tiny",
         "org/b:context-max=50,a:served-model-name=c,org/b:kv-max=1MiB,"
         "a:score-tokens=no,a:score-tokens=yes");
    ck_assert_uint_eq(list.count, 2);
    ck_assert_str_eq(list.at[0]->model, "/x");
    ck_assert_str_eq(list.at[0]->served_model_name, "a,c");
    ck_assert_str_eq(list.at[0]->score_tokens, "no,yes");
    ck_assert_str_eq(list.at[0]->adapter, "poet=/p");
    ck_assert_uint_eq(list.at[0]->context_max, 100);
    ck_assert_uint_eq(list.at[0]->host_cache, (uint64_t)2 << 30);
    ck_assert_str_eq(list.at[1]->model, "synthetic:tiny");
    ck_assert_str_eq(list.at[1]->served_model_name, "org/b");
    ck_assert_str_eq(list.at[1]->adapter, "");
    ck_assert_str_eq(list.at[1]->chat_template, "");
    ck_assert_uint_eq(list.at[1]->context_max, 50);
    ck_assert_uint_eq(list.at[1]->kv_max, 1 << 20);
}
END_TEST

static const struct {
    const char *models, *said, *why;
} refused[] = {
    {"a=/x,/y", "", "model: /y has no name: NAME=DIR"},
    {"a=/x,b=", "", "model: a directory has 1 to 4095 bytes"},
    {"a=/x,a=/y", "", "model: two are called a"},
    {"a=/x,b=/y", "b:served-model-name=a", "model: two are called a"},
    {"a=/x", "a:context-max", "model-option: a:context-max is not NAME:OPTION=VALUE"},
    {"a=/x", "b:context-max=1", "model-option: no model is called b"},
    {"a=/x", "a:socket=/s", "model-option: no model has a socket of its own"},
    {"a=/x", "a:nothing=1", "model-option: no model has a nothing of its own"},
    {"a=/x", "a:context-max=5,a:context-max=6", "model-option: a: context-max stands there twice"},
    {"a=/x", "a:context-max=x", "model-option: a: context-max: a whole number is expected"},
    {"/x", "a:context-max=1", "model-option: no model is called a"},
    {"a=/1,b=/2,c=/3,d=/4,e=/5,f=/6,g=/7,h=/8,i=/9", "", "model: at most 8 are served"},
};

START_TEST(what_is_wrong_is_named)
{
    give("model", refused[_i].models);
    give("model-option", refused[_i].said);
    ck_assert_int_eq(model_list_make(options, &list, &error), -ERR_BAD_CONFIG);
    ck_assert_str_eq(error.text, refused[_i].why);
    ck_assert_int_eq(options_check(options, &error), -ERR_BAD_CONFIG);
}
END_TEST

START_TEST(flags_and_lines_add_up_where_each_has_a_name)
{
    char *flags[] = {"sluiced", "--model", "a=/x", "--model", "b=/y", NULL};
    char *unnamed[] = {"sluiced", "--model", "/x", "--model", "/y", NULL};
    static const char file[] = "model = a=/x\nmodel = b=/y\nmodel-option = b:tp=1\n";
    ck_assert_int_eq(options_read_flags(options, 5, flags, &error), 0);
    ck_assert_str_eq(options->model, "a=/x,b=/y");
    ck_assert_int_eq(options_read_flags(options, 5, unnamed, &error), -ERR_USAGE);
    ck_assert_str_eq(error.text, "--model: of several each has a name: NAME=DIR");
    ck_assert_int_eq(options_read_text(options, "f", file, sizeof(file) - 1, &error), 0);
    ck_assert_int_eq(options_check(options, &error), 0);
    give("adapter", "b=/z");
    ck_assert_int_eq(options_check(options, &error), -ERR_BAD_CONFIG);
}
END_TEST

Suite *model_list_suite(void)
{
    Suite *suite = suite_create("model_list");
    TCase *tests = tcase_create("model_list");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, one_directory_is_what_it_was);
    tcase_add_test(tests, names_are_told_from_directories);
    tcase_add_test(tests, each_has_its_directory_its_name_and_what_is_said_of_it);
    tcase_add_loop_test(tests, what_is_wrong_is_named, 0,
                        (int)(sizeof(refused) / sizeof(refused[0])));
    tcase_add_test(tests, flags_and_lines_add_up_where_each_has_a_name);
    suite_add_tcase(suite, tests);
    return suite;
}
