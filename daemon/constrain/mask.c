#include "daemon/constrain/mask.h"

#include <stdlib.h>
#include <string.h>

static int walk(struct machine *machine, struct machine_state *state,
                const struct vocabulary_trie *trie, const uint32_t *same, uint32_t *bits,
                struct error *error)
{
    struct machine_state *path[VOCABULARY_TOKEN_BYTES_MAX + 1];
    path[0] = state;
    for (uint32_t at = 0; at < trie->count;) {
        const struct vocabulary_node *node = &trie->nodes[at];
        struct machine_state *from = path[node->depth - 1];
        struct machine_state *to =
            from->row ? from->row[machine->grammar->class_of[node->byte]] : NULL;
        if (!to && !(to = machine_step(machine, from, node->byte, error)))
            return -ERR_TOO_LARGE;
        if (to == &machine_dead) {
            at = node->skip;
            continue;
        }
        path[node->depth] = to;
        for (uint32_t id = node->token; id != VOCABULARY_NONE; id = same[id])
            bits[id / 32] |= 1u << id % 32;
        at++;
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
        code = walk(machine, state, &vocabulary->tails[++run], vocabulary->same_tail, bits, error);
        if (code == 0 && plain == PLAIN_ANY && !(state = machine_step(machine, state, 'a', error)))
            code = -ERR_TOO_LARGE;
    }
    *ret_run = run;
    return code;
}

static int fill(struct machine *machine, struct machine_state *state,
                const struct vocabulary *vocabulary, uint32_t *bits, struct error *error)
{
    int run = -1, code = 0;
    memset(bits, 0, vocabulary->words * sizeof(*bits));
    if (plain_state(machine, state) == PLAIN_ANY)
        code = fill_string(machine, state, vocabulary, bits, &run, error);
    if (code == 0 && run >= 0) {
        const uint32_t *plain = vocabulary->plain_mask + (size_t)run * vocabulary->words;
        for (uint32_t word = 0; word < vocabulary->words; word++)
            bits[word] |= plain[word];
        return walk(machine, state, &vocabulary->longer, vocabulary->same_tail, bits, error);
    }
    if (code == 0)
        code = walk(machine, state, &vocabulary->plain, vocabulary->same, bits, error);
    return code ? code : walk(machine, state, &vocabulary->rest, vocabulary->same, bits, error);
}

int mask_make(struct machine *machine, struct machine_state *state,
              const struct vocabulary *vocabulary, uint32_t *bits, struct error *error)
{
    uint32_t count = 0;
    int code = fill(machine, state, vocabulary, bits, error);
    if (code)
        return code;
    for (uint32_t word = 0; word < vocabulary->words; word++)
        count += (uint32_t)__builtin_popcount(bits[word]);
    bool listed = count < vocabulary->words;
    uint32_t words = listed ? count : vocabulary->words;
    struct machine_mask *mask = malloc(sizeof(*mask) + words * sizeof(*bits));
    if (!mask)
        return error_set(error, ERR_NO_MEMORY, "no memory for a constraint");
    *mask = (struct machine_mask){
        .count = count, .only = VOCABULARY_NONE, .words = words, .listed = listed};
    if (!listed)
        memcpy(mask->data, bits, words * sizeof(*bits));
    for (uint32_t word = 0, used = 0; listed && word < vocabulary->words; word++)
        for (uint32_t left = bits[word]; left; left &= left - 1)
            mask->data[used++] = word * 32 + (uint32_t)__builtin_ctz(left);
    if (listed && count)
        mask->only = mask->data[0];
    state->mask = mask;
    machine->bytes += sizeof(*mask) + words * sizeof(*bits);
    return 0;
}

void mask_copy(const struct machine_mask *mask, const struct vocabulary *vocabulary, uint32_t *bits)
{
    if (!mask->listed) {
        memcpy(bits, mask->data, vocabulary->words * sizeof(*bits));
        return;
    }
    memset(bits, 0, vocabulary->words * sizeof(*bits));
    for (uint32_t i = 0; i < mask->count; i++)
        bits[mask->data[i] / 32] |= 1u << mask->data[i] % 32;
}
