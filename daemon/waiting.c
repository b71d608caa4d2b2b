#include "daemon/waiting.h"

#include "daemon/request.h"

static uint32_t level_of(const struct seq *seq)
{
    return (uint32_t)(seq->priority - WAITING_PRIORITY_MIN);
}

void waiting_init(struct waiting *waiting)
{
    for (uint32_t i = 0; i < WAITING_LEVELS; i++)
        list_init(&waiting->turns[i]);
    waiting->levels = 0;
    waiting->count = 0;
}

void waiting_user_init(struct waiting_user *user)
{
    for (uint32_t i = 0; i < WAITING_LEVELS; i++) {
        list_init(&user->lanes[i].seqs);
        user->lanes[i].turn_link = (struct list){0};
    }
}

void waiting_push(struct waiting *waiting, struct waiting_user *user, struct seq *seq)
{
    uint32_t level = level_of(seq);
    struct waiting_lane *lane = &user->lanes[level];
    list_append(&lane->seqs, &seq->wait_link);
    if (!list_linked(&lane->turn_link))
        list_append(&waiting->turns[level], &lane->turn_link);
    waiting->levels |= 1u << level;
    waiting->count++;
}

static struct waiting_lane *lane_of(struct list *turn)
{
    return container_of(turn, struct waiting_lane, turn_link);
}

struct seq *waiting_first(const struct waiting *waiting)
{
    if (waiting->levels == 0)
        return NULL;
    uint32_t level = 31 - (uint32_t)__builtin_clz(waiting->levels);
    return container_of(lane_of(waiting->turns[level].next)->seqs.next, struct seq, wait_link);
}

void waiting_remove(struct waiting *waiting, struct waiting_user *user, struct seq *seq)
{
    uint32_t level = level_of(seq);
    struct waiting_lane *lane = &user->lanes[level];
    struct list *turns = &waiting->turns[level];
    bool had_turn = turns->next == &lane->turn_link && lane->seqs.next == &seq->wait_link;
    list_remove(&seq->wait_link);
    waiting->count--;
    if (list_empty(&lane->seqs))
        list_remove(&lane->turn_link);
    else if (had_turn) {
        list_remove(&lane->turn_link);
        list_append(turns, &lane->turn_link);
    }
    if (list_empty(turns))
        waiting->levels &= ~(1u << level);
}
