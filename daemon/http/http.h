/* HTTP: what all exchanges of a daemon have in common. No sockets here: daemon/http/http_server.c
 * puts them around it, the tests a piece of memory. loop thread
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/base/api_key.h"
#include "protocol/base/clock.h"
#include "protocol/base/list.h"

struct exchange;
struct routes;
struct server;

struct http {
    struct server *server;
    const struct routes *routes;
    struct keys keys;   /* none: TCP is refused, or free (insecure-loopback) */
    bool free_loopback; /* TCP needs no key on the loopback */
    uint64_t salt;      /* in the ids of answers */
    uint64_t created_s; /* wall clock, for the list of models */
    uint32_t exchanges; /* that have not ended */
    bool trim;          /* memory is given back with the last of them */
    struct list dirty;  /* exchange.dirty_link: with news */
    /* The exchange has something to send, or its first byte of an answer. */
    void (*wake)(struct http *http, struct exchange *exchange);
};

void http_init(struct http *http, struct server *server, const struct routes *routes, uint64_t salt,
               void (*wake)(struct http *http, struct exchange *exchange));
void http_free(struct http *http); /* no exchange is left */

/* After server_turn(): what sequences came to becomes bytes. True when the server should take
 * another turn. */
bool http_turn(struct http *http, time_us now_us);
