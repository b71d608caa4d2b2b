#include "gpu/stages.h"

#include <string.h>

#include "gpu/model/weight.h"

static uint64_t elements(const struct model_config *config, enum weight_role role)
{
    struct weight_shape shape = weight_shape(config, role);
    return (uint64_t)shape.rows * shape.columns;
}

/* All layers are alike. */
static uint64_t layer_cost(const struct model_config *config)
{
    static const enum weight_role roles[] = {WEIGHT_Q,    WEIGHT_K,  WEIGHT_V,   WEIGHT_O,
                                             WEIGHT_GATE, WEIGHT_UP, WEIGHT_DOWN};
    uint64_t cost = 0;
    for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++)
        cost += elements(config, roles[i]);
    return cost;
}

/* The dearest stage when the last one has `last` layers and the others share out the rest. */
static uint64_t worst(const struct model_config *config, uint32_t stages, uint32_t last)
{
    uint32_t others = (config->layers - last + stages - 2) / (stages - 1);
    uint64_t end = last * layer_cost(config) + elements(config, WEIGHT_HEAD);
    uint64_t other = others * layer_cost(config);
    return end > other ? end : other;
}

int stages_split(const struct model_config *config, uint32_t stages, uint32_t *first,
                 struct error *error)
{
    if (config->layers < stages)
        return error_limit(error, ERR_BAD_CONFIG, config->layers, stages,
                           "pp is %u: the model has %u layers", stages, config->layers);
    uint32_t last = config->layers;
    if (stages > 1) {
        last = 1;
        for (uint32_t i = 2; i + stages - 1 <= config->layers; i++) {
            if (worst(config, stages, i) <= worst(config, stages, last))
                last = i;
        }
    }
    uint32_t rest = config->layers - last, others = stages - 1;
    for (uint32_t i = 0; i < stages; i++)
        first[i] = others ? rest * i / others : 0;
    first[stages] = config->layers;
    return 0;
}

struct model_config stages_part(const struct model_config *config, uint32_t first, uint32_t end)
{
    struct model_config part = *config;
    part.layers = end - first;
    memmove(part.layer_group, part.layer_group + first, part.layers * sizeof *part.layer_group);
    for (uint32_t i = 0; i < part.groups_count; i++)
        part.groups[i].layers = 0;
    for (uint32_t i = 0; i < part.layers; i++)
        part.groups[part.layer_group[i]].layers++;
    return part;
}
