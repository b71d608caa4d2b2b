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

/* Where a user's counter of one priority is remembered; another's may be there. */
static struct user_debt *debt_of(struct user_debt *debts, uint64_t id, uint32_t level)
{
    uint64_t key = (id * WAITING_LEVELS + level) * 0x9e3779b97f4a7c15u;
    return &debts[key % USER_DEBTS];
}

static void remember(struct user_debt *debts, uint64_t id, const struct waiting_user *waiting)
{
    for (uint32_t level = 0; level < WAITING_LEVELS; level++) {
        uint64_t used = waiting->shares[level].turn.used;
        struct user_debt *debt = debt_of(debts, id, level);
        uint64_t key = id * WAITING_LEVELS + level;
        if (used > 0 && (debt->id == key || used > debt->used))
            *debt = (struct user_debt){.id = key, .used = used};
    }
}

static void recall(struct user_debt *debts, uint64_t id, struct waiting_user *waiting)
{
    for (uint32_t level = 0; level < WAITING_LEVELS; level++) {
        const struct user_debt *debt = debt_of(debts, id, level);
        if (debt->id == id * WAITING_LEVELS + level)
            waiting->shares[level].turn.used = debt->used;
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
    recall(users->debts, id, &user->waiting);
    recall(users->job_debts, id, &user->jobs_waiting);
    list_append(bucket, &user->bucket_link);
    users->count++;
    return user;
}

void users_put(struct users *users, struct user *user)
{
    if (--user->references > 0)
        return;
    remember(users->debts, user->id, &user->waiting);
    remember(users->job_debts, user->id, &user->jobs_waiting);
    list_remove(&user->bucket_link);
    users->count--;
    free(user);
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
