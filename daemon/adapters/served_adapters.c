#include "daemon/adapters/served_adapters.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

static void know(struct served_adapters *served, uint32_t number, enum adapter_state state,
                 const char *name, const char *directory)
{
    struct served_adapter *adapter = &served->at[number - 1];
    *adapter = (struct served_adapter){.state = state, .load = ++served->loads};
    snprintf(adapter->name, sizeof(adapter->name), "%s", name);
    snprintf(adapter->directory, sizeof(adapter->directory), "%s", directory);
    list_init(&adapter->aside);
}

void served_adapters_set(struct served_adapters *served, const struct adapter_names *names,
                         uint32_t max)
{
    served->count = served->places = max > names->count ? max : names->count;
    memset(served->at, 0, sizeof(served->at));
    memset(served->place, 0, sizeof(served->place));
    for (uint32_t i = 0; i < ADAPTERS_KNOWN_MAX; i++)
        list_init(&served->at[i].aside);
    for (uint32_t i = 1; i <= names->count; i++) {
        know(served, i, ADAPTER_SERVED, names->at[i - 1].name, names->at[i - 1].directory);
        served->at[i - 1].given = true;
    }
    served_adapters_closed(served);
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

void served_adapters_know(struct served_adapters *served, const struct adapter_folder *folder,
                          const char *directory)
{
    uint32_t number = 1;
    served->count = folder->count > 0 ? ADAPTERS_KNOWN_MAX : served->count;
    for (uint32_t i = 0; i < folder->count; i++) {
        char path[ADAPTER_DIRECTORY_SIZE];
        snprintf(path, sizeof(path), "%s/%s", directory, folder->names[i]);
        while (served->at[number - 1].state != ADAPTER_FREE)
            number++;
        know(served, number, ADAPTER_SERVED, folder->names[i], path);
    }
}

/* ---- places ------------------------------------------------------------------------------------
 */

static uint32_t place_free(const struct served_adapters *served, uint32_t number)
{
    if (number <= served->places && !served->place[number - 1].adapter)
        return number;
    for (uint32_t i = 1; i <= served->places; i++)
        if (!served->place[i - 1].adapter)
            return i;
    return 0;
}

/* Of those with nothing on a replica, the one that was used least lately. */
static uint32_t place_idle(const struct served_adapters *served, time_us now_us)
{
    uint32_t best = 0;
    uint64_t used = UINT64_MAX;
    for (uint32_t i = 1; i <= served->places; i++) {
        const struct adapter_place *place = &served->place[i - 1];
        const struct served_adapter *adapter = &served->at[place->adapter - 1];
        bool stays = adapter->waiting > 0 && now_us - place->came_us < ADAPTER_STAY_US;
        if (!place->coming && !stays && adapter->running == 0 && adapter->used < used) {
            best = i;
            used = adapter->used;
        }
    }
    return best;
}

uint32_t served_adapters_take(struct served_adapters *served, uint32_t number, time_us now_us)
{
    uint32_t place = place_free(served, number);
    if (!place && (place = place_idle(served, now_us)))
        served->at[served->place[place - 1].adapter - 1].place = 0;
    if (place)
        served->place[place - 1] = (struct adapter_place){.adapter = number, .coming = true};
    return place;
}

void served_adapters_come(struct served_adapters *served, uint32_t number, uint32_t place, bool ok,
                          time_us now_us)
{
    struct adapter_place *to = &served->place[place - 1];
    assert(to->coming && to->adapter == number);
    *to = (struct adapter_place){.adapter = ok ? number : 0, .came_us = now_us};
    served->at[number - 1].place = ok ? place : 0;
}

bool served_adapters_busy(const struct served_adapters *served)
{
    for (uint32_t i = 0; i < served->places; i++)
        if (served->place[i].coming)
            return true;
    return false;
}

void served_adapters_closed(struct served_adapters *served)
{
    assert(!served_adapters_busy(served));
    memset(served->place, 0, sizeof(served->place));
    for (uint32_t i = 1; i <= served->count; i++) {
        struct served_adapter *adapter = &served->at[i - 1];
        adapter->place = adapter->given ? i : 0;
        if (adapter->given)
            served->place[i - 1].adapter = i;
    }
}

/* Nobody has it any more. */
static void vacate(struct served_adapters *served, struct served_adapter *adapter)
{
    if (adapter->place)
        served->place[adapter->place - 1] = (struct adapter_place){.adapter = 0};
    adapter->place = 0;
    adapter->given = false;
    adapter->state = ADAPTER_FREE;
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

int served_adapters_begin(struct served_adapters *served, const struct gpu_adapter *adapter,
                          uint32_t *ret_number, uint32_t *ret_place, time_us now_us,
                          struct error *error)
{
    uint32_t other;
    if (find(served, adapter->name, ADAPTER_SERVED))
        return error_set(error, ERR_BAD_VALUE, "there is an adapter %.64s already", adapter->name);
    if (served_adapters_busy(served))
        return error_set(error, ERR_BUSY, "another adapter is being loaded");
    if (!has(served, ADAPTER_FREE, ret_number)) {
        if (has(served, ADAPTER_LEAVING, &other))
            return error_set(error, ERR_BUSY, "requests still have the adapter that would make room");
        return error_limit(error, ERR_BAD_STATE, served->count, served->count + 1,
                           "all %u places for adapters are taken (adapters-max)", served->count);
    }
    *ret_place = served_adapters_take(served, *ret_number, now_us);
    if (!*ret_place)
        return error_set(error, ERR_BUSY, "requests have the adapters of all places");
    know(served, *ret_number, ADAPTER_LOADING, adapter->name, adapter->directory);
    return 0;
}

void served_adapters_loaded(struct served_adapters *served, uint32_t number, uint32_t place, bool ok,
                            time_us now_us)
{
    struct served_adapter *adapter = &served->at[number - 1];
    assert(adapter->state == ADAPTER_LOADING);
    adapter->state = ok ? ADAPTER_SERVED : ADAPTER_FREE;
    served_adapters_come(served, number, place, ok, now_us);
}

int served_adapters_unload(struct served_adapters *served, const char *name, struct error *error)
{
    uint32_t number = served_adapters_find(served, name);
    if (!number)
        return error_set(error, ERR_NOT_FOUND, "there is no adapter %.64s here", name);
    struct served_adapter *adapter = &served->at[number - 1];
    if (adapter->live)
        adapter->state = ADAPTER_LEAVING;
    else
        vacate(served, adapter);
    return 0;
}

bool served_adapters_newest(const struct served_adapters *served, const struct served_adapter *adapter)
{
    for (uint32_t i = 0; adapter->state == ADAPTER_LEAVING && i < served->count; i++) {
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
        vacate(served, adapter);
}
