/* Turns: who is next among those that share something, by a virtual counter of what each has used.
 *
 * The least counter is first; of equal ones, who came back last had its turn before, then who came
 * first. A counter rises by turn_charge() whenever something was used, also while its owner stands
 * here or is away, and the slower the more weight its owner has: so those who always stand here get
 * parts as their weights are. Who comes, or comes back, starts at least where the one stands who
 * has used least, and is before it (where nobody stands, at what was given to each): so who asks
 * now and then is next, and staying away saves nothing up; what it owes it still owes. Whatever is
 * given to one of them raises what each was given by its part, by weight, and nobody starts further
 * below that than TURN_FRESH_TOKENS: who owes something waits only until newcomers start behind it,
 * even if new ones come for ever.
 *
 * A pairing heap with embedded links: adding takes constant time, taking out logarithmic time. Owns
 * and allocates nothing. One thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define TURN_WEIGHT 100u /* of who is given none */
/* A counter's unit is this part of a token, so that little is lost by weights that do not divide.
 */
#define TURN_TOKEN (UINT64_C(1) << 20)
#define TURN_FRESH_TOKENS 4096u /* a prompt or so */

/* Embedded in who takes turns; zeroed memory is one that stands nowhere. */
struct turn {
    uint64_t used;   /* the counter */
    uint64_t key;    /* as it was when it was put where it stands: never above `used` */
    uint64_t number; /* and in which order that happened */
    bool fresh;      /* it came, was lifted to where others stand, and has used nothing since */
    uint32_t weight; /* 0: TURN_WEIGHT. turns_weigh() changes it */
    bool waits;
    struct turn *child, *next, *prev; /* prev: the one before it, or of a first child the parent */
};

/* Zeroed memory is nobody. */
struct turns {
    struct turn *root;
    uint64_t floor; /* what was given to each, or the least counter where that is more */
    uint64_t rest;  /* of what was given, not in `floor` yet */
    uint64_t number;
    uint64_t weights; /* of all who stand here */
};

static inline uint32_t turn_weight(const struct turn *turn)
{
    return turn->weight > 0 ? turn->weight : TURN_WEIGHT;
}

void turns_add(struct turns *turns, struct turn *turn);
void turns_remove(struct turns *turns, struct turn *turn);
/* So many tokens were given to one of them, who still stands here. */
void turns_pass(struct turns *turns, uint64_t given);
/* From now on the turn has this weight, wherever it stands; `turns` are those it may stand among.
 */
void turns_weigh(struct turns *turns, struct turn *turn, uint32_t weight);
/* NULL: nobody. */
struct turn *turns_first(struct turns *turns);

/* What so many tokens raise its counter by. */
static inline uint64_t turn_cost(const struct turn *turn, uint64_t tokens)
{
    return tokens * TURN_TOKEN * TURN_WEIGHT / turn_weight(turn);
}

/* Tokens. */
static inline void turn_charge(struct turn *turn, uint64_t used)
{
    turn->used += turn_cost(turn, used);
}
