#include "daemon/service/reloader.h"

#include <string.h>

#include "daemon/sched/kv.h"
#include "daemon/service/check_text.h"
#include "protocol/base/log.h"

static struct served_model *model_of(const struct reloader *reloader)
{
    return &reloader->server->models[reloader->number];
}

static struct replica_worker *worker_of(struct replica *replica)
{
    return container_of(replica, struct replica_worker, base);
}

/* ---- the thread --------------------------------------------------------------------------------
 */

static int check_texts(const struct reloader *reloader, struct error *error)
{
    const char *differs = NULL;
    int rc = check_text_differs(&reloader->texts[reloader->number], reloader->options, NULL,
                                &differs, error);
    if (!differs)
        return rc;
    return error_set(error, ERR_BAD_MODEL, "another version may not differ in %s", differs);
}

static int open_part(struct reloader *reloader, uint32_t index, struct error *error)
{
    const struct served_model *model = model_of(reloader);
    struct replica_worker **part = &reloader->parts[index];
    int rc = reloader->open(reloader->context, reloader->number, reloader->options,
                            reloader->beside[index], reloader->completions, part, &reloader->info,
                            &reloader->limits, error);
    /* Requests are measured by what is known of the served version, also by other threads. */
    const char *differs = rc ? NULL : model_reload_differs(&model->info, &reloader->info);
    if (differs)
        rc = error_set(error, ERR_BAD_MODEL, "another version may not differ in %s", differs);
    if (!rc && reloader->limits.context_max != model->context_max)
        rc = error_set(error, ERR_BAD_MODEL,
                       "another version may not differ in the longest sequence: %u tokens, not %u",
                       reloader->limits.context_max, model->context_max);
    return rc;
}

static void free_parts(struct reloader *reloader)
{
    for (uint32_t i = 0; i < reloader->count; i++) {
        struct replica_worker *part = reloader->parts[i];
        if (part && part->worker)
            worker_join(part->worker);
        replica_free(part);
        reloader->parts[i] = NULL;
    }
}

static void open_parts(struct reloader *reloader)
{
    int rc = 0;
    for (uint32_t i = 0; !rc && i < reloader->count; i++)
        rc = open_part(reloader, i, &reloader->error);
    if (!rc)
        rc = check_texts(reloader, &reloader->error);
    if (rc)
        free_parts(reloader);
    else
        reloader->error.code = 0;
}

static void *thread_main(void *argument)
{
    struct reloader *reloader = argument;
    (void)pthread_setname_np(pthread_self(), "sluice-reload");
    if (reloader->opens) {
        open_parts(reloader);
    } else {
        free_parts(reloader);
        sleeper_leave_devices(reloader->sleeper);
    }
    atomic_store_explicit(&reloader->done, true, memory_order_release);
    completion_control(reloader->completions, COMPLETION_STOPPED);
    completion_flush(reloader->completions);
    return NULL;
}

/* Without a thread the loop waits for it. */
static void run(struct reloader *reloader, enum reloader_act act)
{
    reloader->act = act;
    reloader->opens = act == RELOADER_OPENING;
    atomic_store_explicit(&reloader->done, false, memory_order_relaxed);
    reloader->has_thread = pthread_create(&reloader->thread, NULL, thread_main, reloader) == 0;
    if (!reloader->has_thread)
        (void)thread_main(reloader);
}

static bool thread_done(struct reloader *reloader)
{
    if (!atomic_load_explicit(&reloader->done, memory_order_acquire))
        return false;
    if (reloader->has_thread)
        (void)pthread_join(reloader->thread, NULL);
    reloader->has_thread = false;
    return true;
}

/* ---- the end of a version ----------------------------------------------------------------------
 */

/* How many of its workers are in that state. */
static uint32_t count_of(const struct reloader *reloader, enum worker_state state)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < reloader->count; i++)
        count += replica_state(reloader->parts[i]) == state;
    return count;
}

static void stop(struct reloader *reloader)
{
    for (uint32_t i = 0; i < reloader->count; i++)
        worker_stop(reloader->parts[i]->worker);
    reloader->act = RELOADER_STOPPING;
}

/* The version that serves goes on. Where a call of the device failed it is asked for a token, too:
 * if the device is lost that comes out now, and not by somebody's request. */
