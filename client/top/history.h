/* The last minute of samples, one per second, from which windows of 1, 10 and 60 s are cut. Owns
 * its samples. */
#pragma once

#include "client/top/sample.h"

#define HISTORY_MAX 61

struct history {
    struct sample *samples; /* a ring */
    uint32_t next, count;
    struct sample nothing; /* before the daemon's start: all 0 */
};

int history_init(struct history *history);
void history_free(struct history *history);
/* The place of the next one, to be filled, then history_push(). */
struct sample *history_next(struct history *history);
void history_push(struct history *history);
/* `back` samples before the last one; NULL when there are not so many. */
const struct sample *history_at(const struct history *history, uint32_t back);
/* Where a window of so many seconds begins: the oldest that is not older, at least one sample back;
 * seconds 0 = since the daemon's start. NULL as long as there are not two. */
const struct sample *history_since(const struct history *history, uint32_t seconds);
