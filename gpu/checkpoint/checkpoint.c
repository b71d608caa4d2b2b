#include "gpu/checkpoint/checkpoint.h"

#include <assert.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu/checkpoint/config_field.h"
#include "gpu/checkpoint/file.h"
#include "gpu/checkpoint/format.h"
#include "gpu/checkpoint/safetensors.h"

#define SINGLE_NAME "model.safetensors"
#define INDEX_NAME "model.safetensors.index.json"

struct shard {
    char name[NAME_MAX + 1];
    int fd;
    struct safetensors header;
};

struct mapped {
    const char *name;
    uint32_t file;
};

struct checkpoint {
    uint32_t files;
    struct shard *shards;
    const char *config; /* that says what tensors are */
    uint64_t bytes;
    uint32_t count;
    struct checkpoint_tensor *tensors; /* as they were wanted; NULL: not matched yet */
    /* Until then. */
    json *index;            /* NULL with a single file */
    const json *weight_map; /* of the index */
    struct mapped *mapped;  /* the weight map by name */
    size_t mapped_count;
};

struct opening {
    struct checkpoint *checkpoint;
    const char *directory;
    struct error *error;
};

static int by_mapped_name(const void *a, const void *b)
{
    const struct mapped *left = a, *right = b;
    return strcmp(left->name, right->name);
}

static int open_shard(struct opening *opening, const char *name)
{
    struct checkpoint *checkpoint = opening->checkpoint;
    struct shard *shard = &checkpoint->shards[checkpoint->files];
    uint64_t bytes = 0;
    int fd = -1;
    int rc = file_open(opening->directory, name, &fd, &bytes, opening->error);
    if (rc)
        return rc;
    snprintf(shard->name, sizeof(shard->name), "%s", name);
    shard->fd = fd;
    checkpoint->files++;
    return safetensors_read(fd, shard->name, bytes, &shard->header, opening->error);
}

static int check_shard_name(struct opening *opening, const json *member)
{
    struct fields fields = {opening->checkpoint->weight_map, INDEX_NAME, "weight_map",
                            opening->error};
    const char *name = json_string(member);
    if (!json_is_string(member) || !*name || strlen(name) > NAME_MAX || strchr(name, '/') ||
        name[0] == '.')
        return field_refuse(&fields, json_key(member), member, "the name of a file beside it");
    return 0;
}

/* The shard of that name, opened where it is the first to be named. */
static int find_shard(struct opening *opening, const char *name, uint32_t *ret_file)
{
    struct checkpoint *checkpoint = opening->checkpoint;
    for (uint32_t file = checkpoint->files; file-- > 0;)
        if (strcmp(checkpoint->shards[file].name, name) == 0) {
            *ret_file = file;
            return 0;
        }
    if (checkpoint->files == CHECKPOINT_FILES_MAX)
        return error_limit(opening->error, ERR_BAD_MODEL, CHECKPOINT_FILES_MAX,
                           CHECKPOINT_FILES_MAX + 1, "%s: names more than %u files", INDEX_NAME,
                           CHECKPOINT_FILES_MAX);
    *ret_file = checkpoint->files;
    return open_shard(opening, name);
}

static int open_mapped(struct opening *opening)
{
    struct checkpoint *checkpoint = opening->checkpoint;
    struct error *error = opening->error;
    checkpoint->mapped =
        calloc(json_count(checkpoint->weight_map) + 1, sizeof(*checkpoint->mapped));
    if (!checkpoint->mapped)
        return error_set(error, ERR_NO_MEMORY, "no memory for %s", INDEX_NAME);
    const json *member = json_child(checkpoint->weight_map);
    for (; member; member = json_next(member)) {
        struct mapped *mapped = &checkpoint->mapped[checkpoint->mapped_count];
        mapped->name = json_key(member);
        int rc = check_shard_name(opening, member);
        if (rc == 0)
            rc = find_shard(opening, json_string(member), &mapped->file);
        if (rc)
            return rc;
        const struct shard *shard = &checkpoint->shards[mapped->file];
        if (!safetensors_find(&shard->header, mapped->name))
            return error_set(error, ERR_BAD_MODEL,
                             "%s: weight_map.%.200s: %s does not hold that tensor", INDEX_NAME,
                             mapped->name, shard->name);
        checkpoint->mapped_count++;
    }
    qsort(checkpoint->mapped, checkpoint->mapped_count, sizeof(*checkpoint->mapped),
          by_mapped_name);
    return 0;
}

