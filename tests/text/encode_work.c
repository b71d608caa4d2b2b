/* Tokenizing does work in proportion to its text, whatever the text, and ends soon once it is
 * halted. What PCRE2 and utf8proc do inside of one call is not counted.
 *
 *     test_encode_work [--seeds 1..1000] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/text/tokenizer.h"
#include "tests/sim/chance.h"
#include "tests/text/work.h"

#define LAST_RESORT_S 240
#define TEXT_MAX 60000
#define LONG_MAX 600000 /* of one text in LONG_EACH: what is looked at once in a text is seen */
#define LONG_EACH 30

static const struct {
    const char *name, *parts;
    bool fallback; /* characters, and bytes of unknown ones */
} files[] = {
    {"one piece of bytes",
     "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
     "\"use_regex\":false},\"decoder\":{\"type\":\"ByteLevel\"}",
     false},
    {"words",
     "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},"
     "\"decoder\":{\"type\":\"ByteLevel\"}",
     false},
    {"normalised and split",
     "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{\"type\":"
     "\"Replace\","
     "\"pattern\":{\"String\":\"aab\"},\"content\":\"aaaabaa\"}]},\"pre_tokenizer\":{\"type\":"
     "\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"String\":\"b\"},"
     "\"behavior\":\"MergedWithPrevious\",\"invert\":false},{\"type\":\"ByteLevel\","
     "\"add_prefix_space\":true,\"use_regex\":false}]},\"decoder\":{\"type\":\"ByteLevel\"}",
     false},
    {"one piece of characters",
     "\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\\u2581\"},"
     "\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\" \"},\"behavior\":"
     "\"MergedWithPrevious\",\"invert\":false}",
     true},
};
#define FILES (sizeof(files) / sizeof(files[0]))

static struct {
    unsigned long long seed;
    size_t file;
    uint64_t length, work, halted;
} suite;

static void fail(const char *what, uint64_t found, uint64_t allowed)
{
    printf("seed %llu (%s, %llu bytes): %s: %llu, %llu allowed\n", suite.seed,
           files[suite.file].name, (unsigned long long)suite.length, what,
           (unsigned long long)found, (unsigned long long)allowed);
    fflush(stdout);
    _exit(EXIT_FAILURE);
}

/* Of a byte, which is the step here. Merging goes by a heap: some 16 levels, three times. */
static const struct work_bounds bounds = {
    .spare = 200000,
    .per_step = 1200,
    .held_max = LONG_MAX * 40 + (8 << 20),
    .halt_max = 700000,
    .over = fail,
};

/* ---- tokenizers --------------------------------------------------------------------------------
 */

static size_t put_byte(char *at, unsigned byte, unsigned *other, bool fallback)
{
    if (fallback)
        return (size_t)sprintf(at, "\"<0x%02X>\":%u,", byte, byte);
    bool prints = (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);
    return (size_t)sprintf(at, "\"\\u%04x\":%u,", prints ? byte : (*other)++, byte);
}

