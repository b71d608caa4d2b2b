#include "daemon/constrain/machine/machine.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/constrain/machine/machine_inner.h"

#define FRAMES_MAX (1u << 20)

struct machine_state machine_dead;

static int too_much(struct error *error)
{
    return error_set(error, ERR_TOO_LARGE,
                     "the constraint can read this text in too many ways at once");
}

int machine_init(struct machine *machine, const struct grammar *grammar, struct error *error)
{
    *machine = (struct machine){.grammar = grammar,
                                .frames_used = 1,
                                .frames_room = SLOTS_FIRST,
                                .frames = calloc(SLOTS_FIRST, sizeof(struct machine_frame)),
                                .frame_slots = SLOTS_FIRST,
                                .state_slots = SLOTS_FIRST,
                                .seen_slots = SLOTS_FIRST,
                                .frame_index = malloc(SLOTS_FIRST * sizeof(uint32_t)),
                                .state_index = calloc(SLOTS_FIRST, sizeof(struct machine_state *)),
                                .work = malloc(MACHINE_SET_MAX * sizeof(struct machine_config)),
                                .kept = malloc(MACHINE_SET_MAX * sizeof(struct machine_config)),
                                .seen = calloc(SLOTS_FIRST, 2 * sizeof(uint32_t))};
    if (!machine->frames || !machine->frame_index || !machine->state_index || !machine->work ||
        !machine->kept || !machine->seen)
        return error_set(error, ERR_NO_MEMORY, "no memory for a constraint");
    memset(machine->frame_index, 0xff, SLOTS_FIRST * sizeof(uint32_t));
    machine->stamp = 1;
    if (!machine_add(machine, grammar->start, MACHINE_ROOT) || !machine_close(machine) ||
        !(machine->start = machine_intern(machine)))
        return too_much(error);
    machine->start->holds = 1;
    return 0;
}

void machine_free(struct machine *machine)
{
    while (machine->states) {
        struct machine_state *state = machine->states;
        machine->states = state->next;
        machine_state_free(machine, state);
    }
    free(machine->frames);
    free(machine->frame_index);
    free(machine->state_index);
    free(machine->work);
    free(machine->kept);
    free(machine->seen);
    *machine = (struct machine){0};
}

/* Where there is no memory for a larger table the old one stays. */
static void grow_frames(struct machine *machine)
{
    if (machine->frames_used < machine->frame_slots || machine->frame_slots == FRAME_SLOTS_MAX)
        return;
    uint32_t slots = machine->frame_slots * 2;
    uint32_t *index = realloc(machine->frame_index, slots * sizeof(*index));
    if (!index)
        return;
    machine->frame_index = index;
    machine->frame_slots = slots;
    machine_index_frames(machine);
}

/* The frame of a call, made where there is none like it; GRAMMAR_NONE: no room. */
static uint32_t frame_of(struct machine *machine, uint32_t edge, uint32_t parent, uint32_t count)
{
    uint32_t hash = frame_hash(edge, parent, count);
    uint32_t *slot = &machine->frame_index[hash & (machine->frame_slots - 1)];
    for (uint32_t at = *slot; at != GRAMMAR_NONE; at = machine->frames[at].next) {
        const struct machine_frame *frame = &machine->frames[at];
        if (frame->edge == edge && frame->parent == parent && frame->count == count)
            return at;
    }
    if (machine->frames_used == machine->frames_room) {
        if (machine->frames_room >= FRAMES_MAX)
            return GRAMMAR_NONE;
        size_t room = (size_t)machine->frames_room * 2;
        struct machine_frame *moved = realloc(machine->frames, room * sizeof(*moved));
        if (!moved)
            return GRAMMAR_NONE;
        machine->frames = moved;
        machine->frames_room = (uint32_t)room;
    }
    machine->frames[machine->frames_used] = (struct machine_frame){edge, parent, count, *slot};
    machine->bytes += sizeof(struct machine_frame);
    *slot = machine->frames_used++;
    grow_frames(machine);
    return machine->frames_used - 1;
}

