#include "gpu/model/checkpoint.h"

#include <assert.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu/model/field.h"
#include "gpu/model/file.h"
#include "gpu/model/safetensors.h"

#define SINGLE_NAME "model.safetensors"
#define INDEX_NAME "model.safetensors.index.json"

struct shard {
    char name[NAME_MAX + 1];
    int fd;
    struct safetensors header;
};

struct checkpoint {
    uint32_t files;
    struct shard *shards;
    uint32_t layers;
    uint64_t bytes;
    struct checkpoint_tensor *weights; /* layers x WEIGHT_ROLES; bytes 0: the config has no such */
};

/* What opening needs and the open checkpoint does not. */
struct opening {
    struct checkpoint *checkpoint;
    const char *directory;
    const json *weight_map; /* NULL with a single file */
    struct mapped *mapped;  /* the weight map by name */
    size_t mapped_count;
    struct error *error;
};

struct mapped {
    const char *name;
    uint32_t file;
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
    struct fields fields = {opening->weight_map, INDEX_NAME, "weight_map", opening->error};
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
    struct error *error = opening->error;
    opening->mapped = calloc(json_count(opening->weight_map) + 1, sizeof(*opening->mapped));
    if (!opening->mapped)
        return error_set(error, ERR_NO_MEMORY, "no memory for %s", INDEX_NAME);
    const json *member = json_child(opening->weight_map);
    for (; member; member = json_next(member)) {
        struct mapped *mapped = &opening->mapped[opening->mapped_count];
        mapped->name = json_key(member);
        int rc = check_shard_name(opening, member);
        if (rc == 0)
            rc = find_shard(opening, json_string(member), &mapped->file);
        if (rc)
            return rc;
        const struct shard *shard = &opening->checkpoint->shards[mapped->file];
        if (!safetensors_find(&shard->header, mapped->name))
            return error_set(error, ERR_BAD_MODEL,
                             "%s: weight_map.%.200s: %s does not hold that tensor", INDEX_NAME,
                             mapped->name, shard->name);
        opening->mapped_count++;
    }
    qsort(opening->mapped, opening->mapped_count, sizeof(*opening->mapped), by_mapped_name);
    return 0;
}

static const struct safetensors_tensor *find_tensor(const struct opening *opening, const char *name,
                                                    uint32_t *ret_file)
{
    *ret_file = 0;
    if (opening->weight_map) {
        struct mapped key = {.name = name};
        const struct mapped *mapped = bsearch(&key, opening->mapped, opening->mapped_count,
                                              sizeof(*opening->mapped), by_mapped_name);
        if (!mapped)
            return NULL;
        *ret_file = mapped->file;
    }
    return safetensors_find(&opening->checkpoint->shards[*ret_file].header, name);
}

