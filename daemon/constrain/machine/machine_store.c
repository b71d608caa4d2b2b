#include <stdlib.h>
#include <string.h>

#include "daemon/constrain/machine/machine_inner.h"

/* Sets are equal in any order. */
static uint64_t hash_of(const struct machine_config *set, uint32_t count, bool ends)
{
    uint64_t hash = ends ? 1 : 2;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t one = ((uint64_t)set[i].node << 32 | set[i].frame) * 0x9e3779b97f4a7c15u;
        hash += (one ^ one >> 29) * 0xbf58476d1ce4e5b9u;
    }
    return hash ^ hash >> 31;
}

/* What the state is made of, each once, is in the set that is being made. */
static bool is_made(const struct machine *machine, const struct machine_state *state)
{
    if (state->count != machine->kept_count || state->ends != machine->ends)
        return false;
    uint32_t i = 0;
    while (i < state->count && machine_has(machine, state->set[i].node, state->set[i].frame))
        i++;
    return i == state->count;
}

static size_t size_of(uint32_t count)
{
    return sizeof(struct machine_state) + count * sizeof(struct machine_config);
}

static void index_state(struct machine *machine, struct machine_state *state)
{
    struct machine_state **slot = &machine->state_index[state->hash & (machine->state_slots - 1)];
    state->same = *slot;
    *slot = state;
}

/* Where there is no memory for a larger table the old one stays. */
static void grow_states(struct machine *machine)
{
    if (machine->made < machine->state_slots || machine->state_slots == STATE_SLOTS_MAX)
        return;
    struct machine_state **index = calloc((size_t)machine->state_slots * 2, sizeof(*index));
    if (!index)
        return;
    free(machine->state_index);
    machine->state_index = index;
    machine->state_slots *= 2;
    for (struct machine_state *state = machine->states; state; state = state->next)
        index_state(machine, state);
}

struct machine_state *machine_intern(struct machine *machine)
{
    uint32_t count = machine->kept_count;
    size_t set_bytes = count * sizeof(machine->kept[0]);
    uint64_t hash = hash_of(machine->kept, count, machine->ends);
    struct machine_state *state = machine->state_index[hash & (machine->state_slots - 1)];
    for (; state; state = state->same)
        if (state->hash == hash && is_made(machine, state))
            return state;
    if (machine->bytes + size_of(count) > MACHINE_BYTES_MAX)
        return NULL;
    state = malloc(size_of(count));
    if (!state)
        return NULL;
    *state = (struct machine_state){
        .count = count, .hash = hash, .next = machine->states, .ends = machine->ends};
    memcpy(state->set, machine->kept, set_bytes);
    machine->states = state;
    index_state(machine, state);
    machine->bytes += size_of(count);
    machine->made++;
    grow_states(machine);
    return state;
}

void machine_state_free(struct machine *machine, struct machine_state *state)
{
    machine->bytes -= size_of(state->count);
    if (state->row)
        machine->bytes -= machine->grammar->classes * sizeof(*state->row);
    machine->bytes -= mask_bytes(state->mask);
    free(state->row);
    free(state->mask);
    free(state);
}

void machine_index_frames(struct machine *machine)
{
    memset(machine->frame_index, 0xff, machine->frame_slots * sizeof(uint32_t));
    for (uint32_t at = 1; at < machine->frames_used; at++) {
        struct machine_frame *frame = &machine->frames[at];
        uint32_t hash = frame_hash(frame->edge, frame->parent, frame->count);
        uint32_t *slot = &machine->frame_index[hash & (machine->frame_slots - 1)];
        frame->next = *slot;
        *slot = at;
    }
}

/* Frames move down over those that no state reaches. A parent was made before its frames, so one
 * pass upward finds its new place. Where there is no memory for that they stay. */
