/* A prompt on its way: what was asked, and what has come back so far. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "client/net/buffer.h"
#include "client/option/settings.h"
#include "client/sluice.h"

enum item_state { ITEM_WAITING, ITEM_SENT, ITEM_ENDED };

/* One result of the prompt; --n gives several. */
struct result {
    struct buffer tokens, logprobs, tops, text, scores, rows; /* arrays of what they are named by */
    size_t top_count, width;
    size_t shown; /* of tokens or text: printed already */
    bool begun;   /* something of it was printed */
    bool ended;
    sluice_end end;
};

struct item {
    struct work work;
    enum item_state state;
    uint64_t line;  /* of the file; 0 = the command line */
    uint64_t index; /* of its first result among all */
    size_t input;   /* bytes of its line */
    size_t bytes;   /* what it holds, about */
    bool text;      /* results are texts, beside tokens */
    bool bad;       /* its line was no prompt */
    uint64_t id;    /* of the batch, while SENT */
    uint32_t result_count, open;
    struct result *results;
    struct job *job;
};

void item_init(struct item *item, struct job *job, const struct work *work, size_t bytes);
void item_clear(struct item *item);
/* Back to nothing come yet. */
void item_reset(struct item *item);

/* What comes, for sluice_batch; the context is the item. They keep, and tell the job. */
extern const sluice_callbacks item_callbacks;

size_t item_count(const struct buffer *buffer, size_t size); /* elements of a result's array */
