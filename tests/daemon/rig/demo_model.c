#include "tests/daemon/rig/demo_model.h"

#include <check.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const files[] = {"config.json", "generation_config.json", "model.safetensors",
                                    "tokenizer.json"};
#define FILES (sizeof(files) / sizeof(files[0]))
#define TEMPLATE "chat_template.jinja"

struct path {
    char text[256];
};

static struct path path_of(const char *directory, const char *name)
{
    struct path path;
    int length = snprintf(path.text, sizeof(path.text), "%s/%s", directory, name);
    ck_assert_int_lt(length, (int)sizeof(path.text));
    return path;
}

void demo_model_make(const char *directory, const char *template)
{
    char here[2048], from[2200];
    ck_assert_int_eq(mkdir(directory, 0700), 0);
    ck_assert_ptr_nonnull(getcwd(here, sizeof(here)));
    for (size_t i = 0; i < FILES; i++) {
        snprintf(from, sizeof(from), "%s/deploy/demo-model/%s", here, files[i]);
        ck_assert_int_eq(symlink(from, path_of(directory, files[i]).text), 0);
    }
    demo_model_put(directory, TEMPLATE, template);
}

void demo_model_put(const char *directory, const char *name, const char *text)
{
    struct path path = path_of(directory, name);
    unlink(path.text); /* a link, and what it leads to stays */
    FILE *file = fopen(path.text, "w");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(text, 1, strlen(text), file), strlen(text));
    ck_assert_int_eq(fclose(file), 0);
}

void demo_model_remove(const char *directory)
{
    for (size_t i = 0; i < FILES; i++)
        unlink(path_of(directory, files[i]).text);
    unlink(path_of(directory, TEMPLATE).text);
    rmdir(directory);
}
