/* What the service manager is told while the loop runs (the words of the end are event_loop.c's): that
 * loading goes on, that a first request was answered, that steps complete or nothing is to do.
 *
 * loop thread. The timer runs only where somebody listens: while the model is loading or the first
 * request is not answered, while a word is owed to the manager, and for the watchdog.
 */
#pragma once

#include "protocol/base/clock.h"

struct event_loop;

void sd_watchdog_start(struct event_loop *loop);
/* All workers are ready: the server serves, and a request of our own is sent on its way. */
void sd_watchdog_loaded(struct event_loop *loop, time_us now_us);
/* After the server's turn: READY=1 when that request was answered. */
void sd_watchdog_turn(struct event_loop *loop, time_us now_us);
/* Around reading options again. Silent before READY=1 was told, which the second one repeats. */
void sd_watchdog_reloading(const struct event_loop *loop, time_us now_us);
void sd_watchdog_reloaded(struct event_loop *loop);
