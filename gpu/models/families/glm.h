/* What GLM (glm.c) and GLM-4 (glm4.c) have in common. Any thread. */
#pragma once

#include "gpu/models/base/decoder.h"

extern const struct config_key glm_keys[];
int glm_rules(const struct fields *fields, struct model_config *config);
