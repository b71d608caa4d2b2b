#include "daemon/worker/rank_group.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum job { JOB_NONE, JOB_START, JOB_SUBMIT, JOB_SAMPLE, JOB_COPY, JOB_STOP, JOB_END };

struct follower {
    struct rank_group *group;
    uint32_t rank;
    pthread_t thread;
    bool has_thread, started;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    enum job job; /* JOB_NONE: done, `status` tells how */
    int wake_fd;
    const struct gpu_plan *plan;
    const struct gpu_sampling *sampling;
    const struct gpu_copies *copies;
    int status;
    struct error error;
};

struct rank_group {
    const struct gpu_api *api;
    struct gpu_engine *engine;
    uint32_t ranks;
    bool threads;
    bool leader_started;
    int failed; /* negative code of the first follower that did; it stays */
    struct error failure;
    struct follower followers[]; /* [ranks - 1] */
};

/* ---- a follower -------------------------------------------------------------------------------
 */

static void job_do(struct follower *follower, enum job job)
{
    const struct rank_group *group = follower->group;
    follower->error = (struct error){.code = 0};
    follower->status = 0;
    switch (job) {
    case JOB_START:
        follower->status =
            group->api->start(group->engine, follower->rank, follower->wake_fd, &follower->error);
        follower->started = follower->status == 0;
        break;
    case JOB_SUBMIT:
        follower->status =
            group->api->submit(group->engine, follower->rank, follower->plan, &follower->error);
        break;
    case JOB_SAMPLE:
        follower->status =
            group->api->sample(group->engine, follower->rank, follower->sampling, &follower->error);
        break;
    case JOB_COPY:
        follower->status =
            group->api->copy(group->engine, follower->rank, follower->copies, &follower->error);
        break;
    case JOB_STOP:
        if (follower->started)
            follower->status = group->api->stop(group->engine, follower->rank, &follower->error);
        follower->started = false;
        break;
    case JOB_END:
    case JOB_NONE:
        break;
    }
}

static void *follow(void *argument)
{
    struct follower *follower = argument;
    enum job job;
    pthread_mutex_lock(&follower->lock);
    do {
        while ((job = follower->job) == JOB_NONE)
            pthread_cond_wait(&follower->changed, &follower->lock);
        pthread_mutex_unlock(&follower->lock);
        job_do(follower, job);
        pthread_mutex_lock(&follower->lock);
        follower->job = JOB_NONE;
        pthread_cond_broadcast(&follower->changed);
    } while (job != JOB_END);
    pthread_mutex_unlock(&follower->lock);
    return NULL;
}

static void give(struct follower *follower, enum job job)
{
    if (!follower->has_thread) {
        job_do(follower, job);
        return;
    }
    pthread_mutex_lock(&follower->lock);
    assert(follower->job == JOB_NONE);
    follower->job = job;
    pthread_cond_broadcast(&follower->changed);
    pthread_mutex_unlock(&follower->lock);
}

static int await(struct follower *follower)
{
    pthread_mutex_lock(&follower->lock);
    while (follower->job != JOB_NONE)
        pthread_cond_wait(&follower->changed, &follower->lock);
    pthread_mutex_unlock(&follower->lock);
    return follower->status;
}

/* ---- all of them ------------------------------------------------------------------------------
 */

/* Waits until no follower is at work. */
static int settle(struct rank_group *group, struct error *error)
{
    for (uint32_t i = 0; i + 1 < group->ranks; i++) {
        struct follower *follower = &group->followers[i];
        if (await(follower) && !group->failed) {
            group->failed = follower->status;
            group->failure = follower->error;
        }
    }
    if (group->failed && error)
        *error = group->failure;
    return group->failed;
}

