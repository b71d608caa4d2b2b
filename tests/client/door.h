/* The door of a server that a test makes up: a Unix socket in a folder of its own, and the thread
 * behind it. The thread polls `listener` and `stop[0]`, and returns once there is something in the
 * latter. What cannot be had ends the test program.
 */
#pragma once

#include <pthread.h>

struct door {
    char folder[64], path[96]; /* path: the socket's */
    int listener, stop[2];
    pthread_t thread;
};

void door_open(struct door *door, void *(*run)(void *context), void *context);
/* When it returns, the thread has ended, and socket and folder are gone. */
void door_close(struct door *door);
