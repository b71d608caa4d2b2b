/* The waiting queue: sequences that no replica has taken yet, and whose turn it is.
 *
 * The highest priority goes first. Within one priority users take turns, within a user its
 * connections, and within a connection it is first come, first served. Turns go by tokens: the
 * prompt when a sequence is taken, of a user's also what it will generate, by the mean of those
 * before; then what it generates beyond that, on a counter that nobody saves up by staying away
 * (daemon/base/turns.h), users' by weights. What was expected and does not come is a credit. Where priorities wait one below the
 * other, the lower ones together get a share of these tokens all the same, and take turns at it.
 *
 * A connection can be parked: what it has here stays, and has no turn until waiting_unpark().
 *
 * Owns no sequence and allocates nothing. loop thread
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/base/priority.h"
#include "daemon/base/turns.h"
#include "protocol/base/list.h"

struct seq;
struct waiting_user;

/* A user's part in one priority. */
struct waiting_share {
    struct turn turn;   /* among the users of the priority */
    struct turns lanes; /* waiting_lane.turn */
    struct waiting_user *user;
    uint32_t mean_out; /* sixteenths of a token, that its last sequences generated on average */
    uint64_t credit;   /* of what was expected and counted, and did not come: in turn.used's unit */
};

/* A user's part in all of them; struct user has one for each queue. */
struct waiting_user {
    struct waiting_share shares[WAITING_LEVELS];
    uint32_t running; /* sequences of it, from this queue, that replicas hold */
};

/* A connection's part in one priority. */
struct waiting_lane {
    struct turn turn; /* among the connections of the user */
    struct list seqs; /* seq.wait_link */
    struct waiting_share *share;
    struct list parked_link;
};

/* A connection's, or an exchange of HTTP's, part in all of them; struct response_sink has one for
 * each queue. Zeroed memory is one that has nothing here. */
struct waiting_conn {
    struct waiting_lane lanes[WAITING_LEVELS];
    uint32_t running; /* as above */
};

struct waiting {
    struct turns levels[WAITING_LEVELS];
    uint32_t level_bits; /* per level that has a turn */
    struct list parked;  /* waiting_lane.parked_link */
    uint64_t count;      /* parked ones included */
    uint64_t used;       /* tokens that were charged, to whomever */
    uint32_t share;      /* percent of the tokens that lower priorities get together */
    /* What was used by those that were taken before lower priorities that waited, and by those that
     * were taken before higher ones, each weighted by the other's share; and per level. What is used
     * while nobody waits at another level counts nowhere, so nothing is saved up; and what was
     * passed over while it waited is due until it is given, whoever comes and goes above it. */
    uint64_t top_used, low_used;
    uint64_t level_used[WAITING_LEVELS], level_floor;
};

void waiting_init(struct waiting *waiting);
void waiting_user_init(struct waiting_user *user);
/* The user's weight among others, from now on. */
void waiting_weigh(struct waiting *waiting, struct waiting_user *user, uint32_t weight);
void waiting_push(struct waiting *waiting, struct waiting_user *user, struct waiting_conn *conn,
                  struct seq *seq);
/* Whose turn it is; NULL when nobody waits who is not parked. */
struct seq *waiting_first(struct waiting *waiting);
/* Who would be first if nothing were due to lower priorities; likewise. */
struct seq *waiting_highest(struct waiting *waiting);
/* Takes it out to be computed, and charges so many tokens. */
void waiting_take(struct waiting *waiting, struct seq *seq, uint64_t tokens);
/* Takes it out, wherever it stands, and nobody is charged. */
void waiting_remove(struct waiting *waiting, struct seq *seq);
/* It was taken, and has used more. */
void waiting_charge(struct waiting *waiting, struct seq *seq, uint64_t tokens);
/* It has ended, with so many tokens generated. */
void waiting_settle(struct seq *seq, uint32_t generated);
/* It waits on `aside` for something of its own, and has no turn; what is behind it has. Taken out as
 * others are. */
void waiting_set_aside(struct waiting *waiting, struct seq *seq, struct list *aside);
/* All that are there have turns again, before what has come behind them. */
void waiting_bring_back(struct waiting *waiting, struct list *aside);
/* The connection of this sequence has no turn in its priority. */
void waiting_park(struct waiting *waiting, struct seq *seq);
/* All that are parked have turns again. */
void waiting_unpark(struct waiting *waiting);
