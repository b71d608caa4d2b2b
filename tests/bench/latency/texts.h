/* What sessions say, and the names of its blocks: so that the prefix cache finds a turn's beginning
 * as it does in the daemon. A turn's prompt is all that was said before and further tokens. */
#pragma once

#include "daemon/base/seq.h"
#include "tests/bench/latency/load.h"

struct texts {
    const struct load *load;
    const struct gpu_model *model;
    struct prefix_key root;
    struct text *of; /* [sessions]; NULL: the load has none, and nothing of it is cached */
};

/* Both are borrowed. */
struct texts texts_make(const struct load *load, const struct gpu_model *model);
void texts_free(struct texts *texts);

/* Names of the whole blocks of an arrival's prompt; *ret_count: 0 where it is of no session. */
const struct prefix_key *texts_keys(const struct texts *texts, uint32_t number,
                                    uint32_t *ret_count);
/* Prompt, names and room for the answer, of the arrival with this number; true: for the caller to
 * free again (texts_take). */
bool texts_give(const struct texts *texts, uint32_t number, struct seq *seq);
void texts_take(struct seq *seq);