static void move_frames(struct machine *machine)
{
    uint32_t *place = calloc(machine->frames_used, sizeof(uint32_t)), used = 1;
    if (!place)
        return;
    for (struct machine_state *state = machine->states; state; state = state->next)
        for (uint32_t i = 0; i < state->count; i++)
            place[state->set[i].frame] = 1;
    for (uint32_t at = machine->frames_used - 1; at > 0; at--)
        if (place[at])
            place[machine->frames[at].parent] = 1;
    place[MACHINE_ROOT] = MACHINE_ROOT;
    for (uint32_t at = 1; at < machine->frames_used; at++) {
        if (!place[at])
            continue;
        struct machine_frame frame = machine->frames[at];
        frame.parent = place[frame.parent];
        machine->frames[used] = frame;
        place[at] = used++;
    }
    for (struct machine_state *state = machine->states; state; state = state->next)
        for (uint32_t i = 0; i < state->count; i++)
            state->set[i].frame = place[state->set[i].frame];
    machine->bytes -= (machine->frames_used - used) * sizeof(struct machine_frame);
    machine->frames_used = used;
    free(place);
}

/* Moving changes the hashes. */
static void index_again(struct machine *machine)
{
    memset(machine->state_index, 0, machine->state_slots * sizeof(struct machine_state *));
    for (struct machine_state *state = machine->states; state; state = state->next) {
        state->hash = hash_of(state->set, state->count, state->ends);
        index_state(machine, state);
    }
}

/* As small as what is in it lets it be. */
static uint32_t slots_for(uint32_t count, uint32_t slots)
{
    uint32_t fits = SLOTS_FIRST;
    while (fits <= count && fits < slots)
        fits *= 2;
    return fits;
}

/* What was grown for states that are gone goes back. Where no smaller one is given the old one
 * stays. */
static void fit_tables(struct machine *machine)
{
    uint32_t states = 0;
    for (const struct machine_state *state = machine->states; state; state = state->next)
        states++;
    uint32_t slots = slots_for(machine->frames_used, machine->frame_slots);
    uint32_t *frames = realloc(machine->frame_index, slots * sizeof(*frames));
    if (frames) {
        machine->frame_index = frames;
        machine->frame_slots = slots;
    }
    slots = slots_for(states, machine->state_slots);
    struct machine_state **index = realloc(machine->state_index, slots * sizeof(*index));
    if (index) {
        machine->state_index = index;
        machine->state_slots = slots;
    }
    uint32_t room = slots_for(machine->frames_used, machine->frames_room);
    struct machine_frame *fit = realloc(machine->frames, room * sizeof(*fit));
    if (fit) {
        machine->frames = fit;
        machine->frames_room = room;
    }
    machine->made = states;
    uint32_t *seen = calloc(SLOTS_FIRST, 2 * sizeof(*seen));
    if (seen) {
        free(machine->seen);
        machine->seen = seen;
        machine->seen_slots = SLOTS_FIRST;
        machine->stamp = 1;
        machine->work_count = 0;
    }
}

void machine_shrink(struct machine *machine)
{
    for (struct machine_state **link = &machine->states; *link;) {
        struct machine_state *state = *link;
        if (state->holds) {
            if (state->row)
                memset(state->row, 0, machine->grammar->classes * sizeof(*state->row));
            link = &state->next;
        } else {
            *link = state->next;
            machine_state_free(machine, state);
        }
    }
    move_frames(machine);
    fit_tables(machine);
    machine_index_frames(machine);
    index_again(machine);
}

void machine_begin(struct machine *machine)
{
    machine->steps = 0;
    if (machine->bytes > MACHINE_KEEP_BYTES)
        machine_shrink(machine);
}

size_t machine_bytes(const struct machine *machine)
{
    return machine->bytes + machine->frame_slots * sizeof(uint32_t) +
           machine->state_slots * sizeof(struct machine_state *) +
           (machine->frames_room - machine->frames_used) * sizeof(struct machine_frame) +
           2 * MACHINE_SET_MAX * sizeof(struct machine_config) +
           machine->seen_slots * 2 * sizeof(uint32_t);
}
