#include "client/bench/recorder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROOM_FIRST 4096

void recorder_init(struct recorder *recorder, struct record *records)
{
    *recorder = (struct recorder){.records = records};
}

void recorder_free(struct recorder *recorder)
{
    free(recorder->chunks);
    recorder->chunks = NULL;
    recorder->chunk_count = recorder->chunk_room = 0;
}

static int reserve(struct recorder *recorder, size_t count)
{
    size_t room = recorder->chunk_room ? recorder->chunk_room : ROOM_FIRST;
    while (room < count)
        room *= 2;
    if (room == recorder->chunk_room)
        return 0;
    struct chunk *more = realloc(recorder->chunks, room * sizeof(*more));
    if (!more)
        return -ERR_NO_MEMORY;
    recorder->chunks = more;
    recorder->chunk_room = room;
    return 0;
}

void recorder_chunk(struct recorder *recorder, uint32_t request, uint32_t tokens, uint64_t at_us)
{
    struct record *record = &recorder->records[request];
    if (record->chunks++ == 0)
        record->first_us = at_us;
    record->last_us = at_us;
    if (recorder->chunk_count == recorder->chunk_room &&
        reserve(recorder, recorder->chunk_count + 1)) {
        recorder->chunks_lost++;
        return;
    }
    recorder->chunks[recorder->chunk_count++] = (struct chunk){at_us, request, tokens};
}

static struct failure *failure_of(struct recorder *recorder, int code)
{
    uint32_t i = 0;
    while (i < recorder->failure_count && recorder->failures[i].code != code)
        i++;
    if (i == FAILURES_MAX)
        i--;
    if (i == recorder->failure_count) {
        recorder->failures[i] = (struct failure){.code = code};
        recorder->failure_count++;
    }
    return &recorder->failures[i];
}

void recorder_fail(struct recorder *recorder, uint32_t request, const struct error *error)
{
    struct failure *failure = failure_of(recorder, error->code);
    if (failure->count++ == 0)
        snprintf(failure->text, sizeof(failure->text), "%.*s", FAILURE_TEXT_MAX - 1, error->text);
    recorder->records[request].outcome = OUTCOME_FAILED;
    recorder->records[request].failure = (int16_t)error->code;
}

int recorder_join(struct recorder *into, const struct recorder *from)
{
    if (reserve(into, into->chunk_count + from->chunk_count))
        return -ERR_NO_MEMORY;
    if (from->chunk_count > 0)
        memcpy(into->chunks + into->chunk_count, from->chunks,
               from->chunk_count * sizeof(*from->chunks));
    into->chunk_count += from->chunk_count;
    into->chunks_lost += from->chunks_lost;
    for (uint32_t i = 0; i < from->failure_count; i++) {
        struct failure *failure = failure_of(into, from->failures[i].code);
        if (failure->count == 0)
            memcpy(failure->text, from->failures[i].text, sizeof(failure->text));
        failure->count += from->failures[i].count;
    }
    return 0;
}
