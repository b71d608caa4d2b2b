/* sd_notify: states told to the service manager over the datagram socket named in NOTIFY_SOCKET.
 * Does nothing where there is none. Loop thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "protocol/base/clock.h"

/* Reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID, once, and takes them out of the environment.
 */
void notify_setup(void);
bool notify_enabled(void);
/* The watchdog's whole period; 0 = there is none. */
time_us notify_watchdog_us(void);

/* Assignments, one per line: "READY=1\nSTATUS=...". Never blocks; a state that cannot be sent is
 * lost, as the service manager's own library has it. */
void notify_send(const char *format, ...) __attribute__((format(printf, 1, 2)));
