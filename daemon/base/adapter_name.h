/* The adapters of the option `adapter`, NAME=DIR each: requests name them as they name models. Their
 * numbers are those of gpu_open, from 1 on. A plain value; any thread.
 */
#pragma once

#include <stdint.h>

#include "daemon/base/model_name.h"
#include "gpu/gpu.h"

#define ADAPTER_DIRECTORY_SIZE 512

struct adapter_names {
    uint32_t count;
    struct {
        char name[MODEL_NAME_SIZE], directory[ADAPTER_DIRECTORY_SIZE];
    } at[GPU_ADAPTERS_MAX];
};

/* ERR_BAD_CONFIG names what is wrong: also a name that stands there twice. */
int adapter_names_read(struct adapter_names *ret_names, const char *list, struct error *error);
/* None is a name of the model's. */
int adapter_names_apart(const struct adapter_names *names, const struct model_names *models,
                        struct error *error);
/* As an engine takes them; what is given borrows from the names. */
void adapter_names_give(const struct adapter_names *names, struct gpu_adapter ret[GPU_ADAPTERS_MAX]);
/* 0: there is none of that name. */
uint32_t adapter_names_find(const struct adapter_names *names, const char *name);
