#include "daemon/backlog.h"

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
        list_init(&user->lanes[i].items);
}

void backlog_destroy(struct backlog *backlog)
{
    assert(backlog->waiting_count == 0 && backlog->running_count == 0);
    deadlines_destroy(&backlog->deadlines);
}

int backlog_push(struct backlog *backlog, struct backlog_user *user, struct backlog_item *item,
                 size_t size, time_us deadline_us, struct error *error)
{
    enum backlog_class class = size > BACKLOG_SMALL ? BACKLOG_IS_LARGE : BACKLOG_IS_SMALL;
    struct backlog_lane *lane = &user->lanes[class];
    int rc = deadline_us ? deadlines_reserve(&backlog->deadlines, 1, error) : 0;
    if (rc)
        return rc;
    *item = (struct backlog_item){.user = user, .class = class, .state = BACKLOG_WAITS};
    deadline_init(&item->deadline);
    if (deadline_us)
        deadlines_add(&backlog->deadlines, &item->deadline, deadline_us);
    list_append(&lane->items, &item->link);
    if (!list_linked(&lane->turn_link))
        list_append(&backlog->turns[class], &lane->turn_link);
    backlog->waiting_count++;
    return 0;
}

/* Whose turn it is in a class, of those who may have one more thread. Those who may not are fewer
 * than three, however many threads there are. */
static struct backlog_item *first_of(const struct backlog *backlog, enum backlog_class class)
{
    if (class == BACKLOG_IS_LARGE && backlog->running_large >= backlog_share(backlog))
        return NULL;
    list_each(link, &backlog->turns[class])
    {
        struct backlog_lane *lane = container_of(link, struct backlog_lane, turn_link);
        struct backlog_item *item = container_of(lane->items.next, struct backlog_item, link);
        if (item->user->running < backlog_share(backlog))
            return item;
    }
    return NULL;
}

/* Out of its lane; its user stands behind the others where it had its turn. */
static void leave_lane(struct backlog *backlog, struct backlog_item *item, bool had_turn)
{
    struct backlog_lane *lane = &item->user->lanes[item->class];
    list_remove(&item->link);
    backlog->waiting_count--;
    if (had_turn || list_empty(&lane->items))
        list_remove(&lane->turn_link);
    if (had_turn && !list_empty(&lane->items))
        list_append(&backlog->turns[item->class], &lane->turn_link);
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