static const struct safetensors_tensor *find_tensor(const struct checkpoint *checkpoint,
                                                    const char *name, uint32_t *ret_file)
{
    *ret_file = 0;
    if (checkpoint->weight_map) {
        struct mapped key = {.name = name};
        const struct mapped *mapped = bsearch(&key, checkpoint->mapped, checkpoint->mapped_count,
                                              sizeof(*checkpoint->mapped), by_mapped_name);
        if (!mapped)
            return NULL;
        *ret_file = mapped->file;
    }
    return safetensors_find(&checkpoint->shards[*ret_file].header, name);
}

bool checkpoint_has(const struct checkpoint *checkpoint, const char *name)
{
    uint32_t file;
    assert(!checkpoint->tensors);
    return find_tensor(checkpoint, name, &file) != NULL;
}

static int check_dtype(const char *file, const struct safetensors_tensor *tensor, uint32_t dtypes,
                       enum model_dtype *ret, struct error *error)
{
    for (enum model_dtype dtype = MODEL_F32; dtype < MODEL_DTYPES; dtype++)
        if ((dtypes >> dtype & 1) && strcmp(tensor->dtype, model_dtype_name(dtype)) == 0) {
            *ret = dtype;
            return 0;
        }
    for (enum model_dtype dtype = MODEL_E4M3; dtype < MODEL_DTYPES; dtype++)
        if (dtypes == 1u << dtype)
            return error_set(error, ERR_BAD_MODEL,
                             "%s: tensor %s: dtype: %s is not %s, as quantization_config makes it",
                             file, tensor->name, tensor->dtype, model_dtype_name(dtype));
    return error_set(error, ERR_BAD_MODEL,
                     "%s: tensor %s: dtype: %s is not supported (BF16, F16 and F32 are)", file,
                     tensor->name, tensor->dtype);
}

static void show_shape(const struct safetensors_tensor *tensor, char shown[192])
{
    size_t used = 0;
    shown[0] = '\0';
    for (uint32_t i = 0; i < tensor->rank; i++)
        used += (size_t)snprintf(shown + used, 192 - used, "%s%" PRIu64, i ? ", " : "",
                                 tensor->shape[i]);
}

/* Sizes of 1 left out. */
static bool same_squeezed(const struct safetensors_tensor *tensor, struct checkpoint_shape wanted)
{
    uint32_t sizes[2] = {wanted.rows, wanted.columns}, at = 0;
    for (uint32_t i = 0; i < tensor->rank; i++) {
        if (tensor->shape[i] == 1)
            continue;
        while (at < 2 && sizes[at] == 1)
            at++;
        if (at == 2 || tensor->shape[i] != sizes[at++])
            return false;
    }
    while (at < 2 && sizes[at] == 1)
        at++;
    return at == 2;
}

/* Its sizes; how many there are. */
static uint32_t sizes_of(struct checkpoint_shape shape, uint64_t sizes[4])
{
    uint32_t count = 0;
    if (shape.matrices)
        sizes[count++] = shape.matrices;
    sizes[count++] = shape.rows;
    if (shape.rank == 2)
        sizes[count++] = shape.columns;
    if (shape.block)
        sizes[count++] = shape.block;
    return count;
}

static int check_shape(const char *file, const char *config,
                       const struct safetensors_tensor *tensor,
                       const struct checkpoint_wanted *like, struct error *error)
{
    struct safetensors_tensor wanted = {.rank = 0};
    char shown[192], text[192];
    wanted.rank = sizes_of(like->shape, wanted.shape);
    if (like->squeezed ? same_squeezed(tensor, like->shape)
                       : tensor->rank == wanted.rank &&
                             !memcmp(tensor->shape, wanted.shape, wanted.rank * sizeof(uint64_t)))
        return 0;
    show_shape(tensor, shown);
    show_shape(&wanted, text);
    return error_set(error, ERR_BAD_MODEL,
                     "%s: tensor %s: shape: [%s] is not [%s], as %s makes it", file,
                     tensor->name, shown, text, config);
}