static int check_dtype(const struct opening *opening, const char *file,
                       const struct safetensors_tensor *tensor, enum model_dtype *ret)
{
    for (enum model_dtype dtype = MODEL_F32; dtype <= MODEL_BF16; dtype++)
        if (strcmp(tensor->dtype, model_dtype_name(dtype)) == 0) {
            *ret = dtype;
            return 0;
        }
    return error_set(opening->error, ERR_BAD_MODEL,
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

static int check_shape(const struct opening *opening, const char *file,
                       const struct safetensors_tensor *tensor, struct weight_shape wanted)
{
    if (tensor->rank == wanted.rank && tensor->shape[0] == wanted.rows &&
        (wanted.rank == 1 || tensor->shape[1] == wanted.columns))
        return 0;
    char shown[192], text[48];
    show_shape(tensor, shown);
    if (wanted.rank == 1)
        snprintf(text, sizeof(text), "%u", wanted.rows);
    else
        snprintf(text, sizeof(text), "%u, %u", wanted.rows, wanted.columns);
    return error_set(opening->error, ERR_BAD_MODEL,
                     "%s: tensor %s: shape: [%s] is not [%s], as config.json makes it", file,
                     tensor->name, shown, text);
}

static int place_weight(const struct opening *opening, const struct model_config *config,
                        enum weight_role role, uint32_t layer)
{
    struct checkpoint *checkpoint = opening->checkpoint;
    char name[WEIGHT_NAME_MAX];
    weight_name(role, layer, name);
    uint32_t file = 0;
    const struct safetensors_tensor *tensor = find_tensor(opening, name, &file);
    if (!tensor)
        return error_set(opening->error, ERR_BAD_MODEL, "%s: tensor %s: missing",
                         opening->weight_map ? INDEX_NAME : SINGLE_NAME, name);
    const char *shard = checkpoint->shards[file].name;
    struct checkpoint_tensor placed = {.shape = weight_shape(config, role),
                                       .bytes = tensor->bytes,
                                       .file = file,
                                       .offset = tensor->offset};
    int rc = check_dtype(opening, shard, tensor, &placed.dtype);
    if (rc == 0)
        rc = check_shape(opening, shard, tensor, placed.shape);
    if (rc)
        return rc;
    checkpoint->weights[(size_t)layer * WEIGHT_ROLES + role] = placed;
    checkpoint->bytes += placed.bytes;
    return 0;
}

static int place_weights(const struct opening *opening, struct model_config *config)
{
    uint32_t file = 0;
    char head[WEIGHT_NAME_MAX];
    weight_name(WEIGHT_HEAD, 0, head);
    if (!find_tensor(opening, head, &file))
        config->tied = true;
    struct checkpoint *checkpoint = opening->checkpoint;
    checkpoint->layers = config->layers;
    checkpoint->weights =
        calloc((size_t)config->layers * WEIGHT_ROLES, sizeof(*checkpoint->weights));
    if (!checkpoint->weights)
        return error_set(opening->error, ERR_NO_MEMORY, "no memory for %u layers", config->layers);
    for (int role = 0; role < WEIGHT_ROLES; role++) {
        uint32_t layers = weight_per_layer(role) ? config->layers : 1;
        for (uint32_t layer = 0; weight_present(config, role) && layer < layers; layer++) {
            int rc = place_weight(opening, config, role, layer);
            if (rc)
                return rc;
        }
    }
    return 0;
}

static int open_sharded(struct opening *opening, struct model_config *config)
{
    char *text = NULL;
    size_t length = 0;
    json *document = NULL;
    int rc = file_text(opening->directory, INDEX_NAME, SAFETENSORS_HEADER_MAX, &text, &length,
                       opening->error);
    if (rc == 0)
        rc = safetensors_json(text, length, INDEX_NAME, &document, opening->error);
    free(text);
    if (rc)
        return rc;
    struct fields fields = {document, INDEX_NAME, NULL, opening->error};
    opening->weight_map = field_get(&fields, "weight_map");
    if (!json_is_object(opening->weight_map))
        rc = opening->weight_map
                 ? field_refuse(&fields, "weight_map", opening->weight_map, "an object")
                 : field_require(&fields, "weight_map");
    if (rc == 0)
        rc = open_mapped(opening);
    if (rc == 0)
        rc = place_weights(opening, config);
    free(opening->mapped);
    json_free(document);
    return rc;
}

static int open_files(struct opening *opening, struct model_config *config)
{
    if (!file_exists(opening->directory, SINGLE_NAME) &&
        file_exists(opening->directory, INDEX_NAME))
        return open_sharded(opening, config);
    int rc = open_shard(opening, SINGLE_NAME);
    return rc ? rc : place_weights(opening, config);
}

/* The headers have done their work: what is kept is the place of each weight. */
static void free_headers(struct checkpoint *checkpoint)
{
    for (uint32_t file = 0; file < checkpoint->files; file++)
        safetensors_free(&checkpoint->shards[file].header);
}

int checkpoint_open(const char *directory, struct model_config *config,
                    struct checkpoint **ret_checkpoint, struct error *error)
{
    struct checkpoint *checkpoint = calloc(1, sizeof(*checkpoint));
    if (checkpoint)
        checkpoint->shards = calloc(CHECKPOINT_FILES_MAX, sizeof(*checkpoint->shards));
    if (!checkpoint || !checkpoint->shards) {
        free(checkpoint);
        return error_set(error, ERR_NO_MEMORY, "no memory to open %s", directory);
    }
    struct opening opening = {.checkpoint = checkpoint, .directory = directory, .error = error};
    struct model_config made = *config;
    int rc = open_files(&opening, &made);
    free_headers(checkpoint);
    if (rc) {
        checkpoint_close(checkpoint);
        return rc;
    }
    *config = made;
    *ret_checkpoint = checkpoint;
    return 0;
}

void checkpoint_close(struct checkpoint *checkpoint)
{
    if (!checkpoint)
        return;
    for (uint32_t file = 0; file < checkpoint->files; file++)
        close(checkpoint->shards[file].fd);
    free(checkpoint->shards);
    free(checkpoint->weights);
    free(checkpoint);
}

const struct checkpoint_tensor *checkpoint_weight(const struct checkpoint *checkpoint,
                                                  enum weight_role role, uint32_t layer)
{
    assert(layer < (weight_per_layer(role) ? checkpoint->layers : 1));
    const struct checkpoint_tensor *tensor =
        &checkpoint->weights[(size_t)layer * WEIGHT_ROLES + role];
    return tensor->bytes ? tensor : NULL;
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