int rank_group_make(const struct gpu_api *api, struct gpu_engine *engine, uint32_t ranks,
                    struct rank_group **ret_group, struct error *error)
{
    assert(ranks > 0 && ranks <= GPU_DEVICES_MAX);
    struct rank_group *group =
        calloc(1, sizeof(*group) + (ranks - 1) * sizeof(group->followers[0]));
    if (!group)
        return error_set(error, ERR_NO_MEMORY, "no memory for a group of %u devices", ranks);
    group->api = api;
    group->engine = engine;
    group->ranks = ranks;
    for (uint32_t i = 0; i + 1 < ranks; i++) {
        struct follower *follower = &group->followers[i];
        follower->group = group;
        follower->rank = i + 1;
        pthread_mutex_init(&follower->lock, NULL);
        pthread_cond_init(&follower->changed, NULL);
    }
    *ret_group = group;
    return 0;
}

void rank_group_free(struct rank_group *group)
{
    if (!group)
        return;
    for (uint32_t i = 0; i + 1 < group->ranks; i++) {
        assert(!group->followers[i].has_thread);
        pthread_cond_destroy(&group->followers[i].changed);
        pthread_mutex_destroy(&group->followers[i].lock);
    }
    free(group);
}

static int threads_start(struct rank_group *group, struct error *error)
{
    for (uint32_t i = 0; i + 1 < group->ranks; i++) {
        struct follower *follower = &group->followers[i];
        int rc = pthread_create(&follower->thread, NULL, follow, follower);
        if (rc)
            return error_set(error, ERR_INTERNAL, "cannot start a rank's thread: %s", strerror(rc));
        follower->has_thread = true;
    }
    return 0;
}

int rank_group_start(struct rank_group *group, int wake_fd, bool threads, struct error *error)
{
    int rc = threads ? threads_start(group, error) : 0;
    group->threads = threads;
    for (uint32_t i = 0; !rc && i + 1 < group->ranks; i++) {
        group->followers[i].wake_fd = wake_fd;
        give(&group->followers[i], JOB_START);
    }
    if (!rc) {
        rc = group->api->start(group->engine, RANK_GROUP_LEADER, wake_fd, error);
        group->leader_started = rc == 0;
    }
    int followed = settle(group, rc ? NULL : error);
    rc = rc ? rc : followed;
    struct error why;
    if (rc && rank_group_stop(group, &why) && rc != -ERR_DEVICE) {
        rc = -why.code; /* a refusal that left something behind is none */
        *error = why;
    }
    return rc;
}

int rank_group_stop(struct rank_group *group, struct error *error)
{
    int rc = 0;
    (void)settle(group, NULL);
    for (uint32_t i = 0; i + 1 < group->ranks; i++)
        give(&group->followers[i], JOB_STOP);
    if (group->leader_started)
        rc = group->api->stop(group->engine, RANK_GROUP_LEADER, error);
    group->leader_started = false;
    for (uint32_t i = 0; i + 1 < group->ranks; i++) {
        struct follower *follower = &group->followers[i];
        if (await(follower) && !rc) {
            rc = follower->status;
            *error = follower->error;
        }
        if (!follower->has_thread)
            continue;
        give(follower, JOB_END);
        pthread_join(follower->thread, NULL);
        follower->has_thread = false;
    }
    return rc;
}

/* On all ranks or on none. */
static int reserve(struct rank_group *group, const struct gpu_plan *plan, struct error *error)
{
    int rc = 0;
    uint32_t rank = 0;
    for (; !rc && rank < group->ranks; rank++)
        rc = group->api->reserve(group->engine, rank, plan, error);
    while (rc && rank-- > 0)
        group->api->release(group->engine, rank);
    return rc;
}

int rank_group_submit(struct rank_group *group, const struct gpu_plan *plan, struct error *error)
{
    int rc = settle(group, error);
    if (rc)
        return -ERR_DEVICE;
    if (group->ranks > 1)
        rc = reserve(group, plan, error);
    if (rc)
        return rc;
    /* One thread goes through the ranks in their order: a later stage waits for the one before. */
    if (!group->threads)
        rc = group->api->submit(group->engine, RANK_GROUP_LEADER, plan, error);
    for (uint32_t i = 0; i + 1 < group->ranks; i++) {
        group->followers[i].plan = plan;
        give(&group->followers[i], JOB_SUBMIT);
    }
    if (group->threads)
        rc = group->api->submit(group->engine, RANK_GROUP_LEADER, plan, error);
    if (rc && group->ranks > 1 && !group->failed) {
        /* The cause: what followers then say is what came of it. */
        group->failed = rc;
        group->failure = *error;
    }
    if (rc)
        (void)settle(group, NULL); /* the plan is the caller's again */
    return rc;
}

