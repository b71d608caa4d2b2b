/* What --check says, beside whether a model can be used: what it is called, and what a tokenizer or a
 * chat template that is missing will cost. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/daemon/daemon_suites.h"
#include "tests/daemon/rig/spawn.h"

#define DEMO "deploy/demo-model"
#define QUANTIZED "tests/model/quantized/llama-ct-channel"

static struct spawn spawn;

static void setup(void)
{
    spawn_make(&spawn);
}

static void teardown(void)
{
    spawn_free(&spawn);
}

/* The demo model as a snapshot of the hub, with these of its files. */
static void make_snapshot(char path[256], const char *const *files)
{
    char here[256], link[512], target[512], command[512];
    ck_assert_ptr_nonnull(getcwd(here, sizeof(here)));
    snprintf(path, 256, "%s/models--org--demo/snapshots/0123", spawn.directory);
    snprintf(command, sizeof(command), "mkdir -p '%s'", path);
    ck_assert_int_eq(system(command), 0);
    for (; *files; files++) {
        snprintf(link, sizeof(link), "%s/%s", path, *files);
        snprintf(target, sizeof(target), "%s/" DEMO "/%s", here, *files);
        ck_assert_int_eq(symlink(target, link), 0);
    }
}

static void drop_snapshot(void)
{
    char command[512];
    snprintf(command, sizeof(command), "rm -r '%s/models--org--demo'", spawn.directory);
    ck_assert_int_eq(system(command), 0);
}

static void check(const char *model, const char *option, const char *value, int code)
{
    const char *const arguments[] = {"--model", model,  "--device", "cpu",
                                     "--check", option, value,      NULL};
    spawn_start(&spawn, arguments, NULL);
    ck_assert_int_eq(spawn_wait(&spawn), code);
}

START_TEST(a_snapshot_is_named_and_a_missing_tokenizer_is_told_with_its_cost)
{
    static const char *const files[] = {"config.json", "model.safetensors", NULL};
    char path[256];
    make_snapshot(path, files);
    check(path, NULL, NULL, 0);
    drop_snapshot();
    ck_assert(spawn_logged(&spawn, "model        org/demo (llama"));
    ck_assert(spawn_logged(&spawn, "texts        NO: the model has no tokenizer.json"));
    ck_assert(spawn_logged(&spawn, "prompts and answers are token numbers alone"));
    ck_assert(spawn_logged(&spawn, "chats        NO: there are no texts"));
}
END_TEST

START_TEST(of_a_mixture_it_says_what_a_token_goes_through)
{
    check(DEMO, NULL, NULL, 0);
    ck_assert(!spawn_logged(&spawn, "experts  "));
    check(DEMO, "--ep", "yes", 78);
    ck_assert(spawn_logged(&spawn, "ep: the model is no mixture of experts"));
    check("tests/model/data/mixtral-default-bf16", "--ep", "yes", 0);
    ck_assert(spawn_logged(&spawn, "experts      8, a token goes through 2 ("));
}
END_TEST

START_TEST(a_missing_template_is_told_and_one_may_be_given)
{
    static const char *const files[] = {"config.json", "model.safetensors", "tokenizer.json", NULL};
    char path[256], template[256];
    make_snapshot(path, files);
    check(path, NULL, NULL, 0);
    ck_assert(spawn_logged(&spawn, "texts        yes"));
    ck_assert(spawn_logged(&spawn, "chats        NO: the model has no chat template"));
    ck_assert(spawn_logged(&spawn, "chat-template = FILE gives the model one"));
    snprintf(template, sizeof(template), "%s/models--org--demo/t.jinja", spawn.directory);
    FILE *file = fopen(template, "w");
    ck_assert_ptr_nonnull(file);
    fputs("{{ messages[0].content }}", file);
    fclose(file);
    check(path, "--chat-template", template, 0);
    ck_assert(spawn_logged(&spawn, "chats        yes, by "));
    file = fopen(template, "w");
    ck_assert_ptr_nonnull(file);
    fputs("{% if %}", file);
    fclose(file);
    check(path, "--chat-template", template, 78);
    drop_snapshot();
    ck_assert(spawn_logged(&spawn, "chat-template: "));
    check(DEMO, "--chat-template", "/nonexistent/t", 78);
    ck_assert(spawn_logged(&spawn, "chat-template: /nonexistent/t: /nonexistent: no such"));
}
END_TEST

