/* The connection as the library's own files see it. Private to client/.
 *
 * Way of an answer: client.c reads bytes and takes frames off them; answer.c knows what belongs to
 * a batch, ask.c what answers a question. Only client_turn() calls callbacks of the program, but
 * for abandoning, which blocking calls do when their time is up.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "client/buffer.h"
#include "client/sluice.h"
#include "protocol/base/clock.h"
#include "protocol/base/error.h"
#include "protocol/base/list.h"
#include "protocol/frame.h"

/* The daemon's frames; its results come in pieces far smaller. */
#define CLIENT_FRAME_MAX FRAME_SIZE_DEFAULT_MAX
/* Bytes that may wait to be sent. */
#define CLIENT_UNSENT_MAX (64u << 20)
#define CLIENT_BUCKETS 1024u

struct batch;

struct sluice_client {
    int fd;
    bool greeted;      /* WELCOME was there */
    bool turning;      /* within client_turn(): callbacks may not wait */
    bool mute;         /* the daemon takes nothing any more; what it has sent is still to be read */
    bool ending;       /* sluice_end_input() was called: nothing is queued any more */
    bool ended;        /* and all that was queued is sent */
    struct error lost; /* code not 0: the connection is of no use any more, and why */
    struct buffer in, out;
    size_t in_need; /* bytes that make the first frame in `in` whole */

    uint64_t next_id;
    size_t open_sequences;
    struct batch *buckets[CLIENT_BUCKETS]; /* by id */
    struct list batches, asks;

    sluice_info info;
    sluice_error error;
    char *answer; /* of the last sluice_control(), sluice_tokenize() or sluice_detokenize() */
};

/* A client over a connected socket, which it owns from then on. HELLO is queued. */
int client_make(int fd, sluice_client **ret_client, struct error *error);
/* Waits for WELCOME until then (0 = no limit). */
int client_greet(sluice_client *client, time_us until_us, struct error *error);
void client_free(sluice_client *client);

/* Whether anything may still be said to the daemon; keeps the error that says why not. */
int client_check_speaking(sluice_client *client);
/* Room for a frame of `size` bytes at the end of the output; NULL without memory. */
void *client_room(sluice_client *client, size_t size);
/* Whether a frame of that size may be queued: within the daemon's limit, and what waits already. */
int client_check_room(const sluice_client *client, size_t size, struct error *error);
/* So many bytes of it were used. They are sent now as far as the socket takes them. */
void client_wrote(sluice_client *client, size_t used);

/* One turn: sends, reads, calls callbacks. Negative once the connection is lost. */
int client_turn(sluice_client *client);
/* Waits until the socket is ready, then one turn. 1 when it was not until then, negative once the
 * connection is lost: any code, as the daemon gave it. */
int client_wait(sluice_client *client, time_us until_us);
/* The time at which a wait of timeout_ms from now ends; 0 = never. */
time_us client_until(int timeout_ms);

/* Whether a blocking call may start. */
int client_check_blocking(sluice_client *client);
/* Keeps the error for sluice_client_error() and returns -code. */
int client_fail(sluice_client *client, const struct error *error);
