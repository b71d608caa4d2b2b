#include "daemon/request/served_adapters.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

void served_adapters_set(struct served_adapters *served, const struct adapter_names *names,
                         uint32_t max)
{
    served->count = max > names->count ? max : names->count;
    memset(served->at, 0, sizeof(served->at));
    for (uint32_t i = 0; i < names->count; i++) {
        served->at[i] =
            (struct served_adapter){.state = ADAPTER_SERVED, .load = ++served->loads};
        snprintf(served->at[i].name, MODEL_NAME_SIZE, "%s", names->at[i].name);
    }
}

static uint32_t find(const struct served_adapters *served, const char *name,
                     enum adapter_state state)
{
    for (uint32_t i = 0; i < served->count; i++)
        if (served->at[i].state == state && strcmp(served->at[i].name, name) == 0)
            return i + 1;
    return 0;
}

uint32_t served_adapters_find(const struct served_adapters *served, const char *name)
{
    return find(served, name, ADAPTER_SERVED);
}

/* ---- coming and going --------------------------------------------------------------------------
 */

static bool has(const struct served_adapters *served, enum adapter_state state, uint32_t *ret_number)
{
    for (*ret_number = 1; *ret_number <= served->count; ++*ret_number)
        if (served->at[*ret_number - 1].state == state)
            return true;
    return false;
}

int served_adapters_begin(struct served_adapters *served, const char *name, uint32_t *ret_number,
                          struct error *error)
{
    uint32_t other;
    if (find(served, name, ADAPTER_SERVED))
        return error_set(error, ERR_BAD_VALUE, "there is an adapter %.64s already", name);
    if (has(served, ADAPTER_LOADING, &other))
        return error_set(error, ERR_BUSY, "another adapter is being loaded");
    if (!has(served, ADAPTER_FREE, ret_number)) {
        if (has(served, ADAPTER_LEAVING, &other))
            return error_set(error, ERR_BUSY, "requests still have the adapter that would make room");
        return error_limit(error, ERR_BAD_STATE, served->count, served->count + 1,
                           "all %u places for adapters are taken (adapters-max)", served->count);
    }
    struct served_adapter *adapter = &served->at[*ret_number - 1];
    *adapter = (struct served_adapter){.state = ADAPTER_LOADING, .load = ++served->loads};
    snprintf(adapter->name, MODEL_NAME_SIZE, "%s", name);
    return 0;
}

void served_adapters_loaded(struct served_adapters *served, uint32_t number, bool ok)
{
    struct served_adapter *adapter = &served->at[number - 1];
    assert(adapter->state == ADAPTER_LOADING);
    adapter->state = ok ? ADAPTER_SERVED : ADAPTER_FREE;
}

int served_adapters_unload(struct served_adapters *served, const char *name, struct error *error)
{
    uint32_t number = served_adapters_find(served, name);
    if (!number)
        return error_set(error, ERR_NOT_FOUND, "there is no adapter %.64s here", name);
    struct served_adapter *adapter = &served->at[number - 1];
    adapter->state = adapter->live ? ADAPTER_LEAVING : ADAPTER_FREE;
    return 0;
}

bool served_adapters_newest(const struct served_adapters *served, const struct served_adapter *adapter)
{
    for (uint32_t i = 0; i < served->count; i++) {
        const struct served_adapter *other = &served->at[i];
        if (other->state >= ADAPTER_SERVED && other->load > adapter->load &&
            strcmp(other->name, adapter->name) == 0)
            return false;
    }
    return adapter->state >= ADAPTER_SERVED;
}

/* ---- who has it --------------------------------------------------------------------------------
 */

void served_adapters_hold(struct served_adapters *served, uint32_t number)
{
    assert(number <= served->count);
    if (number)
        served->at[number - 1].live++;
}

void served_adapters_leave(struct served_adapters *served, uint32_t number)
{
    struct served_adapter *adapter = served_adapters_at(served, number);
    assert(!adapter || adapter->live > 0);
    if (adapter && --adapter->live == 0 && adapter->state == ADAPTER_LEAVING)
        adapter->state = ADAPTER_FREE;
}