static void tell_refusal(struct reloader *reloader, time_us now_us)
{
    self_test_close(&reloader->probe, now_us);
    model_reload_refuse(reloader->server, &reloader->error);
    if (reloader->error.code == ERR_DEVICE)
        self_test_ask_one(&reloader->probe, reloader->server, model_of(reloader), now_us);
}

/* And this one ends. */
static void refuse(struct reloader *reloader, time_us now_us)
{
    tell_refusal(reloader, now_us);
    stop(reloader);
}

/* ---- what hangs --------------------------------------------------------------------------------
 */

static uint64_t how_far(const struct reloader *reloader)
{
    uint64_t far = 0;
    for (uint32_t i = 0; reloader->act == RELOADER_LOADING && i < reloader->count; i++)
        far += reloader->parts[i]->base.api->progress(&reloader->parts[i]->base);
    return far;
}

static void move(struct reloader *reloader, time_us now_us)
{
    reloader->moved = how_far(reloader);
    reloader->moved_us = now_us;
}

/* Looks again when that may have come. */
static bool is_stalled(struct reloader *reloader, time_us now_us)
{
    struct server *server = reloader->server;
    if (reloader->moved_us == 0 || reloader->moved != how_far(reloader))
        move(reloader, now_us);
    server->reload.due_us = reloader->moved_us + server->options->reload_stall;
    return now_us >= server->reload.due_us;
}

/* What the thread is at is its own until it has ended, its error, too. */
static void leave_thread(struct reloader *reloader)
{
    struct server *server = reloader->server;
    struct error error;
    error_set(&error, ERR_DEADLINE, "it came no further for %g s while it was opened",
              (double)server->options->reload_stall / 1e6);
    reloader->act = RELOADER_LEFT;
    model_reload_refuse(server, &error);
    model_reload_hang(server, false);
}

static void leave_loading(struct reloader *reloader, time_us now_us)
{
    error_set(&reloader->error, ERR_DEADLINE, "it came no further for %g s while it was loaded",
              (double)reloader->server->options->reload_stall / 1e6);
    refuse(reloader, now_us);
    model_reload_hang(reloader->server, true);
}

/* The old one, once another has its place, is looked after as all that serve are. */
static void tend_end(struct reloader *reloader, time_us now_us)
{
    bool ends = reloader->act == RELOADER_STOPPING || reloader->act == RELOADER_CLOSING;
    if (ends && !reloader->taken_over && !reloader->server->reload.hangs &&
        is_stalled(reloader, now_us))
        model_reload_hang(reloader->server, true);
}

static void drop_from_loop(struct reloader *reloader, const struct replica_worker *part)
{
    struct replica_list *list = reloader->replicas;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < list->count; i++)
        if (list->at[i] != part)
            list->at[kept++] = list->at[i];
    list->count = kept;
}

/* They have ended, and hold no sequence that was not told of. */
static void stopped(struct reloader *reloader)
{
    if (count_of(reloader, WORKER_STOPPED) + count_of(reloader, WORKER_FAILED) < reloader->count ||
        !model_reload_idle(reloader->server))
        return;
    model_reload_forget(reloader->server);
    for (uint32_t i = 0; i < reloader->count; i++) {
        struct replica_worker *served = worker_of(model_of(reloader)->replicas[i]);
        if (reloader->taken_over)
            replica_inherit(served);
        served->beside = NULL;
        drop_from_loop(reloader, reloader->parts[i]);
    }
    run(reloader, RELOADER_CLOSING);
}

static void over(struct reloader *reloader)
{
    options_free(reloader->options);
    reloader->options = NULL;
    reloader->act = RELOADER_NONE;
    model_reload_over(reloader->server);
}

static void closed(struct reloader *reloader)
{
    if (thread_done(reloader))
        over(reloader);
}

/* ---- a new version -----------------------------------------------------------------------------
 */

/* What the versions and models there only have cached may be what lacks. */
static void make_room(const struct reloader *reloader)
{
    struct server *server = reloader->server;
    const struct served_model *model = model_of(reloader);
    for (uint32_t i = 0; i < model->replica_count; i++) {
        struct replica *replica = model->replicas[i];
        worker_share(worker_of(replica)->worker);
        server_yield_to(server, replica);
        replica->api->yield(replica);
    }
}

