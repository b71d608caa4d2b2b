/* The connection as the library's own files see it: bytes out, frames in, the greeting, the loss.
 * Private to the library.
 *
 * What a frame means it does not know: it hands each to its handler. Only connection_turn() calls
 * callbacks of the program, but for abandoning, which blocking calls do when their time is up.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "client/net/buffer.h"
#include "client/sluice.h"
#include "protocol/base/clock.h"
#include "protocol/base/error.h"
#include "protocol/base/list.h"
#include "protocol/frame.h"

/* The daemon's frames; its results come in pieces far smaller. */
#define CONNECTION_FRAME_MAX FRAME_SIZE_DEFAULT_MAX
/* Bytes that may wait to be sent. */
#define CONNECTION_UNSENT_MAX (64u << 20)
#define CONNECTION_BUCKETS 1024u

struct batch;

/* Who knows what the frames mean: request/session.c. */
struct connection_handler {
    /* One after the greeting. Negative when the daemon does not keep to the protocol, or has given
     * the connection up: then it is lost. */
    int (*frame)(sluice_client *client, const struct frame *frame, struct error *error);
    void (*lost)(sluice_client *client, const struct error *error); /* once at most */
    void (*closed)(sluice_client *client); /* frees what is open, without a word */
};

/* Descriptors that go with a byte of the output; owned until they are sent. */
#define CONNECTION_DESCRIPTORS_MAX 2
struct parcel {
    struct list link;
    uint64_t at; /* of all bytes ever queued, the one that they go with */
    uint32_t count;
    int fds[CONNECTION_DESCRIPTORS_MAX];
};

struct sluice_client {
    int fd;
    const struct connection_handler *handler;
    bool greeted;      /* WELCOME was there */
    bool turning;      /* within connection_turn(): callbacks may not wait */
    bool mute;         /* the daemon takes nothing any more; what it has sent is still to be read */
    bool ending;       /* sluice_end_input() was called: nothing is queued any more */
    bool ended;        /* and all that was queued is sent */
    struct error lost; /* code not 0: the connection is of no use any more, and why */
    struct buffer in, out;
    uint64_t sent_bytes; /* of all ever queued */
    struct list parcels;
    size_t in_need; /* bytes that make the first frame in `in` whole */

    uint64_t next_id;
    size_t open_sequences;
    struct batch *buckets[CONNECTION_BUCKETS]; /* by id */
    struct list batches, asks;

    sluice_info info;
    sluice_error error;
    char *answer; /* of the last sluice_control(), sluice_tokenize() or sluice_detokenize() */
};

/* A client over a connected socket, which it owns from then on. HELLO is queued. */
int connection_make(int fd, const struct connection_handler *handler, sluice_client **ret_client,
                    struct error *error);
/* Waits for WELCOME until then (0 = no limit). */
int connection_greet(sluice_client *client, time_us until_us, struct error *error);
void connection_free(sluice_client *client);

/* Whether anything may still be said to the daemon; keeps the error that says why not. */
int connection_check_speaking(sluice_client *client);
/* Room for a frame of `size` bytes at the end of the output; NULL without memory. */
void *connection_room(sluice_client *client, size_t size);
/* Whether a frame of that size may be queued: within the daemon's limit, and what waits already. */
int connection_check_room(const sluice_client *client, size_t size, struct error *error);
/* So many bytes of it were used. They are sent now as far as the socket takes them. */
void connection_wrote(sluice_client *client, size_t used);

/* The next frame that is written takes these descriptors along, which are the connection's from then
 * on; -ERR_NO_MEMORY: they stay the caller's. */
int connection_attach(sluice_client *client, const int *fds, uint32_t count);

/* One turn: sends, reads, calls callbacks. Negative once the connection is lost. */
int connection_turn(sluice_client *client);
/* Waits until the socket is ready, then one turn. 1 when it was not until then, negative once the
 * connection is lost: any code, as the daemon gave it. */
int connection_wait(sluice_client *client, time_us until_us);
/* The time at which a wait of timeout_ms from now ends; 0 = never. */
time_us connection_until(int timeout_ms);

/* Whether a blocking call may start. */
int connection_check_blocking(sluice_client *client);
/* Keeps the error for sluice_client_error() and returns -code. */
int connection_fail(sluice_client *client, const struct error *error);
