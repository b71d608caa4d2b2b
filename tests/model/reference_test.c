/* The reference checkpoints as the loader sees them: each opens, and its rope is transformers' own.
 */
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/models/model.h"
#include "protocol/base/json.h"
#include "tests/model/config_text.h"
#include "tests/model/model_suites.h"
#include "tests/model/scratch.h"

#define DATA "tests/model/data"
#define DIRECTORIES 73

static const struct json_bounds bounds = {.bytes_max = 1 << 20, .depth_max = 8};

static json *read_json(const char *directory, const char *name)
{
    size_t length = 0;
    char *text = scratch_read(directory, name, &length);
    json *document = NULL;
    struct error error = {0};
    ck_assert_msg(json_parse(text, length, bounds, &document, &error) == 0, "%s/%s: %s", directory,
                  name, error.text);
    free(text);
    return document;
}

/* transformers computes them in float32, and so is off by some units in the last place. */
static void compare_rope(const char *name, const struct model_rope *rope, const json *reference,
                         const char *prefix)
{
    char key[64];
    snprintf(key, sizeof key, "%sattention", prefix);
    double attention = json_number(json_get(reference, key));
    ck_assert_msg(fabs(rope->attention - attention) < 1e-6, "%s: attention %.9g is not %.9g", name,
                  (double)rope->attention, attention);
    snprintf(key, sizeof key, "%sinverse_frequency", prefix);
    const json *frequencies = json_get(reference, key);
    uint32_t i = 0, still = (uint32_t)json_count(frequencies); /* behind the rotated ones */
    ck_assert_uint_le(still, rope->pairs);
    for (; still < rope->pairs; still++)
        ck_assert(rope->inverse_frequency[still] == 0);
    for (const json *value = json_child(frequencies); value; value = json_next(value), i++) {
        double wanted = json_number(value), got = (double)rope->inverse_frequency[i];
        ck_assert_msg(fabs(got - wanted) <= 2e-6 * wanted, "%s: frequency %u: %.9g is not %.9g",
                      name, i, got, wanted);
    }
}

static void check_directory(const char *directory)
{
    struct error error = {0};
    struct model model;
    ck_assert_msg(model_load(directory, 1, 0, &model, &error) == 0, "%s: %s", directory,
                  error.text);
    uint16_t first = op_list_first_matrix(&model.list);
    ck_assert_msg(checkpoint_tensor(model.checkpoint, first)->dtype == model.config.dtype,
                  "%s: dtype", directory);
    ck_assert_uint_eq(checkpoint_bytes(model.checkpoint),
                      op_list_elements(&model.list) * model_dtype_bytes(model.config.dtype));
    json *reference = read_json(directory, "reference.json");
    compare_rope(directory, &model.list.ropes[0], reference, "");
    if (json_get(reference, "local_attention"))
        compare_rope(directory, &model.list.ropes[1], reference, "local_");
    ck_assert_msg(json_number(json_get(reference, "logits_deviation")) >= 1, "%s", directory);
    json_free(reference);
    model_drop(&model);
}

START_TEST(every_reference_checkpoint_opens_and_has_the_rope_of_transformers)
{
    DIR *open = opendir(DATA);
    ck_assert_ptr_nonnull(open);
    int directories = 0;
    for (struct dirent *entry; (entry = readdir(open));) {
        if (!strchr(entry->d_name, '-'))
            continue;
        char path[SCRATCH_PATH_MAX];
        scratch_path(DATA, entry->d_name, path);
        check_directory(path);
        directories++;
    }
    closedir(open);
    ck_assert_int_eq(directories, DIRECTORIES);
}
END_TEST

/* The case's fields as a change to the small config: one head of head_dim is enough for rope. */
static void read_case(const json *one, struct model_config *ret)
{
    char changes[1024];
    struct json_writer writer;
    json_writer_init(&writer, changes, sizeof(changes));
    json_put_int(&writer, "head_dim", (int64_t)json_number(json_get(one, "head_dim")));
    json_put_int(&writer, "max_position_embeddings",
                 (int64_t)json_number(json_get(one, "max_position_embeddings")));
    json_open(&writer, "rope_parameters", '{');
    const json *member = json_child(json_get(one, "rope_parameters"));
    for (; member; member = json_next(member)) {
        if (json_is_string(member))
            json_put_text(&writer, json_key(member), json_string(member));
        else if (json_is_bool(member))
            json_put_bool(&writer, json_key(member), json_bool(member));
        else
            json_put_double(&writer, json_key(member), json_number(member));
    }
    json_close(&writer, '}');
    ck_assert_uint_lt(writer.used, sizeof(changes));
    changes[writer.used] = '\0';
    struct error error = {0};
    ck_assert_msg(config_with(changes, ret, &error) == 0, "%s", error.text);
}

START_TEST(ropes_of_real_models_and_corners_are_those_of_transformers)
{
    json *document = read_json(DATA, "rope.json");
    ck_assert_uint_eq(json_count(document), 11);
    for (const json *one = json_child(document); one; one = json_next(one)) {
        struct model_config config;
        read_case(one, &config);
        compare_rope(json_string(json_get(one, "name")), &config.rope, one, "");
    }
    json_free(document);
}
END_TEST

Suite *reference_suite(void)
{
    Suite *suite = suite_create("model reference");
    TCase *tcase = tcase_create("reference");
    tcase_add_test(tcase, every_reference_checkpoint_opens_and_has_the_rope_of_transformers);
    tcase_add_test(tcase, ropes_of_real_models_and_corners_are_those_of_transformers);
    suite_add_tcase(suite, tcase);
    return suite;
}