int rank_group_sample(struct rank_group *group, const struct gpu_sampling *sampling,
                      struct error *error)
{
    int rc = settle(group, error);
    if (rc)
        return -ERR_DEVICE;
    for (uint32_t i = 0; i + 1 < group->ranks; i++) {
        group->followers[i].sampling = sampling;
        give(&group->followers[i], JOB_SAMPLE);
    }
    rc = group->api->sample(group->engine, RANK_GROUP_LEADER, sampling, error);
    int followed = settle(group, rc ? NULL : error);
    return rc ? rc : followed;
}

uint64_t rank_group_sampled(const struct rank_group *group)
{
    uint64_t least = UINT64_MAX;
    for (uint32_t rank = 0; rank < group->ranks; rank++) {
        uint64_t sampling = group->api->sampled(group->engine, rank);
        least = sampling < least ? sampling : least;
    }
    return least;
}

int rank_group_copy(struct rank_group *group, const struct gpu_copies *copies, struct error *error)
{
    int rc = settle(group, error);
    if (rc)
        return -ERR_DEVICE;
    for (uint32_t i = 0; i + 1 < group->ranks; i++) {
        group->followers[i].copies = copies;
        give(&group->followers[i], JOB_COPY);
    }
    rc = group->api->copy(group->engine, RANK_GROUP_LEADER, copies, error);
    int followed = settle(group, rc ? NULL : error);
    return rc ? rc : followed;
}

uint64_t rank_group_copied(const struct rank_group *group, enum gpu_way way)
{
    uint64_t least = UINT64_MAX;
    for (uint32_t rank = 0; rank < group->ranks; rank++) {
        uint64_t copies = group->api->copied(group->engine, rank, way);
        least = copies < least ? copies : least;
    }
    return least;
}

uint64_t rank_group_completed(const struct rank_group *group)
{
    uint64_t least = UINT64_MAX;
    for (uint32_t rank = 0; rank < group->ranks; rank++) {
        uint64_t step = group->api->completed(group->engine, rank);
        least = step < least ? step : least;
    }
    return least;
}

uint32_t rank_group_profile(struct rank_group *group, uint64_t step,
                            struct gpu_profile *ret_profiles)
{
    /* A step may have ended before the follower that enqueued it noted when it had. */
    if (settle(group, NULL))
        return 0;
    for (uint32_t rank = 0; rank < group->ranks; rank++)
        group->api->profile(group->engine, rank, step, &ret_profiles[rank]);
    return group->ranks;
}

enum gpu_progress rank_group_query(struct rank_group *group, struct error *error)
{
    enum gpu_progress worst = GPU_IDLE;
    if (settle(group, error))
        return GPU_FAILED;
    for (uint32_t rank = 0; worst != GPU_FAILED && rank < group->ranks; rank++) {
        enum gpu_progress one = group->api->query(group->engine, rank, error);
        worst = one > worst ? one : worst;
    }
    return worst;
}

int rank_group_kv_grow(struct rank_group *group, uint32_t kv_group, uint32_t *ret_slab,
                       struct error *error)
{
    int rc = settle(group, error);
    return rc ? rc : group->api->kv_grow(group->engine, kv_group, ret_slab, error);
}

int rank_group_kv_shrink(struct rank_group *group, uint32_t kv_group, uint32_t slab,
                         struct error *error)
{
    int rc = settle(group, error);
    return rc ? rc : group->api->kv_shrink(group->engine, kv_group, slab, error);
}

int rank_group_trim(struct rank_group *group, struct error *error)
{
    int rc = settle(group, error);
    return rc ? rc : group->api->trim(group->engine, error);
}
