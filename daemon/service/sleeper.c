#include "daemon/service/sleeper.h"

#include <string.h>

#include "daemon/service/check_text.h"
#include "protocol/base/log.h"

static struct replica_worker *replica_at(const struct served_model *model, uint32_t index)
{
    return container_of(model->replicas[index], struct replica_worker, base);
}

static const struct served_model *model_of(const struct sleeper_model *of)
{
    return &of->sleeper->server->models[of->number];
}

/* ---- the thread --------------------------------------------------------------------------------
 */

static void close_parts(struct sleeper_model *of)
{
    for (uint32_t i = 0; i < of->count; i++) {
        struct sleeper_part *part = &of->parts[i];
        if (part->worker) {
            worker_join(part->worker);
            worker_destroy(part->worker); /* and its engine */
        } else if (part->engine) {
            part->replica->gpu->close(part->engine);
        }
        part->worker = NULL;
        part->engine = NULL;
    }
}

void sleeper_enter_devices(struct sleeper *sleeper)
{
    pthread_mutex_lock(&sleeper->lock);
    sleeper->open++;
    pthread_mutex_unlock(&sleeper->lock);
}

/* What is in host memory is no device's either, from then on. */
void sleeper_leave_devices(struct sleeper *sleeper)
{
    pthread_mutex_lock(&sleeper->lock);
    bool gives = --sleeper->open == 0 && sleeper->opener.give_devices;
    for (uint32_t i = 0; gives && i < sleeper->server->model_count; i++) {
        const struct served_model *model = &sleeper->server->models[i];
        for (uint32_t j = 0; j < model->replica_count; j++) {
            const struct replica_worker *replica = replica_at(model, j);
            if (replica->kept)
                replica->gpu->kept_unpin(replica->kept);
        }
    }
    if (gives)
        sleeper->opener.give_devices(sleeper->opener.context);
    pthread_mutex_unlock(&sleeper->lock);
}

static int refuse_files(const char *differs, struct error *error)
{
    return error_set(error, ERR_BAD_MODEL,
                     "its files are not those that it was served from, they differ in %s: restart "
                     "the daemon",
                     differs);
}

/* Texts are read by what was served first, whatever the files have now. */
static int check_texts(struct sleeper_model *of, struct error *error)
{
    const struct model_text *text = model_of(of)->text;
    const char *differs = NULL;
    if (!text || (!of->marked && file_marks_hold(&text->marks)))
        return 0;
    of->marked = true;
    int rc = check_text_differs(text, of->options, &of->marks, &differs, error);
    return differs ? refuse_files(differs, error) : rc;
}

static int open_part(struct sleeper_model *of, struct sleeper_part *part, struct error *error)
{
    const struct sleeper *sleeper = of->sleeper;
    struct gpu_model model;
    struct gpu_limits limits;
    int rc = sleeper->opener.open(sleeper->opener.context, of->number, &part->replica->base,
                                  &part->engine, &model, &limits, error);
    /* What is known of a model stays as it was told when it was served first. */
    const char *differs = rc ? NULL : model_reload_differs(&model_of(of)->info, &model);
    if (differs)
        rc = refuse_files(differs, error);
    if (!rc)
        rc = replica_worker_make(part->replica, part->engine, &model, &limits, of->options,
                                 sleeper->completions, &part->worker, error);
    return rc;
}

static void *thread_main(void *argument)
{
    struct sleeper_model *of = argument;
    (void)pthread_setname_np(pthread_self(), "sluice-sleep");
    bool closes = of->act == SLEEPER_CLOSING;
    if (!closes)
        sleeper_enter_devices(of->sleeper);
    for (uint32_t i = 0; !closes && i < of->count; i++)
        closes = open_part(of, &of->parts[i], &of->error) != 0;
    if (!closes)
        closes = check_texts(of, &of->error) != 0;
    if (closes) {
        close_parts(of);
        sleeper_leave_devices(of->sleeper);
    }
    atomic_store_explicit(&of->done, true, memory_order_release);
    completion_control(of->sleeper->completions, COMPLETION_STOPPED);
    completion_flush(of->sleeper->completions);
    return NULL;
}

/* Without a thread the loop waits for it. */
static void run(struct sleeper_model *of, enum sleeper_act act)
{
    of->act = act;
    atomic_store_explicit(&of->done, false, memory_order_relaxed);
    of->has_thread = pthread_create(&of->thread, NULL, thread_main, of) == 0;
    if (!of->has_thread)
        (void)thread_main(of);
}

/* ---- down --------------------------------------------------------------------------------------
 */

static void stop_workers(struct sleeper_model *of)
{
    const struct served_model *model = model_of(of);
    of->act = SLEEPER_STOPPING;
    for (uint32_t i = 0; i < model->replica_count; i++)
        worker_stop(replica_at(model, i)->worker);
}

