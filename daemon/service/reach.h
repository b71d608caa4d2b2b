/* Reach: that clients find a listening socket by its path. When the file or its folder is removed
 * or moved while we listen, inotify tells, and the socket is made again; one that systemd passed
 * cannot be, and one in whose place another daemon listens is not. HEALTH then says so, and the
 * folder is watched until it can be. No timer.
 *
 * A folder further up that is moved away is not noticed.
 *
 * loop thread. Embedded in a event_loop_listener.
 */
#pragma once

#include <stdbool.h>
#include <uv.h>

struct event_loop_listener;

struct reach {
    uv_poll_t poll;
    bool open;
    int fd;     /* inotify's */
    int wds[2]; /* of file and folder; -1 = none */
};

/* The listener is open, and stands in the loop's table. Where there is nothing to watch, or no
 * means to, that is all. */
void reach_open(struct event_loop_listener *listener);
/* More than once does nothing. */
void reach_close(struct event_loop_listener *listener);
