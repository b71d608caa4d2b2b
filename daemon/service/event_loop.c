#include "daemon/service/event_loop.h"

#include "daemon/http/api/api.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/api/session.h"
#include "daemon/service/check_text.h"
#include "daemon/service/guard.h"
#include "daemon/service/listeners.h"
#include "daemon/service/log_writer.h"
#include "daemon/service/sd_notify.h"
#include "daemon/service/sd_watchdog.h"
#include "protocol/base/log.h"

#define DESCRIPTORS_FIRST 12 /* that an event loop takes, and some */

/* ---- the end -----------------------------------------------------------------------------------
 */

static void leave(struct event_loop *loop, int code)
{
    listeners_close(loop);
    log_writer_flush();
    _exit(code);
}

static bool workers_are(const struct event_loop *loop, enum worker_state state)
{
    for (uint32_t i = 0; i < loop->replicas.count; i++)
        if (loop->replicas.at[i]->worker && worker_state(loop->replicas.at[i]->worker) != state)
            return false;
    _Static_assert((int)WORKER_READY == JOB_WORKER_READY && (int)WORKER_STOPPED == JOB_WORKER_STOPPED &&
                       (int)WORKER_FAILED == JOB_WORKER_FAILED,
                   "the same states");
    return !loop->jobs || (int)job_worker_state(loop->jobs) == (int)state;
}

static void stop_workers(struct event_loop *loop)
{
    if (reloader_hangs(&loop->reloader))
        leave(loop, loop->exit_code);
    for (uint32_t i = 0; i < loop->replicas.count; i++) {
        if (!loop->replicas.at[i]->worker)
            continue;
        /* A thread in the midst of loading hears nothing, and holds nothing that must be saved. */
        if (worker_state(loop->replicas.at[i]->worker) == WORKER_LOADING)
            leave(loop, loop->exit_code);
        worker_stop(loop->replicas.at[i]->worker);
    }
    if (loop->jobs)
        job_worker_stop(loop->jobs);
}

static void device_failed(struct event_loop *loop, time_us now_us)
{
    const struct error *error = NULL;
    for (uint32_t i = 0; i < loop->replicas.count && !error; i++)
        if (replica_state(loop->replicas.at[i]) == WORKER_FAILED &&
            !sleeper_expects(&loop->sleeper, loop->replicas.at[i]) &&
            !reloader_expects(&loop->reloader, loop->replicas.at[i]))
            error = worker_failure(loop->replicas.at[i]->worker);
    if (!error && loop->jobs && job_worker_state(loop->jobs) == JOB_WORKER_FAILED)
        error = job_worker_failure(loop->jobs);
    if (!error || loop->ending.stage == ENDING_FAILED)
        return;
    bool final = error->code == ERR_BAD_MODEL || error->code == ERR_BAD_CONFIG;
    loop->exit_code = final ? EXIT_CONFIG : EXIT_DEVICE;
    log_line(LOG_ERROR, "device", "%s; the daemon ends with exit code %d", error->text,
             loop->exit_code);
    sd_notify_send("STOPPING=1\nSTATUS=The device failed");
    server_fail(&loop->server, error, now_us);
    ending_fail(&loop->ending, now_us);
    guard_allow("telling clients of the device's failure", ENDING_FAIL_US + ENDING_CLOSE_US,
                loop->exit_code);
    event_loop_touch(loop);
}

/* The time is over: whatever is left goes with the process. */
static void abandon(struct event_loop *loop)
{
    int code = loop->exit_code;
    if (loop->ending.stage == ENDING_STOP) {
        log_line(LOG_ERROR, "loop", "a worker does not end: the process leaves without it");
        code = EXIT_DEVICE;
    } else if (loop->ending.stage == ENDING_FINISH) {
        log_line(LOG_WARNING, "loop",
                 "left at the end: %" PRIu32 " texts that threads of the pool still read%s",
                 loop->server.encodings,
                 loop->trace_file.busy ? ", and the profile, which is not whole" : "");
        guard_allow("the profile to be written", ENDING_FILE_US, code);
        if (!loop->trace_file.busy)
            trace_file_end(&loop->trace_file);
        for (uint32_t i = 0; i < loop->replicas.count; i++)
            if (loop->replicas.at[i]->worker)
                worker_join(loop->replicas.at[i]->worker); /* they have ended */
        if (loop->jobs)
            job_worker_join(loop->jobs);
    }
    leave(loop, code);
}

