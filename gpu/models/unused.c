#include "gpu/models/unused.h"

#include <stdlib.h>
#include <string.h>

#include "gpu/models/base/family.h"

#define ZEROS_MAX (4u << 20) /* bytes that are looked through; a bias has no more */

static bool begins(const char *name, const char *with)
{
    return !strncmp(name, with, strlen(with));
}

static bool ends(const char *name, const char *with)
{
    size_t length = strlen(name), ending = strlen(with);
    return length >= ending && !strcmp(name + length - ending, with);
}

/* A layer behind the last: such as guess tokens ahead stand there. */
static bool is_behind(const struct model_config *config, const char *name)
{
    const char *pattern = config->names->layers, *number = strchr(pattern, '%');
    size_t length = number ? (size_t)(number - pattern) : 0;
    char *end = NULL;
    if (!number || strncmp(name, pattern, length) != 0)
        return false;
    unsigned long layer = strtoul(name + length, &end, 10);
    return end != name + length && *end == '.' && layer >= config->layers;
}

/* Of the part that is computed. */
static bool is_of_model(const struct model_config *config, const char *name)
{
    const char *head = config->names->head;
    size_t length = strlen(head);
    bool of_head = begins(name, head) && name[length] == '.';
    return of_head || (begins(name, config->names->model) && !is_behind(config, name));
}

/* Scales of keys and values are read where they are heeded; angles are made of the config; a head
 * beside an embedding that is tied to it is that embedding; which tokens a head that guesses knows,
 * it says twice. */
static bool says_nothing(const struct model_config *config, const char *name)
{
    static const char *const endings[] = {".inv_freq", ".k_scale",    ".v_scale",
                                          ".q_scale",  ".prob_scale", ".kv_scale"};
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (ends(name, endings[i]))
            return true;
    size_t length = strlen(config->names->head);
    if (config->draft_vocab && !strcmp(name, "t2d"))
        return true;
    return config->tied && begins(name, config->names->head) && !strcmp(name + length, ".weight");
}

static int zeros_look(const struct checkpoint *checkpoint, const struct checkpoint_tensor *tensor,
                      bool *ret, struct error *error)
{
    char bytes[4096];
    for (uint64_t at = 0; at < tensor->bytes; at += sizeof bytes) {
        uint64_t left = tensor->bytes - at;
        size_t size = left < sizeof bytes ? (size_t)left : sizeof bytes;
        int rc = checkpoint_read(checkpoint, tensor, at, size, bytes, error);
        if (rc)
            return rc;
        if (bytes[0] || memcmp(bytes, bytes + 1, size - 1) != 0)
            return 0;
    }
    *ret = true;
    return 0;
}

/* Zeros that are added to something: d2t where a head knows all tokens. */
static int adds_nothing(const struct checkpoint *checkpoint, const struct checkpoint_rest *rest,
                        bool *ret, struct error *error)
{
    bool adds = ends(rest->name, ".bias") || ends(rest->name, ".weight_zero_point") ||
                !strcmp(rest->name, "d2t");
    if (!adds || rest->at.bytes > ZEROS_MAX)
        return 0;
    return zeros_look(checkpoint, &rest->at, ret, error);
}

static int visit(const struct checkpoint_visitor *visitor, const struct checkpoint *checkpoint,
                 const struct checkpoint_rest *rest, struct error *error)
{
    const struct model_config *config = visitor->context;
    bool nothing = false;
    if (!is_of_model(config, rest->name) || says_nothing(config, rest->name))
        return 0;
    int rc = adds_nothing(checkpoint, rest, &nothing, error);
    if (rc || nothing)
        return rc;
    return error_set(error, ERR_BAD_MODEL,
                     "%s: tensor %s: a %s as config.json makes it does not take it", rest->file,
                     rest->name, config->family->type);
}

struct checkpoint_visitor unused_visitor(const struct model_config *config)
{
    return (struct checkpoint_visitor){visit, config};
}
