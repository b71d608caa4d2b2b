/* Whether nobody is passed over, and results have room: looked at after every turn of the server.
 *
 * Who has work that waits, and is not parked for results that were not read, is given something
 * before the others have used so many tokens that it has surely had its turn. Bytes of results are
 * what is held, never more than may be, and no user holds more than its half.
 */
#pragma once

#include "daemon/request/server.h"
#include "tests/sim/scene.h"

#define SHARES_WATCHED 64

/* Of a user or a connection: since when it has waited without being given anything. */
struct shares_watch {
    uint64_t who;     /* 0: nobody */
    uint64_t served;  /* its counters, all together */
    uint64_t since;   /* what all had used then */
    uint32_t levels;  /* at which anybody waited meanwhile */
    uint32_t running; /* sequences on the devices, at most */
    bool seen;
};

struct shares {
    struct scene *scene;
    struct shares_watch watch[SHARES_WATCHED];
    uint64_t most;         /* tokens of the largest sequence so far */
    uint64_t parked, owed; /* how often that was seen */
};

void shares_init(struct shares *shares, struct scene *scene);
void shares_check(struct shares *shares, const struct server *server);
