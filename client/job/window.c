#include "client/job/window.h"

#include <assert.h>

void window_init(struct window *window)
{
    *window = (struct window){.size = WINDOW_FIRST};
}

bool window_has_room(const struct window *window, time_us now_us)
{
    return window->used < window->size && now_us >= window->closed_until_us;
}

void window_sent(struct window *window, time_us now_us)
{
    if (window->moved_us == 0)
        window->moved_us = now_us;
    window->used++;
}

void window_ended(struct window *window, time_us now_us)
{
    assert(window->used > 0);
    window->used--;
    window->moved_us = now_us;
    if (window->size < WINDOW_MAX && now_us >= window->steady_until_us)
        window->size++;
}

bool window_refused(struct window *window, uint32_t hint_ms, time_us now_us)
{
    assert(window->used > 0);
    uint32_t wait_ms = hint_ms == 0                   ? WINDOW_HINT_MS
                       : hint_ms > WINDOW_HINT_MAX_MS ? WINDOW_HINT_MAX_MS
                                                      : hint_ms;
    time_us wait_us = (time_us)wait_ms * 1000;
    window->used--;
    if (window->size > 1)
        window->size--;
    if (now_us + wait_us > window->closed_until_us)
        window->closed_until_us = now_us + wait_us;
    window->steady_until_us = window->closed_until_us + WINDOW_STEADY * wait_us;
    return now_us - window->moved_us < WINDOW_TIMEOUT_US;
}
