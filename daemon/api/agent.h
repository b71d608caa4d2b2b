/* What HAProxy's agent-check is told: one line, whole each time, so that whatever an earlier one
 * changed is undone ("up drain" stays with HAProxy until somebody says "ready").
 *
 *   up ready 75%     takes work; below 100% work would wait longer than it should
 *   up drain         takes no more for now: draining, or about to end
 *   down #loading    cannot answer: loading, stuck or failed
 *
 * loop thread
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "protocol/base/clock.h"

#define AGENT_LINE_MAX 32u
/* A wait that lasts is told by half to two thirds of it after so long, however often is asked. */
#define AGENT_SMOOTH_US 2000000u
/* Changes by less are not told: with consistent hashing each one moves sessions. */
#define AGENT_STEP 5u

struct server;

struct agent {
    double wait_us; /* smoothed */
    time_us asked_us;
    uint32_t told; /* percent; 0: nothing yet */
};

/* Percent of a server's weight, 1 to 100: all of it while first steps come within the target, then
 * target / wait. Never 0, which would be a drain. Pure but for *agent. */
uint32_t agent_weight(struct agent *agent, double wait_us, uint64_t target_us, time_us now_us);
/* The line, and its length. */
size_t agent_line(struct agent *agent, const struct server *server, time_us now_us,
                  char line[AGENT_LINE_MAX]);
