#include "daemon/worker/mask_crew.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

#include "daemon/constrain/constraint.h"
#include "daemon/worker/constraint_held.h"

struct mask_crew {
    void (*ready)(void *context);
    void *context;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct seq_mask *first, **last; /* the queue: asked for, or dropped */
    bool stops;
    bool started;     /* worker: it was tried */
    uint32_t threads; /* that it is to have */
    uint32_t running;
    pthread_t thread[MASK_CREW_THREADS];
};

/* ---- a mask -----------------------------------------------------------------------------------
 */

/* By that token; none at the beginning, where a budget may be used up, too. */
static int move_on(struct seq_mask *mask, struct constraint_place *place, int32_t token)
{
    struct constraint *constraint = mask->held->constraint;
    int rc = 0;
    if (token >= 0) {
        rc = constraint_advance(constraint, place, token, &mask->error);
        mask->tokens++;
    }
    if (!rc && mask->tokens >= constraint_budget(constraint))
        rc = constraint_cut(constraint, place, &mask->error);
    return rc;
}

/* While the mask leaves one token: moves on by that, and makes the one behind it. Behind an end
 * there is nothing. */
static int force(struct seq_mask *mask, struct constraint_place *place,
                 struct constraint_allowed *allowed)
{
    struct constraint *constraint = mask->held->constraint;
    int rc = 0;
    while (!rc && allowed->only >= 0 && !mask->forced_end &&
           mask->forced_count < SEQ_MASK_FORCED_MAX) {
        mask->forced[mask->forced_count++] = allowed->only;
        mask->forced_end = allowed->only_ends;
        rc = move_on(mask, place, allowed->only);
        if (!rc)
            rc = constraint_mask(constraint, place, mask->bits, allowed, &mask->error);
    }
    return rc;
}

/* Moves on by the token, and makes the mask behind it. */
static enum seq_mask_state make(struct seq_mask *mask)
{
    struct constraint *constraint = mask->held->constraint;
    struct constraint_place place = {.state = mask->place};
    struct constraint_allowed allowed = {.count = 0};
    mask->forced_count = 0;
    mask->forced_end = false;
    int rc = 0;
    if (!place.state) {
        constraint_start(constraint, &place);
        for (uint32_t i = 0; !rc && i < mask->told_count; i++)
            rc = move_on(mask, &place, mask->told[i]);
    }
    if (!rc)
        rc = move_on(mask, &place, mask->token);
    if (!rc)
        rc = constraint_mask(constraint, &place, mask->bits, &allowed, &mask->error);
    if (!rc && mask->forces)
        rc = force(mask, &place, &allowed);
    constraint_held_measure(mask->held);
    mask->place = place.state;
    mask->allowed = allowed.count;
    mask->ends = allowed.ends;
    return rc ? SEQ_MASK_FAILED : SEQ_MASK_READY;
}

static void state_set(struct seq_mask *mask, enum seq_mask_state state)
{
    atomic_store_explicit(&mask->state, state, memory_order_release);
}

/* ---- the queue --------------------------------------------------------------------------------
 */

static void push(struct mask_crew *crew, struct seq_mask *mask)
{
    mask->next = NULL;
    *crew->last = mask;
    crew->last = &mask->next;
    pthread_cond_signal(&crew->changed);
}

static struct seq_mask *pop(struct mask_crew *crew)
{
    struct seq_mask *mask = crew->first;
    if (mask) {
        crew->first = mask->next;
        if (!crew->first)
            crew->last = &crew->first;
    }
    return mask;
}

/* With the lock, which is let go meanwhile. */
static void work(struct mask_crew *crew, struct seq_mask *mask)
{
    enum seq_mask_state state = SEQ_MASK_FAILED;
    bool dropped = mask->dropped;
    pthread_mutex_unlock(&crew->lock);
    if (!dropped)
        state = make(mask);
    pthread_mutex_lock(&crew->lock);
    dropped = mask->dropped;
    if (!dropped)
        state_set(mask, state);
    pthread_mutex_unlock(&crew->lock);
    if (dropped)
        seq_mask_free(mask);
    else
        crew->ready(crew->context);
    pthread_mutex_lock(&crew->lock);
}

