/* The ids that a post-processor puts before and behind a text (TemplateProcessing, its template for
 * a single text), and whether two texts are one behind the other to it, each with these (its
 * template for a pair). ByteLevel as a post-processor moves offsets only, and adds none.
 *
 * Filled by the loader, then read by any thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/text/field.h"
#include "daemon/text/vocab.h"
#include "protocol/base/error.h"

#define AFFIX_IDS_MAX 64

struct affix {
    size_t prefix_count, suffix_count;
    int32_t prefix[AFFIX_IDS_MAX], suffix[AFFIX_IDS_MAX];
    bool parts_pairs; /* a pair is something else */
};

int affix_load(struct affix *affix, const struct field *field, const struct vocab *vocab,
               struct error *error);
