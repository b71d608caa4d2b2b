/* What happened to each request, raw: stamps in microseconds after the start of the run.
 *
 * The records of a run are one array, of which each thread writes its own requests; the chunks that
 * came are one list per thread, in the order in which they came. Nothing is summed up while it
 * runs: summary.h reads all of it afterwards.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "protocol/base/error.h"

enum outcome { OUTCOME_UNSENT, OUTCOME_OPEN, OUTCOME_OK, OUTCOME_CANCELLED, OUTCOME_FAILED };

struct record {
    uint64_t due_us;   /* scheduled arrival */
    uint64_t ready_us; /* when it could be sent: due, or later when --max-concurrency held it */
    uint64_t sent_us;
    uint64_t first_us, last_us; /* first and last chunk of tokens; 0 = none */
    uint64_t end_us;
    uint32_t prompt_tokens, output_tokens, cached_tokens;
    uint32_t chunks;
    int16_t failure; /* of OUTCOME_FAILED: the error's code */
    uint8_t outcome;
};

struct chunk {
    uint64_t at_us;
    uint32_t request, tokens;
};

#define FAILURES_MAX 16
#define FAILURE_TEXT_MAX 160

struct failure { /* failures of one code; the text is the first one's */
    int code;
    uint32_t count;
    char text[FAILURE_TEXT_MAX];
};

struct recorder {           /* one per thread */
    struct record *records; /* borrowed: of the whole run */
    struct chunk *chunks;   /* owned */
    size_t chunk_count, chunk_room;
    size_t chunks_lost;                    /* for want of memory */
    struct failure failures[FAILURES_MAX]; /* the last one takes all further codes */
    uint32_t failure_count;
};

void recorder_init(struct recorder *recorder, struct record *records);
void recorder_free(struct recorder *recorder);
void recorder_chunk(struct recorder *recorder, uint32_t request, uint32_t tokens, uint64_t at_us);
void recorder_fail(struct recorder *recorder, uint32_t request, const struct error *error);
/* Adds what another thread recorded of the same run, by growing this one's lists. */
int recorder_join(struct recorder *into, const struct recorder *from);
