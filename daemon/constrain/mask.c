#include "daemon/constrain/mask.h"

#include <stdlib.h>
#include <string.h>

static struct machine_state *next_state(struct machine *machine, struct machine_state *from,
                                        uint8_t byte, struct error *error)
{
    struct machine_state *to = from->row ? from->row[machine->grammar->class_of[byte]] : NULL;
    return to ? to : machine_step(machine, from, byte, error);
}

static void set_bit(uint32_t *bits, uint32_t id, bool on)
{
    uint32_t bit = 1u << id % 32;
    bits[id / 32] = on ? bits[id / 32] | bit : bits[id / 32] & ~bit;
}

/* Kinds of bytes all of which leave the state as it is. Looked for where one does. */
static uint64_t loops_of(struct machine *machine, struct machine_state *state, struct error *error)
{
    if (state->loops_known)
        return state->loops;
    state->loops = ~0ull;
    for (unsigned byte = 0; byte < 0x100; byte++)
        if (state->loops & vocabulary_kind((uint8_t)byte) &&
            next_state(machine, state, (uint8_t)byte, error) != state)
            state->loops &= ~vocabulary_kind((uint8_t)byte);
    state->loops_known = true;
    return state->loops;
}

static int walk(struct machine *machine, struct machine_state *state,
                const struct vocabulary_trie *trie, uint32_t *bits, struct error *error)
{
    struct machine_state *path[VOCABULARY_TOKEN_BYTES_MAX + 1];
    path[0] = state;
    for (uint32_t at = 0; at < trie->count;) {
        const struct vocabulary_node *node = &trie->nodes[at];
        struct machine_state *to = next_state(machine, path[node->depth - 1], node->byte, error);
        if (!to)
            return -ERR_TOO_LARGE;
        if (to == &machine_dead) {
            at = node->skip;
            continue;
        }
        path[node->depth] = to;
        bool all = to == path[node->depth - 1] && node->below &&
                   !(node->below & ~loops_of(machine, to, error));
        uint32_t next = all ? node->skip : at + 1;
        for (uint32_t i = node->first; (all || node->token) && i < trie->nodes[next].first; i++)
            set_bit(bits, trie->order[i], true);
        at = next;
    }
    return 0;
}

/* Two states, and the mask of one of them: what follows where both lead to the same needs no walk.
 */
struct beside {
    struct machine *machine;
    struct machine_state *state, *base;
    const uint32_t *base_bits;
    uint32_t *bits;
    bool from_base; /* bits begin as the base's; else with none */
    struct error *error;
};

/* Tokens below a node: where both are the same, or nothing goes on. */
static void settle(const struct beside *beside, const struct vocabulary_trie *trie,
                   const struct vocabulary_node *node, bool same)
{
    uint32_t end = trie->nodes[node->skip].first;
    if (same == beside->from_base)
        return;
    for (uint32_t i = node->first; i < end; i++) {
        uint32_t id = trie->order[i];
        if (beside->from_base || beside->base_bits[id / 32] >> id % 32 & 1)
            set_bit(beside->bits, id, same);
    }
}

static int walk_beside(const struct beside *beside, const struct vocabulary_trie *trie)
{
    struct machine_state *path[VOCABULARY_TOKEN_BYTES_MAX + 1][2];
    path[0][0] = beside->state;
    path[0][1] = beside->base;
    for (uint32_t at = 0; at < trie->count;) {
        const struct vocabulary_node *node = &trie->nodes[at];
        struct machine_state **from = path[node->depth - 1], **to = path[node->depth];
        to[0] = next_state(beside->machine, from[0], node->byte, beside->error);
        to[1] = next_state(beside->machine, from[1], node->byte, beside->error);
        if (!to[0] || !to[1])
            return -ERR_TOO_LARGE;
        if (to[0] == &machine_dead || to[0] == to[1]) {
            settle(beside, trie, node, to[0] == to[1]);
            at = node->skip;
            continue;
        }
        at++;
        for (uint32_t i = node->first; node->token && i < trie->nodes[at].first; i++)
            set_bit(beside->bits, trie->order[i], true);
    }
    return 0;
}

enum plain_state {
    PLAIN_NOT,  /* reads what looks like plain characters, and not all of them alike */
    PLAIN_NONE, /* reads none */
    PLAIN_ANY   /* reads any one, and all lead to the same state */
};