static void refuse_work(struct event_loop *loop)
{
    server_end(&loop->server);
    /* New clients of a passed socket wait for the next daemon; those of our own are told. */
    for (uint32_t i = 0; i < loop->listener_count; i++)
        if (loop->listeners[i].open && loop->listeners[i].socket.passed)
            uv_poll_stop(&loop->listeners[i].poll);
}

static void advance(struct event_loop *loop, time_us now_us)
{
    const struct ending_facts facts = {
        .idle = server_idle(&loop->server) && http_server_idle(&loop->front),
        .greeting = !list_empty(&loop->server.conns.greeting),
        .stopped = workers_are(loop, WORKER_STOPPED),
        .texts = loop->server.encodings > 0,
        .file = loop->trace_file.busy,
    };
    enum ending_act act = ending_turn(&loop->ending, &facts, now_us);
    switch (act) {
    case ENDING_WAIT:
        return;
    case ENDING_REFUSE:
        log_line(LOG_NOTICE, "loop", "drain-grace is over: no new work, %" PRIu64 " sequences left",
                 loop->server.live_sequences);
        refuse_work(loop);
        break;
    case ENDING_CANCEL:
        log_line(LOG_WARNING, "loop",
                 "%" PRIu64 " sequences did not end within drain-timeout and are cancelled",
                 loop->server.live_sequences);
        server_cancel_all(&loop->server, now_us);
        break;
    case ENDING_HALT:
        server_halt(&loop->server, now_us);
        stop_workers(loop);
        break;
    case ENDING_LINGER:
        log_line(LOG_NOTICE, "loop", "waits for threads of the pool: %" PRIu32 " texts%s",
                 loop->server.encodings, loop->trace_file.busy ? ", the profile" : "");
        break;
    case ENDING_RETURN:
        uv_stop(&loop->uv);
        break;
    case ENDING_ABANDON:
        abandon(loop);
    }
    event_loop_touch(loop);
}

static void drain(struct event_loop *loop, time_us now_us)
{
    /* Without its model loaded, the daemon cannot finish what waits. */
    bool loading = loop->server.phase == SERVER_LOADING;
    time_us drain_us = loading ? 0 : loop->options->drain_timeout;
    /* Who refuses work already, or cannot do it, has nothing to announce. */
    time_us grace_us = loop->server.phase == SERVER_READY ? loop->options->drain_grace : 0;
    time_us most_us = grace_us + drain_us + ENDING_MOST_US + ENDING_CLOSE_US;
    sd_notify_send("STOPPING=1\nEXTEND_TIMEOUT_USEC=%" PRIu64 "\nSTATUS=Finishing %" PRIu64
                   " sequences",
                   most_us, loop->server.live_sequences);
    if (grace_us) {
        server_leave(&loop->server);
        ending_announce(&loop->ending, grace_us, drain_us, now_us);
    } else {
        refuse_work(loop);
        ending_ask(&loop->ending, drain_us, now_us);
    }
    guard_allow("a turn of the loop", most_us, EXIT_DEVICE);
    event_loop_touch(loop);
}

/* ---- signals -----------------------------------------------------------------------------------
 */

/* New options, and the keys that they name: both, or none. */
static int read_again(struct event_loop *loop, struct options **ret_next, struct error *error)
{
    struct options *next = NULL;
    int rc = loop->reload(loop->context, loop->options, &next, error);
    if (!rc)
        rc = http_server_read_keys(&loop->front, next, error);
    if (rc)
        options_free(next);
    else
        *ret_next = next;
    return rc;
}

static void reload(struct event_loop *loop)
{
    struct options *next = NULL;
    struct error error;
    if (!loop->reload)
        return;
    sd_watchdog_reloading(loop, clock_now_us());
    int rc = read_again(loop, &next, &error);
    if (rc) {
        log_line(LOG_ERROR, "config", "%s; the daemon goes on with what it had", error.text);
    } else {
        server_reload(&loop->server, next);
        log_setup((enum log_level)options_log_level(next), (enum log_format)next->log_format);
        options_free(loop->options);
        loop->options = next;
        if (listen_group(next->admin_group, &loop->admin_gid, &error))
            log_line(LOG_ERROR, "config", "%s; nobody is an admin by group", error.text);
        log_line(LOG_NOTICE, "config", "options were read again");
    }
    loop->reload_failed = rc != 0;
    sd_watchdog_reloaded(loop);
}