/* All bytes, runs of a and of spaces that double, and added tokens that take white space along. */
static struct tokenizer *make(const char *parts, bool fallback)
{
    char *file = malloc(65536), *at = file;
    unsigned other = 0x100, id = 256;
    struct tokenizer *tokenizer = NULL;
    struct error error = {0};
    at += sprintf(at, "{%s,\"model\":{\"type\":\"BPE\",\"byte_fallback\":%s,\"vocab\":{", parts,
                  fallback ? "true" : "false");
    for (unsigned byte = 0; byte < 256; byte++)
        at += put_byte(at, byte, &other, fallback);
    for (unsigned i = 0; fallback && i < 3; i++)
        at += sprintf(at, "\"%s\":%u,", (const char *const[]){"a", "b", "\\u2581"}[i], id++);
    for (unsigned length = 2; length <= 32; length *= 2) {
        at += sprintf(at, "\"%.*s\":%u,", (int)length, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", id++);
        at += sprintf(at, "\"%.*sb\":%u%s", (int)length, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", id++,
                      length < 32 ? "," : "");
    }
    at += sprintf(at, "},\"merges\":[");
    for (unsigned length = 1; length <= 16; length *= 2)
        at += sprintf(at, "\"%.*s %.*s\",\"%.*s b\"%s", (int)length,
                      "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", (int)length,
                      "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", (int)(2 * length),
                      "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", length < 16 ? "," : "");
    at += sprintf(at, "]},\"added_tokens\":[");
    static const char *const added[] = {"  ", "<|x|>", "ccccccccccccccccccccccccccccccd", "qq"};
    for (size_t i = 0; i < sizeof(added) / sizeof(added[0]); i++)
        at += sprintf(at,
                      "%s{\"id\":%u,\"content\":\"%s\",\"single_word\":%s,\"lstrip\":true,"
                      "\"rstrip\":true,\"normalized\":%s,\"special\":true}",
                      i > 0 ? "," : "", id++, added[i], i == 3 ? "true" : "false",
                      i % 2 ? "true" : "false");
    at += sprintf(at, "]}");
    if (tokenizer_load(file, (size_t)(at - file), &tokenizer, &error)) {
        fprintf(stderr, "%s\n", error.text);
        exit(EXIT_FAILURE);
    }
    free(file);
    return tokenizer;
}

/* ---- texts -------------------------------------------------------------------------------------
 */

/* A few stretches, each of one thing over and over. */
static size_t draw_text(uint64_t *chance, char *text)
{
    static const char *const things[] = {"a",
                                         "aab",
                                         " ",
                                         "  ",
                                         "ab",
                                         "c",
                                         "ccccccccccccccccccccccccccccccd",
                                         "<|x|>",
                                         "qq",
                                         "qq ",
                                         "\n",
                                         "\xcc\x81",
                                         "e\xcc\x81",
                                         "\xcc\x81\xcc\xa3",
                                         "\xe1\x84\x80\xe1\x85\xa1",
                                         "\xf0\x9f\x98\x80",
                                         "b",
                                         "aaaaaaa",
                                         "\t ",
                                         "\xc2\xa0",
                                         "A1"};
    size_t used = 0;
    size_t most = suite.seed % LONG_EACH == 0 ? LONG_MAX : TEXT_MAX;
    for (uint32_t i = chance_between(chance, 1, 4); i > 0; i--) {
        const char *thing = things[chance_below(chance, sizeof(things) / sizeof(things[0]))];
        size_t length = strlen(thing);
        uint32_t times = chance_between(chance, 1, (uint32_t)(most / 4 / length));
        for (; times > 0; times--, used += length)
            memcpy(text + used, thing, length);
    }
    return used;
}

/* ---- one text ----------------------------------------------------------------------------------
 */

static int encode(const struct tokenizer *tokenizer, const char *text, int32_t *ids,
                  uint64_t halt_at, uint64_t *ret_work)
{
    struct halt halt = {0};
    struct error error;
    size_t count;
    struct tokenizer_scratch *scratch = tokenizer_scratch_new();
    if (!scratch)
        exit(EXIT_FAILURE);
    tokenizer_scratch_halt(scratch, &halt);
    work_begin(&bounds, &halt, halt_at);
    work_steps(&suite.length);
    int code = tokenizer_encode(tokenizer, scratch, text, suite.length, true, ids, LONG_MAX * 9,
                                &count, &error);
    *ret_work = work_end();
    tokenizer_scratch_free(scratch);
    return code;
}

static void check(struct tokenizer *const *tokenizers, char *text, int32_t *ids)
{
    uint64_t chance = suite.seed, all, part;
    suite.length = draw_text(&chance, text);
    for (suite.file = 0; suite.file < FILES; suite.file++) {
        int code = encode(tokenizers[suite.file], text, ids, UINT64_MAX, &all);
        if (code)
            fail("an error", (uint64_t)-code, 0);
        suite.work += all;
        for (int i = 0; i < 2; i++) {
            uint64_t at = chance_draw(&chance) % all;
            code = encode(tokenizers[suite.file], text, ids, at, &part);
            suite.halted += code == -ERR_CANCELLED;
            if (code && code != -ERR_CANCELLED)
                fail("a code after the halt", (uint64_t)-code, ERR_CANCELLED);
        }
    }
}

int main(int count, char **words)
{
    unsigned long long first = 1, last = 60;
    struct tokenizer *tokenizers[FILES];
    char *text = malloc(LONG_MAX);
    int32_t *ids = malloc(LONG_MAX * 9 * sizeof(*ids));
    bool seeds = count == 3 && strcmp(words[1], "--seeds") == 0;
    if (!text || !ids || (seeds && sscanf(words[2], "%llu..%llu", &first, &last) != 2))
        return EXIT_FAILURE;
    alarm(LAST_RESORT_S);
    for (size_t i = 0; i < FILES; i++)
        tokenizers[i] = make(files[i].parts, files[i].fallback);
    for (suite.seed = first; suite.seed <= last; suite.seed++)
        check(tokenizers, text, ids);
    for (size_t i = 0; i < FILES; i++)
        tokenizer_free(tokenizers[i]);
    free(ids);
    free(text);
    printf("%llu texts, %llu halts, %llu work\n", last - first + 1,
           (unsigned long long)suite.halted, (unsigned long long)suite.work);
    return suite.halted > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
