#include "daemon/constrain/mask.h"

#include <stdlib.h>
#include <string.h>

static int walk(struct machine *machine, struct machine_state *state,
                const struct vocabulary *vocabulary, const struct vocabulary_trie *trie,
                uint32_t *bits, struct error *error)
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
        if (to == &machine->dead) {
            at = node->skip;
            continue;
        }
        path[node->depth] = to;
        for (uint32_t id = node->token; id != VOCABULARY_NONE; id = vocabulary->same[id])
            bits[id / 32] |= 1u << id % 32;
        at++;
    }
    return 0;
}

/* How many plain characters may follow in a row, of those that are any: 0 when none or when the
 * state also reads other things that look like them, unless any number may follow. */
static uint32_t plain_run(const struct machine *machine, const struct machine_state *state)
{
    const struct grammar *grammar = machine->grammar;
    uint32_t longest = 0, others = 0;
    for (uint32_t i = 0; i < state->count; i++) {
        struct machine_config config = state->set[i];
        const struct machine_frame *frame = &machine->frames[config.frame];
        if (grammar->nodes[config.node].plain && config.frame != MACHINE_ROOT &&
            grammar->edges[frame->edge].rule == config.node) {
            uint32_t max = grammar->edges[frame->edge].max;
            uint32_t run = max == GRAMMAR_UNBOUNDED ? max : max - frame->count + 1;
            longest = run > longest ? run : longest;
        } else {
            others += grammar->nodes[config.node].common;
        }
    }
    if (longest >= VOCABULARY_PLAIN_MAX)
        return VOCABULARY_PLAIN_MAX;
    return others ? 0 : longest;
}

static int fill(struct machine *machine, struct machine_state *state,
                const struct vocabulary *vocabulary, uint32_t *bits, struct error *error)
{
    uint32_t run = plain_run(machine, state);
    int code = 0;
    memcpy(bits, vocabulary->plain_mask + (size_t)run * vocabulary->words,
           vocabulary->words * sizeof(*bits)); /* of no characters: empty */
    if (run == 0)
        code = walk(machine, state, vocabulary, &vocabulary->plain, bits, error);
    return code ? code : walk(machine, state, vocabulary, &vocabulary->rest, bits, error);
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
    machine->bytes += mask_bytes(mask);
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
