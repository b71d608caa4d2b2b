/* Timeouts: how long connections may keep the server waiting for HELLO, for the rest of a frame, or
 * for their reading, and how long an ACCEPT waits for company. Private to the server's files.
 *
 * Each delay is the same for all, so each list is in the order of time and only its first is looked
 * at. The rest of a message has more than its delay for as much of it as has come: who sends a
 * megabit a second is never late, however slowly we read it. Nor is anybody of whom we have just
 * heard when we look that much later than we meant to: then its time begins anew. loop thread
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "protocol/base/clock.h"

#define TIMEOUTS_BYTE_US 8u      /* that each byte of a message gives for the rest of it */
#define TIMEOUTS_LATE_US 100000u /* this late, our clock says nothing about a client */

/* What who has waited for so long gets: all of it where the wait was `ours`, else what its bytes
 * are worth, up to now: the rest of them they are worth later. So nobody waits since a time to
 * come, and whoever begins now stands behind all others. */
static inline time_us timeouts_given(uint64_t *bytes, time_us waited_us, bool ours)
{
    time_us worth_us = *bytes * TIMEOUTS_BYTE_US;
    time_us given_us = ours || worth_us > waited_us ? waited_us : worth_us;
    *bytes = ours ? 0 : *bytes - given_us / TIMEOUTS_BYTE_US;
    return given_us;
}

struct conn_set;

void timeouts_expire(struct conn_set *set, time_us now_us);
/* When the first of them is due; 0 = none is waited for. */
time_us timeouts_due(const struct conn_set *set);
