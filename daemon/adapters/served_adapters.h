/* The adapters that are served: what requests name as they name a model, and figures of each; and the
 * places on devices that they are in.
 *
 * Each has a load, which names of cached prefixes begin with: what another adapter left under the
 * same name is not found. A request holds its adapter from when it is made until it is freed; one
 * that is taken away is not found any more, and is free once nobody holds it.
 *
 *     FREE -> LOADING -> SERVED -> LEAVING -> FREE
 *
 * A place has a number, which plans name (gpu_open.adapter). One that is served need not have one:
 * with `adapter-dir` more are known than there are places, and one comes when a sequence of it is to
 * be sent (adapter_tiers.h), for one whose sequences have all ended. Without, each has its own.
 *
 * loop thread
 */
#pragma once

#include <stdint.h>

#include "daemon/adapters/adapter_folder.h"
#include "daemon/base/adapter_name.h"
#include "protocol/base/clock.h"
#include "protocol/base/list.h"

#define ADAPTER_STAY_US 1000000u

enum adapter_state { ADAPTER_FREE, ADAPTER_LOADING, ADAPTER_SERVED, ADAPTER_LEAVING };

struct served_adapter {
    enum adapter_state state;
    char name[MODEL_NAME_SIZE], directory[ADAPTER_DIRECTORY_SIZE];
    uint64_t load; /* differs between any two, never 0 */
    uint32_t live; /* requests that hold it */
    uint32_t waiting, running; /* sequences of theirs: not sent to a replica yet; sent, not ended */
    uint64_t requests, prompt_tokens, generated_tokens;
    uint32_t place;  /* 0: it is in none */
    bool given;      /* of the option: an engine opens with it in the place of its number */
    uint64_t used;   /* when a sequence was sent last, by count */
    uint64_t wanted; /* since when sequences wait for it, by count; 0: none does */
    struct list aside;    /* those: seq.wait_link */
    struct error failure; /* why it did not come */
};

struct adapter_place {
    uint32_t adapter; /* 0: it is free */
    bool coming;      /* being read */
    bool closed;      /* nothing more of it is sent: another is to come here */
    time_us came_us;
};

struct served_adapters {
    uint32_t count, places; /* that may be known; and on devices */
    uint64_t loads, uses, wants;
    struct served_adapter at[ADAPTERS_KNOWN_MAX]; /* number n is at[n - 1] */
    struct adapter_place place[GPU_ADAPTERS_MAX]; /* likewise */
};

/* Those of the option, in its order, in places of the same numbers, and places up to `max` in all.
 * Nobody holds one. */
void served_adapters_set(struct served_adapters *served, const struct adapter_names *names,
                         uint32_t max);
/* Behind that: those of adapter-dir, which are apart from these; in no place. */
void served_adapters_know(struct served_adapters *served, const struct adapter_folder *folder,
                          const char *directory);
/* Its number; 0: there is none of that name. */
uint32_t served_adapters_find(const struct served_adapters *served, const char *name);

/* Room, and a place, for one more. ERR_BAD_VALUE: the name is there, ERR_BUSY: another is loading or
 * leaving, or all places have sequences, ERR_BAD_STATE: there is no room. */
int served_adapters_begin(struct served_adapters *served, const struct gpu_adapter *adapter,
                          uint32_t *ret_number, uint32_t *ret_place, time_us now_us,
                          struct error *error);
/* What became of it; not `ok`: room and place are free again. */
void served_adapters_loaded(struct served_adapters *served, uint32_t number, uint32_t place, bool ok,
                            time_us now_us);
/* ERR_NOT_FOUND */
int served_adapters_unload(struct served_adapters *served, const char *name, struct error *error);

/* A place for it, whose adapter has left: that of its own number, a free one, or of those that no
 * sequence uses the one used least lately; what has come is there for sequences that wait, for
 * ADAPTER_STAY_US. 0: there is none. It is `coming` from here on. */
uint32_t served_adapters_take(struct served_adapters *served, uint32_t number, time_us now_us);
/* It is there, or the place is free again. */
void served_adapters_come(struct served_adapters *served, uint32_t number, uint32_t place, bool ok,
                          time_us now_us);
/* One is being read, of whatever reason. */
bool served_adapters_busy(const struct served_adapters *served);
/* The engines are closed, and nothing is being read: in places are those that they will open with;
 * the others come when they are wanted. */
void served_adapters_closed(struct served_adapters *served);

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
