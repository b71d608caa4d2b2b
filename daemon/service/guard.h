/* Guard: that the process ends once it was asked to, whatever its threads are doing.
 *
 * SIGTERM and SIGINT come here. The loop is told of each, and ends the process in its stages
 * (daemon/service/ending.h). Should the loop not do so, because something that it called does not
 * return, a thread of the guard's own ends the process: soon after a second signal, and when the
 * time is over that was allowed for what is being done. The log then says what that was.
 *
 * There is one. guard_start() before any other thread of ours; the rest: any thread.
 */
#pragma once

#include <stdint.h>

#include "protocol/base/clock.h"
#include "protocol/base/error.h"

#define GUARD_HEAR_US 10000000u /* to act on the first signal */
#define GUARD_AGAIN_US 500000u  /* and on the second */

/* Takes the signals over. `told` is called on the guard's thread after each of them, or once after
 * several; it does not wait for anything. */
int guard_start(void (*told)(void *context), void *context, struct error *error);
/* From now on nobody is told. */
void guard_deafen(void);
/* Signals so far; the number of the first. */
unsigned guard_asked(void);
int guard_signal(void);
/* Says what is being done, a constant text, and how long it may take from now on before the process
 * leaves with this exit code; 0: as long as nobody asks for the end. */
void guard_allow(const char *what, time_us for_us, int code);
