/* SUBMIT: from a frame to a request in the waiting queue, or to an ERROR that says why not.
 *
 * A batch of long texts is tokenized off the loop, and one of conversations always. Meanwhile it is
 * a struct submit in its connection's list, and further frames are handled; its number is taken and
 * its sequences have their places in the queue. Cancelled or late it is answered at once, and
 * whatever comes of its texts is thrown away.
 *
 * loop thread
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "protocol/base/clock.h"

struct session;
struct frame;

/* A whole frame of a greeted connection. Answers, also what is wrong with it. */
void submit_frame(struct session *session, const struct frame *frame, time_us now_us);
/* Whether one with this number waits for its texts. */
bool submit_pending(struct session *session, uint64_t client_id);
/* Ends one whose texts wait for a thread, or are being tokenized. */
void submit_cancel(struct session *session, uint64_t client_id, time_us now_us);
/* The connection goes: nobody waits for those any more. */
void submit_forget(struct session *session);
