/* Broken directories: what is done to a good one, and the message that must come of it. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gpu/checkpoint/snapshot.h"
#include "gpu/models/model.h"
#include "tests/model/model_suites.h"
#include "tests/model/scratch.h"

#define SINGLE "tests/model/data/llama-bias-bf16"
#define SHARDED "tests/model/data/llama-llama3-bf16"
#define OTHER "tests/model/data/mistral-full-f16"

#define CONFIG "config.json"
#define WEIGHTS "model.safetensors"
#define INDEX "model.safetensors.index.json"
#define SHARD_2 "model-00002-of-00003.safetensors"
#define LFS "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n"

enum action {
    REMOVE,
    TRUNCATE,   /* to `number` bytes */
    REPLACE,    /* the first `from` by `to` */
    WRITE,      /* the file becomes `to` */
    SWAP,       /* with the file `to` of the same directory */
    FROM_OTHER, /* the file of the model OTHER */
    DANGLE,     /* a symlink to nowhere */
    FOLDER,
    FIFO,
    GROW, /* to `number` bytes, sparse */
};

struct breakage {
    const char *model, *file;
    enum action action;
    const char *from, *to;
    uint64_t number;
    const char *text; /* "@" stands for the directory */
};

#define NORM "\"model.norm.weight\":{\"dtype\":\"BF16\",\"shape\":[32]"
#define NORM_OFFSETS "\"data_offsets\":[152448,152512]"
#define MAPPED "\"model.norm.weight\": \"model-00002-of-00003.safetensors\""

