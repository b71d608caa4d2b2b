/* Texts of a model that wakes: what is read again, and when. Reads are counted, and nothing is
 * timed. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/base/option_table.h"
#include "daemon/request/model_text.h"
#include "daemon/service/check_text.h"
#include "tests/daemon/daemon_suites.h"

#define DEMO "deploy/demo-model"

static uint32_t reads;
static char folder[64];
static struct options *options;
static struct model_text served;
static struct file_marks marks;

int __real_file_text(const char *directory, const char *name, size_t bytes_max, char **ret_text,
                     size_t *ret_length, struct error *error);
int __wrap_file_text(const char *directory, const char *name, size_t bytes_max, char **ret_text,
                     size_t *ret_length, struct error *error);

int __wrap_file_text(const char *directory, const char *name, size_t bytes_max, char **ret_text,
                     size_t *ret_length, struct error *error)
{
    reads++;
    return __real_file_text(directory, name, bytes_max, ret_text, ret_length, error);
}

static void run(const char *format, const char *what)
{
    char command[512];
    snprintf(command, sizeof(command), format, folder, what);
    ck_assert_int_eq(system(command), 0);
}

static void setup(void)
{
    struct error error;
    strcpy(folder, "/tmp/sluice-marks-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    run("cp " DEMO "/*.json '%s'%s", "");
    ck_assert_int_eq(options_defaults(&options, &error), 0);
    const struct option *model = option_find("model", strlen("model"));
    ck_assert_int_eq(option_set(options, model, folder, strlen(folder), &error), 0);
    ck_assert_int_eq(check_text_load(&served, options, &error), 0);
    ck_assert(file_marks_hold(&served.marks));
    marks = (struct file_marks){.count = 0};
    reads = 0;
}

static void teardown(void)
{
    file_marks_free(&marks);
    model_text_free(&served);
    options_free(options);
    run("rm -r '%s'%s", "");
}

/* How many files were read. */
static uint32_t compare(const char **ret_differs)
{
    struct error error;
    *ret_differs = NULL;
    reads = 0;
    ck_assert_int_eq(check_text_differs(&served, options, &marks, ret_differs, &error), 0);
    return reads;
}

START_TEST(what_is_as_it_was_is_read_once)
{
    const char *differs;
    ck_assert_uint_gt(compare(&differs), 0);
    ck_assert_ptr_null(differs);
    ck_assert_uint_eq(compare(&differs), 0);
    ck_assert_ptr_null(differs);
}
END_TEST

/* Longer; of the same length; with the time that it had; another of the same bytes; gone; and one
 * that was not there. */
START_TEST(whatever_is_changed_of_a_file_is_seen)
{
    static const struct {
        const char *file, *change;
        bool differs;
    } changes[] = {
        {"tokenizer.json", "cd '%s' && printf ' ' >> %s", true},
        {"tokenizer_config.json", "cd '%s' && sed -i '1s/{/\\n/' %s", true},
        {"tokenizer.json", "cd '%s' && printf ' ' >> %s && touch -d @0 tokenizer.json", true},
        {"tokenizer.json",
         "cd '%s' && touch -r %s then && printf '\\n' | dd of=tokenizer.json bs=1 "
         "conv=notrunc,fsync 2> /dev/null && touch -r then tokenizer.json",
         true},
        {"tokenizer.json", "cd '%s' && cp -p %s same && mv same tokenizer.json", false},
        {"tokenizer.json", "cd '%s' && rm %s", true},
        {"chat_template.jinja", "cd '%s' && echo '{{ messages }}' > %s", true},
        {"config.json", "cd '%s' && touch %s", false},
        {"modules.json", "cd '%s' && echo '[]' > %s", false},
    };
    const char *differs;
    (void)compare(&differs);
    ck_assert_uint_eq(compare(&differs), 0);
    run(changes[_i].change, changes[_i].file);
    ck_assert_uint_gt(compare(&differs), 0);
    ck_assert_msg(!differs != changes[_i].differs, "%s: %s", changes[_i].change, differs);
    /* What was found the same is not read again; what was not is, each time. */
    ck_assert_int_eq(compare(&differs) > 0, changes[_i].differs);
}
END_TEST

START_TEST(a_link_is_what_it_leads_to)
{
    const char *differs;
    run("cd '%s' && mkdir blobs && mv %s blobs/one && ln -s blobs/one tokenizer.json",
        "tokenizer.json");
    ck_assert_uint_gt(compare(&differs), 0);
    ck_assert_ptr_null(differs);
    ck_assert_uint_eq(compare(&differs), 0);
    run("cd '%s' && printf ' ' >> blobs/%s", "one");
    ck_assert_uint_gt(compare(&differs), 0);
    ck_assert_ptr_nonnull(differs);
}
END_TEST

/* Nothing is known of what cannot be noted: it is read. */
START_TEST(what_cannot_be_noted_does_not_hold)
{
    struct file_marks many = {.count = 0};
    char name[300] = "";
    ck_assert(!file_marks_hold(&many));
    for (int i = 0; i < FILE_MARKS_MAX; i++) {
        snprintf(name, sizeof(name), "none.%d", i);
        file_marks_note(&many, folder, name);
        file_marks_note(&many, folder, name);
    }
    ck_assert_uint_eq(many.count, FILE_MARKS_MAX);
    ck_assert(file_marks_hold(&many));
    file_marks_note(&many, folder, "one too many");
    ck_assert(!file_marks_hold(&many));
    file_marks_free(&many);
    memset(name, 'n', sizeof(name) - 1);
    file_marks_note(&many, folder, name); /* the system refuses such a name */
    ck_assert(!file_marks_hold(&many));
    file_marks_free(&many);
}
END_TEST

Suite *file_marks_suite(void)
{
    Suite *suite = suite_create("file_marks");
    TCase *tests = tcase_create("file_marks");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, what_is_as_it_was_is_read_once);
    tcase_add_loop_test(tests, whatever_is_changed_of_a_file_is_seen, 0, 9);
    tcase_add_test(tests, a_link_is_what_it_leads_to);
    tcase_add_test(tests, what_cannot_be_noted_does_not_hold);
    suite_add_tcase(suite, tests);
    return suite;
}