static int place(struct checkpoint *checkpoint, const struct checkpoint_wanted *wanted,
                 struct checkpoint_tensor *ret, struct error *error)
{
    uint32_t file = 0;
    const struct safetensors_tensor *tensor = find_tensor(checkpoint, wanted->name, &file);
    if (!tensor)
        return error_set(error, ERR_BAD_MODEL, "%s: tensor %s: missing",
                         checkpoint->weight_map ? INDEX_NAME : checkpoint->shards[0].name,
                         wanted->name);
    const char *shard = checkpoint->shards[file].name;
    struct checkpoint_tensor placed = {.words = wanted->words,
                                       .shape = wanted->shape,
                                       .bytes = tensor->bytes,
                                       .file = file,
                                       .offset = tensor->offset};
    uint32_t dtypes = wanted->dtypes ? wanted->dtypes : MODEL_NUMBERS;
    int rc = check_dtype(shard, tensor, dtypes, &placed.dtype, error);
    if (rc == 0)
        rc = check_shape(shard, checkpoint->config, tensor, wanted, error);
    if (rc)
        return rc;
    *ret = placed;
    checkpoint->bytes += placed.bytes;
    return 0;
}

/* The headers have done their work: what is kept is the place of each tensor. */
static void free_headers(struct checkpoint *checkpoint)
{
    for (uint32_t file = 0; file < checkpoint->files; file++)
        safetensors_free(&checkpoint->shards[file].header);
    free(checkpoint->mapped);
    json_free(checkpoint->index);
    checkpoint->mapped = NULL;
    checkpoint->index = NULL;
    checkpoint->weight_map = NULL;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int visit_rest(const struct checkpoint *checkpoint, const char *const *names, uint32_t count,
                      const struct checkpoint_visitor *visitor, struct error *error)
{
    int rc = 0;
    for (uint32_t file = 0; !rc && file < checkpoint->files; file++) {
        const struct shard *shard = &checkpoint->shards[file];
        for (size_t i = 0; !rc && i < shard->header.count; i++) {
            const struct safetensors_tensor *tensor = &shard->header.tensors[i];
            struct checkpoint_rest rest = {
                shard->name,
                tensor->name,
                {.bytes = tensor->bytes, .file = file, .offset = tensor->offset}};
            if (!bsearch(&tensor->name, names, count, sizeof *names, by_name))
                rc = visitor->visit(visitor, checkpoint, &rest, error);
        }
    }
    return rc;
}

static int show_rest(const struct checkpoint *checkpoint, const struct checkpoint_wanted *wanted,
                     uint32_t count, const struct checkpoint_visitor *visitor, struct error *error)
{
    const char **names = calloc(count ? count : 1, sizeof *names);
    if (!names)
        return error_set(error, ERR_NO_MEMORY, "no memory for names of %u tensors", count);
    for (uint32_t i = 0; i < count; i++)
        names[i] = wanted[i].name;
    qsort(names, count, sizeof *names, by_name);
    int rc = visit_rest(checkpoint, names, count, visitor, error);
    free(names);
    return rc;
}

int checkpoint_match(struct checkpoint *checkpoint, const struct checkpoint_wanted *wanted,
                     uint32_t count, const struct checkpoint_visitor *rest, struct error *error)
{
    assert(!checkpoint->tensors);
    struct checkpoint_tensor *tensors = calloc(count ? count : 1, sizeof(*tensors));
    if (!tensors)
        return error_set(error, ERR_NO_MEMORY, "no memory for %u tensors", count);
    int rc = 0;
    for (uint32_t i = 0; !rc && i < count; i++)
        rc = place(checkpoint, &wanted[i], &tensors[i], error);
    if (rc == 0 && rest)
        rc = show_rest(checkpoint, wanted, count, rest, error);
    if (rc) {
        free(tensors);
        return rc;
    }
    checkpoint->tensors = tensors;
    checkpoint->count = count;
    free_headers(checkpoint);
    return 0;
}

static int open_sharded(struct opening *opening)
{
    struct checkpoint *checkpoint = opening->checkpoint;
    char *text = NULL;
    size_t length = 0;
    int rc = file_text(opening->directory, INDEX_NAME, SAFETENSORS_HEADER_MAX, &text, &length,
                       opening->error);
    if (rc == 0)
        rc = safetensors_json(text, length, INDEX_NAME, &checkpoint->index, opening->error);
    free(text);
    if (rc)
        return rc;
    struct fields fields = {checkpoint->index, INDEX_NAME, NULL, opening->error};
    checkpoint->weight_map = field_get(&fields, "weight_map");
    if (!json_is_object(checkpoint->weight_map))
        return checkpoint->weight_map
                   ? field_refuse(&fields, "weight_map", checkpoint->weight_map, "an object")
                   : field_require(&fields, "weight_map");
    return open_mapped(opening);
}

static int open_files(const char *directory, const char *single, const char *config, bool sharded,
                      struct checkpoint **ret_checkpoint, struct error *error)
{
    int rc = 0;
    struct checkpoint *checkpoint = calloc(1, sizeof(*checkpoint));
    if (checkpoint)
        checkpoint->shards = calloc(CHECKPOINT_FILES_MAX, sizeof(*checkpoint->shards));
    if (!checkpoint || !checkpoint->shards) {
        free(checkpoint);
        return error_set(error, ERR_NO_MEMORY, "no memory to open %s", directory);
    }
    checkpoint->config = config;
    struct opening opening = {.checkpoint = checkpoint, .directory = directory, .error = error};
    rc = sharded ? open_sharded(&opening) : open_shard(&opening, single);
    if (rc) {
        checkpoint_close(checkpoint);
        return rc;
    }
    *ret_checkpoint = checkpoint;
    return 0;
}

int checkpoint_open(const char *directory, struct checkpoint **ret_checkpoint, struct error *error)
{
    bool index = file_exists(directory, INDEX_NAME);
    int rc = index ? 0 : format_refuse(directory, SINGLE_NAME, error);
    bool sharded = index && !file_exists(directory, SINGLE_NAME);
    return rc ? rc
              : open_files(directory, SINGLE_NAME, "config.json", sharded, ret_checkpoint, error);
}

int checkpoint_open_file(const char *directory, const char *file, const char *config,
                         struct checkpoint **ret_checkpoint, struct error *error)
{
    int rc = format_refuse(directory, file, error);
    return rc ? rc : open_files(directory, file, config, false, ret_checkpoint, error);
}

void checkpoint_close(struct checkpoint *checkpoint)
{
    if (!checkpoint)
        return;
    free_headers(checkpoint);
    for (uint32_t file = 0; file < checkpoint->files; file++)
        close(checkpoint->shards[file].fd);
    free(checkpoint->shards);
    free(checkpoint->tensors);
    free(checkpoint);
}

const struct checkpoint_tensor *checkpoint_tensor(const struct checkpoint *checkpoint, uint32_t i)
{
    assert(i < checkpoint->count);
    return &checkpoint->tensors[i];
}

uint32_t checkpoint_files(const struct checkpoint *checkpoint)
{
    return checkpoint->files;
}

uint64_t checkpoint_bytes(const struct checkpoint *checkpoint)
{
    return checkpoint->bytes;
}

int checkpoint_read(const struct checkpoint *checkpoint, const struct checkpoint_tensor *tensor,
                    uint64_t offset, size_t bytes, void *buffer, struct error *error)
{
    assert(offset <= tensor->bytes && bytes <= tensor->bytes - offset);
    const struct shard *shard = &checkpoint->shards[tensor->file];
    return file_read(shard->fd, shard->name, tensor->offset + offset, buffer, bytes, error);
}
