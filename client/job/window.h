/* How many requests of a long batch are on their way at a time.
 *
 * A daemon takes as many as it has room for and refuses the rest with a hint when to come back. So
 * the window grows by one with each request that ends and shrinks by one with each that is refused,
 * which is sent again when the hint says so; until then nothing is sent. After a refusal it does
 * not grow for many hints' time: else it would live on the edge, where it mostly waits. Pure.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "protocol/base/clock.h"

#define WINDOW_FIRST 2048u
#define WINDOW_MAX 4096u
#define WINDOW_HINT_MS 50u         /* where the daemon gives none */
#define WINDOW_HINT_MAX_MS 10000u  /* whatever it says */
#define WINDOW_STEADY 20u          /* hints for which it does not grow: about 1 / 20 is lost */
#define WINDOW_TIMEOUT_US 60000000 /* refusals for so long, without anything else, are final */

struct window {
    uint32_t size, used;
    time_us closed_until_us; /* 0 = open */
    time_us steady_until_us; /* it does not grow before */
    time_us moved_us;        /* when something was last not refused; 0 = nothing was sent yet */
};

void window_init(struct window *window);
bool window_has_room(const struct window *window, time_us now_us);
void window_sent(struct window *window, time_us now_us);
/* One has ended, well or badly. */
void window_ended(struct window *window, time_us now_us);
/* One was refused. False when it is of no use to send it again. */
bool window_refused(struct window *window, uint32_t hint_ms, time_us now_us);