static void sleep_model(void *context, uint32_t number)
{
    struct sleeper *sleeper = context;
    struct sleeper_model *of = &sleeper->models[number];
    of->falls = true;
    if (keeper_busy(&of->keeper))
        of->act = SLEEPER_KEEPING; /* it would begin anew when the model wakes */
    else
        stop_workers(of);
}

/* A worker that failed to load says nothing when it has stopped but that. */
static void close_stopped(struct sleeper_model *of)
{
    const struct served_model *model = model_of(of);
    of->count = model->replica_count;
    for (uint32_t i = 0; i < of->count; i++) {
        struct replica_worker *replica = replica_at(model, i);
        of->parts[i] = (struct sleeper_part){.replica = replica, .worker = replica_detach(replica)};
    }
    run(of, SLEEPER_CLOSING);
}

static void closed(struct sleeper_model *of, time_us now_us)
{
    struct server *server = of->sleeper->server;
    of->act = SLEEPER_NONE;
    if (of->falls)
        model_slept(server, of->number, now_us);
    else
        model_wake_refused(server, of->number, &of->error, now_us);
}

/* ---- up ----------------------------------------------------------------------------------------
 */

static void wake_model(void *context, uint32_t number)
{
    struct sleeper *sleeper = context;
    struct sleeper_model *of = &sleeper->models[number];
    const struct served_model *model = model_of(of);
    of->falls = false;
    of->error.code = 0;
    of->count = model->replica_count;
    for (uint32_t i = 0; i < of->count; i++)
        of->parts[i] = (struct sleeper_part){.replica = replica_at(model, i)};
    run(of, SLEEPER_OPENING);
}

/* What cannot be started, or would come too late, is closed again. */
static void give_up(struct sleeper_model *of, uint32_t from)
{
    const struct served_model *model = model_of(of);
    for (uint32_t i = from; i < model->replica_count; i++)
        worker_destroy(replica_detach(replica_at(model, i)));
    for (uint32_t i = 0; i < from; i++)
        worker_stop(replica_at(model, i)->worker);
    of->act = SLEEPER_STOPPING;
}

static void opened(struct sleeper_model *of, time_us now_us)
{
    const struct server *server = of->sleeper->server;
    const struct served_model *model = model_of(of);
    if (of->error.code) {
        closed(of, now_us);
        return;
    }
    of->act = SLEEPER_LOADING;
    for (uint32_t i = 0; i < of->count; i++) {
        replica_attach(replica_at(model, i), of->parts[i].engine, of->parts[i].worker);
        if (server->model_count > 1)
            worker_share(of->parts[i].worker);
        of->parts[i] = (struct sleeper_part){.worker = NULL};
    }
    if (server->phase == SERVER_FAILED) {
        of->falls = true;
        give_up(of, 0);
    }
    for (uint32_t i = 0; of->act == SLEEPER_LOADING && i < of->count; i++)
        if (worker_start(replica_at(model, i)->worker, &of->error))
            give_up(of, i);
}

/* How many of its workers are in that state. */
static uint32_t count_of(const struct sleeper_model *of, enum worker_state state)
{
    const struct served_model *model = model_of(of);
    uint32_t count = 0;
    for (uint32_t i = 0; i < model->replica_count; i++)
        count += replica_state(replica_at(model, i)) == state;
    return count;
}

static void loaded(struct sleeper_model *of, time_us now_us)
{
    const struct served_model *model = model_of(of);
    uint32_t failed = count_of(of, WORKER_FAILED);
    if (count_of(of, WORKER_READY) == model->replica_count) {
        of->act = SLEEPER_NONE;
        of->keeps = true;
        for (uint32_t i = 0; i < model->replica_count; i++)
            replica_at(model, i)->waking = false;
        model_woke(of->sleeper->server, of->number, now_us);
    } else if (failed > 0 && failed + count_of(of, WORKER_READY) == model->replica_count) {
        for (uint32_t i = 0; i < model->replica_count; i++)
            if (replica_state(replica_at(model, i)) == WORKER_FAILED)
                of->error = *worker_failure(replica_at(model, i)->worker);
        stop_workers(of);
    }
}

/* ---- the turn ----------------------------------------------------------------------------------
 */

/* A worker of it failed, and not for what a waking lacks: the daemon ends by that, and must find it
 * here. */
static bool is_ill(const struct sleeper_model *of)
{
    const struct served_model *model = model_of(of);
    for (uint32_t i = 0; i < model->replica_count; i++)
        if (replica_state(replica_at(model, i)) == WORKER_FAILED &&
            !sleeper_expects(of->sleeper, replica_at(model, i)))
            return true;
    return false;
}

