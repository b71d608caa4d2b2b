/* Control frames: CANCEL, STATS, HEALTH, MODEL, DRAIN, RESUME, and who may send them.
 *
 * HEALTH, MODEL and STATS are everyone's; a user cancels and lists what is his own; DRAIN, RESUME
 * and the requests of others are for admins (peer.admin).
 *
 * loop thread
 */
#pragma once

#include "protocol/base/clock.h"

struct conn;
struct frame;
struct server;
struct stats_waiter;

/* A whole frame of a greeted connection, of any type that no other file takes. Answers, also what
 * is wrong with it. */
void control_frame(struct conn *conn, const struct frame *frame, time_us now_us);
/* `done` is called once the workers' figures are fresh, or now where they cannot be. */
void control_wait_stats(struct server *server, struct stats_waiter *waiter, time_us now_us);
/* Answers everybody who waits for them. */
void control_stats(struct server *server, time_us now_us);
