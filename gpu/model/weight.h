/* The weights that a config asks for: names, shapes and presence, for the loader and the engine
 * alike. Matrices are row major, [outputs][inputs], as PyTorch's Linear keeps them. Any thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpu/model/config.h"

#define WEIGHT_NAME_MAX 96

enum weight_role {
#define WEIGHT(ROLE, per_layer, name, rows, columns, present) WEIGHT_##ROLE,
#include "gpu/model/weight.def"
#undef WEIGHT
    WEIGHT_ROLES
};

struct weight_shape {
    uint32_t rank; /* 1 or 2 */
    uint32_t rows;
    uint32_t columns; /* 1 where rank is 1 */
};

bool weight_present(const struct model_config *config, enum weight_role role);
bool weight_per_layer(enum weight_role role);
struct weight_shape weight_shape(const struct model_config *config, enum weight_role role);

/* "model.layers.3.mlp.up_proj.weight"; layer is ignored where the weight is not per layer. */
void weight_name(enum weight_role role, uint32_t layer, char name[WEIGHT_NAME_MAX]);

/* Elements of all present weights: what the model is called by ("1.2 billion parameters"). */
uint64_t weight_elements(const struct model_config *config);
