/* Which replica gets the next sequence. Pure; one replica is the usual case.
 *
 * A worker tells its room; the dispatcher on the loop takes the next waiting sequence (by its own
 * rules of priority and fairness) and asks here where it starts now, if anywhere.
 */
#pragma once

#include <stdint.h>

#include "daemon/base/replica_api.h"

#define REPLICA_NONE UINT32_MAX

#define REPLICA_SELECT_MAX 16

/* Tokens of a prompt, fewer than it has, that need not be read on each replica: other results of it
 * were sent there, or it has or will have them cached; so many of them in host memory, from where
 * they are copied. */
struct replica_common {
    uint32_t had[REPLICA_SELECT_MAX], host[REPLICA_SELECT_MAX];
};

/* The room's index: among those that take a sequence of so many prompt tokens, the shortest wait
 * first, reading or copying what another has included; then where less is to be read, and then
 * copied, then the most free KV; REPLICA_NONE when all are full. */
uint32_t replica_select(const struct replica_room *rooms, uint32_t count, uint32_t prompt_len,
                        const struct replica_common *common);
