/* What a constrained sequence's next token may be: a mask over the vocabulary, on its way between
 * the worker, who asks for one after each token, and a thread that makes it (mask_crew.h).
 *
 * Where only one token may come, that is no choice: it is taken as it is, and the mask is that of the
 * place behind it; so for up to SEQ_MASK_FORCED_MAX in a row.
 *
 * Its state says whose it is: ASKED: the thread's, else the worker's. The sequence's own tokens
 * alone decide what is in it, so it stays right whatever becomes of the slot.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "protocol/base/error.h"

struct constraint_held;
struct machine_state;

enum seq_mask_state {
    SEQ_MASK_NONE, /* nothing was asked for yet */
    SEQ_MASK_ASKED,
    SEQ_MASK_READY,
    SEQ_MASK_FAILED /* `error` says why: there will be no other */
};

#define SEQ_MASK_FORCED_MAX 16u

struct seq_mask {
    atomic_uint state;
    struct constraint_held *held; /* a reference */
    struct machine_state *place;  /* in it; NULL: at its beginning, which nothing has read yet */
    int32_t token;                /* ASKED: to move on by first; -1: none */
    const int32_t *told;          /* at its beginning, to move on by before all: what the output */
    uint32_t told_count;          /* had when its sequence was handed back; set before the first */
    uint32_t tokens;              /* moved on by so far */
    bool forces;                  /* worker: tokens may be forced; set before the first is asked */
    bool forced_end;              /* READY: the last of the forced ends the output */
    uint32_t forced_count;        /* READY: come first, and are in the place; 0 once they are taken */
    int32_t forced[SEQ_MASK_FORCED_MAX];
    bool ends;                    /* READY: the output may be at its end */
    bool dropped;                 /* worker: nobody wants it; whoever has it frees it */
    uint32_t allowed;             /* READY: tokens in the mask */
    struct error error;
    struct seq_mask *next; /* the crew's queue */
    uint32_t words;
    uint32_t bits[];
};

static inline enum seq_mask_state seq_mask_state(const struct seq_mask *mask)
{
    return (enum seq_mask_state)atomic_load_explicit(&mask->state, memory_order_acquire);
}

/* READY. */
static inline bool seq_mask_allows(const struct seq_mask *mask, int32_t token)
{
    return token >= 0 && (uint32_t)token / 32 < mask->words &&
           (mask->bits[token / 32] >> token % 32 & 1);
}
