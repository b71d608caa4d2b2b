/* The tokenizer of a model, from its tokenizer.json: text to ids and ids to text, equal to the
 * Python `tokenizers` package on the files it takes. What it does not know it refuses by name at
 * load.
 *
 * Known: models of type BPE (byte-level alphabet or byte fallback, ignore_merges, fuse_unk, merges
 * as strings or pairs, or none at all); normalizers NFC, Prepend, Replace; pre-tokenizers Split,
 * Digits, Metaspace, ByteLevel; decoders ByteLevel, Metaspace, Replace, ByteFallback, Fuse, Strip;
 * the post-processor TemplateProcessing; added tokens. "truncation" and "padding" are not applied:
 * they are settings of a training run, and a request has limits of its own.
 *
 * A tokenizer does not change after loading and is shared by any number of threads. Scratch is what
 * one encoding thread owns; it belongs to the tokenizer that it was made for, which must outlive
 * it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/base/halt.h"
#include "protocol/base/error.h"

#define TOKENIZER_FILE_MAX ((size_t)64 << 20) /* bytes of a tokenizer.json */
#define TOKENIZER_TEXT_MAX ((size_t)8 << 20)  /* bytes that one call encodes */

struct tokenizer;
struct tokenizer_scratch;

int tokenizer_load(const char *json_text, size_t length, struct tokenizer **ret_tokenizer,
                   struct error *error);
void tokenizer_free(struct tokenizer *tokenizer);

/* The largest id plus one; ids may have holes. A model's vocabulary may be larger: padding. */
uint32_t tokenizer_bound(const struct tokenizer *tokenizer);

/* The bytes that a token stands for behind other tokens; they need not be whole characters. NULL
 * for an id that no token has. Valid as long as the tokenizer. */
const char *tokenizer_token_bytes(const struct tokenizer *tokenizer, int32_t id,
                                  size_t *ret_length);
/* The token's text as the file writes it. */
const char *tokenizer_token_text(const struct tokenizer *tokenizer, int32_t id, size_t *ret_length);
bool tokenizer_token_is_special(const struct tokenizer *tokenizer, int32_t id);
int32_t tokenizer_token_id(const struct tokenizer *tokenizer, const char *text); /* -1: none */

struct tokenizer_scratch *tokenizer_scratch_new(void); /* NULL: out of memory */
void tokenizer_scratch_free(struct tokenizer_scratch *scratch);
/* What ends an encoding with this scratch early, with its code; NULL: nothing, as with a new one.
 */
void tokenizer_scratch_halt(struct tokenizer_scratch *scratch, const struct halt *halt);

/* `add_special` adds what the post-processor puts around a text. Text that is no UTF-8 and text
 * that gives more than `ids_max` ids are errors; work stops where the limit is met. */
int tokenizer_encode(const struct tokenizer *tokenizer, struct tokenizer_scratch *scratch,
                     const char *text, size_t length, bool add_special, int32_t *ids,
                     size_t ids_max, size_t *ret_count, struct error *error);

/* Whether the tokens of a pair of texts are those of one and then those of the other, as they are
 * without a post-processor. */
bool tokenizer_pairs(const struct tokenizer *tokenizer);

/* All at once; daemon/text/detokenizer.h does it one at a time. Ids that no token has give nothing.
 */
int tokenizer_decode(const struct tokenizer *tokenizer, const int32_t *ids, size_t count,
                     bool skip_special, char *text, size_t text_max, size_t *ret_length,
                     struct error *error);
