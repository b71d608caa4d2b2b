/* What callbacks of a batch have brought, per sequence. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/sluice.h"

#define TALLY_SEQUENCES 64
#define TALLY_TOKENS 256

struct tally_seq {
    int ends;
    sluice_end end;
    size_t token_count, logprob_count, top_count, score_count, row_count, width;
    size_t text_length;
    int32_t tokens[TALLY_TOKENS];
    float logprobs[TALLY_TOKENS];
    sluice_top tops[TALLY_TOKENS];
    sluice_score scores[TALLY_TOKENS];
    float rows[TALLY_TOKENS];
    char text[TALLY_TOKENS];
};

struct tally {
    int ends; /* of all sequences */
    struct tally_seq seqs[TALLY_SEQUENCES];
};

/* A batch of one prompt whose answers go into the tally, which it clears. */
void tally_batch(struct tally *tally, sluice_batch *ret_batch, sluice_prompt *prompt,
                 sluice_params *params);
extern const sluice_callbacks tally_callbacks;

/* Whether the tokens are those of synthetic:null after this prompt. */
bool tally_follows_rule(const struct tally_seq *seq, const int32_t *prompt, size_t count,
                        bool ignore_eos);