static void on_hangup(uv_signal_t *handle, int number)
{
    (void)number;
    event_loop_touch(handle->data);
    reload(handle->data);
}

static void on_asked(uv_async_t *async)
{
    struct event_loop *loop = async->data;
    unsigned asked = guard_asked();
    if (loop->heard == 0) {
        log_line(LOG_NOTICE, "loop",
                 "%s: ends when %" PRIu64 " sequences are done, in %" PRIu64 " ms at the latest",
                 guard_signal() == SIGTERM ? "SIGTERM" : "SIGINT", loop->server.live_sequences,
                 (loop->options->drain_grace + loop->options->drain_timeout) / 1000);
        if (loop->ending.stage == ENDING_NOT)
            drain(loop, clock_now_us());
    }
    if (asked > 1 || loop->heard > 0) {
        log_line(LOG_WARNING, "loop",
                 "asked to end a second time: %" PRIu64 " sequences are dropped",
                 loop->server.live_sequences);
        leave(loop, EXIT_FAILURE);
    }
    loop->heard = asked;
}

/* On the guard's thread. */
static void tell_asked(void *context)
{
    struct event_loop *loop = context;
    uv_async_send(&loop->asked);
}

/* ---- turns -------------------------------------------------------------------------------------
 */

/* The turn stops it: while it is active, the loop looks at descriptors and does not wait. */
static void on_again(uv_idle_t *idle)
{
    event_loop_touch(idle->data);
}

void event_loop_soon(struct event_loop *loop)
{
    event_loop_touch(loop);
    uv_idle_start(&loop->again, on_again);
}

static void on_due(uv_timer_t *timer)
{
    struct event_loop *loop = timer->data;
    loop->due_us = 0;
    event_loop_soon(loop);
}

/* What is due by now comes in the next iteration, which looks at descriptors first. A timer that
 * stands earlier than needed stays: it costs one empty turn, moving it costs more. */
static void arm(struct event_loop *loop, time_us now_us)
{
    time_us due_us = server_due(&loop->server);
    time_us end_us = ending_due(&loop->ending, now_us);
    if (end_us && (!due_us || end_us < due_us))
        due_us = end_us;
    if (loop->touched || (due_us && due_us <= now_us)) {
        uv_idle_start(&loop->again, on_again);
        return;
    }
    if (!due_us || (loop->due_us && loop->due_us <= due_us))
        return;
    loop->due_us = due_us;
    uv_update_time(&loop->uv);
    uv_timer_start(&loop->due, on_due, (due_us - now_us + 999) / 1000, 0);
}

static void take_turn(struct event_loop *loop)
{
    time_us now_us = clock_now_us();
    if (!loop->touched)
        return;
    loop->touched = false;
    uv_idle_stop(&loop->again);
    loop->server.counts.turns_total++;
    unsigned control = server_turn(&loop->server, now_us);
    http_server_turn(&loop->front, now_us);
    if (control & COMPLETION_READY) {
        if (workers_are(loop, WORKER_READY))
            sd_watchdog_loaded(loop, now_us);
        event_loop_touch(loop);
    }
    sd_watchdog_turn(loop, now_us);
    if (sleeper_turn(&loop->sleeper, now_us))
        event_loop_touch(loop);
    if (control & COMPLETION_FAILED) /* before the reloader lets go of a version that has ended */
        device_failed(loop, now_us);
    if (reloader_turn(&loop->reloader, now_us))
        event_loop_touch(loop);
    if (control & COMPLETION_TRACE)
        trace_file_turn(&loop->trace_file);
    advance(loop, now_us);
    arm(loop, now_us);
}

static void on_check(uv_check_t *check)
{
    take_turn(check->data);
}

static void on_wake(uv_async_t *async)
{
    event_loop_touch(async->data);
}

/* A task of the pool is about to be done. */
static void on_worked(void *context)
{
    event_loop_touch(context);
}

/* Any thread. */
static void wake(void *context)
{
    struct event_loop *loop = context;
    uv_async_send(&loop->wake);
}

static void take_turn_soon(void *context)
{
    event_loop_soon(context);
}

static struct loop_ref reference(struct event_loop *loop)
{
    return (struct loop_ref){
        .uv = &loop->uv, .touched = &loop->touched, .soon = take_turn_soon, .context = loop};
}

int event_loop_serve_http(struct event_loop *loop, uint64_t salt, struct error *error)
{
    const struct loop_ref below = reference(loop);
    return loop->front.open
               ? 0
               : http_server_open(&loop->front, &below, &loop->server, &api_routes, salt, error);
}

