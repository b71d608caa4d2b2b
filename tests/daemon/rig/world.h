/* A server with clients of memory and a replica that answers by a rule: what the tests of the
 * loop's side run in, on one thread and with a clock of their own.
 *
 * The rule: token i of a sequence is its first prompt token + i + 1.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/request/server.h"
#include "protocol/frame.h"
#include "protocol/message.h"

#define WORLD_HELD_MAX 8192
#define WORLD_HIDDEN 4
#define WORLD_BESIDE 3 /* further models, at most */

struct world_replica {
    struct replica base;
    struct world *world;
    struct seq *held[WORLD_HELD_MAX]; /* sent and not ended */
    uint32_t count;
    uint32_t room; /* sequences that it holds at most, */
    bool gives_way; /* but for one of a higher priority that comes */
    uint32_t wakes;
    uint32_t cached;   /* blocks that it says it has of every prompt */
    uint64_t expected; /* that it was told of */
    uint64_t wanted;   /* blocks of those that wait to be sent here, as it is told */
    bool wants_none;   /* it has no room for that */
    uint64_t sent_total;
    uint64_t first_user[64]; /* whose the first ones were, in the order of sending */
    struct stats_worker figures;
    const char *script; /* what is generated instead of the rule, a byte a token; then it stops */
    uint32_t adapter_loads, adapter; /* how often, and the number that was said last */
    char directory[64];
    bool adapter_fails;
    bool lack;                /* the device refused it memory */
    bool stuck;               /* it says that a step does not end */
    bool starves;             /* it says that no sequence gets memory, and none gets a token */
    uint32_t progress;        /* of its loading */
    uint32_t yields;          /* how often it was told that another lacks some, */
    uint32_t hand_backs;      /* and that its model makes way; */
    uint32_t handed_back;     /* what came back then */
    bool silent_stats, asked; /* never answers ask_stats; and did not */
};

struct world {
    struct options *options;
    struct completion_queue completions;
    struct server server;
    struct world_replica replica,
        beside[WORLD_BESIDE]; /* of the model, and of others (world_serve_beside) */
    time_us now_us;
};

/* A client of memory: what it was sent lies in `got`. */
struct client {
    struct transport transport;
    struct world *world;
    struct conn *conn; /* NULL once it is closed, from either side */
    bool reading, writing, closed;
    size_t takes;    /* bytes that it takes before it stops reading; SIZE_MAX at first */
    uint64_t writes; /* calls of send that took something */
    unsigned char *got;
    size_t got_length, got_size, read_at; /* read_at: where the next frame begins */
};

void world_make(struct world *world);
void world_free(struct world *world);
/* One more model, called so, of so many tokens. */
void world_serve_beside(struct world *world, const char *names, uint32_t vocabulary);
/* An option by its name, before anything happens. */
void world_set(struct world *world, const char *name, const char *value);
void world_ready(struct world *world);
void world_turn(struct world *world);             /* a microsecond later */
void world_pass(struct world *world, time_us us); /* time goes, then a turn */
/* The replica gives each sequence up to `tokens` further ones and ends those that have all. */
void world_step(struct world *world, uint32_t tokens);
/* All that it holds ends with the error. */
void world_fail(struct world *world, const struct error *failure);
/* Turns and steps until nothing is live. */
void world_finish(struct world *world);

void client_connect(struct world *world, struct client *client, uint32_t uid, bool admin);
/* connect, HELLO, WELCOME read. */
void client_open(struct world *world, struct client *client, uint32_t uid);
void client_free(struct client *client); /* closes, too */
/* Sends bytes, `chunk` at a time (0: as many as are asked for). */
void client_put(struct client *client, const void *bytes, size_t length, size_t chunk);
/* The next frame that came; false when there is none. Borrowed until the next call that sends. */
bool client_next(struct client *client, struct frame *ret_frame);
/* Skips to the next frame of the type. */
bool client_find(struct client *client, uint8_t type, struct frame *ret_frame);
/* The next ERROR's code, 0 when there is none. */
int client_error(struct client *client);

/* A SUBMIT of `count` prompts of `length` tokens first, first + 1, ...; the frame's size. */
struct ask {
    enum job job;
    enum pooling pooling;
    uint64_t id;
    uint32_t count, length, max_tokens;
    int32_t first;
    int32_t priority;
    uint64_t deadline_ms;
    bool whole;       /* not streamed */
    int32_t logprobs; /* 0: none, else one more than asked for */
    uint32_t n;
    bool no_cache;
    const char *salt, *adapter, *model;
};
size_t ask_encode(const struct ask *ask, void *buffer, size_t size);
void client_ask(struct client *client, const struct ask *ask);
void client_control(struct client *client, uint8_t type, uint64_t id, const char *head);
