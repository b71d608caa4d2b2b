/* The models from the options to their replicas: which devices there are, whether each model fits
 * beside those before it, and its engines. One thread.
 */
#pragma once

#include <stdint.h>

#include "daemon/adapters/adapter_folder.h"
#include "daemon/base/adapter_name.h"
#include "daemon/base/model_list.h"
#include "daemon/base/option.h"
#include "daemon/service/event_loop.h"
#include "daemon/worker/layout.h"
#include "protocol/base/error.h"

struct models {
    const struct gpu_api *gpu;
    struct model_list list; /* owned */
    int numbers[GPU_DEVICES_MAX];
    uint32_t device_count; /* 0: as many as there are */
    struct layout layouts[MODEL_LIST_MAX];
    uint32_t
        asleep; /* a bit for each that begins so: sleep-after is set, and it is not the first */
    bool alone; /* the others are looked away from */
    uint64_t
        taken[GPU_DEVICES_MAX]; /* of each of them, by the weights of models that have a layout */
    uint64_t host_limit; /* of weights and KV in host memory; 0: none, and no weights are kept */
    struct adapter_names adapters; /* of the first */
    struct gpu_adapter adapters_given[GPU_ADAPTERS_MAX];
    struct adapter_folder folder; /* likewise */
};

/* The device's module, and what of it may be used. */
int models_find(struct models *models, const struct options *options, struct error *error);
/* Model `index` by its files, and whether it goes on the devices, were they all ours, beside those
 * that were looked at before and stay awake. */
int models_check(struct models *models, uint32_t index, struct gpu_model *ret_model,
                 struct error *error);
/* How all of them lie on what is free now. */
int models_layout(struct models *models, struct error *error);
/* Of programs alone: nothing is loaded. */
int models_open_none(struct models *models, struct event_loop *loop, struct error *error);
/* All of them, after models_layout(): their replicas are the loop's, which starts them. */
int models_open(struct models *models, struct event_loop *loop, struct error *error);
void models_free(struct models *models);
