#include "daemon/constrain/machine/language.h"

#include <stdlib.h>
#include <string.h>

#define SLOTS 32768u /* a power of two, more than states */

struct rest { /* any characters up to the end, so many */
    uint32_t min, max;
};

struct product {
    struct language *language;
    struct grammar *grammar;
    struct machine_state **tuples; /* of each state: one of each part; NULL: can hold no more */
    uint32_t *nodes, *slots;
    uint32_t used;
    uint8_t class_of[256], first[256]; /* bytes that no part tells apart */
    uint32_t classes, end;
    uint8_t runs[257]; /* where the class is another than that of the byte before */
    uint32_t runs_count;
    uint32_t lead; /* the first part whose texts are let in: what it has no way on for is out */
    bool leads;    /* there is one */
    uint8_t lead_class[256]; /* what it takes the classes for */
    uint32_t free_node;      /* of all tuples from which any number of any characters may come */
    uint32_t free_rule;      /* a character of a text in quotes; GRAMMAR_NONE: they are not */
};

static void set_free(struct language_set *set)
{
    machine_free(&set->machine);
    grammar_free(&set->grammar);
    if (!set->text)
        return;
    free(set->text);
    free(set);
}

static size_t set_bytes(const struct language_set *set)
{
    return sizeof(*set) + (set->empty ? 0 : machine_bytes(&set->machine)) +
           set->grammar.nodes_room * sizeof(*set->grammar.nodes) +
           set->grammar.edges_room * sizeof(*set->grammar.edges);
}

void language_store_free(struct language_store *store)
{
    while (store->sets) {
        struct language_set *set = store->sets;
        store->sets = set->next;
        set_free(set);
    }
    store->count = 0;
}

/* Nobody has it: it stays where there is room. */
static void release(struct language_store *store, struct language_set *set)
{
    size_t bytes = 0;
    for (const struct language_set *one = store->sets; one; one = one->next)
        bytes += set_bytes(one);
    if (store->count <= LANGUAGE_STORE_MAX && bytes <= LANGUAGE_STORE_BYTES)
        return;
    struct language_set **link = &store->sets;
    while (*link != set)
        link = &(*link)->next;
    *link = set->next;
    store->count--;
    set_free(set);
}

void language_free(struct language *language)
{
    for (uint32_t i = 0; i < language->count; i++) {
        struct language_set *set = language->parts[i].set;
        if (set->users == 0) /* its own, or it was never ended */
            set_free(set);
        else if (--set->users == 0)
            release(set->store, set);
    }
    language->count = 0;
}

static struct grammar *begin_part(struct language *language, bool except, struct language_set *set)
{
    struct language_part *part = &language->parts[language->count++];
    part->except = except;
    part->own = (struct language_set){0};
    part->set = set ? set : &part->own;
    grammar_init(&part->set->grammar, &language->error);
    grammar_node(&part->set->grammar);
    return &part->set->grammar;
}

struct grammar *language_part(struct language *language, bool except)
{
    return language->count == LANGUAGE_PARTS_MAX ? NULL : begin_part(language, except, NULL);
}

struct grammar *language_part_kept(struct language *language, bool except,
                                   struct language_store *store, const char *text, uint32_t kind,
                                   bool *ret_known)
{
    uint64_t hash = language_hash(text) + kind;
    struct language_set *set = store->sets;
    if (language->count == LANGUAGE_PARTS_MAX)
        return NULL;
    while (set && (set->hash != hash || set->kind != kind || strcmp(set->text, text) != 0))
        set = set->next;
    *ret_known = set != NULL;
    if (set) {
        language->parts[language->count++] = (struct language_part){.set = set, .except = except};
        set->users++;
        return &set->grammar;
    }
    char *copy = strdup(text);
    set = copy ? malloc(sizeof(*set)) : NULL;
    if (set)
        *set = (struct language_set){.store = store, .kind = kind, .hash = hash, .text = copy};
    else
        free(copy); /* without memory to keep it, it is the language's own */
    return begin_part(language, except, set);
}

static int end_set(struct language_set *set, uint32_t end, struct error *error)
{
    grammar_final(&set->grammar, end);
    int code = grammar_finish(&set->grammar, 0);
    if (code == -ERR_BAD_VALUE) { /* nothing is of it, which is an answer */
        set->empty = true;
        return 0;
    }
    return code ? code : machine_init(&set->machine, &set->grammar, error);
}

int language_end(struct language *language, uint32_t end)
{
    struct language_set *set = language->parts[language->count - 1].set;
    int code = end_set(set, end, &language->error);
    if (code == 0 && set->text) {
        set->grammar.error = NULL; /* the language's, which is gone before this */
        set->users = 1;
        set->next = set->store->sets;
        set->store->sets = set;
        set->store->count++;
    }
    return code;
}