static const struct breakage breakages[] = {
    /* config.json */
    {SINGLE, CONFIG, REMOVE, .text = "@/config.json: no such file"},
    {SINGLE, CONFIG, TRUNCATE, .number = 0, .text = "config.json: JSON at byte 0: value expected"},
    {SINGLE, CONFIG, TRUNCATE, .number = 100,
     .text = "config.json: JSON at byte 100: the text ends too early"},
    {SINGLE, CONFIG, WRITE, .to = LFS,
     .text = "@/config.json: a git-lfs pointer, not the file; 'git lfs pull' fetches the file"},
    {SINGLE, CONFIG, DANGLE, .text = "@/config.json: a symbolic link to a file that is not there"},
    {SINGLE, CONFIG, FOLDER, .text = "@/config.json: not a regular file"},
    {SINGLE, CONFIG, FIFO, .text = "@/config.json: not a regular file"},
    {SINGLE, CONFIG, GROW, .number = 2 << 20,
     .text = "@/config.json: 2097152 bytes, at most 1048576 are read"},
    {SINGLE, CONFIG, SWAP, .to = "reference.json", .text = "config.json: architectures: missing"},
    {SINGLE, CONFIG, SWAP, .to = WEIGHTS, .text = "config.json: JSON at byte 0: value expected"},
    {SINGLE, CONFIG, FROM_OTHER,
     .text =
         "model.safetensors: tensor model.layers.0.self_attn.q_proj.weight: shape: [256, 32] is "
         "not [128, 32], as config.json makes it"},
    {SINGLE, CONFIG, REPLACE, "\"hidden_size\": 32", "\"hidden_size\": \"32\"",
     .text = "config.json: hidden_size: \"32\" is not a whole number from 1 to 65536"},
    {SINGLE, CONFIG, REPLACE, "\"vocab_size\": 256", "\"vocab_size\": 255",
     .text =
         "model.safetensors: tensor model.embed_tokens.weight: shape: [256, 32] is not [255, 32], "
         "as config.json makes it"},
    {SINGLE, CONFIG, REPLACE, "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3",
     .text = "model.safetensors: tensor model.layers.2.input_layernorm.weight: missing"},
    {SINGLE, "generation_config.json", WRITE, .to = "{\"top_k\":\"all\"}",
     .text = "generation_config.json: top_k: \"all\" is not a whole number from 0 to 1048576"},
    {SINGLE, "generation_config.json", WRITE, .to = LFS,
     .text =
         "@/generation_config.json: a git-lfs pointer, not the file; 'git lfs pull' fetches the "
         "file"},
    {SINGLE, "generation_config.json", DANGLE,
     .text = "@/generation_config.json: a symbolic link to a file that is not there"},
    /* model.safetensors */
    {SINGLE, WEIGHTS, REMOVE, .text = "@/model.safetensors: no such file"},
    {SINGLE, WEIGHTS, WRITE, .to = LFS,
     .text =
         "@/model.safetensors: a git-lfs pointer, not the file; 'git lfs pull' fetches the file"},
    {SINGLE, WEIGHTS, DANGLE,
     .text = "@/model.safetensors: a symbolic link to a file that is not there"},
    {SINGLE, WEIGHTS, FOLDER, .text = "@/model.safetensors: not a regular file"},
    {SINGLE, WEIGHTS, FIFO, .text = "@/model.safetensors: not a regular file"},
    {SINGLE, WEIGHTS, TRUNCATE, .number = 0,
     .text = "model.safetensors: ends at byte 0, 8 were expected"},
    {SINGLE, WEIGHTS, TRUNCATE, .number = 7,
     .text = "model.safetensors: ends at byte 7, 8 were expected"},
    {SINGLE, WEIGHTS, TRUNCATE, .number = 1000,
     .text = "model.safetensors: header: its length, 3504 bytes, is over the file's end"},
    {SINGLE, WEIGHTS, TRUNCATE, .number = 156023,
     .text =
         "model.safetensors: tensor model.norm.weight: data_offsets: ends at byte 152512 of the "
         "data, but the file holds 152511 (truncated?)"},
    {SINGLE, WEIGHTS, SWAP, .to = CONFIG, .text = "config.json: JSON at byte 0: value expected"},
    {SINGLE, WEIGHTS, SWAP, .to = "reference.json",
     .text = "model.safetensors: header: its length, 7382365579001471611 bytes, is over 16 MiB"},
    {SINGLE, WEIGHTS, FROM_OTHER,
     .text =
         "model.safetensors: tensor model.layers.0.self_attn.q_proj.weight: shape: [128, 32] is "
         "not [256, 32], as config.json makes it"},
    {SINGLE, WEIGHTS, REPLACE, "{\"__metadata__\"", " \"__metadata__\"",
     .text = "model.safetensors: header: does not begin with '{'"},
    {SINGLE, WEIGHTS, REPLACE, NORM, "\"model.norm.weight\":{\"dtype\":\"I16\", \"shape\":[32]",
     .text =
         "model.safetensors: tensor model.norm.weight: dtype: I16 is not supported (BF16, F16 and "
         "F32 are)"},
    {SINGLE, WEIGHTS, REPLACE, NORM, "\"model.norm.weight\":{\"dtype\":\"BF17\",\"shape\":[32]",
     .text = "model.safetensors: tensor model.norm.weight: dtype: \"BF17\" is not a dtype of "
             "safetensors"},
    {SINGLE, WEIGHTS, REPLACE, NORM, "\"model.norm.weight\":{\"dtype\":\"BF16\",\"shape\":\"32\"",
     .text =
         "model.safetensors: tensor model.norm.weight: shape: \"32\" is not a list of at most 8 "
         "sizes"},
    {SINGLE, WEIGHTS, REPLACE, NORM, "\"model.norm.weight\":{\"dtype\":\"BF16\",\"shape\":[31]",
     .text =
         "model.safetensors: tensor model.norm.weight: data_offsets: 152448 to 152512 are not the "
         "62 bytes of its shape"},
    {SINGLE, WEIGHTS, REPLACE, NORM_OFFSETS, "\"data_offsets\":[152447,152511]",
     .text =
         "model.safetensors: tensor model.norm.weight: data_offsets: begins at byte 152447 of the "
         "data, inside tensor model.layers.1.self_attn.v_proj.weight"},
    {SINGLE, WEIGHTS, REPLACE, NORM_OFFSETS, "\"data_offsets\":[152449,152513]",
     .text =
         "model.safetensors: tensor model.norm.weight: data_offsets: ends at byte 152513 of the "
         "data, but the file holds 152512 (truncated?)"},
    {SINGLE, WEIGHTS, REPLACE, NORM, "\"model.norm.weighs\":{\"dtype\":\"BF16\",\"shape\":[32]",
     .text = "model.safetensors: tensor model.norm.weight: missing"},
    {SINGLE, WEIGHTS, REPLACE,
     "\"model.layers.0.mlp.gate_proj.weight\":{\"dtype\":\"BF16\",\"shape\":[48,32]",
     "\"model.layers.0.mlp.gate_proj.weight\":{\"dtype\":\"BF16\",\"shape\":[32,48]",
     .text =
         "model.safetensors: tensor model.layers.0.mlp.gate_proj.weight: shape: [32, 48] is not "
         "[48, 32], as config.json makes it"},
    {SINGLE, WEIGHTS, REPLACE, "\"shape\":[32,48]", "\"shape\":[1536] ",
     .text =
         "model.safetensors: tensor model.layers.0.mlp.down_proj.weight: shape: [1536] is not [32, "
         "48], as config.json makes it"},
    /* shards */
    {SHARDED, INDEX, REMOVE, .text = "@/model.safetensors: no such file"},
    {SHARDED, INDEX, TRUNCATE, .number = 500,
     .text = "model.safetensors.index.json: JSON at byte 500: the text ends too early"},
    {SHARDED, INDEX, WRITE, .to = "[]", .text = "model.safetensors.index.json: not a JSON object"},
    {SHARDED, INDEX, WRITE, .to = "{\"metadata\":{}}",
     .text = "model.safetensors.index.json: weight_map: missing"},
    {SHARDED, INDEX, WRITE, .to = "{\"weight_map\":[]}",
     .text = "model.safetensors.index.json: weight_map: a list is not an object"},
    {SHARDED, INDEX, WRITE, .to = "{\"weight_map\":{}}",
     .text = "model.safetensors.index.json: tensor model.embed_tokens.weight: missing"},
    {SHARDED, INDEX, WRITE, .to = LFS,
     .text =
         "@/model.safetensors.index.json: a git-lfs pointer, not the file; 'git lfs pull' fetches "
         "the file"},
    {SHARDED, INDEX, DANGLE,
     .text = "@/model.safetensors.index.json: a symbolic link to a file that is not there"},
    {SHARDED, INDEX, SWAP, .to = CONFIG, .text = "config.json: architectures: missing"},
    {SHARDED, INDEX, REPLACE, "\"model-00001-of-00003.safetensors\"", "\"../secret.safetensors\"",
     .text = "model.safetensors.index.json: weight_map.model.embed_tokens.weight: "
             "\"../secret.safetensors\" is not the name of a file beside it"},
    {SHARDED, INDEX, REPLACE, "\"model-00001-of-00003.safetensors\"", "\"a/b\"",
     .text =
         "model.safetensors.index.json: weight_map.model.embed_tokens.weight: \"a/b\" is not the "
         "name of a file beside it"},
    {SHARDED, INDEX, REPLACE, "\"model-00001-of-00003.safetensors\"", "\"..\"",
     .text =
         "model.safetensors.index.json: weight_map.model.embed_tokens.weight: \"..\" is not the "
         "name of a file beside it"},
    {SHARDED, INDEX, REPLACE, "\"model-00001-of-00003.safetensors\"", "\"\"",
     .text = "model.safetensors.index.json: weight_map.model.embed_tokens.weight: \"\" is not the "
             "name of a file beside it"},
    {SHARDED, INDEX, REPLACE, "\"model-00001-of-00003.safetensors\"", "1",
     .text =
         "model.safetensors.index.json: weight_map.model.embed_tokens.weight: 1 is not the name "
         "of a file beside it"},
    {SHARDED, INDEX, REPLACE, "\"model-00001-of-00003.safetensors\"", "\"config.json\"",
     .text = "config.json: header: its length, 7521981564148779643 bytes, is over 16 MiB"},
    {SHARDED, INDEX, REPLACE, "\"model-00001-of-00003.safetensors\"",
     "\"model-00002-of-00003.safetensors\"",
     .text = "model.safetensors.index.json: weight_map.model.embed_tokens.weight: "
             "model-00002-of-00003.safetensors does not hold that tensor"},
    {SHARDED, SHARD_2, REMOVE, .text = "@/model-00002-of-00003.safetensors: no such file"},
    {SHARDED, SHARD_2, DANGLE,
     .text = "@/model-00002-of-00003.safetensors: a symbolic link to a file that is not there"},
    {SHARDED, SHARD_2, WRITE, .to = LFS,
     .text = "@/model-00002-of-00003.safetensors: a git-lfs pointer, not the file; 'git lfs pull' "
             "fetches the file"},
    {SHARDED, SHARD_2, TRUNCATE, .number = 4,
     .text = "model-00002-of-00003.safetensors: ends at byte 4, 8 were expected"},
    {SHARDED, SHARD_2, SWAP, .to = "model-00001-of-00003.safetensors",
     .text = "model.safetensors.index.json: weight_map.model.embed_tokens.weight: "
             "model-00001-of-00003.safetensors does not hold that tensor"},
};

