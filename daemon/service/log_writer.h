/* Log writer: the thread that waits for stderr, so that no other does. Lines go into a ring of memory
 * (protocol/base/log_ring.h) in which they find room at once or are dropped; the thread writes them,
 * and the number of those that were dropped at their place. Nothing is set on the descriptor, which
 * others may share.
 *
 * From log_writer_start() to the end of the process; there is one. What is logged before goes to
 * stderr by the thread that logs.
 */
#pragma once

#include "protocol/base/error.h"

/* Before any other thread starts. At exit() lines are written out as by log_writer_flush(). */
int log_writer_start(struct error *error);
/* Until all lines are written, for as long as stderr takes some: half a second without is the end of
 * it, and so are five in all. What _exit() wants before it. any thread */
void log_writer_flush(void);
