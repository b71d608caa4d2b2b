/* SUBMIT: from a frame to a request in the waiting queue, or to an ERROR that says why not.
 *
 * A batch of long texts is tokenized off the loop, and one of conversations always. Meanwhile it is
 * a struct submit in its connection's list, and further frames are handled; its number is taken,
 * and CANCEL stops the work on its texts: then it is refused as cancelled.
 *
 * loop thread
 */
#pragma once

#include <stdint.h>

#include "protocol/base/clock.h"

struct conn;
struct frame;

/* A whole frame of a greeted connection. Answers, also what is wrong with it. */
void submit_frame(struct conn *conn, const struct frame *frame, time_us now_us);
/* One whose texts are being tokenized: that is stopped; what was done by then is accepted and
 * cancelled. */
void submit_cancel(struct conn *conn, uint64_t client_id);
/* The connection goes: nobody waits for those any more, and what is done for them stops. */
void submit_forget(struct conn *conn);
