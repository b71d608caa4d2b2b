/* Which share of a program's work this process has: RUNNER_PART=I/N, so that the parts of a slow
 * program run beside each other; without it, all. */
#pragma once

#include <stdio.h>
#include <stdlib.h>

struct parts {
    int part, parts; /* part from 0 */
    int turns;       /* that were dealt out */
};

static inline struct parts parts_read(void)
{
    struct parts parts = {0, 1, 0};
    const char *text = getenv("RUNNER_PART");
    char rest;
    if (!text)
        return parts;
    if (sscanf(text, "%d/%d%c", &parts.part, &parts.parts, &rest) != 2 || parts.part < 1 ||
        parts.part > parts.parts) {
        fprintf(stderr, "RUNNER_PART=%s: not I/N with I from 1 to N\n", text);
        exit(EXIT_FAILURE);
    }
    parts.part--;
    return parts;
}

/* Whether the next turn is this process's. */
static inline int parts_turn(struct parts *parts)
{
    return parts->turns++ % parts->parts == parts->part;
}
