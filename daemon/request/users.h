/* Users: whom the bounds and the turns of the waiting queue count for.
 *
 * A user of a Unix socket is a uid, one of TCP a key's name (daemon/base/api_key.h). Users are made
 * on first use and go when nothing counts against them any more; what they had used is remembered,
 * as far as there is room, so that who goes and comes back is where it was. loop thread
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/base/model_list.h"
#include "daemon/request/backlog.h"
#include "daemon/request/wait_queue.h"
#include "protocol/base/list.h"

#define USER_BUCKETS 256
#define USER_NAME_MAX 143 /* "key/", a key's name, "/", a user's */
#define USER_DEBTS 1024

/* What somebody holds now. Admission compares it with the limits. */
struct load {
    /* Waiting for a thread that reads their text, for a device, or for their reader. */
    uint64_t sequences;
    uint64_t tokens;  /* prompt and max_tokens of those */
    uint64_t input;   /* bytes of half frames */
    uint64_t tensors; /* bytes of jobs' tensors, but for outputs of the daemon's own */
    uint64_t results; /* bytes of results, from when they are computed until they are read */
    uint32_t connections;
    uint32_t running; /* sequences that a replica holds */
};

struct user {
    uint64_t id;       /* the uid, or from KEY_USER_FIRST on */
    uint64_t grant_id; /* whose grants hold where it has none: the key's that named it */
    char name[USER_NAME_MAX +
              1]; /* for logs and figures: "1000", "key/web", "key/web/ann", "anonymous" */
    struct list bucket_link;
    struct list requests; /* request.user_link, by arrival */
    uint32_t references;  /* connections and requests */
    struct load load;
    /* Among those who wait for the first model, for jobs, and for the models behind the first:
     * owned, NULL until it asks for one. */
    struct waiting_user waiting, jobs_waiting, *more[MODEL_LIST_MAX - 1];
    struct backlog_user backlog;
    uint32_t figures; /* where its own are, from 1 on; 0: not known yet, or USER_FIGURES_REST */
};

/* What a user has asked for and got since the process began. They stay when the user goes, so there
 * are as many as metrics-users says: who comes later counts for the rest. */
#define USER_FIGURES_REST UINT32_MAX
struct user_figures {
    uint64_t id;
    char name[USER_NAME_MAX + 1]; /* "other": the rest */
    uint64_t requests, refusals, prompt_tokens, generated_tokens;
};

/* What somebody who has gone had used beyond its turn, of one priority; and what its sequences
 * generated on average, as in struct waiting_share. */
struct user_debt {
    uint64_t id, used;
    uint32_t mean_out;
};

struct users {
    struct list buckets[USER_BUCKETS];
    uint32_t count;
    struct user_debt debts[USER_DEBTS], job_debts[USER_DEBTS];
    struct user_figures *figures; /* by arrival; owned */
    uint32_t figures_count, figures_room;
    struct user_figures rest;
};

void users_init(struct users *users);
void users_free(struct users *users); /* no user is left */
/* What logs and figures call a user: of a key `key` is its name. */
void users_name(uint64_t id, const char *key, char name[USER_NAME_MAX + 1]);
/* A further reference to the user of this id; NULL when there is no memory. key: the name of who
 * has one, or NULL. */
struct user *users_get(struct users *users, uint64_t id, const char *key);
void users_put(struct users *users, struct user *user);
/* Its part in the queue of a model, which is made; NULL when there is no memory. */
struct waiting_user *users_waiting(struct users *users, struct user *user, uint32_t model);
/* Where the user's are counted, of at most `max` of their own. */
struct user_figures *users_figures(struct users *users, struct user *user, uint64_t max);
