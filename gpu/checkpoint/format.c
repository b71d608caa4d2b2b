#include "gpu/checkpoint/format.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "gpu/checkpoint/file.h"

#define ENTRIES_MAX 65536 /* that are looked at */
#define WHAT_IS_READ "a directory with config.json and *.safetensors is read (Hugging Face layout)"

struct format {
    const char *suffix, *name;
};

/* The first that is there is named. */
static const struct format formats[] = {
    {".gguf", "GGUF"},
    {".ggml", "GGML"},
    {".bin", "PyTorch's .bin"},
    {".pth", "PyTorch's .pth"},
    {".pt", "PyTorch's .pt"},
    {".ckpt", "a checkpoint of training (.ckpt)"},
    {".onnx", "ONNX"},
    {".h5", "TensorFlow's .h5"},
    {".msgpack", "Flax's .msgpack"},
};
#define FORMATS (sizeof(formats) / sizeof(formats[0]))

/* What training leaves beside weights, in PyTorch's format. */
static bool is_beside(const char *name)
{
    static const char *const starts[] = {"training_args", "optimizer", "scheduler", "rng_state",
                                         "scaler"};
    for (size_t i = 0; i < sizeof(starts) / sizeof(starts[0]); i++)
        if (strncmp(name, starts[i], strlen(starts[i])) == 0)
            return true;
    return false;
}

/* FORMATS when it is none of them. */
static size_t format_of(const char *name)
{
    size_t length = strlen(name), i = 0;
    for (; i < FORMATS; i++) {
        size_t suffix = strlen(formats[i].suffix);
        if (length > suffix && strcasecmp(name + length - suffix, formats[i].suffix) == 0)
            break;
    }
    return i;
}

static int refuse_file(const char *path, struct error *error)
{
    size_t format = format_of(path);
    if (format < FORMATS)
        return error_set(error, ERR_BAD_MODEL, "%.512s: %s is not supported: " WHAT_IS_READ, path,
                         formats[format].name);
    size_t length = strlen(path), suffix = strlen(".safetensors");
    if (length > suffix && strcmp(path + length - suffix, ".safetensors") == 0)
        return error_set(error, ERR_BAD_MODEL, "%.512s: a file: name the directory that holds it",
                         path);
    return 0;
}

/* The same entry whatever order the system tells them in: the first format, its first name. */
static size_t find(DIR *directory, char name[256])
{
    size_t best = FORMATS;
    struct dirent *entry;
    for (uint32_t i = 0; i < ENTRIES_MAX && (entry = readdir(directory)); i++) {
        size_t format = is_beside(entry->d_name) ? FORMATS : format_of(entry->d_name);
        if (format > best || format == FORMATS ||
            (format == best && strcmp(entry->d_name, name) >= 0))
            continue;
        best = format;
        snprintf(name, 256, "%s", entry->d_name);
    }
    return best;
}

int format_refuse(const char *path, const char *wanted, struct error *error)
{
    struct stat status;
    char name[256] = "";
    if (stat(path, &status) == 0 && S_ISREG(status.st_mode))
        return refuse_file(path, error);
    if (file_exists(path, wanted))
        return 0;
    if (file_exists(path, "snapshots") && file_exists(path, "refs"))
        return error_set(error, ERR_BAD_MODEL,
                         "%.256s: a repository of Hugging Face's cache: name a directory in its "
                         "snapshots/",
                         path);
    DIR *directory = opendir(path);
    size_t format = directory ? find(directory, name) : FORMATS;
    if (directory)
        closedir(directory);
    if (format == FORMATS)
        return 0;
    return error_set(error, ERR_BAD_MODEL,
                     "%.256s: holds %.128s and no %s: %s is not supported: " WHAT_IS_READ, path,
                     name, wanted, formats[format].name);
}