static enum plain_state plain_state(const struct machine *machine,
                                    const struct machine_state *state)
{
    const struct grammar *grammar = machine->grammar;
    bool any = false, others = false;
    for (uint32_t i = 0; i < state->count; i++) {
        if (grammar->nodes[state->set[i].node].plain)
            any = true;
        else
            others |= grammar->nodes[state->set[i].node].common;
    }
    return others ? PLAIN_NOT : any ? PLAIN_ANY : PLAIN_NONE;
}

/* From a state in a string: how many plain characters may follow is seen by reading them one by
 * one, and behind each what else a token may hold. *ret_run: how many; -1 behind one of which they
 * are not alike any more. */
static int fill_string(struct machine *machine, struct machine_state *state,
                       const struct vocabulary *vocabulary, uint32_t *bits, int *ret_run,
                       struct error *error)
{
    enum plain_state plain = PLAIN_ANY;
    int code = 0, run = -1;
    while (code == 0 && plain == PLAIN_ANY && run < (int)VOCABULARY_PLAIN_MAX) {
        plain = plain_state(machine, state);
        if (plain == PLAIN_NOT) {
            *ret_run = -1;
            return 0;
        }
        code = walk(machine, state, &vocabulary->tails[++run], bits, error);
        if (code == 0 && plain == PLAIN_ANY && !(state = machine_step(machine, state, 'a', error)))
            code = -ERR_TOO_LARGE;
    }
    *ret_run = run;
    return code;
}

/* In one of the ways that it was read, a string of any characters goes on, whatever else does. */
static bool takes_any(const struct machine *machine, const struct machine_state *state)
{
    const struct grammar *grammar = machine->grammar;
    for (uint32_t i = 0; i < state->count; i++) {
        uint32_t frame = state->set[i].frame;
        const struct grammar_edge *edge = &grammar->edges[machine->frames[frame].edge];
        if (grammar->nodes[state->set[i].node].plain && frame != MACHINE_ROOT &&
            edge->rule == state->set[i].node && edge->max == GRAMMAR_UNBOUNDED)
            return true;
    }
    return false;
}

/* A state in a string, that any plain character leaves as it is. */
static bool is_loop(struct machine *machine, struct machine_state *state)
{
    return state != &machine_dead && plain_state(machine, state) == PLAIN_ANY &&
           next_state(machine, state, 'a', NULL) == state;
}

/* Of two equal masks' worth of tokens, by their first bytes: are more of them the base's than none?
 */
static bool is_near(struct beside *beside, const struct vocabulary_trie *trie)
{
    uint32_t same = 0, none = 0;
    for (uint32_t at = 0; at < trie->count; at = trie->nodes[at].skip) {
        const struct vocabulary_node *node = &trie->nodes[at];
        struct machine_state *to =
            next_state(beside->machine, beside->state, node->byte, beside->error);
        uint32_t tokens = trie->nodes[node->skip].first - node->first;
        if (to == &machine_dead)
            none += tokens;
        else if (to == next_state(beside->machine, beside->base, node->byte, beside->error))
            same += tokens;
    }
    return same > none;
}

/* A state that goes over into the inside of a string: after a backslash, in a name that is none of
 * some. *ret_done: it does, and its mask was made from that of the inside. */
static int fill_beside(struct machine *machine, struct machine_state *state,
                       const struct vocabulary *vocabulary, uint32_t *bits, bool *ret_done,
                       struct error *error)
{
    struct beside beside = {.machine = machine, .state = state, .bits = bits, .error = error};
    uint32_t *base_bits = NULL;
    int code = 0;
    for (const char *probe = "a~nQ"; *probe && !beside.base; probe++) {
        struct machine_state *to = next_state(machine, state, (uint8_t)*probe, error);
        if (!to)
            return -ERR_TOO_LARGE;
        if (is_loop(machine, to))
            beside.base = to;
    }
    if (!beside.base || beside.base == state)
        return 0;
    base_bits = malloc(vocabulary->words * sizeof(*bits));
    if (!base_bits)
        return error_set(error, ERR_NO_MEMORY, "no memory for a constraint");
    if (!beside.base->mask)
        code = mask_make(machine, beside.base, vocabulary, base_bits, error);
    if (code == 0) {
        mask_copy(beside.base->mask, vocabulary, base_bits);
        beside.base_bits = base_bits;
        beside.from_base = is_near(&beside, &vocabulary->plain);
        if (beside.from_base)
            memcpy(bits, base_bits, vocabulary->words * sizeof(*bits));
        code = walk_beside(&beside, &vocabulary->plain);
    }
    if (code == 0)
        code = walk_beside(&beside, &vocabulary->rest);
    free(base_bits);
    *ret_done = true;
    return code;
}