static void check_draft(const char *draft, int code)
{
    const char *const arguments[] = {"--model",     DEMO,    "--device",      "cpu", "--check",
                                     "--speculate", "draft", "--draft-model", draft, NULL};
    spawn_start(&spawn, arguments, NULL);
    ck_assert_int_eq(spawn_wait(&spawn), code);
}

/* As many tokens, and two of them have each other's number. */
START_TEST(a_draft_model_of_other_tokens_is_refused)
{
    static const char *const files[] = {"config.json", "model.safetensors", NULL};
    char path[256], command[768];
    make_snapshot(path, files);
    check_draft(path, 0);
    snprintf(command, sizeof(command),
             "sed 's/: 300,/: X,/; s/: 301,/: 300,/; s/: X,/: 301,/' " DEMO
             "/tokenizer.json > '%s/tokenizer.json'",
             path);
    ck_assert_int_eq(system(command), 0);
    check_draft(path, 78);
    drop_snapshot();
    ck_assert(spawn_logged(&spawn, "draft-model: its token 300 is another than the model's"));
    check_draft(DEMO, 0);
}
END_TEST

START_TEST(host_memory_for_what_is_cached_is_told)
{
    check(DEMO, NULL, NULL, 0);
    ck_assert(spawn_logged(&spawn, "host cache   none"));
    check("synthetic:null", "--host-cache", "1MiB", 0);
    ck_assert(spawn_logged(&spawn, "host cache   up to 1048576 bytes"));
}
END_TEST

START_TEST(what_weights_and_a_token_take_is_told_by_format)
{
    check(QUANTIZED, NULL, NULL, 0);
    ck_assert(spawn_logged(&spawn, "e4m3 "));
    ck_assert(spawn_logged(&spawn, "f32 "));
    ck_assert(spawn_logged(&spawn, "bytes a token (f32)"));
    check(QUANTIZED, "--kv-dtype", "fp8", 0);
    ck_assert(spawn_logged(&spawn, "bytes a token (fp8)"));
    check(DEMO, "--quantize", "fp8", 0);
    ck_assert(spawn_logged(&spawn, "e4m3 "));
    check(QUANTIZED, "--quantize", "fp8", 78);
    ck_assert(spawn_logged(&spawn, "quantize: not of a checkpoint that is quantized already"));
}
END_TEST

/* The CPU device is so whether it is asked or not. */
START_TEST(that_bits_depend_on_the_sequence_alone_is_told)
{
    check(DEMO, "--invariant", "yes", 0);
    ck_assert(spawn_logged(&spawn, "invariant    yes"));
    check(DEMO, "--invariant", "no", 0);
    ck_assert(spawn_logged(&spawn, "invariant    yes"));
    check(DEMO, "--invariant", "perhaps", 64);
    ck_assert(spawn_logged(&spawn, "invariant"));
}
END_TEST

START_TEST(names_that_are_served_are_told)
{
    check(DEMO, "--served-model-name", "one, org/two", 0);
    ck_assert(spawn_logged(&spawn, "model        one (llama"));
    ck_assert(spawn_logged(&spawn, "also org/two"));
    check(DEMO, "--served-model-name", "one,one", 78);
    ck_assert(spawn_logged(&spawn, "served-model-name: one stands there twice"));
    check(DEMO, "--served-model-name", "one,,two", 78);
    ck_assert(spawn_logged(&spawn, "served-model-name: a name has 1 to 127 bytes"));
}
END_TEST