static bool tend(struct sleeper_model *of, time_us now_us)
{
    const struct served_model *model = model_of(of);
    const enum sleeper_act act = of->act;
    bool ended = of->has_thread && atomic_load_explicit(&of->done, memory_order_acquire);
    if (ended)
        (void)pthread_join(of->thread, NULL);
    of->has_thread = of->has_thread && !ended;
    bool done = !of->has_thread && atomic_load_explicit(&of->done, memory_order_acquire);
    if (of->act == SLEEPER_KEEPING && !keeper_busy(&of->keeper))
        stop_workers(of);
    else if (of->act == SLEEPER_STOPPING && !is_ill(of) &&
             count_of(of, WORKER_STOPPED) + count_of(of, WORKER_FAILED) == model->replica_count)
        close_stopped(of);
    else if (of->act == SLEEPER_CLOSING && done)
        closed(of, now_us);
    else if (of->act == SLEEPER_OPENING && done)
        opened(of, now_us);
    else if (of->act == SLEEPER_LOADING)
        loaded(of, now_us);
    return of->act != act;
}

/* Once it is awake, and the daemon ready: nobody waits for it then. */
static void tend_keeper(struct sleeper_model *of)
{
    const struct sleeper *sleeper = of->sleeper;
    const struct served_model *model = model_of(of);
    keeper_turn(&of->keeper, model->info.id);
    if (!of->keeps || of->act != SLEEPER_NONE || sleeper->server->phase != SERVER_READY ||
        model->sleep.state != MODEL_AWAKE || count_of(of, WORKER_READY) != model->replica_count)
        return;
    /* A version before this one is there, whose place in host memory this one's weights want; it
     * may still be on its way there. The turn at its end comes. */
    if (model_reload_on(sleeper->server, model) || keeper_busy(&of->keeper))
        return;
    _Static_assert(KEEPER_REPLICAS_MAX >= SERVER_REPLICAS_MAX, "all of a model's find room");
    of->keeps = false;
    for (uint32_t i = 0; i < model->replica_count; i++)
        keeper_add(&of->keeper, replica_at(model, i));
    keeper_begin(&of->keeper, sleeper->completions, model->info.weight_bytes);
}

bool sleeper_turn(struct sleeper *sleeper, time_us now_us)
{
    bool any = false;
    for (uint32_t i = 0; sleeper->server && i < sleeper->server->model_count; i++) {
        tend_keeper(&sleeper->models[i]);
        if (sleeper->models[i].act != SLEEPER_NONE)
            any |= tend(&sleeper->models[i], now_us);
    }
    return any;
}

void sleeper_renew(struct sleeper *sleeper, uint32_t model, const struct options *options)
{
    struct sleeper_model *of = &sleeper->models[model];
    of->options = options;
    of->keeps = true;
    of->marked = true;
    file_marks_free(&of->marks);
}

bool sleeper_keeps(const struct sleeper *sleeper, uint32_t model)
{
    return keeper_busy(&sleeper->models[model].keeper);
}

bool sleeper_expects(const struct sleeper *sleeper, const struct replica_worker *replica)
{
    return sleeper->server && replica->waking && replica_state(replica) == WORKER_FAILED &&
           worker_failure(replica->worker)->code != ERR_DEVICE;
}

/* ---- life --------------------------------------------------------------------------------------
 */

static const struct sleep_api sleep_api = {.sleep = sleep_model, .wake = wake_model};

/* Its engines were opened, for what they say, and nothing of them runs. */
static void begin_asleep(struct served_model *model)
{
    model->sleep.state = MODEL_ASLEEP;
    model->sleep.early = true;
    for (uint32_t i = 0; i < model->replica_count; i++)
        worker_destroy(replica_detach(replica_at(model, i)));
}

void sleeper_begin(struct sleeper *sleeper, struct server *server, const struct model_list *list,
                   struct completion_queue *completions, const struct sleeper_opener *opener,
                   uint32_t asleep)
{
    *sleeper = (struct sleeper){.server = server,
                                .completions = completions,
                                .opener = *opener,
                                .lock = PTHREAD_MUTEX_INITIALIZER};
    for (uint32_t i = 0; i < list->count; i++) {
        const struct options *options = list->at[i];
        struct model_sleep *sleep = &server->models[i].sleep;
        sleeper->models[i] =
            (struct sleeper_model){.sleeper = sleeper, .number = i, .options = options, .keeps = true};
        sleep->after_us = options->sleep_after;
        sleep->used_us = sleep->since_us = server->turn_us;
        if (asleep >> i & 1)
            begin_asleep(&server->models[i]);
        else
            sleeper->open++;
    }
    server->sleep_api = &sleep_api;
    server->sleep_context = sleeper;
}

void sleeper_end(struct sleeper *sleeper)
{
    for (uint32_t i = 0; sleeper->server && i < MODEL_LIST_MAX; i++) {
        struct sleeper_model *of = &sleeper->models[i];
        if (of->has_thread)
            (void)pthread_join(of->thread, NULL);
        of->has_thread = false;
        keeper_end(&of->keeper);
        file_marks_free(&of->marks);
        if (of->sleeper)
            close_parts(of); /* what was opened and did not become a replica's */
    }
}
