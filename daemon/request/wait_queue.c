#include "daemon/request/wait_queue.h"

#include <assert.h>
#include <string.h>

#include "daemon/request/request.h"

#define MEAN_UNIT 16 /* of a token */
#define MEAN_OF 8    /* sequences, about, that a mean reaches back */

void waiting_init(struct waiting *waiting)
{
    memset(waiting, 0, sizeof(*waiting));
    list_init(&waiting->parked);
}

void waiting_user_init(struct waiting_user *user)
{
    memset(user, 0, sizeof(*user));
    for (uint32_t i = 0; i < WAITING_LEVELS; i++)
        user->shares[i].user = user;
}

void waiting_weigh(struct waiting *waiting, struct waiting_user *user, uint32_t weight)
{
    for (uint32_t i = 0; i < WAITING_LEVELS; i++)
        turns_weigh(&waiting->levels[i], &user->shares[i].turn, weight);
}

/* ---- who has turns -----------------------------------------------------------------------------
 */

static uint32_t highest(uint32_t bits)
{
    return 31 - (uint32_t)__builtin_clz(bits);
}

static uint32_t level_of(const struct waiting_share *share)
{
    return (uint32_t)(share - share->user->shares);
}

static void begin_level(struct waiting *waiting, uint32_t level)
{
    waiting->level_bits |= 1u << level;
    if (waiting->level_used[level] < waiting->level_floor)
        waiting->level_used[level] = waiting->level_floor;
}

static void add_lane(struct waiting *waiting, struct waiting_lane *lane)
{
    struct waiting_share *share = lane->share;
    uint32_t level = level_of(share);
    turns_add(&share->lanes, &lane->turn);
    if (share->turn.waits)
        return;
    turns_add(&waiting->levels[level], &share->turn);
    if (!(waiting->level_bits & 1u << level))
        begin_level(waiting, level);
}

static void remove_lane(struct waiting *waiting, struct waiting_lane *lane)
{
    struct waiting_share *share = lane->share;
    uint32_t level = level_of(share);
    turns_remove(&share->lanes, &lane->turn);
    if (share->lanes.root)
        return;
    turns_remove(&waiting->levels[level], &share->turn);
    if (!waiting->levels[level].root)
        waiting->level_bits &= ~(1u << level);
}

void waiting_push(struct waiting *waiting, struct waiting_user *user, struct waiting_conn *conn,
                  struct seq *seq)
{
    uint32_t level = (uint32_t)(seq->priority - WAITING_PRIORITY_MIN);
    struct waiting_lane *lane = &conn->lanes[level];
    if (!lane->share) {
        list_init(&lane->seqs);
        lane->share = &user->shares[level];
    }
    assert(lane->share == &user->shares[level]);
    seq->lane = lane;
    seq->share = lane->share;
    list_append(&lane->seqs, &seq->wait_link);
    waiting->count++;
    if (!lane->turn.waits && !list_linked(&lane->parked_link))
        add_lane(waiting, lane);
}

void waiting_remove(struct waiting *waiting, struct seq *seq)
{
    struct waiting_lane *lane = seq->lane;
    list_remove(&seq->wait_link);
    waiting->count--;
    if (!list_empty(&lane->seqs))
        return;
    if (list_linked(&lane->parked_link))
        list_remove(&lane->parked_link);
    else if (lane->turn.waits) /* else all of it was aside */
        remove_lane(waiting, lane);
}

void waiting_set_aside(struct waiting *waiting, struct seq *seq, struct list *aside)
{
    waiting_remove(waiting, seq);
    waiting->count++;
    list_append(aside, &seq->wait_link);
}

void waiting_bring_back(struct waiting *waiting, struct list *aside)
{
    while (!list_empty(aside)) {
        struct seq *seq = container_of(aside->prev, struct seq, wait_link);
        struct waiting_lane *lane = seq->lane;
        list_remove(&seq->wait_link);
        list_prepend(&lane->seqs, &seq->wait_link);
        if (!lane->turn.waits && !list_linked(&lane->parked_link))
            add_lane(waiting, lane);
    }
}

void waiting_park(struct waiting *waiting, struct seq *seq)
{
    struct waiting_lane *lane = seq->lane;
    remove_lane(waiting, lane);
    list_append(&waiting->parked, &lane->parked_link);
}

void waiting_unpark(struct waiting *waiting)
{
    struct list *link;
    while ((link = list_take(&waiting->parked)))
        add_lane(waiting, container_of(link, struct waiting_lane, parked_link));
}

