#include "daemon/constrain/machine/language.h"

#include <stdlib.h>
#include <string.h>

#define SLOTS 32768u /* a power of two, more than states */

struct product {
    struct language *language;
    struct grammar *grammar;
    struct machine_state **tuples; /* of each state: one of each part; NULL: can hold no more */
    uint32_t *nodes, *slots;
    uint32_t used;
    uint8_t class_of[256], first[256]; /* bytes that no part tells apart */
    uint32_t classes, end;
    uint32_t free_node; /* of all tuples from which any characters may come up to the end */
    uint32_t free_rule; /* a character of a text in quotes; GRAMMAR_NONE: they are not */
};

void language_free(struct language *language)
{
    for (uint32_t i = 0; i < language->count; i++) {
        machine_free(&language->parts[i].machine);
        grammar_free(&language->parts[i].grammar);
    }
    language->count = 0;
}

struct grammar *language_part(struct language *language, bool except)
{
    if (language->count == LANGUAGE_PARTS_MAX)
        return NULL;
    struct language_part *part = &language->parts[language->count++];
    *part = (struct language_part){.except = except};
    grammar_init(&part->grammar, &language->error);
    grammar_node(&part->grammar);
    return &part->grammar;
}

int language_end(struct language *language, uint32_t end)
{
    struct language_part *part = &language->parts[language->count - 1];
    grammar_final(&part->grammar, end);
    int code = grammar_finish(&part->grammar, 0);
    if (code == -ERR_BAD_VALUE) { /* nothing is of it, which is an answer */
        part->empty = true;
        return 0;
    }
    return code ? code : machine_init(&part->machine, &part->grammar, &language->error);
}

/* Of a tuple whose states are where the parts begin. */
static void begin(const struct language *language, struct machine_state **tuple)
{
    for (uint32_t i = 0; i < language->count; i++)
        tuple[i] = language->parts[i].empty ? NULL : language->parts[i].machine.start;
}

/* False: no text goes on from there; *ret_failed: a limit was met. */
static bool step(struct language *language, struct machine_state **tuple, uint8_t byte,
                 bool *ret_failed)
{
    for (uint32_t i = 0; i < language->count; i++) {
        struct language_part *part = &language->parts[i];
        if (!tuple[i])
            continue;
        part->machine.steps = 0;
        tuple[i] = machine_step(&part->machine, tuple[i], byte, &language->error);
        language->steps += part->machine.steps + 1;
        *ret_failed |= !tuple[i];
        if (tuple[i] == &machine_dead)
            tuple[i] = NULL;
        if (!tuple[i] && !part->except)
            return false;
    }
    return true;
}

static bool ends(const struct language *language, struct machine_state *const *tuple)
{
    for (uint32_t i = 0; i < language->count; i++)
        if ((tuple[i] && tuple[i]->ends) == language->parts[i].except)
            return false;
    return true;
}

static bool has_empty(const struct language *language)
{
    for (uint32_t i = 0; i < language->count; i++)
        if (language->parts[i].empty && !language->parts[i].except)
            return true;
    return false;
}

bool language_has(struct language *language, const char *text, size_t length)
{
    struct machine_state *tuple[LANGUAGE_PARTS_MAX];
    bool failed = false;
    if (has_empty(language))
        return false;
    begin(language, tuple);
    for (size_t i = 0; i < length; i++)
        if (!step(language, tuple, (uint8_t)text[i], &failed))
            return false;
    return !failed && ends(language, tuple);
}

static void divide(struct product *product)
{
    uint32_t of_byte[256] = {0};
    const struct language *language = product->language;
    for (uint32_t i = 0; i < language->count; i++) {
        uint32_t next = 0, seen[256][2];
        for (unsigned byte = 0; !language->parts[i].empty && byte < 256; byte++) {
            uint32_t key = language->parts[i].grammar.class_of[byte], at = 0;
            while (at < next && (seen[at][0] != of_byte[byte] || seen[at][1] != key))
                at++;
            if (at == next) {
                seen[next][0] = of_byte[byte];
                seen[next++][1] = key;
            }
            of_byte[byte] = at;
        }
    }
    for (unsigned byte = 0; byte < 256; byte++) {
        product->class_of[byte] = (uint8_t)of_byte[byte];
        if (of_byte[byte] == product->classes)
            product->first[product->classes++] = (uint8_t)byte;
    }
}

/* Whether behind this node a text in quotes ends. */
static bool closes(const struct grammar *grammar, uint32_t node, unsigned depth)
{
    for (uint32_t at = grammar->nodes[node].first; at != GRAMMAR_NONE && depth < 8;
         at = grammar->edges[at].next) {
        const struct grammar_edge *edge = &grammar->edges[at];
        if (edge->kind == EDGE_NOTHING && closes(grammar, edge->to, depth + 1))
            return true;
        if (edge->kind == EDGE_BYTES && edge->low == '"' && edge->high == '"' &&
            grammar->nodes[edge->to].final)
            return true;
    }
    return false;
}

