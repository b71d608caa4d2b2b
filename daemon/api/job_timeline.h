/* TIMELINE: when the stages of jobs' chunks ran, told to an admin; asking turns the timing on
 * (daemon/jobs/timeline.h). loop thread
 */
#pragma once

#include "protocol/base/clock.h"

struct session;
struct frame;

void job_timeline_frame(struct session *session, const struct frame *frame, time_us now_us);
