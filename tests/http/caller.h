/* An HTTP client of memory in the world of tests/daemon/rig/world.h: whole requests in, whole
 * answers out, without sockets. The model's tokens are bytes, so that by the world's rule "A" is
 * answered by "BCD...".
 */
#pragma once

#include "daemon/http/exchange.h"
#include "tests/daemon/rig/world.h"

struct site {
    struct world world;
    struct model_text model_text;
    struct http http;
    /* Work that another thread would do, as long as `hold` is set. */
    struct background background;
    bool hold;
    struct task *held[16];
    uint32_t held_count;
};

struct caller {
    struct site *site;
    struct exchange *exchange; /* NULL once it is closed */
    char *answer;
    size_t length, size;
    bool ended;
};

void site_make(struct site *site);
void site_free(struct site *site);
/* Another chat template, whose text names the marks that its model writes. */
void site_template(struct site *site, const char *source);
/* A turn of the server and of HTTP, as the loop takes them. */
void site_turn(struct site *site);
/* Steps until nothing is live. */
void site_finish(struct site *site);
/* What was held is done, on this thread. */
void site_work(struct site *site);

/* Sends the whole request as a user of a Unix socket; body NULL: GET. */
void call(struct site *site, struct caller *caller, const char *path, const char *body);
void call_as(struct site *site, struct caller *caller, const struct exchange_peer *peer,
             const struct exchange_head *head, const char *body);
/* Reads what there is; "" and on. */
const char *caller_read(struct caller *caller);
/* The whole answer of a request that needs no step; its status. */
unsigned fetch(struct site *site, const char *path, const char *body, char *answer, size_t size);
void caller_free(struct caller *caller); /* closes */
