#include "protocol/base/repeat.h"

#include <stdio.h>
#include <string.h>

/* FNV-1a: two different texts that meet are counted as one, which loses a line and no more. */
static uint64_t hash_of(const char *text)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 0x100000001b3u;
    return hash;
}

static bool same_kind(const struct repeat_kind *kind, const struct repeat_event *event,
                      uint64_t text_hash)
{
    return kind->format == event->format && kind->held.level == event->level &&
           kind->text_hash == text_hash && strcmp(kind->held.place, event->place) == 0;
}

static bool window_over(const struct repeat_kind *kind, time_us now_us)
{
    return now_us - kind->window_us >= REPEAT_WINDOW_US;
}

static void take_held(struct repeat *repeat, struct repeat_kind *kind, struct repeat_held *ret_held)
{
    *ret_held = kind->held;
    if (kind->held.count > 0)
        repeat->kinds_held--;
    kind->held.count = 0;
}

bool repeat_pass(struct repeat *repeat, const struct repeat_event *event, time_us now_us,
                 struct repeat_held *ret_held)
{
    uint64_t text_hash = event->by_text ? hash_of(event->text) : 0;
    struct repeat_kind *kind = NULL, *oldest = &repeat->kind[0];
    for (uint32_t i = 0; i < REPEAT_KINDS && !kind; i++) {
        if (same_kind(&repeat->kind[i], event, text_hash))
            kind = &repeat->kind[i];
        else if (repeat->kind[i].window_us < oldest->window_us)
            oldest = &repeat->kind[i];
    }
    ret_held->count = 0;
    if (!kind || window_over(kind, now_us)) {
        kind = kind ? kind : oldest;
        take_held(repeat, kind, ret_held);
        *kind = (struct repeat_kind){.format = event->format,
                                     .text_hash = text_hash,
                                     .window_us = now_us,
                                     .held = {.place = event->place, .level = event->level}};
        snprintf(kind->held.text, sizeof(kind->held.text), "%s", event->text);
    }
    if (kind->passed < REPEAT_BURST) {
        kind->passed++;
        return true;
    }
    if (kind->held.count++ == 0)
        repeat->kinds_held++;
    return false;
}

bool repeat_due(struct repeat *repeat, time_us now_us, bool all, struct repeat_held *ret_held)
{
    if (repeat->kinds_held == 0)
        return false;
    for (uint32_t i = 0; i < REPEAT_KINDS; i++) {
        struct repeat_kind *kind = &repeat->kind[i];
        if (kind->held.count > 0 && (all || window_over(kind, now_us))) {
            take_held(repeat, kind, ret_held);
            return true;
        }
    }
    return false;
}
