#include "daemon/request/backlog.h"

#include <assert.h>

void backlog_init(struct backlog *backlog, uint32_t threads)
{
    assert(threads > 0);
    *backlog = (struct backlog){.threads = threads};
    for (uint32_t i = 0; i < BACKLOG_CLASSES; i++)
        list_init(&backlog->turns[i]);
    list_init(&backlog->running);
    deadlines_init(&backlog->deadlines);
}

void backlog_user_init(struct backlog_user *user)
{
    *user = (struct backlog_user){0};
    for (uint32_t i = 0; i < BACKLOG_CLASSES; i++)
        list_init(&user->lanes[i].turns);
}

void backlog_destroy(struct backlog *backlog)
{
    assert(backlog->waiting_count == 0 && backlog->running_count == 0);
    deadlines_destroy(&backlog->deadlines);
}

int backlog_push(struct backlog *backlog, struct backlog_user *user, struct backlog_source *source,
                 struct backlog_item *item, size_t size, time_us deadline_us, struct error *error)
{
    enum backlog_class class = size > BACKLOG_SMALL ? BACKLOG_IS_LARGE : BACKLOG_IS_SMALL;
    struct backlog_lane *lane = &user->lanes[class];
    struct backlog_queue *queue = &source->queues[class];
    int rc = deadline_us ? deadlines_reserve(&backlog->deadlines, 1, error) : 0;
    if (rc)
        return rc;
    *item = (struct backlog_item){
        .user = user, .source = source, .class = class, .state = BACKLOG_WAITS};
    deadline_init(&item->deadline);
    if (deadline_us)
        deadlines_add(&backlog->deadlines, &item->deadline, deadline_us);
    if (!list_linked(&queue->items))
        list_init(&queue->items);
    list_append(&queue->items, &item->link);
    if (!list_linked(&queue->turn_link))
        list_append(&lane->turns, &queue->turn_link);
    if (!list_linked(&lane->turn_link))
        list_append(&backlog->turns[class], &lane->turn_link);
    backlog->waiting_count++;
    return 0;
}

struct backlog_item *backlog_first(const struct backlog_lane *lane)
{
    if (list_empty(&lane->turns))
        return NULL;
    const struct backlog_queue *queue =
        container_of(lane->turns.next, struct backlog_queue, turn_link);
    return container_of(queue->items.next, struct backlog_item, link);
}

/* Whose turn it is in a class, of those who may have one more thread: while a thread is free, one
 * user at most may not. */
static struct backlog_item *first_of(const struct backlog *backlog, enum backlog_class class)
{
    if (class == BACKLOG_IS_LARGE && backlog->running_large >= backlog_share(backlog))
        return NULL;
    list_each(link, &backlog->turns[class])
    {
        struct backlog_lane *lane = container_of(link, struct backlog_lane, turn_link);
        struct backlog_item *item = backlog_first(lane);
        if (item->user->running < backlog_share(backlog))
            return item;
    }
    return NULL;
}

/* Who has nothing left is off the list of turns; who had a turn stands behind the others. */
static void end_turn(struct list *turns, struct list *turn_link, bool empty, bool had_turn)
{
    if (empty || had_turn)
        list_remove(turn_link);
    if (had_turn && !empty)
        list_append(turns, turn_link);
}

/* One that waited does no more. */
static void leave_lane(struct backlog *backlog, struct backlog_item *item, bool had_turn)
{
    struct backlog_lane *lane = &item->user->lanes[item->class];
    struct backlog_queue *queue = &item->source->queues[item->class];
    list_remove(&item->link);
    item->source = NULL;
    backlog->waiting_count--;
    end_turn(&lane->turns, &queue->turn_link, list_empty(&queue->items), had_turn);
    end_turn(&backlog->turns[item->class], &lane->turn_link, list_empty(&lane->turns), had_turn);
}

struct backlog_item *backlog_take(struct backlog *backlog)
{
    if (backlog->waiting_count == 0 || backlog->running_count == backlog->threads)
        return NULL;
    struct backlog_item *small = first_of(backlog, BACKLOG_IS_SMALL);
    struct backlog_item *large = first_of(backlog, BACKLOG_IS_LARGE);
    bool turn = large && (!small || backlog->smalls >= BACKLOG_SMALL_RUN);
    struct backlog_item *item = turn ? large : small;
    if (!item)
        return NULL;
    backlog->smalls = large && !turn ? backlog->smalls + 1 : 0;
    leave_lane(backlog, item, true);
    item->state = BACKLOG_RUNS;
    list_append(&backlog->running, &item->link);
    item->user->running++;
    backlog->running_count++;
    backlog->running_large += item->class == BACKLOG_IS_LARGE;
    return item;
}

static void note_pace(struct backlog *backlog, time_us now_us)
{
    if (backlog->ended_us)
        backlog->pace_us += ((double)(now_us - backlog->ended_us) - backlog->pace_us) / 8;
    backlog->ended_us = backlog->waiting_count > 0 ? now_us : 0;
}

void backlog_remove(struct backlog *backlog, struct backlog_item *item, time_us now_us)
{
    backlog_forget(backlog, item);
    if (item->state == BACKLOG_WAITS) {
        leave_lane(backlog, item, false);
    } else {
        assert(item->state == BACKLOG_RUNS);
        list_remove(&item->link);
        item->user->running--;
        backlog->running_count--;
        backlog->running_large -= item->class == BACKLOG_IS_LARGE;
        note_pace(backlog, now_us);
    }
    item->state = BACKLOG_OUT;
}

void backlog_forget(struct backlog *backlog, struct backlog_item *item)
{
    deadlines_remove(&backlog->deadlines, &item->deadline);
}

struct backlog_item *backlog_late(const struct backlog *backlog, time_us now_us)
{
    struct deadline *first = deadlines_first(&backlog->deadlines);
    return first && first->at_us <= now_us ? container_of(first, struct backlog_item, deadline)
                                           : NULL;
}

time_us backlog_due(const struct backlog *backlog)
{
    const struct deadline *first = deadlines_first(&backlog->deadlines);
    return first ? first->at_us : 0;
}

double backlog_wait_us(const struct backlog *backlog)
{
    return backlog->pace_us * (double)backlog->waiting_count;
}
