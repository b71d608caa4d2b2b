/* The smallest request there is, asked of a daemon under test: a prompt of one token, and one
 * behind it. Whatever a daemon was configured with, this it serves, or it does not start. */
#pragma once

#include <stdbool.h>

#include "tests/daemon/rig/spawn.h"

/* Starts it with the arguments (up to NULL), and ends it once it has served: 0, or the exit code
 * with which it ended by itself. Fails when it does neither in time; a request that is not answered
 * may have been too slow for a patience of milliseconds, and is asked again. */
int smallest_outcome(struct spawn *spawn, const char *const *arguments);
