/* Patience: how long connections may keep the server waiting for HELLO, for the rest of a frame, or
 * for their reading, and how long an ACCEPT waits for company. Private to the server's files.
 *
 * Each delay is the same for all, so each list is in the order of time and only its first is looked
 * at. loop thread
 */
#pragma once

#include "protocol/base/clock.h"

struct conn_set;

void timeouts_expire(struct conn_set *set, time_us now_us);
/* When the first of them is due; 0 = none is waited for. */
time_us timeouts_due(const struct conn_set *set);