/* ---- life --------------------------------------------------------------------------------------
 */

/* libuv aborts when it cannot make its first pipe; this tries one before it. */
static int try_pipe(void)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return uv_translate_sys_error(errno);
    close(ends[0]);
    close(ends[1]);
    return 0;
}

/* libuv aborts where its first descriptors cannot be had. */
static int find_descriptors(struct error *error)
{
    int fds[DESCRIPTORS_FIRST], count = 0, why = 0;
    while (count < DESCRIPTORS_FIRST && !why) {
        int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        why = fd < 0 ? errno : 0;
        if (fd >= 0)
            fds[count++] = fd;
    }
    for (int i = 0; i < count; i++)
        close(fds[i]);
    return why ? error_set(error, error_of_system(why, ERR_IO), "cannot make an event loop: %s",
                           strerror(why))
               : 0;
}

static struct conn *accept_session(void *context, struct transport *transport,
                                   const struct peer *peer)
{
    struct event_loop *loop = context;
    return session_accept(&loop->server, transport, peer, clock_now_us());
}

int event_loop_init(struct event_loop *loop, struct options *options, uint64_t seed,
                    int (*reload_options)(void *context, const struct options *now,
                                          struct options **ret_next, struct error *error),
                    void *context, struct error *error)
{
    memset(loop, 0, sizeof(*loop));
    loop->reload = reload_options;
    loop->context = context;
    completion_init(&loop->completions, wake, loop);
    loop->links =
        (struct uv_transports){.loop = reference(loop), .accept = accept_session, .context = loop};
    int rc = listen_group(options->admin_group, &loop->admin_gid, error);
    if (!rc)
        rc = server_init(&loop->server, options, &loop->completions, seed, clock_now_us(), error);
    if (rc)
        return rc;
    loop->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    rc = find_descriptors(error);
    if (rc)
        return rc;
    /* These fail for want of memory or descriptors alone. */
    rc = try_pipe();
    if (rc == 0)
        rc = uv_loop_init(&loop->uv);
    if (rc == 0)
        rc = uv_async_init(&loop->uv, &loop->wake, on_wake);
    if (rc == 0)
        rc = uv_async_init(&loop->uv, &loop->asked, on_asked);
    if (rc != 0)
        return error_set(error, ERR_IO, "cannot make an event loop: %s", uv_strerror(rc));
    loop->options = options;
    rc = threadpool_init(&loop->pool, &loop->uv, on_worked, loop);
    if (rc != 0)
        return error_set(error, ERR_IO, "cannot make threads: %s", strerror(rc));
    loop->server.background = &loop->pool.background;
    uv_check_init(&loop->uv, &loop->check);
    uv_check_start(&loop->check, on_check);
    uv_timer_init(&loop->uv, &loop->due);
    uv_timer_init(&loop->uv, &loop->pulse);
    uv_timer_init(&loop->uv, &loop->resume);
    uv_idle_init(&loop->uv, &loop->again);
    uv_signal_init(&loop->uv, &loop->hangup);
    loop->wake.data = loop->asked.data = loop->check.data = loop->due.data = loop;
    loop->pulse.data = loop->resume.data = loop->again.data = loop->hangup.data = loop;
    uv_signal_start(&loop->hangup, on_hangup, SIGHUP);
    return guard_start(tell_asked, loop, error);
}

static int profile(struct event_loop *loop, struct error *error)
{
    struct trace_file *file = &loop->trace_file;
    if (loop->options->profile_steps == 0)
        return 0;
    int rc = trace_file_open(file, loop->options->profile_file, &loop->completions, error);
    for (uint32_t i = 0; !rc && i < loop->replicas.count; i++)
        file->traces[file->count++] = loop->replicas.at[i]->trace;
    return rc;
}

static void stop_first(struct event_loop *loop, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (loop->replicas.at[i]->worker)
            worker_stop(loop->replicas.at[i]->worker);
}

static int load_text(struct event_loop *loop, uint32_t index, const struct options *options,
                     struct error *error)
{
    struct model_text *text = &loop->texts[index];
    struct served_model *model = &loop->server.models[index];
    int rc = check_text_load(text, options, error);
    if (rc)
        return rc;
    model->text = text;
    const char *name = loop->server.model_count > 1 ? model->info.id : "";
    const char *colon = name[0] ? ": " : "";
    if (!text->tokenizer)
        log_line(LOG_WARNING, "text", "%s%stexts are refused: %s", name, colon, text->refusal.text);
    else if (!text->chat)
        log_line(LOG_NOTICE, "text", "%s%schats are refused: %s", name, colon,
                 text->chat_refusal.text);
    return 0;
}