static char directory[SCRATCH_PATH_MAX];

static void make_directory(void)
{
    scratch_make(directory);
}

static void remove_directory(void)
{
    scratch_remove(directory);
}

static void break_it(const struct breakage *breakage)
{
    char path[SCRATCH_PATH_MAX], other[SCRATCH_PATH_MAX], third[SCRATCH_PATH_MAX];
    scratch_path(directory, breakage->file, path);
    char *bytes = NULL;
    size_t length = 0;
    switch (breakage->action) {
    case REMOVE:
        ck_assert_int_eq(unlink(path), 0);
        break;
    case TRUNCATE:
    case GROW:
        scratch_truncate(directory, breakage->file, breakage->number);
        break;
    case REPLACE:
        scratch_replace(directory, breakage->file, breakage->from, breakage->to);
        break;
    case WRITE:
        scratch_write(directory, breakage->file, breakage->to, strlen(breakage->to));
        break;
    case SWAP:
        scratch_path(directory, breakage->to, other);
        scratch_path(directory, "third", third);
        ck_assert_int_eq(rename(path, third), 0);
        ck_assert_int_eq(rename(other, path), 0);
        ck_assert_int_eq(rename(third, other), 0);
        break;
    case FROM_OTHER:
        bytes = scratch_read(OTHER, breakage->file, &length);
        scratch_write(directory, breakage->file, bytes, length);
        free(bytes);
        break;
    case DANGLE:
        unlink(path);
        ck_assert_int_eq(symlink("blobs/0123", path), 0);
        break;
    case FOLDER:
        ck_assert_int_eq(unlink(path), 0);
        ck_assert_int_eq(mkdir(path, 0755), 0);
        break;
    case FIFO:
        ck_assert_int_eq(unlink(path), 0);
        ck_assert_int_eq(mkfifo(path, 0644), 0);
        break;
    }
}

