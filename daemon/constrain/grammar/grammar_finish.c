#include <stdlib.h>
#include <string.h>

#include "daemon/constrain/grammar/grammar.h"

/* Edges by what they lead to or call, so that a fact about a node is carried back along them once:
 * the work is by edges, not edges times nodes. */
struct back {
    uint32_t *first; /* of each node: a place in `next`, two for each edge, or GRAMMAR_NONE */
    uint32_t *next;
    uint32_t *owner; /* of each edge: the node that it leaves */
    uint32_t *queue;
    bool *known;
    uint32_t queued;
};

static void back_free(struct back *back)
{
    free(back->first);
    free(back->next);
    free(back->owner);
    free(back->queue);
    free(back->known);
}

static bool back_make(struct back *back, const struct grammar *grammar)
{
    size_t nodes = grammar->nodes_used, edges = (size_t)grammar->edges_used + 1;
    *back = (struct back){.first = malloc(nodes * sizeof(uint32_t)),
                          .next = malloc(edges * 2 * sizeof(uint32_t)),
                          .owner = malloc(edges * sizeof(uint32_t)),
                          .queue = malloc(nodes * sizeof(uint32_t)),
                          .known = calloc(nodes, sizeof(bool))};
    if (!back->first || !back->next || !back->owner || !back->queue || !back->known) {
        back_free(back);
        return false;
    }
    memset(back->first, 0xff, nodes * sizeof(uint32_t));
    for (uint32_t node = 0; node < nodes; node++)
        for (uint32_t at = grammar->nodes[node].first; at != GRAMMAR_NONE;
             at = grammar->edges[at].next) {
            const struct grammar_edge *edge = &grammar->edges[at];
            back->owner[at] = node;
            back->next[2 * at] = back->first[edge->to];
            back->first[edge->to] = 2 * at;
            if (edge->kind != EDGE_CALL)
                continue;
            back->next[2 * at + 1] = back->first[edge->rule];
            back->first[edge->rule] = 2 * at + 1;
        }
    return true;
}

static void learn(struct back *back, uint32_t node)
{
    if (back->known[node])
        return;
    back->known[node] = true;
    back->queue[back->queued++] = node;
}

/* Marks the nodes from which a final one can be reached; without `reading`, by nothing. */
static void reach_end(struct back *back, const struct grammar *grammar, bool reading)
{
    back->queued = 0;
    memset(back->known, 0, grammar->nodes_used * sizeof(bool));
    for (uint32_t node = 0; node < grammar->nodes_used; node++)
        if (grammar->nodes[node].final)
            learn(back, node);
    for (uint32_t done = 0; done < back->queued; done++)
        for (uint32_t place = back->first[back->queue[done]]; place != GRAMMAR_NONE;
             place = back->next[place]) {
            const struct grammar_edge *edge = &grammar->edges[place / 2];
            bool body = edge->kind == EDGE_NOTHING || (edge->kind == EDGE_BYTES && reading) ||
                        (edge->kind == EDGE_CALL && (edge->min == 0 || back->known[edge->rule]));
            if (body && back->known[edge->to])
                learn(back, back->owner[place / 2]);
        }
}

/* Unlinks edges that lead nowhere; one that may be taken no times stays without its rule. */
static void prune(struct grammar *grammar, const bool *ends)
{
    for (uint32_t node = 0; node < grammar->nodes_used; node++)
        for (uint32_t *link = &grammar->nodes[node].first; *link != GRAMMAR_NONE;) {
            struct grammar_edge *edge = &grammar->edges[*link];
            if (edge->kind == EDGE_CALL &&
                (edge->max == 0 || (edge->min == 0 && !ends[edge->rule])))
                edge->kind = EDGE_NOTHING;
            if (!ends[edge->to] || (edge->kind == EDGE_CALL && !ends[edge->rule]))
                *link = edge->next;
            else
                link = &edge->next;
        }
}

/* Tarjan's components of the graph of what is entered or called before a byte is read, without
 * recursion. An edge may lead two ways: into its rule, and past it where the rule reads nothing. */
struct visit {
    uint32_t node, edge;
    bool called; /* the rule of this edge was looked at, what follows is next */
};

struct components {
    uint32_t *order; /* of discovery, from 1; 0 unseen */
    uint32_t *low;   /* of a node that is done: its component's; before: as in Tarjan's */
    bool *open;
    uint32_t *members;
    struct visit *path;
    uint32_t count, depth, held;
};

static bool components_make(struct components *parts, uint32_t nodes)
{
    *parts = (struct components){.order = calloc(nodes, sizeof(uint32_t)),
                                 .low = calloc(nodes, sizeof(uint32_t)),
                                 .open = calloc(nodes, sizeof(bool)),
                                 .members = malloc(nodes * sizeof(uint32_t)),
                                 .path = malloc(nodes * sizeof(struct visit))};
    return parts->order && parts->low && parts->open && parts->members && parts->path;
}

static void components_free(struct components *parts)
{
    free(parts->order);
    free(parts->low);
    free(parts->open);
    free(parts->members);
    free(parts->path);
}