/* ---- whose turn it is --------------------------------------------------------------------------
 */

/* The level that has used least while others waited. */
static uint32_t least_used(const struct waiting *waiting)
{
    uint32_t best = highest(waiting->level_bits);
    for (uint32_t left = waiting->level_bits & ~(1u << best); left; left &= ~(1u << highest(left)))
        if (waiting->level_used[highest(left)] < waiting->level_used[best])
            best = highest(left);
    return best;
}

static bool several(uint32_t bits)
{
    return bits & (bits - 1);
}

/* The share is due. Then the one that has used least goes, even the highest: it was a lower one
 * maybe, until the one above it had gone. */
static bool share_is_due(const struct waiting *waiting)
{
    return waiting->share > 0 && several(waiting->level_bits) &&
           waiting->low_used < waiting->top_used;
}

static struct seq *first_of(struct waiting_share *share)
{
    struct turn *turn = turns_first(&share->lanes);
    struct waiting_lane *lane = container_of(turn, struct waiting_lane, turn);
    return container_of(lane->seqs.next, struct seq, wait_link);
}

static struct seq *first_at(struct waiting *waiting, uint32_t level)
{
    struct turn *turn = turns_first(&waiting->levels[level]);
    return first_of(container_of(turn, struct waiting_share, turn));
}

struct seq *waiting_first(struct waiting *waiting)
{
    if (!waiting->level_bits)
        return NULL;
    return first_at(waiting,
                    share_is_due(waiting) ? least_used(waiting) : highest(waiting->level_bits));
}

struct seq *waiting_highest(struct waiting *waiting)
{
    return waiting->level_bits ? first_at(waiting, highest(waiting->level_bits)) : NULL;
}

/* ---- what was used -----------------------------------------------------------------------------
 */

/* Counters never fall: what was counted and did not come is let off what comes later. */
static void count(struct waiting_share *share, uint64_t tokens)
{
    uint64_t cost = turn_cost(&share->turn, tokens);
    uint64_t free = cost < share->credit ? cost : share->credit;
    share->credit -= free;
    share->turn.used += cost - free;
}

void waiting_charge(struct waiting *waiting, struct seq *seq, uint64_t tokens)
{
    if (seq->low)
        waiting->low_used += tokens * (100 - waiting->share);
    else if (seq->top)
        waiting->top_used += tokens * waiting->share;
    if (seq->low || seq->top)
        waiting->level_used[level_of(seq->share)] += tokens;
    waiting->used += tokens;
    uint32_t expected = tokens < seq->expected ? (uint32_t)tokens : seq->expected;
    seq->expected -= expected;
    count(seq->share, tokens - expected);
    if (seq->lane)
        turn_charge(&seq->lane->turn, tokens);
}

/* Counted for its user when it is taken, like its prompt: else a user of short prompts would be given hundreds
 * of sequences in a turn, and then none until the others have had as much. */
static void expect(struct seq *seq)
{
    uint32_t mean = seq->share->mean_out / MEAN_UNIT, most = seq->sampling.max_tokens;
    if (seq->params.job != JOB_GENERATE)
        return;
    seq->expected = mean < most ? mean : most;
    count(seq->share, seq->expected);
}

void waiting_settle(struct seq *seq, uint32_t generated)
{
    struct waiting_share *share = seq->share;
    share->credit += turn_cost(&share->turn, seq->expected);
    seq->expected = 0;
    if (seq->params.job != JOB_GENERATE)
        return;
    if (share->mean_out == 0)
        share->mean_out = generated * MEAN_UNIT;
    else
        share->mean_out += (uint32_t)(((int64_t)generated * MEAN_UNIT - share->mean_out) / MEAN_OF);
}

void waiting_take(struct waiting *waiting, struct seq *seq, uint64_t tokens)
{
    uint32_t level = level_of(seq->share), least = least_used(waiting);
    seq->low = waiting->level_bits >> level > 1;
    seq->top = !seq->low && several(waiting->level_bits);
    if (waiting->level_floor < waiting->level_used[least])
        waiting->level_floor = waiting->level_used[least];
    turns_pass(&waiting->levels[level], tokens);
    turns_pass(&seq->share->lanes, tokens);
    waiting_remove(waiting, seq);
    waiting_charge(waiting, seq, tokens);
    expect(seq);
}
