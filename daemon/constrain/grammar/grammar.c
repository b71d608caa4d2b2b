#include "daemon/constrain/grammar/grammar.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void grammar_init(struct grammar *grammar, struct error *error)
{
    *grammar = (struct grammar){
        .text = GRAMMAR_NONE, .any = GRAMMAR_NONE, .canonical = GRAMMAR_NONE, .error = error};
}

void grammar_free(struct grammar *grammar)
{
    while (grammar->sets) {
        struct grammar_set *set = grammar->sets;
        grammar->sets = set->next;
        free(set);
    }
    free(grammar->nodes);
    free(grammar->edges);
    *grammar = (struct grammar){0};
}

int grammar_fail(struct grammar *grammar, int code, const char *format, ...)
{
    if (grammar->code)
        return grammar->code;
    char text[ERROR_TEXT_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    return grammar->code = error_set(grammar->error, code, "%s", text);
}

void grammar_work(struct grammar *grammar, uint32_t ranges)
{
    grammar->work += ranges;
    if (grammar->work > GRAMMAR_WORK_MAX)
        grammar_fail(grammar, ERR_TOO_LARGE,
                     "the constraint's classes of characters take too much work");
}

/* Room for one more, doubling; false once it has failed. */
static bool room(struct grammar *grammar, void **array, size_t size, uint32_t used,
                 uint32_t *room_now, uint32_t max, const char *what)
{
    if (grammar->code)
        return false;
    if (used < *room_now)
        return true;
    if (used >= max) {
        grammar_fail(grammar, ERR_TOO_LARGE, "the constraint needs more than %u %s", max, what);
        return false;
    }
    uint32_t more = *room_now ? *room_now * 2 : 64;
    void *moved = realloc(*array, more * size);
    if (!moved) {
        grammar_fail(grammar, ERR_NO_MEMORY, "no memory for a constraint");
        return false;
    }
    *array = moved;
    *room_now = more;
    return true;
}

uint32_t grammar_node(struct grammar *grammar)
{
    if (!room(grammar, (void **)&grammar->nodes, sizeof(*grammar->nodes), grammar->nodes_used,
              &grammar->nodes_room, GRAMMAR_NODES_MAX, "states"))
        return 0;
    grammar->nodes[grammar->nodes_used] = (struct grammar_node){.first = GRAMMAR_NONE};
    return grammar->nodes_used++;
}

static uint32_t add_edge(struct grammar *grammar, uint32_t from, struct grammar_edge edge)
{
    if (edge.to == GRAMMAR_NONE)
        edge.to = grammar_node(grammar);
    if (!room(grammar, (void **)&grammar->edges, sizeof(*grammar->edges), grammar->edges_used,
              &grammar->edges_room, GRAMMAR_EDGES_MAX, "edges"))
        return 0;
    edge.next = grammar->nodes[from].first;
    grammar->edges[grammar->edges_used] = edge;
    grammar->nodes[from].first = grammar->edges_used++;
    return edge.to;
}

uint32_t grammar_nothing(struct grammar *grammar, uint32_t from, uint32_t to)
{
    /* Not twice in a row: who looks through a node's edges (json_shared) would do so as often. */
    uint32_t last = grammar->code ? GRAMMAR_NONE : grammar->nodes[from].first;
    if (last != GRAMMAR_NONE && grammar->edges[last].kind == EDGE_NOTHING &&
        grammar->edges[last].to == to)
        return to;
    return add_edge(grammar, from, (struct grammar_edge){.kind = EDGE_NOTHING, .to = to});
}

uint32_t grammar_bytes(struct grammar *grammar, uint32_t from, uint32_t to, uint8_t low,
                       uint8_t high)
{
    return add_edge(grammar, from,
                    (struct grammar_edge){.kind = EDGE_BYTES, .low = low, .high = high, .to = to});
}

uint32_t grammar_literal(struct grammar *grammar, uint32_t from, const char *bytes, size_t length)
{
    for (size_t i = 0; i < length && !grammar->code; i++)
        from = grammar_bytes(grammar, from, GRAMMAR_NONE, (uint8_t)bytes[i], (uint8_t)bytes[i]);
    return from;
}

uint32_t grammar_word(struct grammar *grammar, uint32_t from, const char *text)
{
    return grammar_literal(grammar, from, text, strlen(text));
}

uint32_t grammar_call(struct grammar *grammar, uint32_t from, uint32_t to, uint32_t rule,
                      uint32_t min, uint32_t max)
{
    if (min > GRAMMAR_COUNT_MAX || (max != GRAMMAR_UNBOUNDED && max > GRAMMAR_COUNT_MAX))
        grammar_fail(grammar, ERR_TOO_LARGE, "a repetition of more than %u", GRAMMAR_COUNT_MAX);
    if (max < min) /* nothing fits: a node without a way on */
        return to == GRAMMAR_NONE ? grammar_node(grammar) : to;
    return add_edge(
        grammar, from,
        (struct grammar_edge){.kind = EDGE_CALL, .to = to, .rule = rule, .min = min, .max = max});
}

uint32_t grammar_repeat(struct grammar *grammar, uint32_t from, uint32_t start, uint32_t end,
                        uint32_t min, uint32_t max)
{
    if (max == GRAMMAR_UNBOUNDED && min <= 1) { /* a circle needs no counting */
        uint32_t hub = grammar_node(grammar);
        grammar_nothing(grammar, from, min ? start : hub);
        grammar_nothing(grammar, hub, start);
        grammar_nothing(grammar, end, hub);
        return hub;
    }
    grammar_final(grammar, end);
    return grammar_call(grammar, from, GRAMMAR_NONE, start, min, max);
}

void grammar_final(struct grammar *grammar, uint32_t node)
{
    if (!grammar->code)
        grammar->nodes[node].final = true;
}
