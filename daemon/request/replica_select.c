#include "daemon/request/replica_select.h"

static bool takes(const struct replica_room *room, uint32_t prompt_len)
{
    if (!room->ready || room->sequences == 0)
        return false;
    /* What admission let in fits an empty replica, however long it is. */
    return room->empty || (room->kv_tokens >= prompt_len && room->prefill_tokens > 0);
}

uint32_t replica_select(const struct replica_room *rooms, uint32_t count, uint32_t prompt_len)
{
    uint32_t best = REPLICA_NONE;
    for (uint32_t i = 0; i < count; i++) {
        if (!takes(&rooms[i], prompt_len))
            continue;
        if (best == REPLICA_NONE || rooms[i].wait_us < rooms[best].wait_us ||
            (rooms[i].wait_us == rooms[best].wait_us && rooms[i].kv_tokens > rooms[best].kv_tokens))
            best = i;
    }
    return best;
}
