/* Any text comes back as it was: from bytes, and from characters with byte fallback; and merged a
 * window at a time it gives the ids of merging it whole. The first byte of the input chooses the
 * tokenizer. */
#include <string.h>

#include "daemon/text/detokenizer.h"
#include "daemon/text/tokenizer.h"
#include "daemon/text/tokenizer_parts.h"
#include "tests/fuzz/fuzz.h"

#define MARK "\xe2\x96\x81"

#define WINDOW 16
#define TOKENIZERS 3

static struct tokenizer *tokenizers[TOKENIZERS];
static struct tokenizer_scratch *scratches[TOKENIZERS];

/* A vocabulary that names all bytes as `format` does, and then the given tokens. */
static struct tokenizer *make(const char *const *names, const char *more, const char *parts)
{
    char *file = malloc(65536);
    struct error error;
    FUZZ_CHECK(file);
    size_t used = (size_t)snprintf(file, 65536, "{%s,\"vocab\":{", parts);
    for (unsigned byte = 0, other = 0x100; byte < 256; byte++) {
        unsigned prints = (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);
        unsigned code = prints ? byte : other++;
        used += (size_t)snprintf(file + used, 65536 - used, names[0], names[1] ? code : byte, byte);
    }
    used += (size_t)snprintf(file + used, 65536 - used, "%s}}", more);
    FUZZ_CHECK(used < 65536);
    struct tokenizer *tokenizer = NULL;
    if (tokenizer_load(file, used, &tokenizer, &error) < 0)
        fprintf(stderr, "%s\n", error.text);
    FUZZ_CHECK(tokenizer);
    free(file);
    return tokenizer;
}

static void prepare(void)
{
    static const char *const bytes[] = {"\"\\u%04x\":%u,", "alphabet"};
    static const char *const fallback[] = {"\"<0x%02X>\":%u,", NULL};
    tokenizers[0] = make(bytes,
                         "\"ab\":256,\"abab\":257,\"\\u0120a\":258,\"aa\":259,\"\\u00c3\\u00a9\":"
                         "260},\"merges\":[\"a b\","
                         "\"ab ab\",\"\\u0120 a\",\"a a\",\"\\u00c3 \\u00a9\"]",
                         "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},"
                         "\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\"");
    tokenizers[1] =
        make(fallback,
             "\"a\":256,\"b\":257,\"ab\":258,\"" MARK "\":259,\"" MARK "a\":260,\"" MARK MARK
             "\":261,\"\\u00e9\":262},\"merges\":[\"a b\",\"" MARK " a\",\"" MARK " " MARK "\"]",
             "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\","
             "\"prepend\":\"" MARK
             "\"},{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"" MARK "\"}]},"
             "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{"
             "\"String\":\"" MARK
             "\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},"
             "{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]},"
             "\"model\":{\"type\":\"BPE\",\"byte_fallback\":true");
    /* Merges in an order in which no training gives them, of two things that overlap. */
    tokenizers[2] = make(
        fallback,
        "\"a\":256,\"b\":257,\"c\":258,\"" MARK "\":259,\"ab\":260,\"ba\":261,\"aba\":262,"
        "\"abab\":263,\"bc\":264,\"abc\":265,\"aa\":266,\"aaa\":267,\"aaaa\":268,\"cab\":269,"
        "\"" MARK MARK "\":270,\"" MARK MARK MARK "\":271,\"a" MARK "\":272,\"bb\":273,"
        "\"<0xE9>a\":274},\"merges\":[\"aa a\",\"ab a\",\"a b\",\"b c\",\"a bc\",\"b a\","
        "\"ab ab\",\"a a\",\"aa aa\",\"c ab\",\"" MARK " " MARK MARK "\",\"" MARK " " MARK
        "\",\"a " MARK "\",\"b b\",\"<0xE9> a\"]",
        "\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"" MARK
        "\"},\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{"
        "\"String\":\"" MARK "\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":"
        "\"Fuse\"}]},\"model\":{\"type\":\"BPE\",\"byte_fallback\":true");
    for (int i = 0; i < TOKENIZERS; i++)
        FUZZ_CHECK((scratches[i] = tokenizer_scratch_new()));
}

static void windows(int which, const char *text, size_t size, const int32_t *ids, size_t count)
{
    struct error error;
    size_t found = 0;
    int32_t *parts = malloc((size + 1) * sizeof(*parts));
    FUZZ_CHECK(parts);
    scratches[which]->bpe.window = WINDOW;
    FUZZ_CHECK(tokenizer_encode(tokenizers[which], scratches[which], text, size, true, parts,
                                size + 1, &found, &error) == 0);
    scratches[which]->bpe.window = 0;
    FUZZ_CHECK(found == count && (!count || memcmp(parts, ids, count * sizeof(*ids)) == 0));
    free(parts);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct error error;
    size_t count, length;
    if (!tokenizers[0])
        prepare();
    if (size == 0 || size > 65536)
        return 0;
    int which = data[0] % 4 == 2 ? 2 : data[0] & 1;
    const char *text = (const char *)data + 1;
    size--;
    int32_t *ids = malloc((size + 1) * sizeof(*ids));
    char *back = malloc(size + 1);
    FUZZ_CHECK(ids && back);
    int code = tokenizer_encode(tokenizers[which], scratches[which], text, size, true, ids,
                                size + 1, &count, &error);
    FUZZ_CHECK(code == 0 || code == -ERR_BAD_VALUE);
    if (code == 0)
        windows(which, text, size, ids, count);
    /* The mark itself is a space afterwards; and runs of bytes are let go after a while. */
    if (code == 0 && (which == 0 || !memmem(text, size, MARK, 3)) && which != 2) {
        FUZZ_CHECK(tokenizer_decode(tokenizers[which], ids, count, false, back, size + 1, &length,
                                    &error) == 0);
        FUZZ_CHECK(length == size && memcmp(back, text, size) == 0);
    }
    free(ids);
    free(back);
    return 0;
}
