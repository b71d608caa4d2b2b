/* A log that blocks: what daemon/service/log_writer.c is to the daemon's lines, on the scene's clock and with
 * little room, in front of a reader who stops for long. Nothing of the daemon may wait for it. Every
 * line is either written whole, in order, or counted at its place; a grave one is dropped only when
 * there is no byte for it.
 *
 * One thread, one at a time. Its draws are its own: how many lines there are depends on real time
 * (repeat.h), which must not change what else happens.
 */
#pragma once

#include "daemon/request/server.h"
#include "protocol/base/log_ring.h"
#include "tests/sim/scene.h"

#define SCRIBE_ROOM 4096u
#define SCRIBE_LINES 1024u /* no line is shorter than 16 bytes */

struct scribe {
    struct scene *scene;
    struct log_ring ring;
    char room[SCRIBE_ROOM];
    uint64_t random;
    bool reads;
    bool gap;   /* lines were dropped of which the log has not been told */
    bool shown; /* the daemon's figures may have them: not while its clients ask */
    time_us change_us; /* when the reader stops, or goes on */
    uint64_t kept[SCRIBE_LINES]; /* hashes of lines that were not dropped */
    uint64_t put, taken, told, waited; /* lines; waited: those that came while nobody read */
};

void scribe_begin(struct scribe *scribe, struct scene *scene);
/* After every event. */
void scribe_turn(struct scribe *scribe);
/* The reader reads to the end: whether all lines are accounted for, also in the server's figures.
 */
void scribe_check_rest(struct scribe *scribe, struct server *server);
void scribe_end(void);
