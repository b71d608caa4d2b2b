/* Control frames: CANCEL, STATS, HEALTH, MODEL, DRAIN, RESUME, and who may send them.
 *
 * HEALTH, MODEL and STATS are everyone's; a user cancels and lists what is his own; DRAIN, RESUME
 * and the requests of others are for admins (peer.admin).
 *
 * loop thread
 */
#pragma once

#include "daemon/api/out.h"
#include "protocol/base/clock.h"

struct error;
struct frame;
struct served_model;
struct server;
struct session;

/* A whole frame of a greeted connection, of any type that no other file takes. Answers, also what
 * is wrong with it. */
void control_frame(struct session *session, const struct frame *frame, time_us now_us);
/* The answer to a frame of a type, however long; or that there is no memory for it. */
void control_answer(struct session *session, uint8_t type, uint64_t client_id, out_writer write,
                    const void *context, time_us now_us);
/* The model of that name, of NULL and "" the first; NULL and an error: there is none. */
struct served_model *control_model(struct server *server, const char *name, struct error *error);
/* The session goes: nobody waits for its STATS any more. */
void control_forget(struct session *session);
