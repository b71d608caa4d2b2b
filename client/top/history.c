#include "client/top/history.h"

#include <stdlib.h>

#define SLACK_US 200000u /* samples do not come to the microsecond */

int history_init(struct history *history)
{
    *history = (struct history){.samples = calloc(HISTORY_MAX, sizeof(struct sample))};
    return history->samples ? 0 : -ERR_NO_MEMORY;
}

void history_free(struct history *history)
{
    free(history->samples);
    history->samples = NULL;
}

struct sample *history_next(struct history *history)
{
    return &history->samples[history->next];
}

void history_push(struct history *history)
{
    history->next = (history->next + 1) % HISTORY_MAX;
    history->count += history->count < HISTORY_MAX;
}

const struct sample *history_at(const struct history *history, uint32_t back)
{
    if (back >= history->count)
        return NULL;
    return &history->samples[(history->next + 2 * HISTORY_MAX - 1 - back) % HISTORY_MAX];
}

const struct sample *history_since(const struct history *history, uint32_t seconds)
{
    const struct sample *last = history_at(history, 0), *found = history_at(history, 1);
    if (seconds == 0)
        return &history->nothing;
    for (uint32_t back = 2; found && back < history->count; back++) {
        const struct sample *older = history_at(history, back);
        if (last->at_us - older->at_us > (uint64_t)seconds * 1000000 + SLACK_US)
            break;
        found = older;
    }
    return found;
}
