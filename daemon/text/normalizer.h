/* What is done to text before it is cut: NFC, Prepend and Replace, in the file's order.
 *
 * Filled by the loader, then read by any thread; scratch belongs to one caller.
 */
#pragma once

#include <stddef.h>

#include "daemon/base/buffer.h"
#include "daemon/base/halt.h"
#include "daemon/text/field.h"
#include "daemon/text/nfc.h"
#include "protocol/base/error.h"

#define NORMALIZER_STEPS_MAX 8
#define NORMALIZER_TEXT_MAX 64                   /* bytes of what is prepended or replaced */
#define NORMALIZER_OUTPUT_MAX ((size_t)64 << 20) /* bytes, of one stretch of text */

enum normalizer_kind { NORMALIZER_NFC, NORMALIZER_PREPEND, NORMALIZER_REPLACE };

struct normalizer_step {
    enum normalizer_kind kind;
    size_t pattern_length, content_length;
    char pattern[NORMALIZER_TEXT_MAX], content[NORMALIZER_TEXT_MAX];
};

struct normalizer {
    size_t count;
    struct normalizer_step steps[NORMALIZER_STEPS_MAX];
};

struct normalizer_scratch {
    struct buffer buffers[2];
    struct nfc_scratch nfc;
    const struct halt *halt; /* NULL: none */
};

/* From the file's "normalizer", which may be null. */
int normalizer_load(struct normalizer *normalizer, const struct field *field, struct error *error);

void normalizer_scratch_free(struct normalizer_scratch *scratch);

/* *ret_text is `text` itself or lies in the scratch, until the next call. */
int normalizer_run(const struct normalizer *normalizer, struct normalizer_scratch *scratch,
                   const char *text, size_t length, const char **ret_text, size_t *ret_length,
                   struct error *error);
