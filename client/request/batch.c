#include "client/request/batch.h"

#include <assert.h>
#include <stdlib.h>

#include "client/net/connection.h"
#include "client/net/failure.h"

static struct batch **bucket_of(const sluice_client *client, uint64_t id)
{
    return (struct batch **)&client->buckets[id % CONNECTION_BUCKETS];
}

struct batch *batch_add(sluice_client *client, uint64_t id, uint32_t count,
                        const sluice_batch *from)
{
    struct batch *batch = calloc(1, sizeof(*batch) + (count + 7) / 8);
    if (!batch)
        return NULL;
    batch->id = id;
    batch->count = batch->unended = count;
    batch->job = from->job;
    batch->callbacks = from->callbacks;
    batch->context = from->context;
    struct batch **bucket = bucket_of(client, id);
    batch->bucket_next = *bucket;
    *bucket = batch;
    list_append(&client->batches, &batch->link);
    client->open_sequences += count;
    return batch;
}

struct batch *batch_find(const sluice_client *client, uint64_t id)
{
    struct batch *batch = *bucket_of(client, id);
    while (batch && batch->id != id)
        batch = batch->bucket_next;
    return batch;
}

bool batch_is_open(const struct batch *batch, uint32_t sequence)
{
    return sequence < batch->count && !(batch->ended[sequence / 8] & 1u << sequence % 8);
}

void batch_drop(sluice_client *client, struct batch *batch)
{
    struct batch **place = bucket_of(client, batch->id);
    while (*place != batch)
        place = &(*place)->bucket_next;
    *place = batch->bucket_next;
    list_remove(&batch->link);
    if (!batch->abandoned)
        client->open_sequences -= batch->unended;
    free(batch);
}

bool batch_end(sluice_client *client, struct batch *batch, uint32_t sequence, const sluice_end *end)
{
    assert(batch_is_open(batch, sequence));
    batch->ended[sequence / 8] |= (unsigned char)(1u << sequence % 8);
    batch->unended--;
    if (!batch->abandoned)
        client->open_sequences--;
    if (batch->callbacks.end)
        batch->callbacks.end(batch->context, sequence, end);
    if (batch->unended > 0)
        return false;
    batch_drop(client, batch);
    return true;
}

/* What was cancelled or late before it was accepted ends as what was so afterwards. */
static sluice_end end_with(const struct error *error)
{
    sluice_end end = {.finish = SLUICE_FINISH_ERROR};
    if (error->code == ERR_CANCELLED || error->code == ERR_DEADLINE) {
        end.finish =
            error->code == ERR_CANCELLED ? SLUICE_FINISH_CANCELLED : SLUICE_FINISH_DEADLINE;
        return end;
    }
    failure_publish(error, &end.error);
    return end;
}

void batch_fail(sluice_client *client, struct batch *batch, const struct error *error)
{
    sluice_end end = end_with(error);
    bool gone = false;
    for (uint32_t i = 0, count = batch->count; i < count && !gone; i++)
        if (batch_is_open(batch, i))
            gone = batch_end(client, batch, i, &end);
}

void batch_abandon(sluice_client *client, struct batch *batch, const struct error *error)
{
    sluice_end end = end_with(error);
    batch->abandoned = true;
    client->open_sequences -= batch->unended;
    for (uint32_t i = 0; i < batch->count; i++)
        if (batch_is_open(batch, i) && batch->callbacks.end)
            batch->callbacks.end(batch->context, i, &end);
    batch->callbacks = (sluice_callbacks){0};
    batch->output = NULL;
}
