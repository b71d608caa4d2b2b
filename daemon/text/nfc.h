/* Unicode normal form C, as the reference computes it, in time linear in the text.
 *
 * utf8proc has the tables. The reference's own tables are of an older Unicode: it takes the
 * combining marks that came after for starters, and so does this (nfc_reference.def).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/base/buffer.h"
#include "daemon/base/halt.h"

/* Code points of one stretch between two places where normalisation cannot reach across. */
struct nfc_scratch {
    int32_t *codes, *sorted;
    size_t room;
    const struct halt *halt; /* NULL: none */
};

void nfc_scratch_free(struct nfc_scratch *scratch);

/* True for text that certainly is in normal form, which most is; quicker than nfc_append. True,
 * too, once the halt is set. */
bool nfc_is_clean(const char *text, size_t length, const struct halt *halt);

/* Appends the normal form of valid UTF-8. False: over `max`, out of memory, or halted. */
bool nfc_append(struct nfc_scratch *scratch, const char *text, size_t length, struct buffer *out,
                size_t max);
