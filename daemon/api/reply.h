/* Replies: what a sequence has come to, as frames of its connection. Private to the server's files.
 *
 * loop thread
 */
#pragma once

#include "protocol/base/clock.h"

struct session;
struct seq;

/* Encodes news of the first sequence in session->ready, a frame's worth at most, and takes it off
 * the list when nothing is left to tell now. After its DONE or ERROR the sequence is released. */
void reply_seq(struct session *session, struct seq *seq, time_us now_us);
