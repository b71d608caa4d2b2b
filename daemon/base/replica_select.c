#include "daemon/base/replica_select.h"

struct offer {
    uint64_t wait_us;
    uint32_t tokens, host; /* to be read; to be copied */
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
    if (a->tokens != b->tokens)
        return a->tokens < b->tokens;
    return a->host != b->host ? a->host < b->host : a->kv_tokens > b->kv_tokens;
}

uint32_t replica_select(const struct replica_room *rooms, uint32_t count, uint32_t prompt_len,
                        const struct replica_common *common)
{
    struct offer best = {.wait_us = 0};
    uint32_t pick = REPLICA_NONE, most = 0;
    for (uint32_t i = 0; i < count; i++)
        most = common->had[i] > most ? common->had[i] : most;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t more = most - common->had[i];
        uint64_t ns = more * rooms[i].token_ns + common->host[i] * rooms[i].copy_ns;
        struct offer offer = {.wait_us = rooms[i].wait_us + ns / 1000,
                              .tokens = prompt_len - common->had[i],
                              .host = common->host[i],
                              .kv_tokens = rooms[i].kv_tokens};
        if (!takes(&rooms[i], offer.tokens + offer.host) || (pick != REPLICA_NONE && !is_better(&offer, &best)))
            continue;
        best = offer;
        pick = i;
    }
    return pick;
}
