#include "daemon/pulse.h"

#include <inttypes.h>
#include <stdio.h>

#include "daemon/loop.h"
#include "daemon/notify.h"
#include "protocol/base/log.h"

#define LOADING_PULSE_MS 5000u
#define LOADING_STALL_US 120000000u /* without progress for so long, no more time is asked for */
#define STATUS_MAX 400
#define OWED_PULSE_MS 100u /* while the manager takes no word that it waits for */

static bool healthy(const struct loop *loop, time_us now_us)
{
    for (uint32_t i = 0; i < loop->replica_count; i++)
        if (!worker_healthy(loop->replicas[i]->worker, now_us))
            return false;
    return true;
}

/* What `systemctl status` shows. */
static const char *status_text(const struct loop *loop, char *text, size_t size)
{
    const struct server *server = &loop->server;
    snprintf(text, size,
             "Serving %.128s on %.128s: %" PRIu64 " sequences, %" PRIu64 " of them waiting%s",
             server->model.id, server->device, server->live_sequences, server->waiting.count,
             loop->reload_failed ? "; the last reload failed, see the log" : "");
    return text;
}

/* Loading may take long, but not without progress. */
static void tell_loading(struct loop *loop, time_us now_us)
{
    uint32_t progress = loop->replica_count ? worker_progress(loop->replicas[0]->worker) : 0;
    if (progress != loop->loading_progress || loop->loading_moved_us == 0) {
        loop->loading_progress = progress;
        loop->loading_moved_us = now_us;
    }
    if (now_us - loop->loading_moved_us < LOADING_STALL_US)
        notify_send("EXTEND_TIMEOUT_USEC=%u\nSTATUS=Loading the model, %u %%",
                    4 * LOADING_PULSE_MS * 1000u, progress / 10);
    else
        notify_send("STATUS=Loading the model, %u %%, without progress for %u s", progress / 10,
                    (unsigned)((now_us - loop->loading_moved_us) / 1000000u));
}

static void feed_watchdog(struct loop *loop, time_us now_us)
{
    char text[STATUS_MAX];
    if (!healthy(loop, now_us)) {
        if (!loop->told_stuck) {
            log_line(LOG_ERROR, "device",
                     "a step makes no progress: the watchdog is no longer fed");
            notify_send("STATUS=A step makes no progress");
        }
        loop->told_stuck = true;
        return;
    }
    loop->told_stuck = false;
    if (loop->told_ready && loop->ending.stage == ENDING_NOT)
        notify_send("WATCHDOG=1\nSTATUS=%s", status_text(loop, text, sizeof(text)));
    else
        notify_send("WATCHDOG=1");
}

static void on_pulse(uv_timer_t *timer);

static uint64_t period_ms(void)
{
    uint64_t watchdog_ms = notify_watchdog_us() / 2000;
    return watchdog_ms ? watchdog_ms : LOADING_PULSE_MS;
}

/* What the manager waits for does not wait for the usual period; the timer goes back to that. */
static void try_again_soon(struct loop *loop)
{
    uint64_t usual_ms = period_ms();
    if (notify_owes())
        uv_timer_start(&loop->pulse, on_pulse, OWED_PULSE_MS,
                       usual_ms < OWED_PULSE_MS ? usual_ms : OWED_PULSE_MS);
    else if (uv_timer_get_repeat(&loop->pulse) == OWED_PULSE_MS)
        uv_timer_start(&loop->pulse, on_pulse, usual_ms, usual_ms);
}

static void on_pulse(uv_timer_t *timer)
{
    struct loop *loop = timer->data;
    time_us now_us = clock_now_us();
    if (loop->server.phase == SERVER_LOADING) {
        tell_loading(loop, now_us);
    } else if (!loop->told_ready && loop->probe.state == PROBE_REFUSED &&
               loop->ending.stage == ENDING_NOT) {
        probe_ask(&loop->probe, &loop->server, now_us);
        loop_touch(loop);
    } else if (loop->told_ready && notify_watchdog_us() == 0 && !notify_owes()) {
        uv_timer_stop(timer);
    }
    feed_watchdog(loop, now_us);
    if (notify_owes() || uv_is_active((const uv_handle_t *)timer))
        try_again_soon(loop);
    loop_turn(loop);
}

void pulse_start(struct loop *loop)
{
    if (notify_enabled())
        uv_timer_start(&loop->pulse, on_pulse, 0, period_ms());
}

void pulse_loaded(struct loop *loop, time_us now_us)
{
    if (loop->told_loaded)
        return;
    loop->told_loaded = true;
    server_ready(&loop->server, now_us);
    log_line(LOG_NOTICE, "loop", "%s on %s is ready after %" PRIu64 " ms", loop->server.model.id,
             loop->server.device, (now_us - loop->server.started_us) / 1000);
    if (notify_enabled() && loop->ending.stage == ENDING_NOT) {
        notify_send("STATUS=The model is loaded, a first request is under way");
        probe_ask(&loop->probe, &loop->server, now_us);
    }
}

void pulse_turn(struct loop *loop, time_us now_us)
{
    char text[STATUS_MAX];
    if (!loop->probe.conn && loop->probe.state != PROBE_REFUSED)
        return;
    if (loop->probe.state == PROBE_ANSWERED) {
        probe_close(&loop->probe, now_us);
        loop->told_ready = true;
        notify_send("READY=1\nSTATUS=%s", status_text(loop, text, sizeof(text)));
        try_again_soon(loop);
    } else if (loop->probe.state == PROBE_REFUSED && loop->probe.conn) {
        log_line(LOG_WARNING, "loop", "the first request was not answered and is asked again: %s",
                 loop->probe.error.text);
        probe_close(&loop->probe, now_us);
    }
}

void pulse_reloading(const struct loop *loop, time_us now_us)
{
    if (loop->told_ready)
        notify_send("RELOADING=1\nMONOTONIC_USEC=%" PRIu64, now_us);
}

void pulse_reloaded(struct loop *loop)
{
    char text[STATUS_MAX];
    if (!loop->told_ready)
        return;
    notify_send("READY=1\nSTATUS=%s", status_text(loop, text, sizeof(text)));
    try_again_soon(loop);
}
