/* The adapters of the option `adapter-dir`: each directory in it with an adapter_config.json, by its
 * name. A plain value; any thread. Reading blocks.
 */
#pragma once

#include <stdint.h>

#include "daemon/base/adapter_name.h"
#include "protocol/base/error.h"

#define ADAPTERS_KNOWN_MAX 1024

struct adapter_folder {
    uint32_t count;
    char names[ADAPTERS_KNOWN_MAX][MODEL_NAME_SIZE]; /* in the order of their bytes */
};

/* What is none is passed over; "" has none. ERR_BAD_CONFIG: it cannot be opened, there are too many,
 * or a name is too long or has a space in it. */
int adapter_folder_read(struct adapter_folder *ret, const char *directory, struct error *error);
/* None has a name of the model's, or of the other adapters, and together they are not too many. */
int adapter_folder_apart(const struct adapter_folder *folder, const struct adapter_names *adapters,
                         const struct model_names *models, struct error *error);
