/* JOB: from a frame, and the descriptors of memory that came with it, to a request of jobs; and
 * what becomes of it, back to TENSORS. loop thread
 */
#pragma once

#include <stdbool.h>

#include "protocol/base/clock.h"

struct session;
struct frame;
struct seq;

/* A whole frame of a greeted connection. Answers, also what is wrong with it. */
void job_frame(struct session *session, const struct frame *frame, time_us now_us);
/* PROGRAMS: the list, or an admin's word that one is on again. */
void job_programs(struct session *session, const struct frame *frame, time_us now_us);

/* A part of its outputs, if some are left to tell; it has ended well. */
void job_reply(struct session *session, struct seq *seq, time_us now_us);
bool job_reply_left(const struct seq *seq);