static void begin(void *context, struct served_model *model, const char *directory)
{
    struct reloader *reloader = context;
    const struct options *now = reloader->list->at[model->number];
    reloader->number = model->number;
    reloader->count = model->replica_count;
    reloader->taken_over = false;
    reloader->options = NULL;
    reloader->error.code = 0;
    reloader->moved_us = 0;
    memset(reloader->parts, 0, sizeof(reloader->parts));
    memcpy(reloader->beside, model->replicas, model->replica_count * sizeof(*reloader->beside));
    sleeper_enter_devices(reloader->sleeper);
    if (model_list_version(now, directory, &reloader->options, &reloader->error)) {
        reloader->act = RELOADER_OPENING; /* there is nothing to open: the next turn says why */
        atomic_store_explicit(&reloader->done, true, memory_order_relaxed);
        return;
    }
    make_room(reloader);
    run(reloader, RELOADER_OPENING);
}

/* Nothing of it was started. */
static void give_up(struct reloader *reloader, time_us now_us)
{
    tell_refusal(reloader, now_us);
    run(reloader, RELOADER_CLOSING);
}

static void start(struct reloader *reloader, time_us now_us)
{
    struct replica_list *list = reloader->replicas;
    reloader->act = RELOADER_LOADING;
    for (uint32_t i = 0; i < reloader->count; i++) {
        struct replica_worker *part = reloader->parts[i];
        part->waking = true;
        worker_share(part->worker);
        if (worker_start(part->worker, &reloader->error)) {
            /* Those behind it have no thread that could stop. */
            for (uint32_t j = i; j < reloader->count; j++)
                replica_free(reloader->parts[j]);
            reloader->count = i;
            refuse(reloader, now_us);
            return;
        }
        list->at[list->count++] = part;
        worker_of(model_of(reloader)->replicas[i])->beside = part;
    }
}

static void opened(struct reloader *reloader, time_us now_us)
{
    struct server *server = reloader->server;
    if (!thread_done(reloader)) {
        if (is_stalled(reloader, now_us))
            leave_thread(reloader);
        return;
    }
    if (!reloader->error.code && (server->phase != SERVER_READY || server->leaving))
        error_set(&reloader->error, ERR_DRAINING, "the daemon drains");
    if (reloader->error.code)
        give_up(reloader, now_us);
    else
        start(reloader, now_us);
}

/* It has ended after all. */
static void left(struct reloader *reloader)
{
    if (thread_done(reloader))
        run(reloader, RELOADER_CLOSING);
}

static void ask(struct reloader *reloader, time_us now_us)
{
    struct model_reload *reload = &reloader->server->reload;
    reload->due_us = reloader->asked_us + MODEL_TEST_MOST_US;
    reloader->retry = false;
    reload->admits = true;
    self_test_ask_one(&reloader->probe, reloader->server, model_of(reloader), now_us);
    reload->admits = false;
    reloader->act = RELOADER_TESTING;
}

static void loaded(struct reloader *reloader, time_us now_us)
{
    struct replica *fresh[SERVER_REPLICAS_MAX];
    uint32_t ready = count_of(reloader, WORKER_READY), failed = count_of(reloader, WORKER_FAILED);
    if (ready + failed < reloader->count) {
        if (is_stalled(reloader, now_us))
            leave_loading(reloader, now_us);
        return;
    }
    for (uint32_t i = 0; i < reloader->count; i++) {
        fresh[i] = &reloader->parts[i]->base;
        if (replica_state(reloader->parts[i]) == WORKER_FAILED)
            reloader->error = *worker_failure(reloader->parts[i]->worker);
    }
    if (failed > 0) {
        refuse(reloader, now_us);
        return;
    }
    model_reload_loaded(reloader->server, fresh);
    reloader->asked_us = now_us;
    ask(reloader, now_us);
}

static void take_over(struct reloader *reloader, time_us now_us)
{
    const struct served_model *model = model_of(reloader);
    struct options *old = reloader->list->at[reloader->number];
    self_test_close(&reloader->probe, now_us);
    model_reload_take_over(reloader->server, &reloader->info,
                           kv_length_max(&reloader->info, &reloader->limits));
    for (uint32_t i = 0; i < reloader->count; i++) {
        struct replica_worker *fresh = worker_of(model->replicas[i]);
        reloader->parts[i] = worker_of(reloader->server->reload.others[i]);
        fresh->elder = reloader->parts[i];
        fresh->elder->beside = NULL;
        fresh->waking = false;
    }
    reloader->list->at[reloader->number] = reloader->options;
    sleeper_renew(reloader->sleeper, reloader->number, reloader->options);
    reloader->options = old;
    reloader->taken_over = true;
    reloader->act = RELOADER_RETIRING;
}