static int load(const char *path, struct error *error)
{
    struct model model;
    int rc = model_load(path, 1, 0, &model, error);
    if (rc == 0)
        model_drop(&model);
    return rc;
}

static void expect(const struct error *error, const char *text)
{
    char wanted[ERROR_TEXT_MAX];
    bool place = text[0] == '@';
    snprintf(wanted, sizeof(wanted), "%s%s", place ? directory : "", text + place);
    ck_assert_str_eq(error->text, wanted);
    ck_assert_int_eq(error->code, ERR_BAD_MODEL);
}

START_TEST(each_broken_directory_has_a_message_of_its_own)
{
    const struct breakage *breakage = &breakages[_i];
    struct error error = {0};
    scratch_copy(breakage->model, directory);
    ck_assert_msg(load(directory, &error) == 0, "%s", error.text);
    break_it(breakage);
    ck_assert_int_eq(load(directory, &error), -ERR_BAD_MODEL);
    expect(&error, breakage->text);
}
END_TEST

START_TEST(symlinks_to_files_are_followed)
{
    char from[SCRATCH_PATH_MAX], path[SCRATCH_PATH_MAX], here[SCRATCH_PATH_MAX];
    ck_assert_ptr_nonnull(getcwd(here, sizeof(here)));
    static const char *const names[] = {CONFIG, WEIGHTS};
    for (int i = 0; i < 2; i++) {
        ck_assert_int_lt(snprintf(from, sizeof(from), "%s/" SINGLE "/%s", here, names[i]),
                         (int)sizeof(from));
        scratch_path(directory, names[i], path);
        ck_assert_int_eq(symlink(from, path), 0);
    }
    struct error error = {0};
    ck_assert_msg(load(directory, &error) == 0, "%s", error.text);
}
END_TEST