int event_loop_start(struct event_loop *loop, const struct model_list *models,
                     struct replica_worker *const *replicas, uint32_t count, struct error *error)
{
    for (uint32_t i = 0; i < count; i++)
        loop->replicas.at[loop->replicas.count++] = replicas[i];
    int rc = profile(loop, error);
    if (rc)
        return rc;
    sd_watchdog_start(loop);
    for (uint32_t i = 0; i < count; i++) {
        rc = replicas[i]->worker ? worker_start(replicas[i]->worker, error) : 0;
        if (rc) {
            stop_first(loop, i); /* event_loop_destroy joins them */
            return rc;
        }
    }
    if (loop->jobs)
        rc = job_worker_start(loop->jobs, error);
    bool started = !rc && loop->jobs;
    for (uint32_t i = 0; !rc && i < models->count; i++)
        rc = load_text(loop, i, models->at[i], error);
    if (!rc)
        return 0;
    stop_first(loop, count);
    if (started)
        job_worker_stop(loop->jobs);
    return rc;
}

void event_loop_take_models(struct event_loop *loop, struct model_list *list, reloader_open open,
                            void *context)
{
    loop->reloader = (struct reloader){.server = &loop->server,
                                       .list = list,
                                       .texts = loop->texts,
                                       .sleeper = &loop->sleeper,
                                       .replicas = &loop->replicas,
                                       .completions = &loop->completions,
                                       .open = open,
                                       .context = context};
    reloader_begin(&loop->reloader);
}

void event_loop_take_jobs(struct event_loop *loop, struct job_worker *jobs)
{
    loop->jobs = jobs;
}

int event_loop_run(struct event_loop *loop)
{
    if (guard_asked() == 0)
        guard_allow("a turn of the loop", 0, EXIT_DEVICE);
    uv_run(&loop->uv, UV_RUN_DEFAULT);
    return loop->exit_code;
}

static void close_handle(uv_handle_t *handle, void *context)
{
    (void)context;
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

/* From here on nobody turns the loop for its own sake, and signals are the guard's. */
void event_loop_destroy(struct event_loop *loop)
{
    listeners_close(loop);
    guard_allow("a worker's thread", ENDING_CLOSE_US, EXIT_DEVICE);
    for (uint32_t i = 0; i < loop->replicas.count; i++)
        if (loop->replicas.at[i]->worker)
            worker_join(loop->replicas.at[i]->worker);
    if (loop->jobs)
        job_worker_join(loop->jobs);
    guard_allow("the profile to be written", ENDING_CLOSE_US, loop->exit_code);
    trace_file_end(&loop->trace_file);
    guard_allow("connections to be closed", ENDING_CLOSE_US, loop->exit_code);
    self_test_close(&loop->probe, clock_now_us());
    reloader_close(&loop->reloader, clock_now_us());
    http_server_close(&loop->front);
    server_destroy(&loop->server, clock_now_us());
    http_free(&loop->front.http);
    /* What is being opened, a version or a model that wakes, is compared with the texts. */
    guard_allow("a reload's thread", ENDING_CLOSE_US, loop->exit_code);
    reloader_end(&loop->reloader);
    guard_allow("the device to be given back", ENDING_CLOSE_US, EXIT_DEVICE);
    sleeper_end(&loop->sleeper);
    for (uint32_t i = 0; i < MODEL_LIST_MAX; i++)
        model_text_free(&loop->texts[i]);
    for (uint32_t i = 0; i < loop->replicas.count; i++)
        replica_free(loop->replicas.at[i]);
    job_worker_free(loop->jobs);
    guard_allow("the process to exit", ENDING_CLOSE_US, loop->exit_code);
    guard_deafen();
    uv_walk(&loop->uv, close_handle, NULL);
    uv_run(&loop->uv, UV_RUN_DEFAULT);
    int rc = uv_loop_close(&loop->uv);
    if (rc != 0)
        log_line(LOG_ERROR, "loop", "a handle was left open: %s", uv_strerror(rc));
    close(loop->spare_fd);
    completion_destroy(&loop->completions);
    options_free(loop->options);
}