/* Of a tuple whose states are where the parts begin. */
static void begin(const struct language *language, struct machine_state **tuple)
{
    for (uint32_t i = 0; i < language->count; i++)
        tuple[i] = language->parts[i].set->empty ? NULL : language->parts[i].set->machine.start;
}

/* Where the byte leads in one part; NULL, and *ret_failed, at a limit. */
static struct machine_state *step_part(struct language *language, uint32_t i,
                                       struct machine_state *state, uint8_t byte, bool *ret_failed)
{
    struct machine *machine = &language->parts[i].set->machine;
    language->steps++;
    if (state->row && state->row[machine->grammar->class_of[byte]])
        return state->row[machine->grammar->class_of[byte]];
    machine->steps = 0;
    state = machine_step(machine, state, byte, &language->error);
    language->steps += machine->steps;
    *ret_failed |= !state;
    return state;
}

/* False: no text goes on from there; *ret_failed: a limit was met. */
static bool step(struct language *language, struct machine_state **tuple, uint8_t byte,
                 bool *ret_failed)
{
    for (uint32_t i = 0; i < language->count; i++) {
        if (!tuple[i])
            continue;
        tuple[i] = step_part(language, i, tuple[i], byte, ret_failed);
        if (tuple[i] == &machine_dead)
            tuple[i] = NULL;
        if (!tuple[i] && !language->parts[i].except)
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
        if (language->parts[i].set->empty && !language->parts[i].except)
            return true;
    return false;
}

bool language_has(struct language *language, const char *text, size_t length, bool *ret_failed)
{
    struct machine_state *tuple[LANGUAGE_PARTS_MAX];
    *ret_failed = false;
    if (has_empty(language))
        return false;
    begin(language, tuple);
    for (size_t i = 0; i < length && !*ret_failed; i++) {
        if (!step(language, tuple, (uint8_t)text[i], ret_failed))
            return false;
        *ret_failed |= language->steps > LANGUAGE_STEPS_MAX;
    }
    return !*ret_failed && ends(language, tuple);
}

static void divide(struct product *product)
{
    uint32_t of_byte[256] = {0};
    const struct language *language = product->language;
    for (uint32_t i = 0; i < language->count; i++) {
        uint32_t next = 0, seen[256][2];
        const struct language_set *set = language->parts[i].set;
        for (unsigned byte = 0; !set->empty && byte < 256; byte++) {
            uint32_t key = set->grammar.class_of[byte], at = 0;
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
        if (byte == 0 || of_byte[byte] != of_byte[byte - 1])
            product->runs[product->runs_count++] = (uint8_t)byte;
    }
    while (product->lead + 1 < language->count && language->parts[product->lead].except)
        product->lead++;
    const struct language_part *lead = &language->parts[product->lead];
    for (uint32_t class = 0; class < product->classes && !lead->except; class ++)
        product->lead_class[class] = lead->set->grammar.class_of[product->first[class]];
    product->leads = !lead->except;
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

/* How many characters may still come, whichever they are, up to the quote and the end; false: not
 * any may. Without a bound, one of the ways that were read is enough; with one, it is the only way.
 */
static bool takes_any(const struct language_part *part, const struct machine_state *state,
                      struct rest *ret_rest)
{
    const struct grammar *grammar = &part->set->grammar;
    for (uint32_t i = 0; i < state->count; i++) {
        const struct machine_frame *frame = &part->set->machine.frames[state->set[i].frame];
        if (state->set[i].node != grammar->canonical || state->set[i].frame == MACHINE_ROOT)
            continue;
        const struct grammar_edge *edge = &grammar->edges[frame->edge];
        if (edge->rule != grammar->canonical || frame->parent != MACHINE_ROOT ||
            !closes(grammar, edge->to, 0))
            continue;
        uint32_t read = frame->count - 1;
        bool bounded = edge->max != GRAMMAR_UNBOUNDED;
        *ret_rest = (struct rest){edge->min > read ? edge->min - read : 0,
                                  bounded ? edge->max - read : GRAMMAR_UNBOUNDED};
        if (!bounded && frame->count > edge->min) {
            ret_rest->min = 0;
            return true;
        }
        if (state->count != 2)
            return state->count == 1;
        return state->set[1 - i].node == edge->to && state->set[1 - i].frame == MACHINE_ROOT;
    }
    return false;
}

static bool all_take_any(const struct product *product, struct machine_state *const *tuple,
                         struct rest *ret_rest)
{
    *ret_rest = (struct rest){0, GRAMMAR_UNBOUNDED};
    for (uint32_t i = 0; i < product->language->count; i++) {
        const struct language_part *part = &product->language->parts[i];
        struct rest own;
        if (part->except ? tuple[i] != NULL : !takes_any(part, tuple[i], &own))
            return false;
        if (!part->except && own.min > ret_rest->min)
            ret_rest->min = own.min;
        if (!part->except && own.max < ret_rest->max)
            ret_rest->max = own.max;
    }
    return ret_rest->min <= ret_rest->max;
}

/* Behind it so many of any characters, counted while they are read. */
static uint32_t rest_node(struct product *product, struct rest rest)
{
    bool free = rest.min == 0 && rest.max == GRAMMAR_UNBOUNDED;
    if (free && product->free_node != GRAMMAR_NONE)
        return product->free_node;
    uint32_t node = grammar_node(product->grammar);
    uint32_t more =
        grammar_call(product->grammar, node, GRAMMAR_NONE, product->free_rule, rest.min, rest.max);
    grammar_bytes(product->grammar, more, product->end, '"', '"');
    if (free)
        product->free_node = node;
    return node;
}

/* A node that is done: products have no calls of their own. */
static bool is_rest(const struct product *product, uint32_t at)
{
    uint32_t first = product->grammar->nodes[product->nodes[at]].first;
    return first != GRAMMAR_NONE && product->grammar->edges[first].kind == EDGE_CALL;
}

/* The node of a tuple, which is kept where it is new; GRAMMAR_NONE: there are too many. */
static uint32_t node_of(struct product *product, struct machine_state *const *tuple)
{
    uint32_t count = product->language->count;
    uint64_t hash = 0;
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
        struct rest rest;
        if (product->free_rule != GRAMMAR_NONE && all_take_any(product, tuple, &rest))
            return product->nodes[at] = rest_node(product, rest);
        product->nodes[at] = grammar_node(product->grammar);
        if (ends(product->language, tuple))
            grammar_nothing(product->grammar, product->nodes[at], product->end);
        return product->nodes[at];
    }
}

/* The node that a class of bytes leads to; GRAMMAR_NONE: no text goes on like this. False: a limit
 * was met. */
static bool target_of(struct product *product, uint32_t at, uint32_t class, uint32_t *ret_to)
{
    struct language *language = product->language;
    struct machine_state *tuple[LANGUAGE_PARTS_MAX];
    bool failed = false;
    memcpy(tuple, product->tuples + (size_t)at * language->count,
           language->count * sizeof(tuple[0]));
    *ret_to = GRAMMAR_NONE;
    if (step(language, tuple, product->first[class], &failed) &&
        (*ret_to = node_of(product, tuple)) == GRAMMAR_NONE)
        return false;
    return !failed && language->steps <= LANGUAGE_STEPS_MAX;
}

/* The lead's ways on from the state, where they were looked at; else NULL. */
static struct machine_state *const *lead_row(const struct product *product, uint32_t at)
{
    size_t place = (size_t)at * product->language->count + product->lead;
    return product->leads ? product->tuples[place]->row : NULL;
}

/* Where each byte leads from the state; false over a limit. Classes are numbered as they are met;
 * most of them lead nowhere, within a character of several bytes above all. */
static bool edges_of(struct product *product, uint32_t at)
{
    struct machine_state *const *row = lead_row(product, at);
    uint32_t to[256], known = 0, open = GRAMMAR_NONE, target;
    unsigned low = 0;
    for (uint32_t run = 0; run < product->runs_count; run++) {
        uint32_t class = product->class_of[product->runs[run]];
        if (class < known) {
            target = to[class];
        } else if (row && row[product->lead_class[class]] == &machine_dead) {
            product->language->steps++;
            target = to[known++] = GRAMMAR_NONE;
        } else {
            if (!target_of(product, at, class, &target))
                return false;
            to[known++] = target;
            row = lead_row(product, at);
        }
        if (target == open)
            continue;
        if (open != GRAMMAR_NONE)
            grammar_bytes(product->grammar, product->nodes[at], open, (uint8_t)low,
                          (uint8_t)(product->runs[run] - 1));
        open = target;
        low = product->runs[run];
    }
    if (open != GRAMMAR_NONE)
        grammar_bytes(product->grammar, product->nodes[at], open, (uint8_t)low, 255);
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
            if (!is_rest(&product, at) && !edges_of(&product, at))
                grammar_fail(grammar, ERR_UNSUPPORTED, "%s, which takes too many states", what);
    }
    free(product.tuples);
    free(product.nodes);
    free(product.slots);
    return product.end;
}
