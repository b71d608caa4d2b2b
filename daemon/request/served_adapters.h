/* The adapters that are served: what requests name as they name a model, and figures of each.
 *
 * A place has a number, which plans name (gpu_open.adapter), and what is in it a load, which names of
 * cached prefixes begin with: what another adapter left under the same number is not found. A request
 * holds its adapter from when it is made until it is freed; one that is taken away is not found any
 * more, and its place is free once nobody holds it.
 *
 *     FREE -> LOADING -> SERVED -> LEAVING -> FREE
 *
 * loop thread
 */
#pragma once

#include <stdint.h>

#include "daemon/base/adapter_name.h"

enum adapter_state { ADAPTER_FREE, ADAPTER_LOADING, ADAPTER_SERVED, ADAPTER_LEAVING };

struct served_adapter {
    enum adapter_state state;
    char name[MODEL_NAME_SIZE];
    uint64_t load; /* differs between any two, never 0 */
    uint32_t live; /* requests that hold it */
    uint32_t waiting, running; /* sequences of theirs: not sent to a replica yet; sent, not ended */
    uint64_t requests, prompt_tokens, generated_tokens;
};

struct served_adapters {
    uint32_t count; /* places */
    uint64_t loads;
    struct served_adapter at[GPU_ADAPTERS_MAX]; /* number n is at[n - 1] */
};

/* Those of the option, in its order, and places up to `max` in all. Nobody holds one. */
void served_adapters_set(struct served_adapters *served, const struct adapter_names *names,
                         uint32_t max);
/* Its number; 0: there is none of that name. */
uint32_t served_adapters_find(const struct served_adapters *served, const char *name);

/* A place for one more. ERR_BAD_VALUE: the name is there, ERR_BUSY: another is loading or leaving,
 * ERR_BAD_STATE: all places are taken. */
int served_adapters_begin(struct served_adapters *served, const char *name, uint32_t *ret_number,
                          struct error *error);
/* What became of it; not `ok`: the place is free again. */
void served_adapters_loaded(struct served_adapters *served, uint32_t number, bool ok);
/* ERR_NOT_FOUND */
int served_adapters_unload(struct served_adapters *served, const char *name, struct error *error);

/* No later one has its name: figures are told by names. */
bool served_adapters_newest(const struct served_adapters *served, const struct served_adapter *adapter);

/* number 0: nothing is done. */
void served_adapters_hold(struct served_adapters *served, uint32_t number);
void served_adapters_leave(struct served_adapters *served, uint32_t number);
/* NULL: number is 0. */
static inline struct served_adapter *served_adapters_at(struct served_adapters *served, uint32_t number)
{
    return number ? &served->at[number - 1] : NULL;
}
