/* The names under which the model is served: those of the option served-model-name, or the model's
 * own. The first is told in answers, figures and logs; requests may name any. Not changed once it is
 * made.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "protocol/base/error.h"

#define MODEL_NAMES_MAX 16
#define MODEL_NAME_SIZE 128 /* as gpu_model.id */

struct model_names {
    uint32_t count;
    char names[MODEL_NAMES_MAX][MODEL_NAME_SIZE];
};

/* The list of the option; `own` where it is empty. ERR_BAD_CONFIG names what is wrong, and leaves
 * *ret_names alone. */
int model_names_read(struct model_names *ret_names, const char *list, const char *own,
                     struct error *error);
bool model_names_has(const struct model_names *names, const char *name);
