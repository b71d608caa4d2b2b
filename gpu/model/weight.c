#include "gpu/model/weight.h"

#include <assert.h>
#include <stdio.h>

static const struct {
    const char *name;
    bool per_layer;
} weights[WEIGHT_ROLES] = {
#define WEIGHT(ROLE, per_layer, name, rows, columns, present) {name, per_layer},
#include "gpu/model/weight.def"
#undef WEIGHT
};

bool weight_present(const struct model_config *config, enum weight_role role)
{
    const struct model_config *c = config;
    switch (role) {
#define WEIGHT(ROLE, per_layer, name, rows, columns, present)                                      \
    case WEIGHT_##ROLE:                                                                            \
        return present;
#include "gpu/model/weight.def"
#undef WEIGHT
    case WEIGHT_ROLES:
        break;
    }
    return false;
}

bool weight_per_layer(enum weight_role role)
{
    return weights[role].per_layer;
}

struct weight_shape weight_shape(const struct model_config *config, enum weight_role role)
{
    const struct model_config *c = config;
    uint32_t shape[2] = {0, 0};
    switch (role) {
#define WEIGHT(ROLE, per_layer, name, rows, columns, present)                                      \
    case WEIGHT_##ROLE:                                                                            \
        shape[0] = (rows);                                                                         \
        shape[1] = (columns);                                                                      \
        break;
#include "gpu/model/weight.def"
#undef WEIGHT
    case WEIGHT_ROLES:
        break;
    }
    return (struct weight_shape){
        .rank = shape[1] ? 2 : 1, .rows = shape[0], .columns = shape[1] ? shape[1] : 1};
}

void weight_name(enum weight_role role, uint32_t layer, char name[WEIGHT_NAME_MAX])
{
    int length =
        weights[role].per_layer
            ? snprintf(name, WEIGHT_NAME_MAX, "model.layers.%u.%s", layer, weights[role].name)
            : snprintf(name, WEIGHT_NAME_MAX, "%s", weights[role].name);
    assert(length > 0 && length < WEIGHT_NAME_MAX);
    (void)length;
}

uint64_t weight_elements(const struct model_config *config)
{
    uint64_t elements = 0;
    for (int role = 0; role < WEIGHT_ROLES; role++) {
        if (!weight_present(config, role))
            continue;
        struct weight_shape shape = weight_shape(config, role);
        elements +=
            (uint64_t)shape.rows * shape.columns * (weights[role].per_layer ? config->layers : 1);
    }
    return elements;
}
