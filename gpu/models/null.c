/* The model that computes nothing (gpu/kernels/step/null_rule.h). */
#include "gpu/kernels/step/null_rule.h"
#include "gpu/models/family.h"

static const struct config_key keys[] = {{.name = NULL}};

static void build(struct build *b, const struct model_config *config)
{
    (void)config;
    build_null(b, sizeof(uint64_t));
}

const struct family family_null = {.type = "null", .keys = keys, .build = build};