/* Twice as many slots for the set that is being made. */
static bool grow_seen(struct machine *machine)
{
    uint32_t slots = machine->seen_slots * 2;
    uint32_t *seen = calloc(slots, 2 * sizeof(uint32_t));
    if (!seen)
        return false;
    for (uint32_t i = 0; i < machine->work_count; i++) {
        uint32_t key = mix(machine->work[i].node, machine->work[i].frame) & (slots - 1);
        while (seen[2 * key] == machine->stamp)
            key = (key + 1) & (slots - 1);
        seen[2 * key] = machine->stamp;
        seen[2 * key + 1] = i;
    }
    free(machine->seen);
    machine->seen = seen;
    machine->seen_slots = slots;
    return true;
}

/* Once each; false when there are too many. */
bool machine_add(struct machine *machine, uint32_t node, uint32_t frame)
{
    if (machine->work_count * 2 >= machine->seen_slots && machine->seen_slots < SEEN_SLOTS_MAX &&
        !grow_seen(machine))
        return false;
    uint32_t mask = machine->seen_slots - 1, key = mix(node, frame) & mask;
    machine->steps++;
    for (;; key = (key + 1) & mask) {
        uint32_t *slot = &machine->seen[2 * key];
        if (slot[0] != machine->stamp) {
            if (machine->work_count == MACHINE_SET_MAX)
                return false;
            slot[0] = machine->stamp;
            slot[1] = machine->work_count;
            machine->work[machine->work_count++] = (struct machine_config){node, frame};
            return true;
        }
        const struct machine_config *known = &machine->work[slot[1]];
        if (known->node == node && known->frame == frame)
            return true;
    }
}

bool machine_has(const struct machine *machine, uint32_t node, uint32_t frame)
{
    uint32_t mask = machine->seen_slots - 1, key = mix(node, frame) & mask;
    for (; machine->seen[2 * key] == machine->stamp; key = (key + 1) & mask) {
        const struct machine_config *known = &machine->work[machine->seen[2 * key + 1]];
        if (known->node == node && known->frame == frame)
            return true;
    }
    return false;
}

/* Into a rule, for the count-th time in a row. A single call after which nothing comes needs no
 * frame of its own: so lists by right recursion take no room. */
static bool call(struct machine *machine, uint32_t at, uint32_t parent, uint32_t count)
{
    const struct grammar_edge *edge = &machine->grammar->edges[at];
    const struct grammar_node *to = &machine->grammar->nodes[edge->to];
    if (edge->min == 1 && edge->max == 1 && to->final && to->first == GRAMMAR_NONE)
        return machine_add(machine, edge->rule, parent);
    uint32_t frame = frame_of(machine, at, parent, count);
    return frame != GRAMMAR_NONE && machine_add(machine, edge->rule, frame);
}

/* A rule has ended: on behind the call, or once more. Where no number bounds a repetition, counts
 * beyond the least are all alike. */
static bool answer(struct machine *machine, uint32_t at)
{
    if (at == MACHINE_ROOT) {
        machine->ends = true;
        return true;
    }
    const struct machine_frame frame = machine->frames[at];
    const struct grammar_edge *edge = &machine->grammar->edges[frame.edge];
    if (frame.count >= edge->min && !machine_add(machine, edge->to, frame.parent))
        return false;
    if (edge->max == GRAMMAR_UNBOUNDED)
        return call(machine, frame.edge, frame.parent,
                    frame.count <= edge->min ? frame.count + 1 : frame.count);
    return frame.count >= edge->max || call(machine, frame.edge, frame.parent, frame.count + 1);
}

