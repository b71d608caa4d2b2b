/* A batch that was submitted and has sequences without an end. Private to the library.
 *
 * Owned by its client, freed after the end of its last sequence has been told.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "client/sluice.h"
#include "protocol/base/error.h"
#include "protocol/base/list.h"

#define BATCH_PROGRAM 3 /* batch.job of a sluice_job */

struct batch {
    struct list link;          /* client.batches */
    struct batch *bucket_next; /* client.buckets */
    uint64_t id;
    uint64_t request; /* daemon-wide; 0 until ACCEPT */
    uint32_t count, unended;
    int job;
    bool abandoned;
    sluice_callbacks callbacks; /* all null once abandoned, and `output` too */
    void (*output)(void *context, uint32_t item, uint32_t output, uint64_t at, const void *data,
                   size_t bytes); /* of a job */
    void *context;
    unsigned char ended[]; /* a bit per sequence */
};

/* Adds a batch of `count` sequences to the client; NULL without memory. */
struct batch *batch_add(sluice_client *client, uint64_t id, uint32_t count,
                        const sluice_batch *from);
struct batch *batch_find(const sluice_client *client, uint64_t id);
/* Whether the sequence exists and has no end yet. */
bool batch_is_open(const struct batch *batch, uint32_t sequence);
/* Tells the end of a sequence that has none. Frees the batch with its last one: then returns true.
 */
bool batch_end(sluice_client *client, struct batch *batch, uint32_t sequence,
               const sluice_end *end);
/* Ends all that is open, with one error; the batch is gone then. */
void batch_fail(sluice_client *client, struct batch *batch, const struct error *error);
/* Tells everybody the end now, and nothing later. Its answers are still awaited, and thrown away.
 */
void batch_abandon(sluice_client *client, struct batch *batch, const struct error *error);
/* Frees it without a word. */
void batch_drop(sluice_client *client, struct batch *batch);
