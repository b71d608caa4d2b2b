/* A connection of HTTP: the first byte says how large the pieces are in which the rest comes. Heads
 * and bodies are read as the front reads them; the same requests must be found in the same places
 * however the bytes are cut, and none after a refusal. */
#include <string.h>

#include "daemon/http/framing.h"
#include "tests/fuzz/fuzz.h"

struct reader {
    char in[FRAMING_HEAD_MAX];
    size_t length, scanned;
    bool body, bad;
    struct framing_head head;
    struct framing_chunks chunks;
    uint64_t left;
    uint64_t hash; /* of all that was found */
    uint32_t requests;
};

static void mix(struct reader *reader, const void *bytes, size_t length)
{
    const unsigned char *at = bytes;
    for (size_t i = 0; i < length; i++)
        reader->hash = (reader->hash ^ at[i]) * UINT64_C(0x100000001b3);
}

static void mix_text(struct reader *reader, const char *text)
{
    mix(reader, text ? text : "?", text ? strlen(text) + 1 : 1);
}

static void consume(struct reader *reader, size_t used)
{
    FUZZ_CHECK(used <= reader->length);
    reader->length -= used;
    memmove(reader->in, reader->in + used, reader->length);
    reader->scanned = 0;
}

static void refused(struct reader *reader, const struct framing_refusal *refusal)
{
    FUZZ_CHECK(refusal->status >= 400 && refusal->status <= 505 && refusal->text[0]);
    FUZZ_CHECK(strcmp(framing_reason(refusal->status), "Status") != 0);
    mix(reader, &refusal->status, sizeof(refusal->status));
    reader->bad = true;
}

static bool read_head(struct reader *reader)
{
    struct framing_head *head = &reader->head;
    struct framing_refusal refusal = {0};
    size_t used;
    switch (framing_head(reader->in, reader->length, &reader->scanned, head, &used, &refusal)) {
    case FRAMING_MORE:
        FUZZ_CHECK(reader->length < FRAMING_HEAD_MAX);
        return false;
    case FRAMING_BAD:
        refused(reader, &refusal);
        return false;
    case FRAMING_OK:
        break;
    }
    FUZZ_CHECK(head->path[0] == '/' && head->method[0]);
    FUZZ_CHECK(!head->chunked || (head->length == 0 && !head->http10));
    FUZZ_CHECK(head->host || head->http10);
    mix_text(reader, head->method);
    mix_text(reader, head->path);
    mix_text(reader, head->host);
    mix_text(reader, head->content_type);
    mix_text(reader, head->authorization);
    mix_text(reader, head->request_id);
    mix_text(reader, head->user);
    mix_text(reader, head->origin);
    mix_text(reader, head->cors_method);
    mix_text(reader, head->cors_headers);
    mix(reader, &head->length, sizeof(head->length));
    const bool flags[] = {head->http10, head->close, head->expects, head->chunked};
    mix(reader, flags, sizeof(flags));
    reader->chunks = (struct framing_chunks){0};
    reader->left = head->length;
    reader->body = true;
    reader->requests++;
    consume(reader, used);
    return true;
}

static bool read_body(struct reader *reader)
{
    struct framing_refusal refusal = {0};
    struct framing_piece piece = {reader->in, reader->length};
    size_t used;
    if (reader->head.chunked ? reader->chunks.place == FRAMING_DONE : reader->left == 0) {
        reader->body = false;
        return true;
    }
    if (reader->length == 0)
        return false;
    if (!reader->head.chunked) {
        used = piece.length = reader->length < reader->left ? reader->length : reader->left;
        reader->left -= used;
    } else if (framing_chunks(&reader->chunks, reader->in, reader->length, &used, &piece,
                              &refusal) == FRAMING_BAD) {
        refused(reader, &refusal);
        return false;
    }
    FUZZ_CHECK(used > 0 && piece.length <= used);
    mix(reader, piece.bytes, piece.length);
    consume(reader, used);
    return true;
}

static uint64_t read_all(const uint8_t *data, size_t size, size_t step)
{
    static struct reader reader;
    reader = (struct reader){.hash = UINT64_C(0xcbf29ce484222325)};
    for (size_t at = 0; at < size && !reader.bad;) {
        size_t room = sizeof(reader.in) - reader.length;
        size_t part = size - at < step ? size - at : step;
        part = part < room ? part : room;
        FUZZ_CHECK(part > 0);
        memcpy(reader.in + reader.length, data + at, part);
        reader.length += part;
        at += part;
        while (!reader.bad &&
               (reader.body ? read_body(&reader) : reader.length > 0 && read_head(&reader)))
            continue;
    }
    mix(&reader, &reader.requests, sizeof(reader.requests));
    return reader.hash;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    size_t step = data[0] % 64 + 1;
    uint64_t whole = read_all(data + 1, size - 1, FRAMING_HEAD_MAX);
    FUZZ_CHECK(read_all(data + 1, size - 1, step) == whole);
    FUZZ_CHECK(read_all(data + 1, size - 1, 1) == whole);
    return 0;
}
