#include "daemon/service/sd_watchdog.h"

#include <inttypes.h>
#include <stdio.h>

#include "daemon/service/event_loop.h"
#include "daemon/service/sd_notify.h"
#include "protocol/base/log.h"

#define LOADING_PULSE_MS 5000u
#define STATUS_MAX 600
#define OWED_PULSE_MS 100u /* while the manager takes no word that it waits for */

static const char *served(const struct server *server)
{
    return server_has_model(server) ? server->models[0].info.id : "programs";
}

/* How many are not on their devices, and of these could not be brought there; "" where all are. */
static void sleep_text(const struct server *server, char *text, size_t size)
{
    uint32_t asleep = 0, failing = 0;
    char failed[64] = "";
    for (uint32_t i = 0; i < server->model_count; i++) {
        asleep += server->models[i].sleep.state != MODEL_AWAKE;
        failing += server->models[i].sleep.failing;
    }
    if (failing)
        snprintf(failed, sizeof(failed), ", %u could not wake, see the log", failing);
    text[0] = '\0';
    if (asleep)
        snprintf(text, size, "; %u of %u models asleep%s", asleep, server->model_count, failed);
}

/* What `systemctl status` shows. */
static const char *status_text(const struct event_loop *loop, char *text, size_t size)
{
    const struct server *server = &loop->server;
    char more[32] = "", asleep[128];
    if (server->model_count > 1)
        snprintf(more, sizeof(more), " and %u more", server->model_count - 1);
    sleep_text(server, asleep, sizeof(asleep));
    snprintf(text, size,
             "Serving %.128s%s on %.128s: %" PRIu64 " sequences, %" PRIu64 " of them waiting%s%s",
             served(server), more, server->device, server->live_sequences,
             server_waiting(server) + server->jobs.waiting.count, asleep,
             loop->reload_failed ? "; the last reload failed, see the log" : "");
    return text;
}

/* Loading may take long, but not without progress. */
static void tell_loading(struct event_loop *loop, time_us now_us)
{
    uint32_t progress = loop->replicas.count ? 1000 : 0;
    for (uint32_t i = 0; i < loop->replicas.count; i++) {
        uint32_t one = loop->replicas.at[i]->base.api->progress(&loop->replicas.at[i]->base);
        progress = one < progress ? one : progress;
    }
    if (progress != loop->loading_progress || loop->loading_moved_us == 0) {
        loop->loading_progress = progress;
        loop->loading_moved_us = now_us;
    }
    if (now_us - loop->loading_moved_us < MODEL_STALL_US) /* then no more time is asked for */
        sd_notify_send("EXTEND_TIMEOUT_USEC=%u\nSTATUS=Loading the model, %u %%",
                       4 * LOADING_PULSE_MS * 1000u, progress / 10);
    else
        sd_notify_send("STATUS=Loading the model, %u %%, without progress for %u s", progress / 10,
                       (unsigned)((now_us - loop->loading_moved_us) / 1000000u));
}

static void feed_watchdog(struct event_loop *loop, time_us now_us)
{
    char text[STATUS_MAX];
    if (!server_healthy(&loop->server, now_us)) {
        const char *what =
            model_sleep_stalled(&loop->server) ? "A model that sleeps or wakes" : "A step";
        if (!loop->told_stuck) {
            log_line(LOG_ERROR, "device", "%s makes no progress: the watchdog is no longer fed",
                     what);
            sd_notify_send("STATUS=%s makes no progress", what);
        }
        loop->told_stuck = true;
        return;
    }
    loop->told_stuck = false;
    if (loop->told_ready && loop->ending.stage == ENDING_NOT)
        sd_notify_send("WATCHDOG=1\nSTATUS=%s", status_text(loop, text, sizeof(text)));
    else
        sd_notify_send("WATCHDOG=1");
}

static void on_pulse(uv_timer_t *timer);

static uint64_t period_ms(void)
{
    uint64_t watchdog_ms = sd_notify_watchdog_us() / 2000;
    return watchdog_ms ? watchdog_ms : LOADING_PULSE_MS;
}

/* What the manager waits for does not wait for the usual period; the timer goes back to that. */
static void try_again_soon(struct event_loop *loop)
{
    uint64_t usual_ms = period_ms();
    if (sd_notify_owes())
        uv_timer_start(&loop->pulse, on_pulse, OWED_PULSE_MS,
                       usual_ms < OWED_PULSE_MS ? usual_ms : OWED_PULSE_MS);
    else if (uv_timer_get_repeat(&loop->pulse) == OWED_PULSE_MS)
        uv_timer_start(&loop->pulse, on_pulse, usual_ms, usual_ms);
}

static void on_pulse(uv_timer_t *timer)
{
    struct event_loop *loop = timer->data;
    time_us now_us = clock_now_us();
    if (loop->server.phase == SERVER_LOADING) {
        tell_loading(loop, now_us);
    } else if (!loop->told_ready && loop->probe.state == SELF_TEST_REFUSED &&
               loop->ending.stage == ENDING_NOT) {
        self_test_ask(&loop->probe, &loop->server, now_us);
        event_loop_touch(loop);
    } else if (loop->told_ready && sd_notify_watchdog_us() == 0 && !sd_notify_owes()) {
        uv_timer_stop(timer);
    }
    feed_watchdog(loop, now_us);
    if (sd_notify_owes() || uv_is_active((const uv_handle_t *)timer))
        try_again_soon(loop);
    if (loop->touched)
        event_loop_soon(loop);
}

void sd_watchdog_start(struct event_loop *loop)
{
    if (sd_notify_enabled())
        uv_timer_start(&loop->pulse, on_pulse, 0, period_ms());
}

void sd_watchdog_loaded(struct event_loop *loop, time_us now_us)
{
    if (loop->told_loaded)
        return;
    loop->told_loaded = true;
    server_ready(&loop->server, now_us);
    log_line(LOG_NOTICE, "loop", "%s on %s is ready after %" PRIu64 " ms", served(&loop->server),
             loop->server.device, (now_us - loop->server.started_us) / 1000);
    if (sd_notify_enabled() && loop->ending.stage == ENDING_NOT) {
        sd_notify_send("STATUS=The model is loaded, a first request is under way");
        self_test_ask(&loop->probe, &loop->server, now_us);
    }
}

void sd_watchdog_turn(struct event_loop *loop, time_us now_us)
{
    char text[STATUS_MAX];
    if (!loop->probe.conn && loop->probe.state != SELF_TEST_REFUSED)
        return;
    if (loop->probe.state == SELF_TEST_ANSWERED) {
        self_test_close(&loop->probe, now_us);
        loop->told_ready = true;
        sd_notify_send("READY=1\nSTATUS=%s", status_text(loop, text, sizeof(text)));
        try_again_soon(loop);
    } else if (loop->probe.state == SELF_TEST_REFUSED && loop->probe.conn) {
        log_line(LOG_WARNING, "loop", "the first request was not answered and is asked again: %s",
                 loop->probe.error.text);
        self_test_close(&loop->probe, now_us);
    }
}

void sd_watchdog_reloading(const struct event_loop *loop, time_us now_us)
{
    if (loop->told_ready)
        sd_notify_send("RELOADING=1\nMONOTONIC_USEC=%" PRIu64, now_us);
}

void sd_watchdog_reloaded(struct event_loop *loop)
{
    char text[STATUS_MAX];
    if (!loop->told_ready)
        return;
    sd_notify_send("READY=1\nSTATUS=%s", status_text(loop, text, sizeof(text)));
    try_again_soon(loop);
}
