/* A connection: bytes in, frames out. What the frames mean is its handler's (daemon/api/session.c).
 *
 * It knows no socket. Bytes come and go through a transport: daemon/net/uv_transport.c puts a Unix
 * socket behind it, the tests a piece of memory, the simulation a seeded network.
 *
 * Way in: the transport asks conn_room() where the next bytes belong, puts them there and calls
 * conn_received(). Frames are decoded and handled in place. While no frame is half received, that
 * is the one receive buffer of all, so an idle connection holds no memory for input. A half frame
 * moves to a buffer of the connection's own, which starts at a multiple of 8 and grows with what
 * has really come, never with what a header promises.
 *
 * Way out: nothing is encoded before there is room for it. Once a turn conn_set_deliver() has the
 * handler encode what it has until the output holds `output-high` bytes, and sends all of it by one
 * write. What does not fit stays where it is, so that a slow reader costs what it asked for and no
 * more. Above the high-water mark the connection is not read.
 *
 * Descriptors that come with bytes wait here, in order, for the frame that says what they are for:
 * two at most, since no frame takes more, and none that no frame takes.
 *
 * Lifetime: embedded in what its handler makes of it, and begun by conn_open(). conn_close() may be
 * called any number of times and from anywhere below conn_received(); it has the handler abandon
 * what the connection asked for, and closes the transport. The handler frees it at the end of the
 * turn, so a caller may still look at conn->closed.
 *
 * loop thread
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/base/option.h"
#include "daemon/base/stats.h"
#include "protocol/base/clock.h"
#include "protocol/base/error.h"
#include "protocol/base/list.h"
#include "protocol/frame.h"

/* Bytes that one read takes at most; frames that come whole are handled where they were read. */
#define CONN_RECEIVE_SIZE (256u << 10)
/* Descriptors that may wait for their frame. */
#define CONN_DESCRIPTORS_MAX 2
/* How long an output that is not urgent waits for company, so that both go by one write. */
#define CONN_HOLD_US 2000u

struct conn;

/* Where the bytes go. An implementation embeds it. */
struct transport {
    const struct transport_api *api;
};

struct transport_api {
    /* How many of the bytes were taken; fewer than length when the other side takes no more now.
     * Negative when it is gone. Never blocks and never calls back. */
    ssize_t (*send)(struct transport *transport, const void *bytes, size_t length);
    /* What the connection waits for: bytes or their end (conn_received, conn_ended), room to write
     * (conn_writable). That the other side is gone (conn_lost) is always told. Called when the
     * answer changes. */
    void (*watch)(struct transport *transport, bool reading, bool writing);
    /* Called once, by conn_close(). The transport makes no call to the connection from then on. */
    void (*close)(struct transport *transport);
};

/* Who is at the other end. */
struct peer {
    uint32_t uid, gid;
    int32_t pid;     /* 0 = unknown */
    bool admin;      /* may drain, resume and see what others run */
    bool loopback;   /* by TCP, from this machine */
    const char *via; /* name of the listener, for the log; outlives the connection */
};

/* Bytes from `start` to `end` are in use; storage is aligned to 8. */
struct conn_buffer {
    unsigned char *bytes;
    size_t size, start, end;
};

/* What a connection is for. Every call but `release` may close the connection. */
struct conn_handler {
    /* A whole frame, in place: its payload is gone after the call. */
    void (*frame)(struct conn *conn, const struct frame *frame, time_us now_us);
    /* There is room: encodes what there is to tell, as far as conn_roomy(). */
    void (*fill)(struct conn *conn, time_us now_us);
    /* Whether there is more to tell. */
    bool (*pending)(const struct conn *conn);
    /* Everything that was asked for is told: of somebody who asks nothing more, it is the end. */
    bool (*answered)(const struct conn *conn);
    /* It is closing: what was asked for is cancelled and not told. May come twice. */
    void (*abandon)(struct conn *conn, time_us now_us);
    /* It is closed, and on no list any more: what it counted is given back. */
    void (*gone)(struct conn *conn);
    /* The end of the turn: its memory goes. */
    void (*release)(struct conn *conn);
};

/* All connections, and what they share. Lists in the order of time, since the delays are the same
 * for all (timeouts.h). */
struct conn_set {
    const struct options *options; /* borrowed */
    struct stats_loop *counts;     /* borrowed */
    uint64_t *input;  /* bytes of half frames and of texts, of all that count; borrowed */
    bool input_freed; /* the starved may try again */
    time_us turn_us;  /* of the present or last turn */
    uint64_t next_number;
    uint32_t count, peak; /* peak: since freed memory was last given back */
    struct list conns, dirty, dead;
    struct list held, stalled, half, greeting;
    struct list starved;
    time_us expired_us;     /* when it was last looked who is late */
    unsigned char *receive; /* the shared receive buffer */
};

