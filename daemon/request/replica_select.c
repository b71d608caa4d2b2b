#include "daemon/request/replica_select.h"

struct offer {
    uint64_t wait_us;
    uint32_t tokens; /* to be read */
    uint64_t kv_tokens;
};

static bool takes(const struct replica_room *room, uint32_t tokens)
{
    if (!room->ready || room->sequences == 0)
        return false;
    /* What admission let in fits an empty replica, however long it is. */
    return room->empty || (room->kv_tokens >= tokens && room->prefill_tokens > 0);
}

static bool is_better(const struct offer *a, const struct offer *b)
{
    if (a->wait_us != b->wait_us)
        return a->wait_us < b->wait_us;
    return a->tokens != b->tokens ? a->tokens < b->tokens : a->kv_tokens > b->kv_tokens;
}

uint32_t replica_select(const struct replica_room *rooms, uint32_t count, uint32_t prompt_len,
                        const struct replica_common *common)
{
    struct offer best = {.wait_us = 0};
    uint32_t pick = REPLICA_NONE;
    for (uint32_t i = 0; i < count; i++) {
        bool home = common->homes >> i & 1;
        struct offer offer = {.wait_us = rooms[i].wait_us,
                              .tokens = home ? prompt_len - common->len : prompt_len,
                              .kv_tokens = rooms[i].kv_tokens};
        if (common->homes && !home)
            offer.wait_us += common->len * rooms[i].token_ns / 1000;
        if (!takes(&rooms[i], offer.tokens) ||
            (pick != REPLICA_NONE && !is_better(&offer, &best)))
            continue;
        best = offer;
        pick = i;
    }
    return pick;
}
