#include "daemon/base/turns.h"

#include <assert.h>
#include <stddef.h>

static bool goes_before(const struct turn *a, const struct turn *b)
{
    if (a->key != b->key)
        return a->key < b->key;
    return a->fresh != b->fresh ? a->fresh : a->number < b->number;
}

/* Two heaps become one; either may be NULL. */
static struct turn *merge(struct turn *a, struct turn *b)
{
    if (!a || !b)
        return a ? a : b;
    struct turn *first = goes_before(a, b) ? a : b, *other = first == a ? b : a;
    other->next = first->child;
    if (other->next)
        other->next->prev = other;
    other->prev = first;
    first->child = other;
    first->next = first->prev = NULL;
    return first;
}

/* Siblings become one heap: pairs from the left, then these from the right. */
static struct turn *merge_all(struct turn *first)
{
    struct turn *pairs = NULL, *all = NULL;
    while (first) {
        struct turn *second = first->next, *rest = second ? second->next : NULL;
        first->next = first->prev = NULL;
        if (second)
            second->next = second->prev = NULL;
        struct turn *pair = merge(first, second);
        pair->next = pairs;
        pairs = pair;
        first = rest;
    }
    while (pairs) {
        struct turn *rest = pairs->next;
        pairs->next = NULL;
        all = merge(all, pairs);
        pairs = rest;
    }
    return all;
}

static void put(struct turns *turns, struct turn *turn, bool fresh)
{
    turn->key = turn->used;
    turn->fresh = fresh;
    turn->number = turns->number++;
    turn->child = turn->next = turn->prev = NULL;
    turns->root = merge(turns->root, turn);
}

static void take(struct turns *turns, struct turn *turn)
{
    struct turn *children = merge_all(turn->child);
    if (turns->root == turn) {
        turns->root = children;
    } else {
        if (turn->prev->child == turn)
            turn->prev->child = turn->next;
        else
            turn->prev->next = turn->next;
        if (turn->next)
            turn->next->prev = turn->prev;
        turns->root = merge(turns->root, children);
    }
    turn->child = turn->next = turn->prev = NULL;
}

void turns_add(struct turns *turns, struct turn *turn)
{
    assert(!turn->waits);
    turn->waits = true;
    (void)turns_first(turns);
    turns->weights += turn_weight(turn);
    const uint64_t below = TURN_FRESH_TOKENS * TURN_TOKEN;
    uint64_t start = turns->floor;
    if (turns->root && turns->root->key + below > start)
        start = turns->root->key;
    else if (turns->root)
        start -= below;
    bool fresh = turn->used < start;
    if (fresh)
        turn->used = start;
    put(turns, turn, fresh);
}

void turns_remove(struct turns *turns, struct turn *turn)
{
    assert(turn->waits);
    turn->waits = false;
    turns->weights -= turn_weight(turn);
    take(turns, turn);
}

struct turn *turns_first(struct turns *turns)
{
    /* Counters only rise: who has used more since it was put here goes to where it belongs now. */
    while (turns->root && turns->root->key < turns->root->used) {
        struct turn *turn = turns->root;
        take(turns, turn);
        put(turns, turn, false);
    }
    if (turns->root && turns->floor < turns->root->key)
        turns->floor = turns->root->key;
    return turns->root;
}

void turns_pass(struct turns *turns, uint64_t given)
{
    turns->rest += given * TURN_TOKEN * TURN_WEIGHT;
    turns->floor += turns->rest / turns->weights;
    turns->rest %= turns->weights;
}

void turns_weigh(struct turns *turns, struct turn *turn, uint32_t weight)
{
    if (turn->waits)
        turns->weights -= turn_weight(turn);
    turn->weight = weight;
    if (turn->waits)
        turns->weights += turn_weight(turn);
}
