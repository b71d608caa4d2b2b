/* A client whose other end the test itself holds: everything on one thread. */
#pragma once

#include <stddef.h>

#include "client/net/connection.h"
#include "client/sluice.h"
#include "protocol/message.h"

struct peer {
    sluice_client *client;
    int fd; /* the daemon's end */
    unsigned char in[1 << 16];
    size_t used;
};

void peer_open(struct peer *peer);  /* HELLO is on its way, nothing else */
void peer_greet(struct peer *peer); /* WELCOME, and the client has taken it */
void peer_close(struct peer *peer);
void peer_send(struct peer *peer, const void *bytes, size_t length);
/* The next frame that the client has sent; valid until the next call. False when there is none. */
bool peer_next(struct peer *peer, struct frame *ret_frame);

size_t peer_welcome(void *out, size_t size);
/* What a daemon says to a request of two sequences: ACCEPT, a token each, DONE, ERROR with LAST. */
size_t peer_conversation(void *out, size_t size, uint64_t id);
