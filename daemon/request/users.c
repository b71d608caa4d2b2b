#include "daemon/request/users.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/api_key.h"

void users_init(struct users *users)
{
    for (uint32_t i = 0; i < USER_BUCKETS; i++)
        list_init(&users->buckets[i]);
    memset(users->debts, 0, sizeof(users->debts));
    memset(users->job_debts, 0, sizeof(users->job_debts));
    users->count = 0;
    users->figures = NULL;
    users->figures_count = users->figures_room = 0;
    users->rest = (struct user_figures){.name = "other"}; /* no user's name is that */
}

void users_free(struct users *users)
{
    free(users->figures);
    users->figures = NULL;
}

/* What a user's counter of one priority, in the queue of one model, is remembered by. */
static uint64_t debt_key(uint64_t id, uint32_t model, uint32_t level)
{
    return (id * MODEL_LIST_MAX + model) * WAITING_LEVELS + level;
}

/* Where that is; another's may be there. */
static struct user_debt *debt_of(struct user_debt *debts, uint64_t key)
{
    return &debts[key * 0x9e3779b97f4a7c15u % USER_DEBTS];
}

static void remember(struct user_debt *debts, uint64_t id, uint32_t model,
                     const struct waiting_user *waiting)
{
    for (uint32_t level = 0; level < WAITING_LEVELS; level++) {
        const struct waiting_share *share = &waiting->shares[level];
        uint64_t used = share->turn.used - share->credit, key = debt_key(id, model, level);
        struct user_debt *debt = debt_of(debts, key);
        if (used > 0 && (debt->id == key || used > debt->used))
            *debt = (struct user_debt){.id = key, .used = used, .mean_out = share->mean_out};
    }
}

static void recall(struct user_debt *debts, uint64_t id, uint32_t model,
                   struct waiting_user *waiting)
{
    for (uint32_t level = 0; level < WAITING_LEVELS; level++) {
        const uint64_t key = debt_key(id, model, level);
        const struct user_debt *debt = debt_of(debts, key);
        if (debt->id != key)
            continue;
        waiting->shares[level].turn.used = debt->used;
        waiting->shares[level].mean_out = debt->mean_out;
    }
}

void users_name(uint64_t id, const char *key, char name[USER_NAME_MAX + 1])
{
    if (id < KEY_USER_FIRST)
        snprintf(name, USER_NAME_MAX + 1, "%" PRIu64, id);
    else if (key)
        snprintf(name, USER_NAME_MAX + 1, "key/%s", key);
    else
        snprintf(name, USER_NAME_MAX + 1, "anonymous");
}

struct user *users_get(struct users *users, uint64_t id, const char *key)
{
    struct list *bucket = &users->buckets[(id * 0x9e3779b97f4a7c15u) >> 56];
    struct user *user;
    list_each(link, bucket)
    {
        user = container_of(link, struct user, bucket_link);
        if (user->id == id) {
            user->references++;
            return user;
        }
    }
    user = calloc(1, sizeof(*user));
    if (!user)
        return NULL;
    user->id = user->grant_id = id;
    user->references = 1;
    users_name(user->id, key, user->name);
    list_init(&user->requests);
    waiting_user_init(&user->waiting);
    waiting_user_init(&user->jobs_waiting);
    backlog_user_init(&user->backlog);
    recall(users->debts, id, 0, &user->waiting);
    recall(users->job_debts, id, 0, &user->jobs_waiting);
    list_append(bucket, &user->bucket_link);
    users->count++;
    return user;
}

void users_put(struct users *users, struct user *user)
{
    if (--user->references > 0)
        return;
    remember(users->debts, user->id, 0, &user->waiting);
    remember(users->job_debts, user->id, 0, &user->jobs_waiting);
    for (uint32_t i = 1; i < MODEL_LIST_MAX; i++) {
        if (user->more[i - 1])
            remember(users->debts, user->id, i, user->more[i - 1]);
        free(user->more[i - 1]);
    }
    list_remove(&user->bucket_link);
    users->count--;
    free(user);
}

struct waiting_user *users_waiting(struct users *users, struct user *user, uint32_t model)
{
    if (model == 0)
        return &user->waiting;
    struct waiting_user **more = &user->more[model - 1];
    if (!*more && (*more = malloc(sizeof(**more)))) {
        waiting_user_init(*more);
        recall(users->debts, user->id, model, *more);
    }
    return *more;
}

/* ---- figures -----------------------------------------------------------------------------------
 */

static bool figures_grow(struct users *users)
{
    uint32_t room = users->figures_room ? 2 * users->figures_room : 16;
    struct user_figures *grown = realloc(users->figures, room * sizeof(*grown));
    if (!grown)
        return false;
    users->figures = grown;
    users->figures_room = room;
    return true;
}

/* Once for each life of a user: who found no place stays with the rest until it comes back. */
static void figures_find(struct users *users, struct user *user, uint64_t max)
{
    for (uint32_t i = 0; i < users->figures_count; i++)
        if (users->figures[i].id == user->id) {
            user->figures = i + 1;
            return;
        }
    user->figures = USER_FIGURES_REST;
    if (users->figures_count >= max ||
        (users->figures_count == users->figures_room && !figures_grow(users)))
        return;
    struct user_figures *made = &users->figures[users->figures_count++];
    *made = (struct user_figures){.id = user->id};
    snprintf(made->name, sizeof(made->name), "%s", user->name);
    user->figures = users->figures_count;
}

struct user_figures *users_figures(struct users *users, struct user *user, uint64_t max)
{
    if (user->figures == 0)
        figures_find(users, user, max);
    return user->figures == USER_FIGURES_REST ? &users->rest : &users->figures[user->figures - 1];
}