START_TEST(a_directory_that_is_none_is_named)
{
    char path[SCRATCH_PATH_MAX];
    struct error error = {0};
    scratch_path(directory, "none", path);
    ck_assert_int_eq(load(path, &error), -ERR_BAD_MODEL);
    expect(&error, "@/none: no such directory");
    scratch_write(directory, "file", "", 0);
    scratch_path(directory, "file", path);
    ck_assert_int_eq(load(path, &error), -ERR_BAD_MODEL);
    expect(&error, "@/file: not a directory");
}
END_TEST

#define READ ": a directory with config.json and *.safetensors is read (Hugging Face layout)"

static const struct {
    const char *files[4]; /* beside config.json, where `config` is set */
    bool config;
    const char *path; /* "": the directory itself */
    const char *text;
} foreign[] = {
    {{"m.gguf"}, false, "", "@: holds m.gguf and no config.json: GGUF is not supported" READ},
    {{"m.gguf"}, false, "/m.gguf", "@/m.gguf: GGUF is not supported" READ},
    {{"m.GGUF"}, true, "", "@: holds m.GGUF and no model.safetensors: GGUF is not supported" READ},
    {{"pytorch_model-00002-of-00002.bin", "optimizer.pt", "pytorch_model-00001-of-00002.bin"},
     true,
     "",
     "@: holds pytorch_model-00001-of-00002.bin and no model.safetensors: PyTorch's .bin is not "
     "supported" READ},
    {{"consolidated.00.pth", "tokenizer.model"},
     false,
     "",
     "@: holds consolidated.00.pth and no config.json: PyTorch's .pth is not supported" READ},
    {{"tf_model.h5", "flax_model.msgpack"},
     true,
     "",
     "@: holds tf_model.h5 and no model.safetensors: TensorFlow's .h5 is not supported" READ},
    {{"model.safetensors"},
     true,
     "/model.safetensors",
     "@/model.safetensors: a file: name the directory that holds it"},
    /* Training leaves these beside weights that are missing. */
    {{"training_args.bin", "rng_state.pth"}, true, "", "@/model.safetensors: no such file"},
    {{".bin"}, false, "", "@/config.json: no such file"},
    {{"refs", "snapshots"},
     false,
     "",
     "@: a repository of Hugging Face's cache: name a directory in its snapshots/"},
};

START_TEST(formats_that_are_not_read_are_named)
{
    char path[SCRATCH_PATH_MAX];
    struct error error = {0};
    if (foreign[_i].config) {
        size_t length;
        char *config = scratch_read(SINGLE, CONFIG, &length);
        scratch_write(directory, CONFIG, config, length);
        free(config);
    }
    for (int i = 0; i < 4 && foreign[_i].files[i]; i++)
        scratch_write(directory, foreign[_i].files[i], "x", 1);
    ck_assert_int_lt(snprintf(path, sizeof(path), "%s%s", directory, foreign[_i].path),
                     (int)sizeof(path));
    ck_assert_int_eq(load(path, &error), -ERR_BAD_MODEL);
    expect(&error, foreign[_i].text);
}
END_TEST

static const struct {
    const char *path, *name; /* "@" stands for a directory that has the two below */
} called[] = {
    {"/models/Llama-3.1-8B", "Llama-3.1-8B"},
    {"Llama-3.1-8B//", "Llama-3.1-8B"},
    {"/x/models--meta-llama--Llama-3.1-8B/snapshots/0e9e39f249a16976918f6564b8830bc894c89659",
     "meta-llama/Llama-3.1-8B"},
    {"models--gpt2/snapshots/main/", "gpt2"},
    {"models--a--b/blobs/main", "main"},
    {"models--/snapshots/main", "main"},
    {"snapshots/main", "main"},
    {"/", ""},
    {"/none/0123456789012345678901234567890123456789", "0123456789012345678901234567890123456789"},
    {"@/models--org--some-model/snapshots/0123456789012345678901234567890123456789/.",
     "org/some-model"},
    {"@/0123456789012345678901234567890123456789", "org/some-model"}, /* a link to it */
    {"@/mine", "mine"},                                               /* likewise */
};