static void enter(struct components *parts, const struct grammar *grammar, uint32_t node)
{
    parts->order[node] = parts->low[node] = ++parts->count;
    parts->open[node] = true;
    parts->members[parts->held++] = node;
    parts->path[parts->depth++] = (struct visit){node, grammar->nodes[node].first, false};
}

static void leave(struct components *parts)
{
    uint32_t node = parts->path[--parts->depth].node, member;
    if (parts->depth > 0) {
        uint32_t *above = &parts->low[parts->path[parts->depth - 1].node];
        if (parts->low[node] < *above)
            *above = parts->low[node];
    }
    if (parts->low[node] != parts->order[node])
        return;
    do {
        member = parts->members[--parts->held];
        parts->open[member] = false;
        parts->low[member] = parts->order[node];
    } while (member != node);
}

/* The next node that the top of the path leads to, or GRAMMAR_NONE where that edge does not. */
static uint32_t follow(struct visit *top, const struct grammar *grammar, const bool *nullable)
{
    const struct grammar_edge *edge = &grammar->edges[top->edge];
    if (edge->kind == EDGE_CALL && !top->called) {
        top->called = true;
        return edge->rule;
    }
    top->edge = edge->next;
    top->called = false;
    if (edge->kind == EDGE_NOTHING ||
        (edge->kind == EDGE_CALL && (edge->min == 0 || nullable[edge->rule])))
        return edge->to;
    return GRAMMAR_NONE;
}

static void find_components(struct components *parts, const struct grammar *grammar,
                            const bool *nullable)
{
    for (uint32_t root = 0; root < grammar->nodes_used; root++) {
        if (!parts->order[root])
            enter(parts, grammar, root);
        while (parts->depth > 0) {
            struct visit *top = &parts->path[parts->depth - 1];
            if (top->edge == GRAMMAR_NONE) {
                leave(parts);
                continue;
            }
            uint32_t to = follow(top, grammar, nullable);
            if (to == GRAMMAR_NONE)
                continue;
            if (!parts->order[to])
                enter(parts, grammar, to);
            else if (parts->open[to] && parts->order[to] < parts->low[top->node])
                parts->low[top->node] = parts->order[to];
        }
    }
}

/* A call within a component comes back to itself with a deeper stack each time, and reads nothing.
 * Circles of edges that call nothing are harmless: a set of states has each once. */
static void refuse_left_recursion(struct grammar *grammar, const bool *nullable)
{
    struct components parts;
    if (!components_make(&parts, grammar->nodes_used)) {
        components_free(&parts);
        grammar_fail(grammar, ERR_NO_MEMORY, "no memory for a constraint");
        return;
    }
    find_components(&parts, grammar, nullable);
    for (uint32_t node = 0; node < grammar->nodes_used; node++)
        for (uint32_t at = grammar->nodes[node].first; at != GRAMMAR_NONE;
             at = grammar->edges[at].next)
            if (grammar->edges[at].kind == EDGE_CALL &&
                parts.low[node] == parts.low[grammar->edges[at].rule])
                grammar_fail(grammar, ERR_UNSUPPORTED,
                             "a rule of the constraint leads to itself before anything is read");
    components_free(&parts);
}

/* Boundaries of ranges cut the bytes; between two of them nothing is told apart. */
static void divide_bytes(struct grammar *grammar)
{
    bool cut[257] = {true};
    for (uint32_t node = 0; node < grammar->nodes_used; node++)
        for (uint32_t at = grammar->nodes[node].first; at != GRAMMAR_NONE;
             at = grammar->edges[at].next) {
            const struct grammar_edge *edge = &grammar->edges[at];
            if (edge->kind != EDGE_BYTES)
                continue;
            cut[edge->low] = cut[edge->high + 1] = true;
            grammar->nodes[node].reads = true;
            bool mark = edge->low == edge->high && (edge->low == '"' || edge->low == '\\');
            if (edge->high >= ' ' && !mark)
                grammar->nodes[node].common = true;
        }
    grammar->classes = 0;
    for (unsigned byte = 0; byte < 256; byte++) {
        if (cut[byte])
            grammar->class_first[grammar->classes++] = (uint8_t)byte;
        grammar->class_of[byte] = (uint8_t)(grammar->classes - 1);
    }
}

int grammar_finish(struct grammar *grammar, uint32_t start)
{
    struct back back;
    if (grammar->code)
        return grammar->code;
    if (!back_make(&back, grammar))
        return grammar_fail(grammar, ERR_NO_MEMORY, "no memory for a constraint");
    reach_end(&back, grammar, true);
    bool *ends = back.known;
    if (!ends[start]) {
        grammar_fail(grammar, ERR_BAD_VALUE, "nothing finite can meet the constraint");
    } else {
        prune(grammar, ends);
        reach_end(&back, grammar, false);
        refuse_left_recursion(grammar, back.known);
        divide_bytes(grammar);
        grammar->start = start;
    }
    back_free(&back);
    return grammar->code;
}
