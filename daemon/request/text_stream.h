/* Transcript: the text of one sequence, read from its tokens up to its stop string or its end
 * token.
 *
 * Tokens are read when they are told to the client, or as they come where stop strings are looked
 * for: then the sequence has to be ended by whoever reads. Text that is certain waits in `text`
 * until it is told; what follows a stop string never gets there, and neither does an end token.
 *
 * loop thread. Owned by its sequence (seq.text stream); the tokenizer and the model outlive it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/base/buffer.h"
#include "daemon/text/detokenizer.h"
#include "daemon/text/stop.h"
#include "protocol/base/error.h"

struct answer_form;
struct gpu_model;
struct message_prompt;
struct seq;
struct tokenizer;

#define TEXT_STREAM_NO_END UINT32_MAX

/* The stop strings of a prompt, shared by its results. */
struct text_stream_stops {
    struct stop_set *set;
    uint32_t references;
};

struct text_stream {
    const struct gpu_model *model;
    struct detokenizer detokenizer;
    struct text_stream_stops *stops; /* NULL: none */
    struct stop stop;
    struct buffer text; /* certain and not told yet */
    uint32_t read;      /* tokens */
    uint32_t end;       /* tokens that count, once a stop string was found */
    int found;          /* which; -1: none */
    const struct answer_form *shown; /* marks that are special tokens stand in the text; NULL: none */
    bool wanted;        /* the text is told; else stop strings are looked for alone */
    bool finished;      /* what was held back is in `text` */
    bool failed;        /* out of memory */
    char *piece;        /* scratch */
};

/* One for each result of a prompt, whose sequences are seqs[0 .. count - 1]. On failure those that
 * were made go with their sequences. */
int text_stream_make(struct seq *seqs, uint32_t count, const struct message_prompt *prompt,
                     bool wanted, const struct tokenizer *tokenizer, const struct gpu_model *model,
                     struct error *error);
void text_stream_free(struct seq *seq); /* nothing where there is none */

/* Reads tokens until `count` of the sequence's are read, or a stop string was found: true then. */
bool text_stream_read(struct seq *seq, uint32_t count);
/* The sequence has ended: reads the rest, and what was held back becomes text. True if a stop
 * string was found, now or before. */
bool text_stream_finish(struct seq *seq);
/* The first bytes of the text were told. */
void text_stream_told(struct text_stream *stream, size_t bytes);

static inline bool text_stream_stops(const struct text_stream *stream)
{
    return stream && stream->stops;
}