static void *thread_main(void *argument)
{
    struct mask_crew *crew = argument;
    (void)pthread_setname_np(pthread_self(), "sluice-masks");
    pthread_mutex_lock(&crew->lock);
    while (!crew->stops) {
        struct seq_mask *mask = pop(crew);
        if (mask)
            work(crew, mask);
        else
            pthread_cond_wait(&crew->changed, &crew->lock);
    }
    pthread_mutex_unlock(&crew->lock);
    return NULL;
}

static void start(struct mask_crew *crew)
{
    crew->started = true;
    for (uint32_t i = 0; i < crew->threads; i++)
        if (!pthread_create(&crew->thread[crew->running], NULL, thread_main, crew))
            crew->running++;
}

/* ---- the worker's side -------------------------------------------------------------------------
 */

int mask_crew_make(void (*ready)(void *context), void *context, struct mask_crew **ret_crew,
                   struct error *error)
{
    struct mask_crew *crew = calloc(1, sizeof(*crew));
    if (!crew)
        return error_set(error, ERR_NO_MEMORY, "no memory for masks");
    pthread_mutex_init(&crew->lock, NULL);
    pthread_cond_init(&crew->changed, NULL);
    crew->last = &crew->first;
    crew->ready = ready;
    crew->context = context;
    *ret_crew = crew;
    return 0;
}

void mask_crew_threads(struct mask_crew *crew, uint32_t threads)
{
    assert(threads <= MASK_CREW_THREADS && !crew->started);
    crew->threads = threads;
}

void mask_crew_ask(struct mask_crew *crew, struct seq_mask *mask, int32_t token)
{
    assert(seq_mask_state(mask) != SEQ_MASK_ASKED);
    if (!crew->started)
        start(crew);
    mask->token = token;
    state_set(mask, SEQ_MASK_ASKED);
    if (crew->threads > 0 && crew->running == 0) {
        state_set(mask, make(mask));
        return;
    }
    pthread_mutex_lock(&crew->lock);
    push(crew, mask);
    pthread_mutex_unlock(&crew->lock);
}

void mask_crew_drop(struct mask_crew *crew, struct seq_mask *mask)
{
    pthread_mutex_lock(&crew->lock);
    bool asked = seq_mask_state(mask) == SEQ_MASK_ASKED;
    bool queue = !asked && crew->started && (crew->running > 0 || crew->threads == 0);
    mask->dropped = true;
    if (queue)
        push(crew, mask);
    pthread_mutex_unlock(&crew->lock);
    if (!asked && !queue)
        seq_mask_free(mask);
}

bool mask_crew_run(struct mask_crew *crew)
{
    pthread_mutex_lock(&crew->lock);
    struct seq_mask *mask = pop(crew);
    if (mask)
        work(crew, mask);
    pthread_mutex_unlock(&crew->lock);
    return mask != NULL;
}

bool mask_crew_waits(struct mask_crew *crew)
{
    pthread_mutex_lock(&crew->lock);
    bool waits = crew->first != NULL;
    pthread_mutex_unlock(&crew->lock);
    return waits;
}

void mask_crew_stop(struct mask_crew *crew)
{
    pthread_mutex_lock(&crew->lock);
    crew->stops = true;
    pthread_cond_broadcast(&crew->changed);
    pthread_mutex_unlock(&crew->lock);
    for (uint32_t i = 0; i < crew->running; i++)
        pthread_join(crew->thread[i], NULL);
    crew->running = 0;
    for (struct seq_mask *mask; (mask = pop(crew));)
        if (mask->dropped)
            seq_mask_free(mask);
}

void mask_crew_free(struct mask_crew *crew)
{
    if (!crew)
        return;
    mask_crew_stop(crew);
    pthread_cond_destroy(&crew->changed);
    pthread_mutex_destroy(&crew->lock);
    free(crew);
}
