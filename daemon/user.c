#include "daemon/user.h"

#include <stdlib.h>

void users_init(struct users *users)
{
    for (uint32_t i = 0; i < USER_BUCKETS; i++)
        list_init(&users->buckets[i]);
    users->count = 0;
}

struct user *users_get(struct users *users, uint64_t id)
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
    user->id = id;
    user->references = 1;
    list_init(&user->requests);
    waiting_user_init(&user->waiting);
    backlog_user_init(&user->backlog);
    list_append(bucket, &user->bucket_link);
    users->count++;
    return user;
}

void users_put(struct users *users, struct user *user)
{
    if (--user->references > 0)
        return;
    list_remove(&user->bucket_link);
    users->count--;
    free(user);
}