START_TEST(each_of_several_models_is_told)
{
    check("a=" DEMO ",b=synthetic:tiny", "--model-option",
          "b:context-max=100,b:served-model-name=c", 0);
    ck_assert(spawn_logged(&spawn, "model        a (llama"));
    ck_assert(spawn_logged(&spawn, "model        b (llama"));
    ck_assert(spawn_logged(&spawn, "also c"));
    ck_assert(spawn_logged(&spawn, "context      100 tokens"));
    check("a=" DEMO ",b=/none", NULL, NULL, 78);
    ck_assert(spawn_logged(&spawn, "b: "));
    check("a=" DEMO ",b=synthetic:tiny", "--gpu-memory-max", "6MiB", 78);
    ck_assert(spawn_logged(&spawn, "gpu-memory-max"));
}
END_TEST

static char folder[256];

static void check_folder(const char *places, int code, const char *says)
{
    const char *const arguments[] = {"--model",       DEMO,   "--device",       "cpu",  "--check",
                                     "--adapter-dir", folder, "--adapters-max", places, NULL};
    spawn_start(&spawn, arguments, NULL);
    ck_assert_int_eq(spawn_wait(&spawn), code);
    ck_assert(spawn_logged(&spawn, says));
}

/* In the folder. */
static void shell(const char *line)
{
    char command[1024];
    snprintf(command, sizeof(command), "mkdir -p '%s'; cd '%s' && %s", folder, folder, line);
    ck_assert_int_eq(system(command), 0);
}

#define MAKE "mkdir \"$n\" && touch \"$n/adapter_config.json\""

/* What has no config is passed over; what could not be named, or is somebody's name, is told. */
START_TEST(a_folder_of_adapters_is_counted)
{
    snprintf(folder, sizeof(folder), "%s/known", spawn.directory);
    check_folder("1", 78, "No such file");
    shell("mkdir none .hidden; touch file .hidden/adapter_config.json; for n in b a; do " MAKE "; done");
    check_folder("2", 0, "adapter-dir  2 adapters");
    check_folder("0", 78, "adapter-dir: adapters-max, 0, leaves no place");
    shell("n=demo-model; " MAKE);
    check_folder("1", 78, "adapter-dir: demo-model is a name of the model");
    shell("rm -r demo-model; n='with space'; " MAKE);
    check_folder("1", 78, "adapter-dir: with space: a name has at most 127 bytes");
    shell("rm -r 'with space'; n=$(printf %0128d 0); " MAKE);
    check_folder("1", 78, "a name has at most 127 bytes");
    shell("rm -r 0*; for n in $(seq 1022); do " MAKE "; done");
    check_folder("1", 0, "adapter-dir  1024 adapters");
    shell("n=1023; " MAKE);
    check_folder("1", 78, "adapter-dir: more than 1024 adapters");
    shell("rm -r ../known");
}
END_TEST

Suite *check_text_suite(void)
{
    Suite *suite = suite_create("check");
    TCase *tests = tcase_create("check");
    tcase_set_timeout(tests, 60);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, a_snapshot_is_named_and_a_missing_tokenizer_is_told_with_its_cost);
    tcase_add_test(tests, of_a_mixture_it_says_what_a_token_goes_through);
    tcase_add_test(tests, a_missing_template_is_told_and_one_may_be_given);
    tcase_add_test(tests, that_bits_depend_on_the_sequence_alone_is_told);
    tcase_add_test(tests, names_that_are_served_are_told);
    tcase_add_test(tests, each_of_several_models_is_told);
    tcase_add_test(tests, a_folder_of_adapters_is_counted);
    tcase_add_test(tests, a_draft_model_of_other_tokens_is_refused);
    tcase_add_test(tests, host_memory_for_what_is_cached_is_told);
    tcase_add_test(tests, what_weights_and_a_token_take_is_told_by_format);
    suite_add_tcase(suite, tests);
    return suite;
}
