#include "tests/gpu/packed.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gpu/checkpoint/safetensors.h"

#define TEXT_MAX 65536
#define PATH_MAX_HERE 512

static const struct {
    const char *first, *parts[3], *packed;
} packs[] = {
    {"q_proj", {"q_proj", "k_proj", "v_proj"}, "qkv_proj"},
    {"gate_proj", {"gate_proj", "up_proj", NULL}, "gate_up_proj"},
};

static char data[1 << 20], header[TEXT_MAX];
static size_t data_used, header_used;

/* The name with `from` in it replaced; false: it is not in it. */
static bool renamed(const char *name, const char *from, const char *to, char *ret, size_t size)
{
    const char *at = strstr(name, from);
    if (at)
        snprintf(ret, size, "%.*s%s%s", (int)(at - name), name, to, at + strlen(from));
    return at != NULL;
}

static void tensor_put(const char *name, const struct safetensors_tensor *like, uint64_t rows,
                       size_t from)
{
    header_used += (size_t)snprintf(header + header_used, sizeof header - header_used,
                                    "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%" PRIu64,
                                    header_used > 9 ? "," : "", name, like->dtype, rows);
    if (like->rank == 2)
        header_used += (size_t)snprintf(header + header_used, sizeof header - header_used,
                                        ",%" PRIu64, like->shape[1]);
    header_used += (size_t)snprintf(header + header_used, sizeof header - header_used,
                                    "],\"data_offsets\":[%zu,%zu]}", from, data_used);
}

static uint64_t bytes_put(int fd, const struct safetensors_tensor *tensor)
{
    if (pread(fd, data + data_used, tensor->bytes, (off_t)tensor->offset) != (ssize_t)tensor->bytes)
        return 0;
    data_used += tensor->bytes;
    return tensor->shape[0];
}

/* True: the tensor is a part of what another one of its layer begins. */
static bool is_later_part(const char *name)
{
    return strstr(name, ".k_proj") || strstr(name, ".v_proj") || strstr(name, ".up_proj");
}

static void tensor_pack(int fd, const struct safetensors *all,
                        const struct safetensors_tensor *tensor)
{
    size_t from = data_used;
    char name[256];
    for (size_t i = 0; i < sizeof packs / sizeof *packs; i++) {
        uint64_t rows = 0;
        if (!strstr(tensor->name, packs[i].first))
            continue;
        for (int j = 0; j < 3 && packs[i].parts[j]; j++) {
            (void)renamed(tensor->name, packs[i].first, packs[i].parts[j], name, sizeof name);
            rows += bytes_put(fd, safetensors_find(all, name));
        }
        (void)renamed(tensor->name, packs[i].first, packs[i].packed, name, sizeof name);
        tensor_put(name, tensor, rows, from);
        return;
    }
    tensor_put(tensor->name, tensor, bytes_put(fd, tensor), from);
}

static bool file_write(const char *directory, const char *name, const char *head, size_t head_bytes,
                       const char *body, size_t body_bytes)
{
    char path[PATH_MAX_HERE];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *out = fopen(path, "w");
    bool done = out && fwrite(head, 1, head_bytes, out) == head_bytes &&
                fwrite(body, 1, body_bytes, out) == body_bytes;
    return out && !fclose(out) && done;
}

/* What each tensor is multiplied by, as powers of two: the multipliers of `granite` undo it. */
static const struct {
    const char *name;
    int power;
} scales[] = {{"embed_tokens", -2}, {"o_proj", 1}, {"down_proj", 1}, {"lm_head", 3}};

static const char granite[] = "{\"embedding_multiplier\":4,\"residual_multiplier\":0.5,"
                              "\"logits_scaling\":8,\"attention_multiplier\":0.125,";

static void tensor_scale(int fd, const struct safetensors *all,
                         const struct safetensors_tensor *tensor)
{
    size_t from = data_used;
    (void)all;
    uint64_t rows = bytes_put(fd, tensor);
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++) {
        uint16_t *values = (uint16_t *)(void *)(data + from);
        for (size_t j = 0; strstr(tensor->name, scales[i].name) && j < tensor->bytes / 2; j++) {
            int exponent = values[j] >> 7 & 0xff;
            if (exponent)
                values[j] = (uint16_t)((values[j] & 0x807f) | (exponent + scales[i].power) << 7);
        }
    }
    tensor_put(tensor->name, tensor, rows, from);
}

static void tensor_copy(int fd, const struct safetensors *all,
                        const struct safetensors_tensor *tensor)
{
    size_t from = data_used;
    (void)all;
    tensor_put(tensor->name, tensor, bytes_put(fd, tensor), from);
}

typedef void tensor_make(int fd, const struct safetensors *all,
                         const struct safetensors_tensor *tensor);

static bool weights_make(const char *from, const char *directory, tensor_make *make,
                         bool packs_parts)
{
    char path[PATH_MAX_HERE];
    struct safetensors all;
    struct stat stat;
    snprintf(path, sizeof path, "%s/model.safetensors", from);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &stat) ||
        safetensors_read(fd, path, (uint64_t)stat.st_size, &all, NULL))
        return false;
    data_used = 0;
    header_used = (size_t)snprintf(header + 8, 2, "{") + 8;
    for (size_t i = 0; i < all.count; i++) {
        if (!packs_parts || !is_later_part(all.tensors[i].name))
            make(fd, &all, &all.tensors[i]);
    }
    header[header_used++] = '}';
    uint64_t length = header_used - 8;
    memcpy(header, &length, sizeof length);
    close(fd);
    safetensors_free(&all);
    return file_write(directory, "model.safetensors", header, header_used, data, data_used);
}

/* config.json with another class and type, `head` in the place of its first brace. */
static bool config_make(const char *from, const char *directory, const char *type,
                        const char *new_class, const char *new_type, const char *head)
{
    char path[PATH_MAX_HERE], text[4096], once[4096], class[64];
    snprintf(path, sizeof path, "%s/config.json", from);
    FILE *in = fopen(path, "r");
    size_t length = in ? fread(text, 1, sizeof text - 1, in) : 0;
    text[length] = '\0';
    if (in)
        fclose(in);
    snprintf(class, sizeof class, "\"%c%sForCausalLM\"", type[0] - 'a' + 'A', type + 1);
    return renamed(text, class, new_class, once, sizeof once) &&
           renamed(once, type, new_type, text, sizeof text) &&
           file_write(directory, "config.json", head, strlen(head), text + 1, strlen(text + 1));
}

bool packed_make(const char *from, const char *type, const char *directory)
{
    return config_make(from, directory, type, "\"Phi3ForCausalLM\"", "phi3", "{") &&
           weights_make(from, directory, tensor_pack, true);
}

bool scaled_make(const char *from, const char *type, const char *directory)
{
    return config_make(from, directory, type, "\"GraniteForCausalLM\"", "granite", granite) &&
           weights_make(from, directory, tensor_scale, false);
}

bool rotated_make(const char *from, const char *type, const char *directory)
{
    return config_make(from, directory, type, "\"SmolLM3ForCausalLM\"", "smollm3",
                       "{\"no_rope_layer_interval\":4,") &&
           weights_make(from, directory, tensor_copy, false);
}

bool unrotated_make(const char *from, const char *type, const char *directory)
{
    return config_make(from, directory, type, "\"SmolLM3ForCausalLM\"", "smollm3",
                       "{\"no_rope_layers\":[0],") &&
           weights_make(from, directory, tensor_copy, false);
}
