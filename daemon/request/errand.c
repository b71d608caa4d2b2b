#include "daemon/request/errand.h"

#include <stdint.h>

#include "daemon/request/server.h"
#include "daemon/request/users.h"

static struct errand *errand_of(struct backlog_item *item)
{
    return container_of(item, struct errand, item);
}

/* Any thread. */
static void work(struct task *task)
{
    struct errand *errand = container_of(task, struct errand, task);
    errand->api->work(errand);
}

static void finish(struct errand *errand, time_us now_us)
{
    struct server *server = errand->server;
    backlog_remove(&server->backlog, &errand->item, now_us);
    list_remove(&errand->link);
    server->encodings--;
    errand->api->over(errand, now_us);
}

static void drop(struct errand *errand, int code, time_us now_us)
{
    struct server *server = errand->server; /* NULL before it was started */
    if (errand->dropped || errand->item.state == BACKLOG_OUT)
        return;
    errand->dropped = true;
    backlog_forget(&server->backlog, &errand->item);
    if (errand->item.state == BACKLOG_RUNS) {
        server->counts.texts_stopped_total++;
        task_stop(&errand->task, code);
        return;
    }
    server->counts.texts_dropped_total++;
    finish(errand, now_us);
}

/* Ends by itself: whoever waits is told. */
static void end(struct errand *errand, const struct error *error, time_us now_us)
{
    /* Those who are told may close a connection, and drop what they have no part in any more. */
    backlog_forget(&errand->server->backlog, &errand->item);
    errand->api->end(errand, error, now_us);
    drop(errand, error->code, now_us);
}

/* As many as threads are free. */
static void start_next(struct server *server, time_us now_us)
{
    struct backlog_item *item;
    while ((item = backlog_take(&server->backlog))) {
        struct errand *errand = errand_of(item);
        struct error error;
        if (server->background->run(server->background, &errand->task) == 0)
            continue;
        error_set(&error, ERR_NO_MEMORY, "no memory for a task");
        errand->dropped = true;
        errand->api->end(errand, &error, now_us);
        finish(errand, now_us);
    }
}

/* The thread is done with it. */
static void come_back(struct task *task, time_us now_us)
{
    struct errand *errand = container_of(task, struct errand, task);
    struct server *server = errand->server;
    finish(errand, now_us);
    start_next(server, now_us);
}

int errand_start(struct errand *errand, const struct errand_api *api, struct server *server,
                 struct response_sink *sink, size_t size, time_us deadline_us, time_us now_us,
                 struct error *error)
{
    uint32_t threads = server->background->threads;
    errand->api = api;
    errand->server = server;
    errand->task = (struct task){.work = work, .done = come_back};
    errand->dropped = false;
    server->backlog.threads = threads ? threads : UINT32_MAX;
    int rc = backlog_push(&server->backlog, &sink->user->backlog, &sink->backlog, &errand->item,
                          size, deadline_us, error);
    if (rc)
        return rc;
    list_append(&server->errands, &errand->link);
    server->encodings++;
    start_next(server, now_us);
    return 0;
}

void errand_drop(struct errand *errand)
{
    const struct server *server = errand->server;
    /* Nobody is told anything of it: any time will do. */
    drop(errand, ERR_CANCELLED, server ? server->turn_us : 0);
}

void errands_expire(struct server *server, time_us now_us)
{
    struct backlog_item *item;
    struct error error;
    while ((item = backlog_late(&server->backlog, now_us))) {
        error_set(&error, ERR_DEADLINE, "the deadline passed before the text was read");
        end(errand_of(item), &error, now_us);
    }
}

void errands_end(struct server *server, bool all, const struct error *error, time_us now_us)
{
    struct list round;
    struct list *link;
    list_init(&round);
    while ((link = list_take(&server->errands)))
        list_append(&round, link);
    while ((link = list_take(&round))) {
        struct errand *errand = container_of(link, struct errand, link);
        list_append(&server->errands, link);
        if (!errand->dropped && (all || errand->admits))
            end(errand, error, now_us);
    }
}
