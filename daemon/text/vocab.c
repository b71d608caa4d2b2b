#include "daemon/text/vocab.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/text/codepoint.h"

bool vocab_init(struct vocab *vocab, uint32_t bound)
{
    vocab->spans = calloc(bound > 0 ? bound : 1, sizeof(*vocab->spans));
    vocab->bound = bound;
    return vocab->spans && idmap_init(&vocab->by_text, bound);
}

void vocab_free(struct vocab *vocab)
{
    buffer_free(&vocab->text);
    idmap_free(&vocab->by_text);
    free(vocab->spans);
    *vocab = (struct vocab){0};
}

uint32_t vocab_find(const struct vocab *vocab, const char *text, size_t length)
{
    uint32_t hash = idmap_hash(text, length), probe = 0, id;
    while ((id = idmap_next(&vocab->by_text, hash, &probe)) != IDMAP_NONE) {
        struct span span = vocab->spans[id];
        if (span.length == length && memcmp(vocab->text.data + span.at, text, length) == 0)
            return id;
    }
    return IDMAP_NONE;
}

enum vocab_outcome vocab_add(struct vocab *vocab, uint32_t id, const char *text, size_t length)
{
    if (vocab->spans[id].length > 0)
        return VOCAB_ID_TAKEN;
    if (vocab_find(vocab, text, length) != IDMAP_NONE)
        return VOCAB_TEXT_TAKEN;
    size_t at = vocab->text.length;
    if (!buffer_append(&vocab->text, text, length, VOCAB_BYTES_MAX))
        return VOCAB_NO_MEMORY;
    if (!idmap_add(&vocab->by_text, idmap_hash(text, length), id))
        return VOCAB_CROWDED;
    vocab->spans[id] = (struct span){.at = (uint32_t)at, .length = (uint32_t)length};
    return VOCAB_ADDED;
}

/* The bytes that do not print, in order, have the characters from U+0100 on. */
static bool prints(unsigned byte)
{
    return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
}

uint32_t vocab_byte_char(unsigned char byte)
{
    if (prints(byte))
        return byte;
    uint32_t before = 0;
    for (unsigned other = 0; other < byte; other++)
        before += !prints(other);
    return 0x100 + before;
}

static int char_byte(uint32_t code)
{
    if (code < 0x100)
        return prints(code) ? (int)code : -1;
    if (code <= 0x120) /* 0x00 to 0x20 */
        return (int)(code - 0x100);
    if (code <= 0x142) /* 0x7f to 0xa0 */
        return (int)(code - 0x121 + 0x7f);
    return code == 0x143 ? 0xad : -1;
}

bool vocab_byte_text(const char *text, size_t length, char *ret_bytes, size_t *ret_count)
{
    size_t count = 0;
    for (size_t at = 0; at < length;) {
        int byte = char_byte(codepoint_next(text, &at));
        if (byte < 0)
            return false;
        ret_bytes[count++] = (char)byte;
    }
    *ret_count = count;
    return true;
}