struct conn {
    struct conn_set *set;
    const struct conn_handler *handler;
    struct transport *transport;
    uint64_t number;      /* for the log; never used again */
    uint64_t *user_input; /* bytes of its user's that count as set->input does; borrowed */
    struct peer peer;
    bool closed;
    bool closing; /* an ERROR of the connection is on its way out; nothing is read any more */
    bool ended;   /* the client says no more; it is closed once all it asked for is answered */
    bool reading, writing; /* what the transport watches */
    bool starved;          /* waits for room in the input of all connections */

    struct conn_buffer in;  /* the half frame; size 0 while there is none */
    size_t in_need;         /* bytes that make its frame whole; 0 = whole frames may be in there */
    size_t in_counted;      /* of in.size, what counts against `input-max` */
    int descriptors[CONN_DESCRIPTORS_MAX]; /* owned, by arrival */
    uint32_t descriptor_count;
    bool descriptors_lost; /* more came than may wait, or than the process may have */
    struct conn_buffer out; /* encoded frames */
    bool urgent;            /* some of it must go with this turn, see conn_output_done() */

    /* The TOKENS frame at the end of `out` that further records of its request may join. */
    size_t tokens_at;        /* offset of its header in out.bytes */
    uint64_t tokens_request; /* daemon-wide id, 0 = there is none */

    struct list conn_link;   /* set->conns, then set->dead */
    struct list dirty_link;  /* set->dirty: has output or something to tell */
    struct list held_link;   /* set->held: an output that waits for company */
    struct list stall_link;  /* set->stalled: output that the reader does not take */
    struct list half_link;   /* set->half: a half frame */
    struct list greet_link;  /* set->greeting: its handler has not said conn_greeted() */
    struct list starve_link; /* set->starved */
    time_us held_us, stall_us, half_us, greet_us; /* when it got onto the list */
    uint64_t half_bytes; /* that came since half_us, and were not yet worth time to it */
    time_us heard_us;    /* when the last bytes came */
};

/* The options, counts and input outlive the set. */
int conn_set_init(struct conn_set *set, const struct options *options, struct stats_loop *counts,
                  uint64_t *input, time_us now_us, struct error *error);
/* Every connection is closed and its memory gone. */
void conn_set_destroy(struct conn_set *set, time_us now_us);
/* Those that waited for room for their input go on, where some was given back. */
void conn_set_feed(struct conn_set *set, time_us now_us);
/* Each dirty connection tells and writes, once. */
void conn_set_deliver(struct conn_set *set, time_us now_us);
/* The end of a turn: closed connections' memory goes. */
void conn_set_bury(struct conn_set *set);
/* All output is with the transports. */
bool conn_set_idle(const struct conn_set *set);

/* Begins a connection: all else of `conn` is zero. It waits for its greeting from now on. */
void conn_open(struct conn *conn, struct conn_set *set, const struct conn_handler *handler,
               struct transport *transport, const struct peer *peer, uint64_t *user_input,
               time_us now_us);
/* It has said who it is. */
void conn_greeted(struct conn *conn);

/* Where the next bytes go, and how many there may be; NULL when none are wanted now. */
void *conn_room(struct conn *conn, size_t *ret_size);
/* Before conn_received(): a descriptor came with these bytes; it is the connection's from here on. */
void conn_descriptor(struct conn *conn, int fd);
/* Likewise: one came and was lost, since there are too many. */
void conn_descriptor_lost(struct conn *conn);
/* For the handler of a frame: the first that waits, which is the caller's then; -1: there is none. */
int conn_take_descriptor(struct conn *conn);
/* `length` bytes were put there. Handles every whole frame. */
void conn_received(struct conn *conn, size_t length, time_us now_us);
/* The transport takes bytes again. */
void conn_writable(struct conn *conn, time_us now_us);
/* End of file while reading: the client says no more, and reads its answers (half-close). */
void conn_ended(struct conn *conn, time_us now_us);
/* Both directions are closed, or an error: whoever it was is gone, and what it asked for is
 * cancelled. */
void conn_lost(struct conn *conn, time_us now_us);

/* Appends room for a frame of at most `size` bytes to the output and returns it, or NULL when the
 * connection had to be closed instead (out of memory, over output-max). conn_output_done() says how
 * many were used. An urgent frame leaves with this turn. Others, which is ACCEPT, wait up to 2 ms
 * for an urgent one: that makes one write of a short request's two frames. */
void *conn_output(struct conn *conn, size_t size);
void conn_output_done(struct conn *conn, size_t used, bool urgent, time_us now_us);

/* ERROR about a request of the client's, or with client_id 0 about the connection. */
void conn_error(struct conn *conn, uint64_t client_id, uint32_t sequence, bool last,
                const struct error *error, time_us now_us);
/* Says why, sends that as far as the reader takes it, and closes. */
void conn_refuse(struct conn *conn, const struct error *error, time_us now_us);
void conn_close(struct conn *conn, time_us now_us);

/* The handler has something to tell. */
void conn_mark_dirty(struct conn *conn);
/* Whether more may be encoded now. */
bool conn_roomy(const struct conn *conn);

size_t conn_unsent(const struct conn *conn);
