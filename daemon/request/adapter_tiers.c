#include "daemon/request/adapter_tiers.h"

#include <stdio.h>

#include "daemon/request/request_table.h"
#include "daemon/request/server.h"

bool adapter_tiers_ready(struct server *server, struct seq *seq)
{
    struct served_adapters *served = &server->adapters;
    struct served_adapter *adapter = served_adapters_at(served, seq->request->adapter);
    if (!adapter || (adapter->place && !served->place[adapter->place - 1].closed))
        return true;
    waiting_set_aside(&server->models[0].waiting, seq, &adapter->aside);
    if (!adapter->wanted)
        adapter->wanted = ++served->wants;
    return false;
}

void adapter_tiers_drop(struct server *server)
{
    struct served_adapters *served = &server->adapters;
    for (uint32_t i = 0; i < served->count; i++)
        waiting_bring_back(&server->models[0].waiting, &served->at[i].aside);
}

/* The number of the one whose sequences have waited longest; 0: none do. Those that went meanwhile
 * want nothing any more. */
static uint32_t most_wanted(struct served_adapters *served)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i <= served->count && served->wants > 0; i++) {
        struct served_adapter *adapter = &served->at[i - 1];
        if (!adapter->wanted)
            continue;
        if (list_empty(&adapter->aside))
            adapter->wanted = 0;
        else if (!best || adapter->wanted < served->at[best - 1].wanted)
            best = i;
    }
    return best;
}

/* Of all that have sequences, the one that came first. */
static void close_oldest(struct served_adapters *served, time_us now_us)
{
    struct adapter_place *oldest = NULL;
    for (uint32_t i = 0; i < served->places; i++) {
        struct adapter_place *place = &served->place[i];
        if (place->closed)
            return;
        if (!place->coming && (!oldest || place->came_us < oldest->came_us))
            oldest = place;
    }
    if (oldest && now_us - oldest->came_us >= ADAPTER_STAY_US)
        oldest->closed = true;
}

/* ---- coming ------------------------------------------------------------------------------------
 */

/* Any thread: the loop looks at nothing of this meanwhile. */
static void work(struct task *task)
{
    struct adapter_tiers *tiers = container_of(task, struct adapter_tiers, task);
    const struct served_model *model = &tiers->server->models[0];
    const struct gpu_adapter adapter = {tiers->name, tiers->directory};
    for (uint32_t i = 0; !tiers->failed && i < model->replica_count; i++) {
        struct replica *replica = model->replicas[i];
        tiers->failed =
            replica->api->adapter_load(replica, tiers->place, &adapter, &tiers->error) != 0;
    }
}

/* Of sequences that waited for what does not come. */
static void fail(struct server *server, struct served_adapter *adapter, const struct error *error,
                 time_us now_us)
{
    adapter->failure = *error;
    adapter->wanted = 0;
    while (!list_empty(&adapter->aside)) {
        struct seq *seq = container_of(adapter->aside.next, struct seq, wait_link);
        waiting_remove(&server->models[0].waiting, seq);
        seq->finish = FINISH_ERROR;
        seq->failure = &adapter->failure;
        request_table_end(server, seq, now_us);
    }
}

static void come_back(struct server *server, struct served_adapter *adapter)
{
    adapter->wanted = 0;
    adapter->used = ++server->adapters.uses;
    waiting_bring_back(&server->models[0].waiting, &adapter->aside);
}

static void settle(struct adapter_tiers *tiers, time_us now_us)
{
    struct server *server = tiers->server;
    struct served_adapters *served = &server->adapters;
    struct served_adapter *adapter = &served->at[tiers->number - 1];
    server->encodings--;
    tiers->busy = false;
    served_adapters_come(served, tiers->number, tiers->place, !tiers->failed, now_us);
    if (tiers->failed)
        fail(server, adapter, &tiers->error, now_us);
    else
        come_back(server, adapter);
    served_adapters_leave(served, tiers->number);
}

static void done(struct task *task, time_us now_us)
{
    settle(container_of(task, struct adapter_tiers, task), now_us);
}

static void begin(struct server *server, uint32_t number, uint32_t place)
{
    struct adapter_tiers *tiers = &server->tiers;
    const struct served_adapter *adapter = &server->adapters.at[number - 1];
    *tiers = (struct adapter_tiers){.task = {.work = work, .done = done},
                                    .server = server,
                                    .busy = true,
                                    .number = number,
                                    .place = place};
    snprintf(tiers->name, sizeof(tiers->name), "%s", adapter->name);
    snprintf(tiers->directory, sizeof(tiers->directory), "%s", adapter->directory);
    served_adapters_hold(&server->adapters, number); /* it is not another by then */
    server->encodings++; /* the daemon does not end before the thread is done */
}

bool adapter_tiers_turn(struct server *server, time_us now_us)
{
    struct served_adapters *served = &server->adapters;
    struct adapter_tiers *tiers = &server->tiers;
    bool awake = server->models[0].sleep.state == MODEL_AWAKE;
    uint32_t number = awake ? most_wanted(served) : 0;
    if (!number || served_adapters_busy(served))
        return false;
    struct served_adapter *adapter = &served->at[number - 1];
    if (adapter->place) { /* the one that it should have left for has gone, or found another place */
        served->place[adapter->place - 1].closed = false;
        come_back(server, adapter);
        return true;
    }
    uint32_t place = served_adapters_take(served, number, now_us);
    if (!place) {
        close_oldest(served, now_us);
        return false;
    }
    begin(server, number, place);
    if (server->background && server->background->run(server->background, &tiers->task) == 0)
        return !tiers->busy;
    if (!server->background)
        work(&tiers->task);
    else
        tiers->failed = error_set(&tiers->error, ERR_NO_MEMORY, "no memory for a task") != 0;
    settle(tiers, now_us);
    return true;
}