static bool enter(struct machine *machine, struct machine_config config)
{
    const struct grammar_node *node = &machine->grammar->nodes[config.node];
    if (node->final && !answer(machine, config.frame))
        return false;
    for (uint32_t at = node->first; at != GRAMMAR_NONE; at = machine->grammar->edges[at].next) {
        const struct grammar_edge *edge = &machine->grammar->edges[at];
        if (edge->kind == EDGE_BYTES)
            continue;
        if ((edge->kind == EDGE_NOTHING || edge->min == 0) &&
            !machine_add(machine, edge->to, config.frame))
            return false;
        if (edge->kind == EDGE_CALL && !call(machine, at, config.frame, 1))
            return false;
    }
    return true;
}

/* Adds what is reached without reading, and keeps what reads. */
bool machine_close(struct machine *machine)
{
    machine->kept_count = 0;
    machine->ends = false;
    for (uint32_t done = 0; done < machine->work_count; done++) {
        struct machine_config config = machine->work[done];
        if (!enter(machine, config) || machine->bytes > MACHINE_BYTES_MAX)
            return false;
        if (machine->grammar->nodes[config.node].reads)
            machine->kept[machine->kept_count++] = config;
    }
    return machine->steps <= MACHINE_STEPS_MAX;
}

static bool read_byte(struct machine *machine, const struct machine_state *state, uint8_t byte)
{
    machine->work_count = 0;
    if (++machine->stamp == 0) { /* stamps are used up: all slots are free again */
        memset(machine->seen, 0, machine->seen_slots * 2 * sizeof(uint32_t));
        machine->stamp = 1;
    }
    for (uint32_t i = 0; i < state->count; i++) {
        uint32_t at = machine->grammar->nodes[state->set[i].node].first;
        for (; at != GRAMMAR_NONE; at = machine->grammar->edges[at].next) {
            const struct grammar_edge *edge = &machine->grammar->edges[at];
            machine->steps++;
            if (edge->kind == EDGE_BYTES && byte >= edge->low && byte <= edge->high &&
                !machine_add(machine, edge->to, state->set[i].frame))
                return false;
        }
    }
    return machine_close(machine);
}

/* Most classes of bytes lead nowhere, which is seen from the edges at once. Classes are numbered as
 * their bytes are. */
static void make_row(struct machine *machine, struct machine_state *state)
{
    const struct grammar *grammar = machine->grammar;
    bool reads[256] = {false};
    for (uint32_t i = 0; i < state->count; i++) {
        uint32_t at = grammar->nodes[state->set[i].node].first;
        for (; at != GRAMMAR_NONE; at = grammar->edges[at].next) {
            const struct grammar_edge *edge = &grammar->edges[at];
            machine->steps++;
            if (edge->kind != EDGE_BYTES)
                continue;
            uint8_t low = grammar->class_of[edge->low], high = grammar->class_of[edge->high];
            memset(reads + low, true, (size_t)(high - low) + 1);
        }
    }
    state->row = calloc(grammar->classes, sizeof(*state->row));
    for (uint32_t class = 0; state->row && class < grammar->classes; class ++)
        if (!reads[class])
            state->row[class] = &machine_dead;
}

struct machine_state *machine_step(struct machine *machine, struct machine_state *state,
                                   uint8_t byte, struct error *error)
{
    uint8_t class = machine->grammar->class_of[byte];
    if (state == &machine_dead) /* it is everybody's, and keeps nothing */
        return state;
    if (state->row && state->row[class])
        return state->row[class];
    if (!state->row) {
        make_row(machine, state);
        if (!state->row) {
            error_set(error, ERR_NO_MEMORY, "no memory for a constraint");
            return NULL;
        }
        machine->bytes += machine->grammar->classes * sizeof(*state->row);
        if (state->row[class])
            return state->row[class];
    }
    struct machine_state *to = NULL;
    if (read_byte(machine, state, byte))
        to = machine->kept_count || machine->ends ? machine_intern(machine) : &machine_dead;
    if (!to)
        too_much(error);
    return state->row[class] = to;
}