/* *ret_plain: plain tokens of up to so many characters are allowed besides the bits; -1: none. */
static int fill(struct machine *machine, struct machine_state *state,
                const struct vocabulary *vocabulary, uint32_t *bits, int *ret_plain,
                struct error *error)
{
    int run = -1, code = 0;
    bool done = false, any = plain_state(machine, state) == PLAIN_ANY;
    memset(bits, 0, vocabulary->words * sizeof(*bits));
    if (any && is_loop(machine, state)) {
        run = VOCABULARY_PLAIN_MAX;
        code = walk(machine, state, &vocabulary->all_tails, bits, error);
    } else if (any) {
        code = fill_string(machine, state, vocabulary, bits, &run, error);
    }
    *ret_plain = run;
    if (code == 0 && run >= 0)
        return walk(machine, state, &vocabulary->longer, bits, error);
    if (code == 0)
        code = fill_beside(machine, state, vocabulary, bits, &done, error);
    if (code || done)
        return code;
    if (takes_any(machine, state))
        *ret_plain = VOCABULARY_PLAIN_MAX;
    else
        code = walk(machine, state, &vocabulary->plain, bits, error);
    return code ? code : walk(machine, state, &vocabulary->rest, bits, error);
}

/* Without an instruction for it, which not every processor of the kind has. */
static uint32_t ones(uint32_t word)
{
    word -= word >> 1 & 0x55555555u;
    word = (word & 0x33333333u) + (word >> 2 & 0x33333333u);
    return ((word + (word >> 4)) & 0x0f0f0f0fu) * 0x01010101u >> 24;
}

int mask_make(struct machine *machine, struct machine_state *state,
              const struct vocabulary *vocabulary, uint32_t *bits, struct error *error)
{
    uint32_t count = 0;
    int plain, code = fill(machine, state, vocabulary, bits, &plain, error);
    if (code)
        return code;
    for (uint32_t word = 0; word < vocabulary->words; word++)
        if (bits[word])
            count += ones(bits[word]);
    bool listed = count < vocabulary->words;
    uint32_t words = listed ? count : vocabulary->words;
    struct machine_mask *mask = malloc(sizeof(*mask) + words * sizeof(*bits));
    if (!mask)
        return error_set(error, ERR_NO_MEMORY, "no memory for a constraint");
    *mask = (struct machine_mask){.count = count,
                                  .only = UINT32_MAX,
                                  .words = words,
                                  .listed = listed,
                                  .plain = (int16_t)plain};
    if (!listed)
        memcpy(mask->data, bits, words * sizeof(*bits));
    for (uint32_t word = 0, used = 0; listed && word < vocabulary->words; word++)
        for (uint32_t left = bits[word]; left; left &= left - 1)
            mask->data[used++] = word * 32 + (uint32_t)__builtin_ctz(left);
    if (listed && count)
        mask->only = mask->data[0];
    if (plain >= 0) {
        mask->count += vocabulary->plain_count[plain];
        mask->only = UINT32_MAX;
    }
    if (mask->count == 1 && mask->only == UINT32_MAX) { /* the only one is plain */
        const uint32_t *plains = vocabulary->plain_mask + (size_t)plain * vocabulary->words;
        uint32_t word = 0;
        while (!plains[word] && !bits[word])
            word++;
        mask->only = word * 32 + (uint32_t)__builtin_ctz(plains[word] | bits[word]);
    }
    state->mask = mask;
    machine->bytes += sizeof(*mask) + words * sizeof(*bits);
    return 0;
}

void mask_copy(const struct machine_mask *mask, const struct vocabulary *vocabulary, uint32_t *bits)
{
    const uint32_t *plain =
        mask->plain < 0 ? NULL : vocabulary->plain_mask + (size_t)mask->plain * vocabulary->words;
    if (!mask->listed) {
        memcpy(bits, mask->data, vocabulary->words * sizeof(*bits));
        for (uint32_t word = 0; plain && word < vocabulary->words; word++)
            bits[word] |= plain[word];
        return;
    }
    if (plain)
        memcpy(bits, plain, vocabulary->words * sizeof(*bits));
    else
        memset(bits, 0, vocabulary->words * sizeof(*bits));
    for (uint32_t i = 0; i < mask->words; i++)
        bits[mask->data[i] / 32] |= 1u << mask->data[i] % 32;
}
