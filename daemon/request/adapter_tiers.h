/* Adapters that are known and in no place: their sequences wait aside until one is there, and what
 * others send goes on. One is read at a time, on another thread, beside the steps; whose sequences
 * have waited longest comes first. It gets a free place, or the one of an adapter that no sequence on
 * a replica has; where there is none, the adapter that came first of all gets no more sequences until
 * it has none, but is there for ADAPTER_STAY_US at least.
 *
 * loop thread
 */
#pragma once

#include <stdbool.h>

#include "daemon/base/adapter_name.h"
#include "daemon/base/background.h"
#include "protocol/base/error.h"

struct server;
struct seq;

struct adapter_tiers {
    struct task task;
    struct server *server;
    bool busy;
    uint32_t number, place;
    char name[MODEL_NAME_SIZE], directory[ADAPTER_DIRECTORY_SIZE];
    bool failed;
    struct error error;
};

/* Whether its adapter is there, if it has one. Else it is aside from here on. */
bool adapter_tiers_ready(struct server *server, struct seq *seq);
/* Begins to read what is wanted, of a model that is awake. True: it came at once, and sequences may have turns again. */
bool adapter_tiers_turn(struct server *server, time_us now_us);
/* All that are aside have turns again, whatever is there. */
void adapter_tiers_drop(struct server *server);