/* There was no room for it now. */
static void wait_to_ask(struct reloader *reloader, time_us now_us)
{
    self_test_close(&reloader->probe, now_us);
    reloader->retry = true;
    reloader->server->reload.due_us = now_us + MODEL_TEST_RETRY_US;
}

static void tested(struct reloader *reloader, time_us now_us)
{
    struct self_test *probe = &reloader->probe;
    const time_us late_us = reloader->asked_us + MODEL_TEST_MOST_US;
    if (probe->state == SELF_TEST_ANSWERED) {
        take_over(reloader, now_us);
    } else if (now_us >= late_us && (reloader->retry || probe->state == SELF_TEST_ASKED)) {
        error_set(&reloader->error, ERR_DEADLINE, "it gave no token within %u s",
                  MODEL_TEST_MOST_US / 1000000u);
        refuse(reloader, now_us);
    } else if (reloader->retry) {
        if (now_us >= reloader->server->reload.due_us)
            ask(reloader, now_us);
    } else if (probe->state == SELF_TEST_REFUSED && probe->error.code == ERR_BUSY) {
        wait_to_ask(reloader, now_us);
    } else if (probe->state == SELF_TEST_REFUSED) {
        reloader->error = probe->error;
        refuse(reloader, now_us);
    }
}

/* Its replicas end when nothing of theirs waits, runs or is copied. */
static void retired(struct reloader *reloader)
{
    if (model_reload_idle(reloader->server) && !sleeper_keeps(reloader->sleeper, reloader->number))
        stop(reloader);
}

/* ---- the turn ----------------------------------------------------------------------------------
 */

bool reloader_turn(struct reloader *reloader, time_us now_us)
{
    const enum reloader_act act = reloader->act;
    if (act == RELOADER_NONE && reloader->probe.conn && reloader->probe.state != SELF_TEST_ASKED)
        self_test_close(&reloader->probe, now_us); /* of the version that stayed */
    if (act == RELOADER_OPENING)
        opened(reloader, now_us);
    else if (act == RELOADER_LEFT)
        left(reloader);
    else if (act == RELOADER_LOADING)
        loaded(reloader, now_us);
    else if (act == RELOADER_TESTING)
        tested(reloader, now_us);
    else if (act == RELOADER_RETIRING)
        retired(reloader);
    else if (act == RELOADER_STOPPING)
        stopped(reloader);
    else if (act == RELOADER_CLOSING)
        closed(reloader);
    if (reloader->act != act)
        move(reloader, now_us);
    tend_end(reloader, now_us);
    return reloader->act != act;
}

bool reloader_expects(const struct reloader *reloader, const struct replica_worker *replica)
{
    const enum reloader_act act = reloader->act;
    bool there = act == RELOADER_LOADING || act == RELOADER_TESTING || act == RELOADER_STOPPING;
    for (uint32_t i = 0; there && !reloader->taken_over && i < reloader->count; i++)
        if (reloader->parts[i] == replica)
            return true;
    return false;
}

bool reloader_hangs(const struct reloader *reloader)
{
    return reloader->act != RELOADER_NONE && reloader->server->reload.hangs;
}

/* ---- life --------------------------------------------------------------------------------------
 */

static const struct reload_api reload_api = {.begin = begin};

void reloader_begin(struct reloader *reloader)
{
    reloader->server->reload_api = &reload_api;
    reloader->server->reload_context = reloader;
}

void reloader_close(struct reloader *reloader, time_us now_us)
{
    self_test_close(&reloader->probe, now_us);
}

/* Replicas that were started are the loop's. */
void reloader_end(struct reloader *reloader)
{
    if (reloader->has_thread)
        (void)pthread_join(reloader->thread, NULL);
    reloader->has_thread = false;
    if (reloader->act == RELOADER_OPENING || reloader->act == RELOADER_LEFT)
        free_parts(reloader);
    if (reloader->options)
        options_free(reloader->options);
    *reloader = (struct reloader){.act = RELOADER_NONE};
}
