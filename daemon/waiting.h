/* The waiting queue: sequences that no replica has taken yet.
 *
 * The highest priority goes first. Within one priority users take turns, a sequence each; within
 * one user it is first come, first served. All operations take constant time. Owns no sequence and
 * allocates nothing. loop thread
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "protocol/base/list.h"

#define WAITING_PRIORITY_MIN (-8)
#define WAITING_PRIORITY_MAX 7
#define WAITING_LEVELS (WAITING_PRIORITY_MAX - WAITING_PRIORITY_MIN + 1)

struct seq;

/* A user's part, embedded in struct user. */
struct waiting_lane {
    struct list seqs;      /* seq.wait_link; null links until the first one */
    struct list turn_link; /* in the turns of its level, while seqs is not empty */
};
struct waiting_user {
    struct waiting_lane lanes[WAITING_LEVELS];
};

struct waiting {
    struct list turns[WAITING_LEVELS]; /* waiting_lane.turn_link; whose turn it is stands first */
    uint32_t levels;                   /* bit per level that has a turn */
    uint64_t count;
};

void waiting_init(struct waiting *waiting);
void waiting_user_init(struct waiting_user *user);
void waiting_push(struct waiting *waiting, struct waiting_user *user, struct seq *seq);
/* Whose turn it is; NULL when nobody waits. */
struct seq *waiting_first(const struct waiting *waiting);
/* Takes it out, wherever it stands. When it was the one whose turn it was, its user's turn is over.
 */
void waiting_remove(struct waiting *waiting, struct waiting_user *user, struct seq *seq);
