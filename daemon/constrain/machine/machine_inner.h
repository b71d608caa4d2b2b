/* Between machine.c and machine_store.c. One thread at a time. */
#pragma once

#include "daemon/constrain/machine/machine.h"

/* Tables by hash begin small, as most machines stay, and grow up to these. All are powers of two.
 */
#define SLOTS_FIRST 64u
#define FRAME_SLOTS_MAX 8192u
#define STATE_SLOTS_MAX 4096u
#define SEEN_SLOTS_MAX (MACHINE_SET_MAX * 4)

static inline uint32_t mix(uint32_t a, uint32_t b)
{
    uint64_t x = ((uint64_t)a << 32 | b) * 0x9e3779b97f4a7c15u;
    return (uint32_t)(x >> 32) ^ (uint32_t)(x >> 17);
}

static inline size_t mask_bytes(const struct machine_mask *mask)
{
    return mask ? sizeof(*mask) + mask->words * sizeof(uint32_t) : 0;
}

static inline uint32_t frame_hash(uint32_t edge, uint32_t parent, uint32_t count)
{
    return mix(mix(edge, parent), count);
}

/* The set that is being made: a configuration more, all that follows from it, the state of it. */
bool machine_add(struct machine *machine, uint32_t node, uint32_t frame);
bool machine_has(const struct machine *machine, uint32_t node, uint32_t frame);
bool machine_close(struct machine *machine);
struct machine_state *machine_intern(struct machine *machine); /* NULL: no room */
/* Every frame and state into their tables again. */
void machine_index_frames(struct machine *machine);
void machine_state_free(struct machine *machine, struct machine_state *state);
