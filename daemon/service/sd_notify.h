/* sd_notify: states told to the service manager over the datagram socket named in NOTIFY_SOCKET.
 * Does nothing where there is none. Loop thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "protocol/base/clock.h"
#include "protocol/base/error.h"

/* Reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID, once, and takes them out of the environment.
 */
int sd_notify_setup(struct error *error);
bool sd_notify_enabled(void);
/* The watchdog's whole period; 0 = there is none. */
time_us sd_notify_watchdog_us(void);

/* Assignments, one per line: "READY=1\nSTATUS=...". Never blocks. What cannot be sent is lost, but for
 * READY, RELOADING and STOPPING, which the manager waits for: those are owed, and are tried again
 * before whatever is sent next. */
void sd_notify_send(const char *format, ...) __attribute__((format(printf, 1, 2)));
bool sd_notify_owes(void);
