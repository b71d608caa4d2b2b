/* Deadlines: a heap of sequences, the earliest on top.
 *
 * A sequence knows its place (seq.deadline_slot), so that one that ended early is taken out in
 * logarithmic time. Room is made before a request is accepted, so that adding cannot fail.
 * loop thread
 */
#pragma once

#include <stdint.h>

#include "protocol/base/clock.h"
#include "protocol/base/error.h"

#define DEADLINE_NONE UINT32_MAX

struct seq;

struct deadlines {
    struct seq **heap;
    uint32_t count, room;
};

void deadlines_init(struct deadlines *deadlines);
void deadlines_destroy(struct deadlines *deadlines);
int deadlines_reserve(struct deadlines *deadlines, uint32_t more, struct error *error);
void deadlines_add(struct deadlines *deadlines, struct seq *seq); /* seq->deadline_us is set */
void deadlines_remove(struct deadlines *deadlines,
                      struct seq *seq); /* nothing if it is not there */
struct seq *deadlines_first(const struct deadlines *deadlines);
