/* Reads bytes by a grammar: a pushdown automaton whose sets of configurations are states, made
 * when first met and kept.
 *
 * A configuration is a node of the grammar and a frame: whose call it is in, at which count, inside
 * which frame. Equal frames are one, equal sets are one state, and a state remembers where each
 * class of bytes leads, so that what was read once costs a look-up afterwards. Every configuration
 * can still end, since the grammar was pruned: a state never has bytes to offer and no end.
 *
 * Memory: over MACHINE_KEEP_BYTES what nobody holds is thrown away at the start of an operation;
 * one that needs more than MACHINE_BYTES_MAX, or more than MACHINE_STEPS_MAX steps, fails with
 * ERR_TOO_LARGE, which only grammars do that read one text in very many ways. One thread at a time
 * (constraint.c has the lock).
 */
#pragma once

#include "daemon/constrain/grammar/grammar.h"

#define MACHINE_SET_MAX 4096u /* configurations that one state is made of */
#define MACHINE_KEEP_BYTES ((size_t)16 << 20)
#define MACHINE_BYTES_MAX ((size_t)48 << 20)
#define MACHINE_STEPS_MAX (8u << 20) /* of one operation */
#define MACHINE_ROOT 0u              /* the frame outside of all calls */

struct machine_frame {
    uint32_t edge, parent; /* the call */
    uint32_t count;        /* which time in a row, from 1 */
    uint32_t next;         /* of the same hash */
};

struct machine_config {
    uint32_t node, frame;
};

struct machine_mask { /* of a vocabulary (mask.h) */
    uint32_t count;   /* tokens allowed; those that end an output are not among them */
    uint32_t only;    /* the first of them */
    uint32_t words;   /* of data */
    bool listed;      /* data is tokens, not bits */
    int16_t plain;    /* besides them: plain tokens of up to so many characters; -1: none */
    uint32_t data[];
};

struct machine_state {
    uint32_t holds; /* by sequences */
    uint32_t count;
    uint64_t hash;
    struct machine_state *next, *same; /* of all; of the same hash */
    struct machine_state **row;        /* by class of bytes; NULL: not looked at yet */
    struct machine_mask *mask;         /* of the vocabulary, once somebody asked */
    uint64_t loops;                    /* kinds of bytes that lead back here (mask.c) */
    bool loops_known;
    bool ends; /* the text may end here */
    struct machine_config set[];
};

struct machine {
    const struct grammar *grammar;
    struct machine_frame *frames;
    uint32_t frames_used, frames_room;
    uint32_t *frame_index; /* by hash */
    struct machine_state **state_index, *states, *start;
    struct machine_config *work, *kept; /* while a state is made */
    uint32_t *seen, stamp, work_count, kept_count;
    uint32_t frame_slots, state_slots, seen_slots; /* of the tables by hash */
    bool ends;
    size_t bytes;
    uint64_t steps, made; /* states that there are */
};

int machine_init(struct machine *machine, const struct grammar *grammar, struct error *error);
void machine_free(struct machine *machine);
/* To be called before each operation; states that nobody holds may be gone after it. */
void machine_begin(struct machine *machine);
/* States that nobody holds go now. */
void machine_shrink(struct machine *machine);
size_t machine_bytes(const struct machine *machine); /* all that it takes */

/* Where nothing may come, and nothing ends; never changed. */
extern struct machine_state machine_dead;

/* NULL, with an error: over a limit. &machine_dead: no text goes on like this. */
struct machine_state *machine_step(struct machine *machine, struct machine_state *state,
                                   uint8_t byte, struct error *error);
