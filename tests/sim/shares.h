/* Whether turns and shares are what daemon/README.md says: books of our own beside the server's, of
 * what each user and connection has used at each priority, and of what priorities have used while
 * others waited. They know only what was sent and what was generated. Whenever a sequence is sent,
 * and around every turn of the server, its counters must be those of the books to the token, and
 * who is sent must be the one whose turn it is by the books. That is the whole rule; what others
 * may use before somebody's turn follows from it (shares.c).
 *
 * Of several models each has a queue of its own: of them these books know who is sent and who is
 * awake, not whose turn it is.
 *
 * Bytes of results are what is held, never more than may be, and no user holds more than its half.
 *
 * One thread; the books of one run at a time.
 */
#pragma once

#include "daemon/request/server.h"
#include "tests/sim/scene.h"

#define SHARES_WATCHED 64
#define SHARES_DUE 512

/* A user or a connection. */
struct shares_watch {
    uint64_t who;                   /* 0: nobody */
    uint64_t used[WAITING_LEVELS];  /* by our books, less a user's credit */
    uint64_t credit[WAITING_LEVELS]; /* of a user, at the last look */
    uint64_t floor[WAITING_LEVELS]; /* a user's: where its connections start at least */
    uint64_t user;                  /* a connection's; 0: it is a user */
    uint64_t key[WAITING_LEVELS], number[WAITING_LEVELS]; /* of its turn, at the last look */
    bool waits[WAITING_LEVELS], stays[WAITING_LEVELS];    /* then; and without a pause since */
    bool seen;
};

/* What is to be charged in this turn. */
struct shares_due {
    uint64_t user, sink; /* sink 0: its client has gone */
    uint32_t level;
    bool low, top;
    uint64_t tokens;
    uint64_t counted, let_off; /* for the user: with what is expected, and less what did not come */
};

struct shares {
    struct scene *scene;
    const struct server *server;
    const struct replica_api *replicas; /* the real ones */
    struct shares_watch watch[SHARES_WATCHED];
    struct shares_due due[SHARES_DUE];
    uint32_t due_count;
    uint64_t used, top_used, low_used, level_used[WAITING_LEVELS];
    uint64_t floor[WAITING_LEVELS], level_floor;
    uint64_t parked, owed; /* how often that was seen */
};

void shares_init(struct shares *shares, struct scene *scene, const struct server *server);
/* The replica's table of calls, with the books in between. */
const struct replica_api *shares_api(struct shares *shares, const struct replica_api *real);
/* Before and after a turn of the server. */
void shares_begin(struct shares *shares);
void shares_check(struct shares *shares);