START_TEST(a_model_is_called_by_its_directory_and_a_snapshot_by_its_repository)
{
    static const char *const made[] = {
        "models--org--some-model", "models--org--some-model/snapshots",
        "models--org--some-model/snapshots/0123456789012345678901234567890123456789"};
    static const char *const links[] = {"0123456789012345678901234567890123456789", "mine"};
    char path[512], name[128];
    for (size_t i = 0; i < sizeof(made) / sizeof(made[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", directory, made[i]);
        ck_assert_int_eq(mkdir(path, 0755), 0);
    }
    for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", directory, links[i]);
        ck_assert_int_eq(symlink(made[2], path), 0);
    }
    for (size_t i = 0; i < sizeof(called) / sizeof(called[0]); i++) {
        bool place = called[i].path[0] == '@';
        snprintf(path, sizeof(path), "%s%s", place ? directory : "", called[i].path + place);
        snapshot_name(path, name, sizeof(name));
        ck_assert_str_eq(name, called[i].name);
    }
    char small[4];
    snapshot_name("models--a--bcdefg/snapshots/x", small, sizeof(small));
    ck_assert_uint_lt(strlen(small), sizeof(small));
    for (size_t i = 3; i-- > 0;) {
        snprintf(path, sizeof(path), "%s/%s", directory, made[i]);
        ck_assert_int_eq(rmdir(path), 0);
    }
}
END_TEST

/* The superuser reads everything, so the test becomes somebody else. The process is the test's own.
 */
START_TEST(a_directory_or_file_without_permission_is_named)
{
    scratch_copy(SINGLE, directory);
    char config[SCRATCH_PATH_MAX];
    scratch_path(directory, CONFIG, config);
    ck_assert_int_eq(chmod(directory, 0700), 0);
    if (geteuid() == 0)
        ck_assert_int_eq(seteuid(65534), 0);
    else
        ck_assert_int_eq(chmod(directory, 0), 0);
    struct error error = {0};
    ck_assert_int_eq(load(directory, &error), -ERR_BAD_MODEL);
    expect(&error, "@: the directory cannot be read: Permission denied");
    if (getuid() == 0)
        ck_assert_int_eq(seteuid(0), 0);
    ck_assert_int_eq(chmod(directory, 0755), 0);
    ck_assert_int_eq(chmod(config, getuid() == 0 ? 0600 : 0), 0);
    if (getuid() == 0)
        ck_assert_int_eq(seteuid(65534), 0);
    ck_assert_int_eq(load(directory, &error), -ERR_BAD_MODEL);
    expect(&error, "@/config.json: cannot be opened: Permission denied");
    if (getuid() == 0)
        ck_assert_int_eq(seteuid(0), 0);
}
END_TEST

Suite *directory_suite(void)
{
    Suite *suite = suite_create("model directory");
    TCase *tcase = tcase_create("directory");
    tcase_add_checked_fixture(tcase, make_directory, remove_directory);
    tcase_add_loop_test(tcase, each_broken_directory_has_a_message_of_its_own, 0,
                        sizeof(breakages) / sizeof(breakages[0]));
    tcase_add_test(tcase, symlinks_to_files_are_followed);
    tcase_add_test(tcase, a_directory_that_is_none_is_named);
    tcase_add_test(tcase, a_model_is_called_by_its_directory_and_a_snapshot_by_its_repository);
    tcase_add_loop_test(tcase, formats_that_are_not_read_are_named, 0,
                        sizeof(foreign) / sizeof(foreign[0]));
    tcase_add_test(tcase, a_directory_or_file_without_permission_is_named);
    suite_add_tcase(suite, tcase);
    return suite;
}
