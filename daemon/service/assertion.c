/* Where a failed assert() of the daemon and of its libraries ends, instead of in the C library: that
 * would write to stderr by the thread that found it, and a pipe that nobody reads would keep a broken
 * daemon for ever. Linked into sluiced alone. */
#include <assert.h>
#include <stdio.h>

#include "protocol/base/log.h"

__attribute__((visibility("default"))) void __assert_fail(const char *assertion, const char *file,
                                                          unsigned int line, const char *function)
{
    char message[LOG_MESSAGE_MAX];
    snprintf(message, sizeof(message), "%s:%u: %s: does not hold: %s", file, line,
             function ? function : "?", assertion);
    log_die("assert", message);
}