/* In one of the ways that it was read, any characters may come, and then the quote and the end. */
static bool is_free(const struct language_part *part, const struct machine_state *state)
{
    const struct grammar *grammar = &part->grammar;
    for (uint32_t i = 0; i < state->count; i++) {
        const struct machine_frame *frame = &part->machine.frames[state->set[i].frame];
        if (state->set[i].node != grammar->canonical || state->set[i].frame == MACHINE_ROOT)
            continue;
        const struct grammar_edge *edge = &grammar->edges[frame->edge];
        if (edge->rule == grammar->canonical && edge->max == GRAMMAR_UNBOUNDED &&
            frame->count > edge->min && frame->parent == MACHINE_ROOT &&
            closes(grammar, edge->to, 0))
            return true;
    }
    return false;
}

static bool all_free(const struct product *product, struct machine_state *const *tuple)
{
    for (uint32_t i = 0; i < product->language->count; i++) {
        const struct language_part *part = &product->language->parts[i];
        if (part->except ? tuple[i] != NULL : !is_free(part, tuple[i]))
            return false;
    }
    return true;
}

static uint32_t free_node(struct product *product)
{
    if (product->free_node != GRAMMAR_NONE)
        return product->free_node;
    product->free_node = grammar_node(product->grammar);
    uint32_t more = grammar_call(product->grammar, product->free_node, GRAMMAR_NONE,
                                 product->free_rule, 0, GRAMMAR_UNBOUNDED);
    grammar_bytes(product->grammar, more, product->end, '"', '"');
    return product->free_node;
}

/* The node of a tuple, which is kept where it is new; GRAMMAR_NONE: there are too many. */
static uint32_t node_of(struct product *product, struct machine_state *const *tuple)
{
    uint32_t count = product->language->count;
    uint64_t hash = 0;
    if (product->free_rule != GRAMMAR_NONE && all_free(product, tuple))
        return free_node(product);
    for (uint32_t i = 0; i < count; i++)
        hash = (hash ^ (uint64_t)(uintptr_t)tuple[i]) * 0x9e3779b97f4a7c15u, hash ^= hash >> 29;
    for (uint32_t slot = (uint32_t)hash % SLOTS;; slot = (slot + 1) % SLOTS) {
        uint32_t at = product->slots[slot];
        if (at != GRAMMAR_NONE) {
            if (!memcmp(product->tuples + (size_t)at * count, tuple, count * sizeof(tuple[0])))
                return product->nodes[at];
            continue;
        }
        if (product->used == LANGUAGE_NODES_MAX)
            return GRAMMAR_NONE;
        at = product->slots[slot] = product->used++;
        memcpy(product->tuples + (size_t)at * count, tuple, count * sizeof(tuple[0]));
        product->nodes[at] = grammar_node(product->grammar);
        if (ends(product->language, tuple))
            grammar_nothing(product->grammar, product->nodes[at], product->end);
        return product->nodes[at];
    }
}

/* Where each byte leads from the state; false over a limit. */
static bool edges_of(struct product *product, uint32_t at)
{
    uint32_t to[256], count = product->language->count;
    bool failed = false;
    for (uint32_t class = 0; class < product->classes; class ++) {
        struct machine_state *tuple[LANGUAGE_PARTS_MAX];
        memcpy(tuple, product->tuples + (size_t)at * count, count * sizeof(tuple[0]));
        to[class] = GRAMMAR_NONE;
        if (step(product->language, tuple, product->first[class], &failed) &&
            (to[class] = node_of(product, tuple)) == GRAMMAR_NONE)
            return false;
        if (failed || product->language->steps > LANGUAGE_STEPS_MAX)
            return false;
    }
    for (unsigned low = 0, high; low < 256; low = high) {
        uint32_t target = to[product->class_of[low]];
        for (high = low + 1; high < 256 && to[product->class_of[high]] == target;)
            high++;
        if (target != GRAMMAR_NONE)
            grammar_bytes(product->grammar, product->nodes[at], target, (uint8_t)low,
                          (uint8_t)(high - 1));
    }
    return true;
}

uint32_t language_put(struct language *language, struct grammar *grammar, uint32_t from,
                      uint32_t character, const char *what)
{
    struct product product = {.language = language,
                              .grammar = grammar,
                              .free_rule = character,
                              .free_node = GRAMMAR_NONE};
    struct machine_state *tuple[LANGUAGE_PARTS_MAX];
    product.end = grammar_node(grammar);
    if (grammar->code || has_empty(language))
        return product.end;
    product.tuples = malloc((size_t)LANGUAGE_NODES_MAX * language->count * sizeof(tuple[0]));
    product.nodes = malloc(LANGUAGE_NODES_MAX * sizeof(uint32_t));
    product.slots = malloc(SLOTS * sizeof(uint32_t));
    if (!product.tuples || !product.nodes || !product.slots) {
        grammar_fail(grammar, ERR_NO_MEMORY, "no memory for a constraint");
    } else {
        memset(product.slots, 0xff, SLOTS * sizeof(uint32_t));
        divide(&product);
        begin(language, tuple);
        grammar_nothing(grammar, from, node_of(&product, tuple));
        for (uint32_t at = 0; at < product.used && !grammar->code; at++)
            if (!edges_of(&product, at))
                grammar_fail(grammar, ERR_UNSUPPORTED, "%s, which takes too many states", what);
    }
    free(product.tuples);
    free(product.nodes);
    free(product.slots);
    return product.end;
}
