/* Which replica gets the next sequence. Pure; one replica is the usual case.
 *
 * A worker tells its room; the dispatcher on the loop takes the next waiting sequence (by its own
 * rules of priority and fairness) and asks here where it starts now, if anywhere.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define REPLICA_NONE UINT32_MAX

/* What a replica can take now, less what was sent to it and not yet seen there. */
struct replica_room {
    bool ready;              /* loaded, not failed */
    uint32_t sequences;      /* more of them that would start at once */
    uint64_t kv_tokens;      /* positions that free blocks, and such as may be had, would hold */
    uint64_t prefill_tokens; /* that may be added before prompts would queue up there */
    uint64_t wait_us;        /* predicted time until a sequence sent now begins */
    bool empty;              /* nothing at all is there: takes whatever can fit at all */
};

/* The room's index: among those that take a sequence of so many prompt tokens, the shortest wait
 * first, then the most free KV; REPLICA_NONE when all are full. */
uint32_t replica_select(const struct replica_room *rooms, uint32_t count, uint32_t prompt_len);
